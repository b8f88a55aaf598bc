// Scalar reference of rotary.h over (row, head) items [begin, end).
#pragma once

#include "kernels/rotary.h"

namespace trtc::kernels::reference {

static inline void rotary(const RotaryArgs& a, std::int64_t begin, std::int64_t end) {
  const std::int64_t half = a.rotary_dim / 2;
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t row = item / a.heads, head = item % a.heads;
    const float* x = a.x + row * a.x_stride + head * a.head_dim;
    float* y = a.y + row * a.y_stride + head * a.head_dim;
    const float* cos = a.cos + a.position_ids[row] * half;
    const float* sin = a.sin + a.position_ids[row] * half;
    for (std::int64_t i = 0; i < half; ++i) {
      const float first = x[i], second = x[i + half];
      y[i] = first * cos[i] - second * sin[i];
      y[i + half] = second * cos[i] + first * sin[i];
    }
    for (std::int64_t i = a.rotary_dim; i < a.head_dim; ++i) y[i] = x[i];
  }
}

}  // namespace trtc::kernels::reference
