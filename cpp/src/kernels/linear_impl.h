// linear.h written once for the vectors of each instruction set.
//
// A tile is R rows x P panels of outputs whose accumulators live in registers. An output's sum is a chain of its own,
// the same in every tile, so results depend neither on the tile that computed them nor on the number of threads.
//
// The vector type V holds 16 columns (F float32, I int32, W one 32-bit word of packed weights each) and provides
//   zero, set, load, load(p, count), store(p, F, count), add, mul, fma; load_scales (16 float16), load_words;
//   bf16<i>, i8<i>, i4<i>: element i of every word as float32, i8 and i4 times a scale from i8_scale or i4_scale;
//   X input_i8(x), input_i4(x): 4 or 8 int8 activations for every column; start_i8(sums), start_i4(x, group), dot_i8,
//   dot_i4: the exact int32 sum of a group; to_float;
//   max_magnitude, largest, store_i8: for quantize_rows.
#pragma once

#include <cstdint>

#include "common/float_bits.h"
#include "kernels/linear.h"
#include "kernels/linear_ref.h"

namespace trtc::kernels {
namespace {

// A linear call with its offsets resolved.
struct LinearJob {
  std::int64_t k;
  std::int64_t group;
  std::int64_t groups;
  std::int64_t panel_bytes;
  const std::byte* data;
  const std::uint16_t* scales;
  const std::int32_t* sums;
  const LinearArgs& args;

  const std::byte* panel(std::int64_t index) const { return data + index * panel_bytes; }
  std::int64_t group_at(std::int64_t panel, std::int64_t index) const { return (panel * groups + index) * kPanelCols; }
};

inline LinearJob linear_job(const LinearArgs& args) {
  const PackedWeight& weight = args.weight;
  const PackedLayout layout = packed_layout(weight.format, weight.n, weight.k, weight.group);
  const std::byte* blob = weight.blob;
  return {weight.k,
          weight.group,
          layout.groups,
          layout.panel_bytes,
          blob + layout.data_offset,
          reinterpret_cast<const std::uint16_t*>(blob + layout.scales_offset),
          reinterpret_cast<const std::int32_t*>(blob + layout.sums_offset),
          args};
}

constexpr std::int64_t kWordBytes = 4 * kPanelCols;  // one word of every column

// Float weights: one group, no scale.
template <class V>
struct F32Weights {
  static constexpr int kElements = 1;
  static constexpr bool kScaled = false;
  template <int i>
  static typename V::F value(typename V::W word, typename V::F) {
    return V::f32(word);
  }
};

template <class V>
struct Bf16Weights {
  static constexpr int kElements = 2;
  static constexpr bool kScaled = false;
  template <int i>
  static typename V::F value(typename V::W word, typename V::F) {
    return V::template bf16<i>(word);
  }
};

template <class V>
struct I8Weights {
  static constexpr int kElements = 4;
  static constexpr bool kScaled = true;
  static typename V::F scale(typename V::F scale) { return V::i8_scale(scale); }
  template <int i>
  static typename V::F value(typename V::W word, typename V::F scale) {
    return V::template i8<i>(word, scale);
  }
  static typename V::I start(const std::int32_t* sums, const std::int8_t*, std::int64_t) { return V::start_i8(sums); }
  static auto input(const std::int8_t* x) { return V::input_i8(x); }
  template <class X>
  static typename V::I dot(typename V::I sum, X x, typename V::W word) {
    return V::dot_i8(sum, x, word);
  }
};

template <class V>
struct I4Weights {
  static constexpr int kElements = 8;
  static constexpr bool kScaled = true;
  static typename V::F scale(typename V::F scale) { return V::i4_scale(scale); }
  template <int i>
  static typename V::F value(typename V::W word, typename V::F scale) {
    return V::template i4<i>(word, scale);
  }
  static typename V::I start(const std::int32_t*, const std::int8_t* x, std::int64_t group) {
    return V::start_i4(x, group);
  }
  static auto input(const std::int8_t* x) { return V::input_i4(x); }
  template <class X>
  static typename V::I dot(typename V::I sum, X x, typename V::W word) {
    return V::dot_i4(sum, x, word);
  }
};

template <class V, int R, int P>
inline void finish_tile(const LinearJob& job, std::int64_t panel, std::int64_t row, typename V::F (&acc)[R][P]) {
  const LinearArgs& args = job.args;
  for (int p = 0; p < P; ++p) {
    const std::int64_t column = (panel + p) * kPanelCols, left = args.weight.n - column;
    const int count = left < kPanelCols ? static_cast<int>(left) : kPanelCols;
    for (int r = 0; r < R; ++r) {
      typename V::F y = acc[r][p];
      if (args.bias != nullptr) y = V::add(y, V::load(args.bias + column, count));
      V::store(args.y + (row + r) * args.y_stride + column, y, count);
    }
  }
}

// Elements i, i + 1, ... below `count` of P words times R activations each.
template <class V, class Weights, int R, int P, int i = 0>
[[gnu::always_inline]] inline void add_products(const typename V::W (&word)[P], const typename V::F (&scale)[P],
                                                const float* x, std::int64_t x_stride, int count,
                                                typename V::F (&acc)[R][P]) {
  if constexpr (i < Weights::kElements) {
    if (i >= count) return;
    typename V::F w[P];
    for (int p = 0; p < P; ++p) w[p] = Weights::template value<i>(word[p], scale[p]);
    for (int r = 0; r < R; ++r) {
      const typename V::F value = V::set(x[r * x_stride + i]);
      for (int p = 0; p < P; ++p) acc[r][p] = V::fma(value, w[p], acc[r][p]);
    }
    add_products<V, Weights, R, P, i + 1>(word, scale, x, x_stride, count, acc);
  }
}

// Float activations: acc = fma(x, w, acc) over k ascending, w = q * scale for int8 and int4.
template <class V, class Weights>
struct FloatKernel {
  static constexpr int kTile = V::kFloatTile;
  static constexpr int kMaxPanels = V::kMaxPanels;

  template <int R, int P>
  [[gnu::noinline]] static void tile(const LinearJob& job, std::int64_t panel, std::int64_t row) {
    using F = typename V::F;
    constexpr int kElements = Weights::kElements;
    const std::int64_t x_stride = job.args.x_stride, span = Weights::kScaled ? job.group : job.k;
    const float* x = job.args.x + row * x_stride;
    F acc[R][P];
    for (int r = 0; r < R; ++r) {
      for (int p = 0; p < P; ++p) acc[r][p] = V::zero();
    }
    const std::byte* words = job.panel(panel);
    const auto load_words = [&](typename V::W(&word)[P]) {
      for (int p = 0; p < P; ++p) word[p] = V::load_words(words + p * job.panel_bytes);
      words += kWordBytes;
    };
    for (std::int64_t begin = 0, index = 0; begin < job.k; begin += span, ++index) {
      F scale[P];
      for (int p = 0; p < P; ++p) {
        if constexpr (Weights::kScaled) {
          scale[p] = Weights::scale(V::load_scales(job.scales + job.group_at(panel + p, index)));
        } else {
          scale[p] = V::zero();
        }
      }
      std::int64_t left = job.k - begin < span ? job.k - begin : span;
      typename V::W word[P];
      for (; left >= kElements; left -= kElements, x += kElements) {
        load_words(word);
        add_products<V, Weights, R, P>(word, scale, x, x_stride, kElements, acc);
      }
      if (left > 0) {
        load_words(word);
        add_products<V, Weights, R, P>(word, scale, x, x_stride, static_cast<int>(left), acc);
      }
    }
    finish_tile<V, R, P>(job, panel, row, acc);
  }
};

// Int8 activations: exact int32 sums inside a group, then acc = fma(float(sum), x_scale * w_scale, acc).
template <class V, class Weights>
struct Int8Kernel {
  static constexpr int kTile = V::kIntTile;
  static constexpr int kMaxPanels = V::kMaxPanels;

  template <int R, int P>
  [[gnu::noinline]] static void tile(const LinearJob& job, std::int64_t panel, std::int64_t row) {
    using F = typename V::F;
    const QuantizedRows& rows = job.args.quantized;
    const std::int8_t* x = rows.data + row * rows.stride;
    const float* x_scales = rows.scales + row * rows.scale_stride;
    F acc[R][P];
    for (int r = 0; r < R; ++r) {
      for (int p = 0; p < P; ++p) acc[r][p] = V::zero();
    }
    const std::byte* words = job.panel(panel);
    for (std::int64_t index = 0; index < job.groups; ++index) {
      typename V::I sum[R][P];
      for (int r = 0; r < R; ++r) {
        for (int p = 0; p < P; ++p) {
          sum[r][p] = Weights::start(job.sums + job.group_at(panel + p, index), x + r * rows.stride, job.group);
        }
      }
      for (std::int64_t i = 0; i < job.group; i += Weights::kElements) {
        typename V::W word[P];
        for (int p = 0; p < P; ++p) word[p] = V::load_words(words + p * job.panel_bytes);
        words += kWordBytes;
        for (int r = 0; r < R; ++r) {
          const auto input = Weights::input(x + r * rows.stride);
          for (int p = 0; p < P; ++p) sum[r][p] = Weights::dot(sum[r][p], input, word[p]);
        }
        x += Weights::kElements;
      }
      for (int p = 0; p < P; ++p) {
        const F scale = V::load_scales(job.scales + job.group_at(panel + p, index));
        for (int r = 0; r < R; ++r) {
          const F both = V::mul(V::set(x_scales[r * rows.scale_stride + index]), scale);
          acc[r][p] = V::fma(V::to_float(sum[r][p]), both, acc[r][p]);
        }
      }
    }
    finish_tile<V, R, P>(job, panel, row, acc);
  }
};

// P panels for rows [begin, end), in tiles of 8, 4, 2 and 1 rows.
template <class Kernel, int P, int R = 8>
inline void run_rows(const LinearJob& job, std::int64_t panel, std::int64_t begin, std::int64_t end) {
  if constexpr (R * P <= Kernel::kTile || R == 1) {
    for (; end - begin >= R; begin += R) Kernel::template tile<R, P>(job, panel, begin);
  }
  if constexpr (R > 1) {
    if (begin < end) run_rows<Kernel, P, R / 2>(job, panel, begin, end);
  }
}

// Panels [begin, end): at most P side by side.
template <class Kernel, int P>
inline void run_panels(const LinearJob& job, std::int64_t begin, std::int64_t end, Slice::Range rows) {
  for (; end - begin >= P; begin += P) run_rows<Kernel, P>(job, begin, rows.begin, rows.end);
  if constexpr (P > 1) {
    if (begin < end) run_panels<Kernel, P / 2>(job, begin, end, rows);
  }
}

// As many panels side by side as leave registers for the rows.
template <class Kernel, int P>
inline void run_widest(const LinearJob& job, std::int64_t begin, std::int64_t end, Slice::Range rows) {
  if constexpr (P > 1) {
    if (P * (rows.end - rows.begin) > Kernel::kTile) return run_widest<Kernel, P / 2>(job, begin, end, rows);
  }
  run_panels<Kernel, P>(job, begin, end, rows);
}

// Deals panels to the threads; where there are too few of them, each is cut into runs of at least kMinRows rows.
template <class Kernel>
inline void run_linear(const LinearArgs& args, Slice slice) {
  constexpr std::int64_t kMinRows = 8;
  const LinearJob job = linear_job(args);
  const std::int64_t panels = (args.weight.n + kPanelCols - 1) / kPanelCols;
  std::int64_t parts = (2 * slice.threads + panels - 1) / panels;
  if (parts > args.rows / kMinRows) parts = args.rows / kMinRows;
  if (parts < 1) parts = 1;
  const Slice::Range items = slice.of(panels * parts);
  for (std::int64_t item = items.begin; item < items.end;) {
    const std::int64_t part = item / panels, first = item % panels;
    const std::int64_t last = items.end < (part + 1) * panels ? items.end - part * panels : panels;
    const Slice::Range rows = {part * args.rows / parts, (part + 1) * args.rows / parts};
    run_widest<Kernel, Kernel::kMaxPanels>(job, first, last, rows);
    item += last - first;
  }
}

template <class V>
inline void linear_impl(const LinearArgs& args, Slice slice) {
  const bool int8 = args.quantized.data != nullptr;
  switch (args.weight.format) {
    case WeightFormat::kF32:
      return run_linear<FloatKernel<V, F32Weights<V>>>(args, slice);
    case WeightFormat::kBf16:
      return run_linear<FloatKernel<V, Bf16Weights<V>>>(args, slice);
    case WeightFormat::kI8:
      return int8 ? run_linear<Int8Kernel<V, I8Weights<V>>>(args, slice)
                  : run_linear<FloatKernel<V, I8Weights<V>>>(args, slice);
    case WeightFormat::kI4:
      return int8 ? run_linear<Int8Kernel<V, I4Weights<V>>>(args, slice)
                  : run_linear<FloatKernel<V, I4Weights<V>>>(args, slice);
  }
}

}  // namespace
}  // namespace trtc::kernels
