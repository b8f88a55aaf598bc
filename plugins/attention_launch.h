// How the kernels of one attention step are launched: pure functions of shapes, so that a step can be captured in a
// CUDA graph. plugins/kernels/launch.py does the same in Python.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "plugins/attention_fields.h"
#include "plugins/kernel_bundle.h"

namespace trtc::plugins {

// What a kernel's parameter stands for; the names are those of the kernels in plugins/kernels.
enum class Argument : std::size_t {
  kQuery,          // T [tokens, num_heads * head_dim]
  kKey,            // T [tokens, num_kv_heads * head_dim]
  kValue,          // T [tokens, num_kv_heads * head_dim]
  kKvCache,        // C [blocks, 2, num_kv_heads, block_size, head_dim]
  kPositionIds,    // int32 [tokens]
  kQueryStart,     // int32 [seqs + 1]
  kContextLens,    // int32 [seqs]
  kBlockTable,     // int32 [seqs, max_blocks]
  kCos,            // float32 [positions, rotary_dim / 2]
  kSin,            // float32 [positions, rotary_dim / 2]
  kOutput,         // T [tokens, num_heads * head_dim]
  kRotatedQuery,   // T [tokens, num_heads * head_dim], scratch
  kPartialOutput,  // float32 [splits, tokens, num_heads, head_dim], scratch
  kPartialState,   // float32 [splits, tokens, num_heads, 2], scratch
  kTokens,         // int32
  kSeqs,           // int32
  kMaxBlocks,      // int32
};
inline constexpr std::size_t kNumArguments = 17;
inline constexpr std::size_t kNumPointers = 14;      // those before kTokens
inline constexpr std::size_t kNumPluginInputs = 10;  // the plugin's inputs are the first arguments; 8 without rotation

std::string_view argument_name(Argument argument);

struct RoleSpec {
  std::string_view role;
  std::span<const Argument> parameters;
};

// The kernels in launch order and THE order of their parameters, which is that of their source without the constants.
// Two null pointers follow when they are launched.
std::span<const RoleSpec> roles();

// A step as the plugin sees it.
struct StepShape {
  std::int32_t tokens = 0;
  std::int32_t seqs = 0;
  std::int32_t max_blocks = 0;
};

// Offsets into the plugin's workspace in bytes, each a multiple of 256.
struct Workspace {
  std::size_t partial_output = 0;
  std::size_t partial_state = 0;
  std::size_t rotated_query = 0;
  std::size_t bytes = 0;
};

// For steps of at most max_tokens; PluginFields.workspace_bytes in plugin.py gives the same size.
Workspace workspace_layout(const AttentionFields& fields, std::int32_t max_tokens);

// Programs that share a context: all its splits where their parts fit the workspace, else 1. Changes no bit of a
// result.
std::int32_t split_count(const AttentionFields& fields, std::int32_t split, const StepShape& step);

struct Grid {
  std::uint32_t x = 1;
  std::uint32_t y = 1;
  std::uint32_t z = 1;
};

// The numbers of a bundle that grids are made of, read once so that a launch looks nothing up.
struct LaunchConstants {
  std::int32_t split = 0;               // positions
  std::int32_t write_programs = 0;      // of rotary_kv_write for one token
  std::int32_t block_tokens = 0;        // of paged_attention
  std::int32_t attention_programs = 0;  // of paged_attention for one tile and split
  std::int32_t combine_programs = 0;    // of combine_splits for one token
};

// Throws EngineError when the kernels were compiled for another shape than the fields say.
LaunchConstants launch_constants(const AttentionFields& fields, const KernelBundle& bundle);

// One grid for each of roles(); combine_splits is launched only when splits > 1.
std::array<Grid, 3> launch_grids(const LaunchConstants& constants, const StepShape& step, std::int32_t splits);

}  // namespace trtc::plugins
