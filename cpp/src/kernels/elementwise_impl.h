// elementwise.h written once for the vectors of vec.h.
#pragma once

#include "kernels/elementwise.h"
#include "kernels/vec.h"
#include "kernels/vec_math.h"

namespace trtc::kernels {

// Deals pieces of rows to the threads, so that a single wide row keeps them all busy; calls body(row, column, lanes).
template <class V, class Body>
inline void for_elements(std::int64_t rows, std::int64_t cols, Slice slice, const Body& body) {
  constexpr std::int64_t kPiece = 512;
  const std::int64_t pieces = (cols + kPiece - 1) / kPiece;
  const Slice::Range range = slice.of(rows * pieces);
  for (std::int64_t item = range.begin; item < range.end; ++item) {
    const std::int64_t row = item / pieces, begin = item % pieces * kPiece;
    const std::int64_t end = begin + kPiece < cols ? begin + kPiece : cols;
    for_columns<V>(begin, end, [&](std::int64_t i, auto lanes) { body(row, i, lanes); });
  }
}

// Within 8 eps (silu), (12 + 4 x^2) eps (gelu) and (8 + 8 |u|) eps (gelu_tanh, u its tanh argument), relative, where
// the result is a normal number.
template <class V, Activation kind>
inline typename V::F activate(typename V::F x) {
  using F = typename V::F;
  const F one = V::set(1.0f);
  if constexpr (kind == Activation::kSilu) {
    return x / (one + exp<V>(V::zero() - x));
  } else if constexpr (kind == Activation::kGelu) {
    return V::set(0.5f) * x * erfc<V>(x * V::set(-0.707106781f));
  } else if constexpr (kind == Activation::kGeluTanh) {
    // (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u)), which does not cancel for negative u.
    const F u = V::fma(x * x * x, V::set(0.044715f), x);
    return x / (one + exp<V>(u * V::set(-1.59576912f)));
  } else {
    return tanh<V>(x);
  }
}

// Calls body(the activation as a function of vectors), chosen once per kernel call.
template <class V, class Body>
inline void with_activation(Activation kind, const Body& body) {
  using F = typename V::F;
  switch (kind) {
    case Activation::kSilu:
      return body([](F x) { return activate<V, Activation::kSilu>(x); });
    case Activation::kGelu:
      return body([](F x) { return activate<V, Activation::kGelu>(x); });
    case Activation::kGeluTanh:
      return body([](F x) { return activate<V, Activation::kGeluTanh>(x); });
    case Activation::kTanh:
      return body([](F x) { return activate<V, Activation::kTanh>(x); });
  }
}

template <class V>
inline void gated_activation_impl(const GatedActivationArgs& a, Slice slice) {
  with_activation<V>(a.activation, [&](auto act) {
    for_elements<V>(a.rows, a.cols, slice, [&](std::int64_t row, std::int64_t i, auto lanes) {
      const float* x = a.x + row * a.x_stride + i;
      V::store(a.y + row * a.y_stride + i, act(V::load(x, lanes)) * V::load(x + a.cols, lanes), lanes);
    });
  });
}

template <class V>
inline void activation_impl(const ActivationArgs& a, Slice slice) {
  with_activation<V>(a.activation, [&](auto act) {
    for_elements<V>(a.rows, a.cols, slice, [&](std::int64_t row, std::int64_t i, auto lanes) {
      V::store(a.y + row * a.y_stride + i, act(V::load(a.x + row * a.x_stride + i, lanes)), lanes);
    });
  });
}

template <class V>
inline void add_impl(const AddArgs& a, Slice slice) {
  for_elements<V>(a.rows, a.cols, slice, [&](std::int64_t row, std::int64_t i, auto lanes) {
    const auto left = V::load(a.a + row * a.a_stride + i, lanes), right = V::load(a.b + row * a.b_stride + i, lanes);
    V::store(a.y + row * a.y_stride + i, left + right, lanes);
  });
}

template <class V>
inline void mul_impl(const MulArgs& a, Slice slice) {
  for_elements<V>(a.rows, a.cols, slice, [&](std::int64_t row, std::int64_t i, auto lanes) {
    const auto left = V::load(a.a + row * a.a_stride + i, lanes), right = V::load(a.b + row * a.b_stride + i, lanes);
    V::store(a.y + row * a.y_stride + i, left * right, lanes);
  });
}

template <class V>
inline void scale_impl(const ScaleArgs& a, Slice slice) {
  const auto factor = V::set(a.factor);
  for_elements<V>(a.rows, a.cols, slice, [&](std::int64_t row, std::int64_t i, auto lanes) {
    V::store(a.y + row * a.y_stride + i, V::load(a.x + row * a.x_stride + i, lanes) * factor, lanes);
  });
}

template <class V>
inline void gather_rows_impl(const GatherRowsArgs& a, Slice slice) {
  for_elements<V>(a.rows, a.cols, slice, [&](std::int64_t row, std::int64_t i, auto lanes) {
    V::store(a.y + row * a.y_stride + i, V::load(a.x + a.row_ids[row] * a.x_stride + i, lanes), lanes);
  });
}

}  // namespace trtc::kernels
