#include "plugins/attention_launch.h"

#include <string>

#include "trtc/errors.h"

namespace trtc::plugins {
namespace {

constexpr std::size_t kAlign = 256;
constexpr std::int64_t kMostCount = 1 << 16;

constexpr std::array<std::string_view, kNumArguments> kNames{
    "query",          "key",           "value",  "kv_cache", "position_ids", "query_start",
    "context_lens",   "block_table",   "cos",    "sin",      "output",       "rotated_query",
    "partial_output", "partial_state", "tokens", "seqs",     "max_blocks"};

using A = Argument;
constexpr std::array kWriteParameters{A::kQuery,        A::kKey,         A::kValue,      A::kKvCache, A::kPositionIds,
                                      A::kQueryStart,   A::kContextLens, A::kBlockTable, A::kCos,     A::kSin,
                                      A::kRotatedQuery, A::kSeqs,        A::kMaxBlocks};
constexpr std::array kAttentionParameters{A::kRotatedQuery, A::kKvCache, A::kQueryStart,    A::kContextLens,
                                          A::kBlockTable,   A::kOutput,  A::kPartialOutput, A::kPartialState,
                                          A::kTokens,       A::kSeqs,    A::kMaxBlocks};
constexpr std::array kCombineParameters{A::kPartialOutput, A::kPartialState, A::kQueryStart, A::kContextLens,
                                        A::kOutput,        A::kTokens,       A::kSeqs};
constexpr std::array<RoleSpec, 3> kRoles{{{"rotary_kv_write", kWriteParameters},
                                          {"paged_attention", kAttentionParameters},
                                          {"combine_splits", kCombineParameters}}};

std::size_t aligned(std::size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// A constant that counts something.
std::int32_t count(const KernelImage& kernel, std::string_view name, std::int64_t least = 1) {
  const std::int64_t value = kernel.constant(name);
  if (value < least || value > kMostCount) {
    throw EngineError("kernel " + std::string(kernel.role) + " was compiled with " + std::string(name) + " " +
                      std::to_string(value) + ", which cannot be; build the engine again");
  }
  return static_cast<std::int32_t>(value);
}

void check_same(const KernelImage& kernel, std::string_view name, std::int32_t expected) {
  const std::int64_t got = kernel.constant(name);
  if (got == expected) return;
  throw EngineError("kernel " + std::string(kernel.role) + " was compiled for " + std::string(name) + " " +
                    std::to_string(got) + ", but its layer has " + std::to_string(expected) +
                    "; build the engine again");
}

}  // namespace

std::string_view argument_name(Argument argument) { return kNames[static_cast<std::size_t>(argument)]; }

std::span<const RoleSpec> roles() { return kRoles; }

Workspace workspace_layout(const AttentionFields& fields, std::int32_t max_tokens) {
  const std::size_t heads = static_cast<std::size_t>(fields.num_heads);
  const std::size_t rows = static_cast<std::size_t>(fields.workspace_rows) * heads;
  const std::size_t head_dim = static_cast<std::size_t>(fields.head_dim);
  constexpr std::size_t kFloat32 = 4, kComputeBytes = 2, kState = 2;
  Workspace workspace;
  workspace.partial_state = aligned(rows * head_dim * kFloat32);
  workspace.rotated_query = workspace.partial_state + aligned(rows * kState * kFloat32);
  const std::size_t rotated = static_cast<std::size_t>(max_tokens) * heads * head_dim * kComputeBytes;
  workspace.bytes = workspace.rotated_query + (fields.rotary_dim > 0 ? aligned(rotated) : 0);
  return workspace;
}

std::int32_t split_count(const AttentionFields& fields, std::int32_t split, const StepShape& step) {
  const std::int64_t splits = ceil_div(std::int64_t{step.max_blocks} * fields.block_size, split);
  return splits <= fields.workspace_rows / step.tokens ? static_cast<std::int32_t>(splits) : 1;
}

LaunchConstants launch_constants(const AttentionFields& fields, const KernelBundle& bundle) {
  const KernelImage& write = bundle.kernel("rotary_kv_write");
  const KernelImage& attention = bundle.kernel("paged_attention");
  const KernelImage& combine = bundle.kernel("combine_splits");
  for (const KernelImage* kernel : {&write, &attention, &combine}) {
    check_same(*kernel, "NUM_HEADS", fields.num_heads);
    check_same(*kernel, "HEAD_DIM", fields.head_dim);
  }
  for (const KernelImage* kernel : {&write, &attention}) {
    check_same(*kernel, "NUM_KV_HEADS", fields.num_kv_heads);
    check_same(*kernel, "BLOCK_SIZE", fields.block_size);
  }
  check_same(write, "ROTARY_DIM", fields.rotary_dim);
  for (const KernelImage* kernel : {&attention, &combine}) check_same(*kernel, "WINDOW", fields.window);

  LaunchConstants constants;
  constants.split = count(attention, "SPLIT");
  check_same(combine, "SPLIT", constants.split);
  constants.block_tokens = count(attention, "BLOCK_TOKENS");
  constants.attention_programs = fields.num_kv_heads * count(attention, "VALUE_PARTS");
  constants.write_programs =
      count(write, "QUERY_PROGRAMS", 0) +
      static_cast<std::int32_t>(ceil_div(fields.num_kv_heads, count(write, "HEADS_PER_PROGRAM")));
  constants.combine_programs =
      static_cast<std::int32_t>(ceil_div(fields.num_heads, count(combine, "HEADS_PER_PROGRAM")));
  return constants;
}

std::array<Grid, 3> launch_grids(const LaunchConstants& constants, const StepShape& step, std::int32_t splits) {
  const auto grid = [](std::int64_t x, std::int64_t y, std::int64_t z) {
    return Grid{static_cast<std::uint32_t>(x), static_cast<std::uint32_t>(y), static_cast<std::uint32_t>(z)};
  };
  return {grid(step.tokens, constants.write_programs, 1),
          grid(step.tokens / constants.block_tokens + step.seqs, constants.attention_programs, splits),
          grid(step.tokens, constants.combine_programs, 1)};
}

}  // namespace trtc::plugins
