// Activations and other elementwise kernels on strided rows.
#pragma once

#include <cstdint>

#include "common/slice.h"

namespace trtc::kernels {

// silu(x) = x * sigmoid(x); gelu uses erf; gelu_tanh is its tanh form (https://arxiv.org/abs/1606.08415).
enum class Activation : std::uint32_t { kSilu = 0, kGelu = 1, kGeluTanh = 2, kTanh = 3 };

// y = act(x[:, :cols]) * x[:, cols:]
struct GatedActivationArgs {
  std::int64_t rows;
  std::int64_t cols;
  Activation activation;
  const float* x;  // [rows, 2 * cols]
  std::int64_t x_stride;
  float* y;  // [rows, cols]
  std::int64_t y_stride;
};

// y = act(x)
struct ActivationArgs {
  std::int64_t rows;
  std::int64_t cols;
  Activation activation;
  const float* x;  // [rows, cols]
  std::int64_t x_stride;
  float* y;  // may alias x
  std::int64_t y_stride;
};

// y = a + b
struct AddArgs {
  std::int64_t rows;
  std::int64_t cols;
  const float* a;
  std::int64_t a_stride;
  const float* b;
  std::int64_t b_stride;  // 0 broadcasts one row
  float* y;               // may alias a or b
  std::int64_t y_stride;
};

// y = a * b
using MulArgs = AddArgs;

// y = x * factor
struct ScaleArgs {
  std::int64_t rows;
  std::int64_t cols;
  float factor;
  const float* x;
  std::int64_t x_stride;
  float* y;  // may alias x
  std::int64_t y_stride;
};

// y[i] = x[row_ids[i]]
struct GatherRowsArgs {
  std::int64_t rows;  // of y
  std::int64_t cols;
  const std::int32_t* row_ids;  // [rows]
  const float* x;
  std::int64_t x_stride;
  float* y;
  std::int64_t y_stride;
};

}  // namespace trtc::kernels
