// RMSNorm (Zhang & Sennrich, https://arxiv.org/abs/1910.07467) and LayerNorm (https://arxiv.org/abs/1607.06450),
// optionally fused with the residual add in front of them.
#pragma once

#include <cstdint>

#include "common/slice.h"

namespace trtc::kernels {

// Each row holds `groups` runs of `cols` contiguous elements that are normalized alone (per-head norms have groups >
// 1).
struct NormArgs {
  std::int64_t rows;
  std::int64_t groups;
  std::int64_t cols;
  const float* x;         // [rows, groups * cols]
  std::int64_t x_stride;  // elements between rows
  const float* residual;  // [rows, groups * cols] or null; when given, x + residual is normalized
  std::int64_t residual_stride;
  float* sum;  // receives x + residual when `residual` is given (may alias x or residual), else null
  std::int64_t sum_stride;
  const float* scale;  // [cols]
  const float* bias;   // [cols] or null; LayerNorm only
  float epsilon;
  float* y;  // [rows, groups * cols]; may alias x
  std::int64_t y_stride;
};

}  // namespace trtc::kernels
