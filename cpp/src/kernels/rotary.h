// Rotary position embedding, half-split pairs (Su et al., https://arxiv.org/abs/2104.09864; layout of GPT-NeoX and HF).
#pragma once

#include <cstdint>

#include "common/slice.h"

namespace trtc::kernels {

// For pair (a, b) = (x[i], x[i + rotary_dim / 2]): a' = a cos - b sin, b' = b cos + a sin.
struct RotaryArgs {
  std::int64_t rows;
  int heads;
  int head_dim;
  int rotary_dim;                    // even, <= head_dim; further channels are copied
  const std::int32_t* position_ids;  // [rows], each < positions of the tables
  const float* cos;                  // [positions, rotary_dim / 2]
  const float* sin;
  const float* x;  // [rows, heads * head_dim]
  std::int64_t x_stride;
  float* y;  // same shape; may alias x
  std::int64_t y_stride;
};

}  // namespace trtc::kernels
