// What the scheduler sees and what it decides. Both are values: planning changes nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace trtc::batch {

// Fixed limits of every step.
struct SchedulerLimits {
  std::int32_t max_batch_size = 1;  // sequences that run at a time
  std::int32_t max_num_tokens = 1;  // rows of a step; at least max_batch_size
  std::int32_t max_logit_rows = 1;  // at least max_batch_size
  bool chunked_prefill = true;      // false: a prompt runs in one step or waits
};

// A sequence that has started.
struct RunningSequence {
  std::int32_t length = 0;    // tokens known: the prompt, then also sampled ones
  std::int32_t computed = 0;  // leading tokens whose keys and values are in the cache
  bool decoding = false;      // the prompt is done and one token is pending
  bool all_logits = false;    // the logits of every prompt token are wanted
};

// A request in the queue.
struct WaitingRequest {
  std::int32_t length = 0;         // prompt tokens
  std::int32_t reused = 0;         // of these, leading tokens found in the prefix cache
  std::int32_t sequences = 1;      // batch slots it takes
  std::int32_t blocks_needed = 0;  // KV blocks it takes from the available ones, at worst, until its end
  bool all_logits = false;
};

struct SchedulerState {
  std::span<const RunningSequence> running;  // in order of arrival
  std::int32_t slots_used = 0;               // batch slots of running requests
  std::int32_t available_blocks = 0;         // KV blocks promised to nobody
  // The i-th request of the queue; nothing past its end. Asked only for requests that may start.
  std::function<std::optional<WaitingRequest>(std::int32_t)> waiting;
};

enum class LogitRows : std::int32_t { kNone = 0, kLast = 1, kAll = 2 };

// Rows [begin, begin + count) of one sequence.
struct PlannedChunk {
  std::int32_t sequence = 0;  // index into running; from running.size() on: the requests this plan admits, in order
  std::int32_t begin = 0;
  std::int32_t count = 0;
  LogitRows logits = LogitRows::kNone;
};

struct StepPlan {
  std::int32_t admitted = 0;         // requests that start, from the front of the queue
  std::vector<PlannedChunk> chunks;  // decode rows first
  std::int32_t context_tokens = 0;
  std::int32_t generation_tokens = 0;
};

}  // namespace trtc::batch
