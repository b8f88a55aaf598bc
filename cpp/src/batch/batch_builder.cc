#include "batch/batch_builder.h"

namespace trtc::batch {

BatchBuilder::BatchBuilder(const SchedulerLimits& limits, std::int32_t max_blocks) : max_blocks_(max_blocks) {
  input_ids_.reserve(limits.max_num_tokens);
  position_ids_.reserve(limits.max_num_tokens);
  query_start_.reserve(limits.max_batch_size + 1);
  context_lens_.reserve(limits.max_batch_size);
  block_table_.reserve(static_cast<std::size_t>(limits.max_batch_size) * max_blocks);
  logit_rows_.reserve(limits.max_logit_rows);
  clear();
}

void BatchBuilder::clear() {
  input_ids_.clear();
  position_ids_.clear();
  query_start_.assign(1, 0);
  context_lens_.clear();
  block_table_.clear();
  logit_rows_.clear();
}

std::int32_t BatchBuilder::add(const PlannedChunk& chunk, std::span<const std::int32_t> tokens,
                               std::span<const kv_cache::BlockId> blocks) {
  const auto first_logit_row = static_cast<std::int32_t>(logit_rows_.size());
  const auto rows = tokens.subspan(chunk.begin, chunk.count);
  for (std::int32_t i = 0; i < chunk.count; ++i) {
    const bool last = i + 1 == chunk.count;
    if (chunk.logits == LogitRows::kAll || (chunk.logits == LogitRows::kLast && last)) {
      logit_rows_.push_back(static_cast<std::int32_t>(input_ids_.size()));
    }
    input_ids_.push_back(rows[i]);
    position_ids_.push_back(chunk.begin + i);
  }
  query_start_.push_back(static_cast<std::int32_t>(input_ids_.size()));
  context_lens_.push_back(chunk.begin + chunk.count);
  for (const kv_cache::BlockId block : blocks) block_table_.push_back(kv_cache::index_of(block));
  block_table_.resize(context_lens_.size() * max_blocks_, 0);  // columns past the context are never read
  return first_logit_row;
}

StepInputs BatchBuilder::inputs() const {
  return {input_ids_, position_ids_, query_start_, context_lens_, block_table_, max_blocks_, logit_rows_};
}

}  // namespace trtc::batch
