// Packs the planned rows of a step into the arrays that a model backend takes. All memory is had once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/model_backend.h"
#include "batch/step_plan.h"
#include "kv_cache/block_pool.h"

namespace trtc::batch {

class BatchBuilder {
 public:
  // max_blocks: columns of the block table, enough for a sequence of full length.
  BatchBuilder(const SchedulerLimits& limits, std::int32_t max_blocks);

  void clear();

  // Adds the chunk's rows of a sequence with these tokens and blocks (tokens reach to begin + count, blocks hold
  // them). Returns the index of its first row of logits. Within a step every sequence is added at most once.
  std::int32_t add(const PlannedChunk& chunk, std::span<const std::int32_t> tokens,
                   std::span<const kv_cache::BlockId> blocks);

  // Views of this builder's memory, valid until clear().
  StepInputs inputs() const;

 private:
  const std::int32_t max_blocks_;
  std::vector<std::int32_t> input_ids_;
  std::vector<std::int32_t> position_ids_;
  std::vector<std::int32_t> query_start_;
  std::vector<std::int32_t> context_lens_;
  std::vector<std::int32_t> block_table_;
  std::vector<std::int32_t> logit_rows_;
};

}  // namespace trtc::batch
