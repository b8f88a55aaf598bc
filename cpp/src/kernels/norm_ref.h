// Scalar reference of norm.h over groups [begin, end) of rows * groups.
#pragma once

#include <cmath>

#include "kernels/norm.h"

namespace trtc::kernels::reference {

// Adds the residual where there is one; returns the values to normalize.
static inline const float* norm_input(const NormArgs& a, std::int64_t row, std::int64_t column) {
  const float* x = a.x + row * a.x_stride + column;
  if (a.residual == nullptr) return x;
  const float* residual = a.residual + row * a.residual_stride + column;
  float* sum = a.sum + row * a.sum_stride + column;
  for (std::int64_t i = 0; i < a.cols; ++i) sum[i] = x[i] + residual[i];
  return sum;
}

// y = x / sqrt(mean(x^2) + epsilon) * scale
static inline void rms_norm(const NormArgs& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t row = item / a.groups, column = item % a.groups * a.cols;
    const float* x = norm_input(a, row, column);
    float* y = a.y + row * a.y_stride + column;
    float squares = 0.0f;
    for (std::int64_t i = 0; i < a.cols; ++i) squares += x[i] * x[i];
    const float inverse = 1.0f / std::sqrt(squares / static_cast<float>(a.cols) + a.epsilon);
    for (std::int64_t i = 0; i < a.cols; ++i) y[i] = x[i] * inverse * a.scale[i];
  }
}

// y = (x - mean) / sqrt(mean((x - mean)^2) + epsilon) * scale + bias
static inline void layer_norm(const NormArgs& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t row = item / a.groups, column = item % a.groups * a.cols;
    const float* x = norm_input(a, row, column);
    float* y = a.y + row * a.y_stride + column;
    float total = 0.0f, squares = 0.0f;
    for (std::int64_t i = 0; i < a.cols; ++i) total += x[i];
    const float mean = total / static_cast<float>(a.cols);
    for (std::int64_t i = 0; i < a.cols; ++i) squares += (x[i] - mean) * (x[i] - mean);
    const float inverse = 1.0f / std::sqrt(squares / static_cast<float>(a.cols) + a.epsilon);
    for (std::int64_t i = 0; i < a.cols; ++i) {
      const float normal = (x[i] - mean) * inverse * a.scale[i];
      y[i] = a.bias == nullptr ? normal : normal + a.bias[i];
    }
  }
}

}  // namespace trtc::kernels::reference
