#include "backend/gpu_step.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace trtc {
namespace {

constexpr std::size_t kAlign = 256;

std::int32_t ceil_div(std::int32_t a, std::int32_t b) { return (a - 1) / b + 1; }

std::int32_t padded_rows(std::int32_t rows, std::int32_t most) {
  const auto power = static_cast<std::int32_t>(std::bit_ceil(static_cast<std::uint32_t>(rows)));
  return std::min(rows <= 8 ? power : ceil_div(rows, 8) * 8, most);
}

std::int32_t columns_for(const StepInputs& inputs, const ModelInfo& info) {
  const std::int32_t longest = *std::max_element(inputs.context_lens.begin(), inputs.context_lens.end());
  const auto needed = static_cast<std::uint32_t>(ceil_div(longest, info.tokens_per_block));
  return std::min(static_cast<std::int32_t>(std::bit_ceil(needed)), ceil_div(info.max_seq_len, info.tokens_per_block));
}

// Elements of each input, in the order of kStepInputNames.
std::array<std::size_t, engine::kStepInputNames.size()> input_sizes(const GpuStepShape& shape) {
  const auto tokens = static_cast<std::size_t>(shape.tokens), seqs = static_cast<std::size_t>(shape.seqs);
  return {tokens,
          tokens,
          seqs + 1,
          seqs,
          seqs * static_cast<std::size_t>(shape.max_blocks),
          static_cast<std::size_t>(shape.logit_rows)};
}

// `values`, then `padding`.
void write_padded(std::span<const std::int32_t> values, std::int32_t padding, std::span<std::int32_t> to) {
  std::copy(values.begin(), values.end(), to.begin());
  std::fill(to.begin() + static_cast<std::ptrdiff_t>(values.size()), to.end(), padding);
}

}  // namespace

GpuStep plan_gpu_step(const StepInputs& inputs, const ModelInfo& info) {
  GpuStep step;
  step.shape = {static_cast<std::int32_t>(inputs.input_ids.size()),
                static_cast<std::int32_t>(inputs.context_lens.size()), columns_for(inputs, info),
                static_cast<std::int32_t>(inputs.logit_rows.size())};
  const std::int32_t rows = step.shape.seqs;
  if (step.shape.tokens == rows && step.shape.logit_rows == rows) {
    step.profile = GpuProfile::kDecode;
    step.shape.tokens = step.shape.seqs = step.shape.logit_rows = padded_rows(rows, info.max_batch_size);
  }
  step.shape.logit_rows = std::max(step.shape.logit_rows, 1);  // no profile has empty tensors
  return step;
}

StagingLayout staging_layout(const GpuStepShape& shape) {
  StagingLayout layout;
  const auto sizes = input_sizes(shape);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    layout.offsets[i] = layout.bytes;
    layout.bytes += (sizes[i] * sizeof(std::int32_t) + kAlign - 1) / kAlign * kAlign;
  }
  return layout;
}

std::size_t max_staging_bytes(const ModelInfo& info) {
  const std::int32_t columns = ceil_div(info.max_seq_len, info.tokens_per_block);
  return staging_layout({std::max(info.max_num_tokens, info.max_batch_size), info.max_batch_size, columns,
                         std::max(info.max_logit_rows, info.max_batch_size)})
      .bytes;
}

void stage_inputs(const StepInputs& inputs, const GpuStepShape& shape, std::span<std::byte> staging) {
  const StagingLayout layout = staging_layout(shape);
  assert(layout.bytes <= staging.size());
  const auto sizes = input_sizes(shape);
  const auto place = [&](std::size_t index) {
    return std::span(reinterpret_cast<std::int32_t*>(staging.data() + layout.offsets[index]), sizes[index]);
  };
  write_padded(inputs.input_ids, 0, place(0));
  write_padded(inputs.position_ids, 0, place(1));
  write_padded(inputs.query_start, inputs.query_start.back(), place(2));  // sequences of padding have no tokens
  write_padded(inputs.context_lens, 0, place(3));
  const std::span<std::int32_t> table = place(4);
  const auto columns = static_cast<std::size_t>(shape.max_blocks);
  for (std::size_t seq = 0; seq < static_cast<std::size_t>(shape.seqs); ++seq) {
    const auto row = table.subspan(seq * columns, columns);
    if (seq >= inputs.context_lens.size()) {
      write_padded({}, 0, row);
      continue;
    }
    const auto given_columns = static_cast<std::size_t>(inputs.max_blocks);
    write_padded(inputs.block_table.subspan(seq * given_columns, std::min(columns, given_columns)), 0, row);
  }
  write_padded(inputs.logit_rows, 0, place(5));
}

}  // namespace trtc
