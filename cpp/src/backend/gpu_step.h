// The shape of a step on a GPU and where its inputs lie: pure functions, tested without a device.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/model_backend.h"
#include "engine/binding_names.h"

namespace trtc {

// The dimensions that a step decides. Tokens beyond query_start[seqs], and their sequences, are padding.
struct GpuStepShape {
  std::int32_t tokens = 0;
  std::int32_t seqs = 0;
  std::int32_t max_blocks = 0;
  std::int32_t logit_rows = 0;
  auto operator<=>(const GpuStepShape&) const = default;
};

// A plan's optimization profiles, by their numbers: one token per sequence, or any step.
enum class GpuProfile : std::int32_t { kDecode = 0, kMixed = 1 };
inline constexpr std::size_t kNumGpuProfiles = 2;

struct GpuStep {
  GpuProfile profile = GpuProfile::kMixed;
  GpuStepShape shape;
};

// Decode steps are padded to a few sizes, so that a few CUDA graphs serve them all: 1, 2, 4, then multiples of 8, at
// most max_batch_size. The block table of every step keeps as many columns as its contexts need, rounded up to a power
// of two, and one row of logits is made where none is wanted. None of this changes a row's result.
GpuStep plan_gpu_step(const StepInputs& inputs, const ModelInfo& info);

// Offsets of the step inputs in one piece of memory, in the order of kStepInputNames, each a multiple of 256 bytes.
struct StagingLayout {
  std::array<std::size_t, engine::kStepInputNames.size()> offsets{};
  std::size_t bytes = 0;
};

StagingLayout staging_layout(const GpuStepShape& shape);

// The largest layout of steps within the limits.
std::size_t max_staging_bytes(const ModelInfo& info);

// Writes the inputs, padded to `shape`, where staging_layout says.
void stage_inputs(const StepInputs& inputs, const GpuStepShape& shape, std::span<std::byte> staging);

}  // namespace trtc
