// What the kernels rely on beyond memory bounds: shapes, weight formats and parameters of every call must agree.
#pragma once

#include "engine/plan_reader.h"
#include "kernels/linear.h"

namespace trtc {

// A packed weight of the plan over the mapped file, which starts at `file`.
kernels::PackedWeight packed_weight(const engine::WeightRecord& weight, const std::byte* file);

// Throws EngineError naming the first call or weight that no kernel can run.
void check_calls(const engine::Plan& plan);

}  // namespace trtc
