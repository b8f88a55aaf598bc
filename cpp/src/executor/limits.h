// What one executor can take: the engine's limits, lowered by its settings.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/model_backend.h"
#include "batch/step_plan.h"
#include "trtc/executor.h"

namespace trtc::executor {

struct ExecutorLimits {
  batch::SchedulerLimits step;
  std::int32_t vocab_size = 0;
  std::int32_t max_seq_len = 0;
  std::int32_t tokens_per_block = 0;
  std::int32_t num_blocks = 0;
  std::int32_t max_queue_size = 0;
};

// host_bytes: memory that a step of the executor must fit into; kv_bytes: memory that the KV cache may take its
// fraction of. Throws ExecutorError for a setting that is out of range, contradicts another or exceeds the engine's
// limit.
ExecutorLimits resolve_limits(const ExecutorConfig& config, const ModelInfo& model, std::size_t host_bytes,
                              std::size_t kv_bytes);

// The most KV blocks a request can come to own: n sequences share the full blocks of the prompt.
std::int64_t worst_case_blocks(const Request& request, std::int32_t tokens_per_block);

// Of these, the blocks that each sequence has for itself.
std::int32_t own_blocks(const Request& request, std::int32_t tokens_per_block);

}  // namespace trtc::executor
