// Scalar reference of elementwise.h over rows [begin, end).
#pragma once

#include <cmath>

#include "kernels/elementwise.h"

namespace trtc::kernels::reference {

// gelu_tanh in its sigmoid form: (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u)), which does not cancel for negative u.
static inline float activate(Activation activation, float x) {
  switch (activation) {
    case Activation::kSilu:
      return x / (1.0f + std::exp(-x));
    case Activation::kGelu:
      return 0.5f * x * std::erfc(x * -0.707106781f);
    case Activation::kGeluTanh:
      return x / (1.0f + std::exp(-1.59576912f * (x + 0.044715f * x * x * x)));
    case Activation::kTanh:
      return std::tanh(x);
  }
  return x;
}

static inline void gated_activation(const GatedActivationArgs& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    const float* x = a.x + row * a.x_stride;
    for (std::int64_t i = 0; i < a.cols; ++i) a.y[row * a.y_stride + i] = activate(a.activation, x[i]) * x[a.cols + i];
  }
}

static inline void activation(const ActivationArgs& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    for (std::int64_t i = 0; i < a.cols; ++i) {
      a.y[row * a.y_stride + i] = activate(a.activation, a.x[row * a.x_stride + i]);
    }
  }
}

static inline void add(const AddArgs& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    for (std::int64_t i = 0; i < a.cols; ++i) {
      a.y[row * a.y_stride + i] = a.a[row * a.a_stride + i] + a.b[row * a.b_stride + i];
    }
  }
}

static inline void mul(const MulArgs& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    for (std::int64_t i = 0; i < a.cols; ++i) {
      a.y[row * a.y_stride + i] = a.a[row * a.a_stride + i] * a.b[row * a.b_stride + i];
    }
  }
}

static inline void scale(const ScaleArgs& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    for (std::int64_t i = 0; i < a.cols; ++i) a.y[row * a.y_stride + i] = a.x[row * a.x_stride + i] * a.factor;
  }
}

static inline void gather_rows(const GatherRowsArgs& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    for (std::int64_t i = 0; i < a.cols; ++i) a.y[row * a.y_stride + i] = a.x[a.row_ids[row] * a.x_stride + i];
  }
}

}  // namespace trtc::kernels::reference
