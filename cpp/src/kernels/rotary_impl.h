// rotary.h written once for the vectors of vec.h.
#pragma once

#include "kernels/rotary.h"
#include "kernels/vec.h"

namespace trtc::kernels {

template <class V>
inline void rotary_impl(const RotaryArgs& a, Slice slice) {
  using F = typename V::F;
  const std::int64_t half = a.rotary_dim / 2;
  const Slice::Range range = slice.of(a.rows * a.heads);
  for (std::int64_t item = range.begin; item < range.end; ++item) {
    const std::int64_t row = item / a.heads, head = item % a.heads;
    const float* x = a.x + row * a.x_stride + head * a.head_dim;
    float* y = a.y + row * a.y_stride + head * a.head_dim;
    const float* cos = a.cos + a.position_ids[row] * half;
    const float* sin = a.sin + a.position_ids[row] * half;
    for_columns<V>(0, half, [&](std::int64_t i, auto lanes) {
      const F first = V::load(x + i, lanes), second = V::load(x + i + half, lanes);
      const F c = V::load(cos + i, lanes), s = V::load(sin + i, lanes);
      V::store(y + i, V::fnma(second, s, first * c), lanes);
      V::store(y + i + half, V::fma(first, s, second * c), lanes);
    });
    if (x == y) continue;
    for_columns<V>(a.rotary_dim, a.head_dim,
                   [&](std::int64_t i, auto lanes) { V::store(y + i, V::load(x + i, lanes), lanes); });
  }
}

}  // namespace trtc::kernels
