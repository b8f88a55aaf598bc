// norm.h written once for the vectors of vec.h. A sum over a row runs in four accumulators, vectors dealt out in turn.
#pragma once

#include "kernels/norm.h"
#include "kernels/vec.h"

namespace trtc::kernels {

// Sum of map(column, All or First) over [0, cols).
template <class V, class Map>
inline float sum_columns(std::int64_t cols, const Map& map) {
  constexpr std::int64_t kLanes = V::kLanes;
  typename V::F sums[4] = {V::zero(), V::zero(), V::zero(), V::zero()};
  std::int64_t column = 0;
  for (; column + 4 * kLanes <= cols; column += 4 * kLanes) {
    for (int i = 0; i < 4; ++i) sums[i] = sums[i] + map(column + i * kLanes, All{});
  }
  for (int i = 0; i < 4 && column < cols; ++i, column += kLanes) {
    const int left = static_cast<int>(cols - column);
    sums[i] = sums[i] + (left >= kLanes ? map(column, All{}) : map(column, First{left}));
  }
  return V::sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// Adds the residual where there is one; returns the values to normalize.
template <class V>
inline const float* norm_input(const NormArgs& a, std::int64_t row, std::int64_t column) {
  const float* x = a.x + row * a.x_stride + column;
  if (a.residual == nullptr) return x;
  const float* residual = a.residual + row * a.residual_stride + column;
  float* sum = a.sum + row * a.sum_stride + column;
  for_columns<V>(0, a.cols, [&](std::int64_t i, auto lanes) {
    V::store(sum + i, V::load(x + i, lanes) + V::load(residual + i, lanes), lanes);
  });
  return sum;
}

template <class V>
inline void rms_norm_impl(const NormArgs& a, Slice slice) {
  using F = typename V::F;
  const Slice::Range range = slice.of(a.rows * a.groups);
  for (std::int64_t item = range.begin; item < range.end; ++item) {
    const std::int64_t row = item / a.groups, column = item % a.groups * a.cols;
    const float* x = norm_input<V>(a, row, column);
    float* y = a.y + row * a.y_stride + column;
    const float squares = sum_columns<V>(a.cols, [&](std::int64_t i, auto lanes) {
      const F v = V::load(x + i, lanes);
      return v * v;
    });
    const F inverse = V::set(1.0f / __builtin_sqrtf(squares / static_cast<float>(a.cols) + a.epsilon));
    for_columns<V>(0, a.cols, [&](std::int64_t i, auto lanes) {
      V::store(y + i, V::load(x + i, lanes) * inverse * V::load(a.scale + i, lanes), lanes);
    });
  }
}

template <class V>
inline void layer_norm_impl(const NormArgs& a, Slice slice) {
  using F = typename V::F;
  const Slice::Range range = slice.of(a.rows * a.groups);
  for (std::int64_t item = range.begin; item < range.end; ++item) {
    const std::int64_t row = item / a.groups, column = item % a.groups * a.cols;
    const float* x = norm_input<V>(a, row, column);
    float* y = a.y + row * a.y_stride + column;
    const float count = static_cast<float>(a.cols);
    const float total = sum_columns<V>(a.cols, [&](std::int64_t i, auto lanes) { return V::load(x + i, lanes); });
    const F mean = V::set(total / count);
    // keep: lanes past the end of the row add nothing.
    const float squares = sum_columns<V>(a.cols, [&](std::int64_t i, auto lanes) {
      const F centered = V::load(x + i, lanes) - V::keep(mean, lanes);
      return centered * centered;
    });
    const F inverse = V::set(1.0f / __builtin_sqrtf(squares / count + a.epsilon));
    for_columns<V>(0, a.cols, [&](std::int64_t i, auto lanes) {
      const F normal = (V::load(x + i, lanes) - mean) * inverse * V::load(a.scale + i, lanes);
      V::store(y + i, a.bias == nullptr ? normal : normal + V::load(a.bias + i, lanes), lanes);
    });
  }
}

}  // namespace trtc::kernels
