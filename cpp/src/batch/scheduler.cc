#include "batch/scheduler.h"

#include <algorithm>

namespace trtc::batch {

namespace {

// What is left of a step while a plan fills it.
struct Room {
  std::int32_t tokens;
  std::int32_t logit_rows;
  bool chunked;
};

// The next rows of a prompt that fit; none when nothing does.
std::optional<PlannedChunk> prompt_chunk(std::int32_t sequence, std::int32_t begin, std::int32_t length,
                                         bool all_logits, const Room& room) {
  const std::int32_t pending = length - begin;
  std::int32_t count = std::min(pending, room.tokens);
  if (all_logits) count = std::min(count, room.logit_rows);
  if (!all_logits && count == pending && room.logit_rows == 0) --count;  // the last row would need its logits
  if (count <= 0 || (count < pending && !room.chunked)) return std::nullopt;
  const LogitRows logits = all_logits ? LogitRows::kAll : count == pending ? LogitRows::kLast : LogitRows::kNone;
  return PlannedChunk{sequence, begin, count, logits};
}

void add(StepPlan& plan, Room& room, const PlannedChunk& chunk) {
  room.tokens -= chunk.count;
  if (chunk.logits == LogitRows::kAll) room.logit_rows -= chunk.count;
  if (chunk.logits == LogitRows::kLast) --room.logit_rows;
  plan.chunks.push_back(chunk);
}

void plan_decoding(StepPlan& plan, Room& room, const SchedulerState& state) {
  for (std::size_t i = 0; i < state.running.size(); ++i) {
    const RunningSequence& sequence = state.running[i];
    if (!sequence.decoding) continue;
    add(plan, room, {static_cast<std::int32_t>(i), sequence.computed, 1, LogitRows::kLast});
    ++plan.generation_tokens;
  }
}

void plan_started_prompts(StepPlan& plan, Room& room, const SchedulerState& state) {
  for (std::size_t i = 0; i < state.running.size() && room.tokens > 0; ++i) {
    const RunningSequence& sequence = state.running[i];
    if (sequence.decoding) continue;
    const auto chunk =
        prompt_chunk(static_cast<std::int32_t>(i), sequence.computed, sequence.length, sequence.all_logits, room);
    if (!chunk) continue;
    add(plan, room, *chunk);
    plan.context_tokens += chunk->count;
  }
}

void plan_admissions(StepPlan& plan, Room& room, const SchedulerState& state, const SchedulerLimits& limits) {
  std::int32_t slots = limits.max_batch_size - state.slots_used;
  std::int32_t blocks = state.available_blocks;
  while (slots > 0 && room.tokens > 0) {
    const auto request = state.waiting(plan.admitted);
    if (!request || request->sequences > slots || request->blocks_needed > blocks) return;
    const auto sequence = static_cast<std::int32_t>(state.running.size()) + plan.admitted;
    const auto chunk = prompt_chunk(sequence, request->reused, request->length, request->all_logits, room);
    if (!chunk) return;
    add(plan, room, *chunk);
    plan.context_tokens += chunk->count;
    slots -= request->sequences;
    blocks -= request->blocks_needed;
    ++plan.admitted;
  }
}

}  // namespace

StepPlan plan_step(const SchedulerState& state, const SchedulerLimits& limits) {
  StepPlan plan;
  Room room{limits.max_num_tokens, limits.max_logit_rows, limits.chunked_prefill};
  plan_decoding(plan, room, state);
  plan_started_prompts(plan, room, state);
  plan_admissions(plan, room, state, limits);
  return plan;
}

}  // namespace trtc::batch
