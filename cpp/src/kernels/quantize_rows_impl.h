// quantize_rows of linear.h, and the embedding look-up, for the vectors described in linear_impl.h.
#pragma once

#include <cstdint>

#include "common/float_bits.h"
#include "kernels/linear.h"
#include "kernels/linear_ref.h"

namespace trtc::kernels {
namespace {

// Deals single groups to the threads, so that one row keeps them all busy.
template <class V>
inline void quantize_rows_impl(const QuantizeRowsArgs& args, Slice slice) {
  const std::int64_t groups = (args.k + args.group - 1) / args.group;
  const Slice::Range items = slice.of(args.rows * groups);
  for (std::int64_t item = items.begin; item < items.end; ++item) {
    const std::int64_t row = item / groups, index = item % groups, begin = index * args.group;
    const float* x = args.x + row * args.x_stride + begin;
    const std::int64_t left = args.k - begin;
    const auto lanes = [left](std::int64_t i) {
      return left - i >= kPanelCols ? kPanelCols : left > i ? static_cast<int>(left - i) : 0;
    };
    auto largest = V::start_magnitude();
    for (std::int64_t i = 0; i < args.group; i += kPanelCols) {
      largest = V::max_magnitude(largest, V::load(x + i, lanes(i)));
    }
    const reference::RowScale scale = reference::row_scale(bits_float(V::largest(largest)));
    for (std::int64_t i = 0; i < args.group; i += kPanelCols) {
      const typename V::F scaled = V::mul(V::load(x + i, lanes(i)), V::set(scale.inverse));
      V::store_i8(args.data + row * args.stride + begin + i, scaled);
    }
    args.scales[row * args.scale_stride + index] = scale.scale;
  }
}

inline void embedding_impl(const EmbeddingArgs& args, Slice slice) {
  const Slice::Range rows = slice.of(args.rows);
  reference::embedding(args, rows.begin, rows.end);
}

}  // namespace
}  // namespace trtc::kernels
