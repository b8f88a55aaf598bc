// linear.h written once for the vectors of each instruction set.
//
// The vector type V holds 16 columns (F float32, I int32, W one 32-bit word of packed weights each) and provides
//   zero, set, load(p, count), store(p, F, count), add, mul, fma, negate; load_halves (16 float16), load_words;
//   f32, bf16<i>, i8<i>, i4<i>: element i of every word as float32, i8 and i4 over a power of two, which i8_scale and
//   i4_scale multiply a scale by;
//   zero_int; input_i8(x), input_i4(x): 4 or 8 int8 activations for every column; start_i8(sums), dot_i8,
//   dot_i4: exact int32 sums of a group; sum_i8(x, group): the sum of activations, for every column; to_float;
//   start_magnitude, max_magnitude, largest, store_i8: for quantize_rows_impl.h.
#pragma once

#include <cstdint>

#include "kernels/linear.h"
#include "kernels/linear_tiles.h"

namespace trtc::kernels {
namespace {

// Weight formats. Factors: what a panel's group multiplies its integers by; float weights have none.
template <class V>
struct NoFactors {
  static NoFactors load(const LinearJob&, std::int64_t, std::int64_t) { return {}; }
};

template <class V>
struct F32Weights {
  static constexpr int kElements = 1;
  static constexpr bool kScaled = false;
  using Factors = NoFactors<V>;
  template <int i>
  static typename V::F value(typename V::W word, const Factors&) {
    return V::f32(word);
  }
};

template <class V>
struct Bf16Weights {
  static constexpr int kElements = 2;
  static constexpr bool kScaled = false;
  using Factors = NoFactors<V>;
  template <int i>
  static typename V::F value(typename V::W word, const Factors&) {
    return V::template bf16<i>(word);
  }
};

template <class V>
struct I8Weights {
  static constexpr int kElements = 4;
  static constexpr bool kScaled = true;
  static constexpr bool kHasZero = false;
  struct Factors {
    typename V::F scale;
    static Factors load(const LinearJob& job, std::int64_t panel, std::int64_t index) {
      return {V::i8_scale(V::load_halves(job.scales + job.group_at(panel, index)))};
    }
  };
  template <int i>
  static typename V::F value(typename V::W word, const Factors& factors) {
    return V::mul(V::template i8<i>(word), factors.scale);
  }
  static typename V::I start(const LinearJob& job, std::int64_t panel, std::int64_t index) {
    return V::start_i8(job.sums + job.group_at(panel, index));
  }
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
  static constexpr bool kHasZero = true;
  struct Factors {
    typename V::F scale, offset;  // offset = -(zero * scale), exact
    static Factors load(const LinearJob& job, std::int64_t panel, std::int64_t index) {
      const typename V::F scale = V::load_halves(job.scales + job.group_at(panel, index));
      const typename V::F zero = V::load_halves(job.zeros + job.group_at(panel, index));
      return {V::i4_scale(scale), V::negate(V::mul(zero, scale))};
    }
  };
  template <int i>
  static typename V::F value(typename V::W word, const Factors& factors) {
    return V::fma(V::template i4<i>(word), factors.scale, factors.offset);
  }
  static typename V::I start(const LinearJob&, std::int64_t, std::int64_t) { return V::zero_int(); }
  static auto input(const std::int8_t* x) { return V::input_i4(x); }
  template <class X>
  static typename V::I dot(typename V::I sum, X x, typename V::W word) {
    return V::dot_i4(sum, x, word);
  }
};

// Elements i, i + 1, ... below `count` of P words times R activations each.
template <class V, class Weights, int R, int P, int i = 0>
[[gnu::always_inline]] inline void add_products(const typename V::W (&word)[P],
                                                const typename Weights::Factors (&factors)[P], const float* x,
                                                std::int64_t x_stride, int count, typename V::F (&acc)[R][P]) {
  if constexpr (i < Weights::kElements) {
    if (i >= count) return;
    typename V::F w[P];
    unroll<P>([&](auto p) TRTC_UNROLLED { w[p] = Weights::template value<i>(word[p], factors[p]); });
    unroll<R>([&](auto r) TRTC_UNROLLED {
      const typename V::F value = V::set(x[r * x_stride + i]);
      unroll<P>([&](auto p) TRTC_UNROLLED { acc[r][p] = V::fma(value, w[p], acc[r][p]); });
    });
    add_products<V, Weights, R, P, i + 1>(word, factors, x, x_stride, count, acc);
  }
}

// Float activations: acc = fma(x, w, acc) over k ascending, w dequantized for int8 and int4.
template <class V, class Weights>
struct FloatKernel {
  static constexpr int kTile = V::kFloatTile;
  static constexpr int kMaxPanels = V::kMaxPanels;
  static constexpr int kMinPanels = 1;

  template <int R, int P>
  [[gnu::noinline]] static void tile(const LinearJob& job, std::int64_t panel, std::int64_t row) {
    constexpr int kElements = Weights::kElements;
    const std::int64_t x_stride = job.args.x_stride, span = Weights::kScaled ? job.group : job.k;
    const float* x = job.args.x + row * x_stride;
    const std::byte* words = job.panel(panel);
    typename V::F acc[R][P];
    typename Weights::Factors factors[P];
    typename V::W word[P];
    zero_tile<V, R, P>(acc);
    for (std::int64_t begin = 0, index = 0; begin < job.k; begin += span, ++index) {
      unroll<P>([&](auto p) TRTC_UNROLLED { factors[p] = Weights::Factors::load(job, panel + p, index); });
      std::int64_t left = job.k - begin < span ? job.k - begin : span;
      for (; left >= kElements; left -= kElements, x += kElements, words += kWordBytes) {
        unroll<P>([&](auto p) TRTC_UNROLLED { word[p] = V::load_words(words + p * job.panel_bytes); });
        add_products<V, Weights, R, P>(word, factors, x, x_stride, kElements, acc);
      }
      if (left > 0) {
        unroll<P>([&](auto p) TRTC_UNROLLED { word[p] = V::load_words(words + p * job.panel_bytes); });
        add_products<V, Weights, R, P>(word, factors, x, x_stride, static_cast<int>(left), acc);
      }
    }
    add_bias_and_store<V, R, P>(job, panel, row, acc);
  }

  template <int P>
  static void rows(const LinearJob& job, std::int64_t panel, Slice::Range rows) {
    run_tiles<FloatKernel, P>(job, panel, rows);
  }
};

// The same sums for many rows: chunks of k are unpacked once, into the first-level cache, and used by every row;
// between chunks the accumulators wait in y.
template <class V, class Weights>
struct BlockedFloatKernel {
  using F = typename V::F;
  static constexpr int kTile = V::kFloatTile;
  static constexpr int kMaxPanels = V::kBlockPanels;
  static constexpr int kMinPanels = kMaxPanels;
  static constexpr std::int64_t kChunk = 128;  // a multiple of every group size
  using Block = float[kChunk][kMaxPanels][kPanelCols];

  struct Chunk {
    const Block& values;
    std::int64_t begin;
    std::int64_t count;
  };

  // Whole words, and so elements past `count` too, which nobody reads.
  static void unpack(const LinearJob& job, std::int64_t panel, int p, std::int64_t begin, std::int64_t count,
                     Block& values) {
    const std::byte* words = job.panel(panel) + begin / Weights::kElements * kWordBytes;
    typename Weights::Factors factors{};
    for (std::int64_t i = 0; i < count; i += Weights::kElements, words += kWordBytes) {
      if (Weights::kScaled && i % job.group == 0) {
        factors = Weights::Factors::load(job, panel, (begin + i) / job.group);
      }
      const typename V::W word = V::load_words(words);
      unroll<Weights::kElements>([&](auto e) TRTC_UNROLLED {
        V::store(values[i + e][p], Weights::template value<e>(word, factors), kPanelCols);
      });
    }
  }

  template <int R, int P>
  [[gnu::noinline]] static void tile(const LinearJob& job, std::int64_t panel, std::int64_t row, const Chunk& chunk) {
    const std::int64_t x_stride = job.args.x_stride;
    const float* x = job.args.x + row * x_stride + chunk.begin;
    const Block& values = chunk.values;
    F acc[R][P], w[P];
    if (chunk.begin == 0) {
      zero_tile<V, R, P>(acc);
    } else {
      load_tile<V, R, P>(job, panel, row, acc);
    }
    for (std::int64_t i = 0; i < chunk.count; ++i) {
      unroll<P>([&](auto p) TRTC_UNROLLED { w[p] = V::load(values[i][p], kPanelCols); });
      unroll<R>([&](auto r) TRTC_UNROLLED {
        const F value = V::set(x[r * x_stride + i]);
        unroll<P>([&](auto p) TRTC_UNROLLED { acc[r][p] = V::fma(value, w[p], acc[r][p]); });
      });
    }
    if (chunk.begin + chunk.count < job.k) {
      store_tile<V, R, P>(job, panel, row, acc);
    } else {
      add_bias_and_store<V, R, P>(job, panel, row, acc);
    }
  }

  template <int P>
  static void rows(const LinearJob& job, std::int64_t panel, Slice::Range rows) {
    alignas(64) Block values;
    for (std::int64_t begin = 0; begin < job.k; begin += kChunk) {
      const std::int64_t count = job.k - begin < kChunk ? job.k - begin : kChunk;
      for (int p = 0; p < P; ++p) unpack(job, panel + p, p, begin, count, values);
      run_tiles<BlockedFloatKernel, P>(job, panel, rows, Chunk{values, begin, count});
    }
  }
};

// Int8 activations: exact int32 sums inside a group, then acc = fma(total, x_scale * w_scale, acc); see linear.h.
template <class V, class Weights>
struct Int8Kernel {
  static constexpr int kTile = V::kIntTile;
  static constexpr int kMaxPanels = V::kMaxPanels;
  static constexpr int kMinPanels = V::kMinIntPanels;

  template <int R, int P>
  [[gnu::noinline]] static void tile(const LinearJob& job, std::int64_t panel, std::int64_t row) {
    const QuantizedRows& rows = job.args.quantized;
    const std::int8_t* x = rows.data + row * rows.stride;
    const float* x_scales = rows.scales + row * rows.scale_stride;
    const std::byte* words = job.panel(panel);
    typename V::F acc[R][P];
    typename V::I sum[R][P];
    typename V::W word[P];
    zero_tile<V, R, P>(acc);
    for (std::int64_t index = 0; index < job.groups; ++index) {
      [[maybe_unused]] typename V::F x_sum[R];  // negative, as the zero point is taken out
      if constexpr (Weights::kHasZero) {
        unroll<R>([&](auto r) TRTC_UNROLLED { x_sum[r] = V::negate(V::sum_i8(x + r * rows.stride, job.group)); });
      }
      unroll<P>([&](auto p) TRTC_UNROLLED {
        const typename V::I first = Weights::start(job, panel + p, index);
        unroll<R>([&](auto r) TRTC_UNROLLED { sum[r][p] = first; });
      });
      for (std::int64_t i = 0; i < job.group; i += Weights::kElements) {
        unroll<P>([&](auto p) TRTC_UNROLLED { word[p] = V::load_words(words + p * job.panel_bytes); });
        unroll<R>([&](auto r) TRTC_UNROLLED {
          const auto input = Weights::input(x + r * rows.stride);
          unroll<P>([&](auto p) TRTC_UNROLLED { sum[r][p] = Weights::dot(sum[r][p], input, word[p]); });
        });
        words += kWordBytes;
        x += Weights::kElements;
      }
      unroll<P>([&](auto p) TRTC_UNROLLED {
        const std::int64_t at = job.group_at(panel + p, index);
        const typename V::F scale = V::load_halves(job.scales + at);
        [[maybe_unused]] typename V::F zero;
        if constexpr (Weights::kHasZero) zero = V::load_halves(job.zeros + at);
        unroll<R>([&](auto r) TRTC_UNROLLED {
          const typename V::F both = V::mul(V::set(x_scales[r * rows.scale_stride + index]), scale);
          typename V::F total = V::to_float(sum[r][p]);
          if constexpr (Weights::kHasZero) total = V::fma(zero, x_sum[r], total);
          acc[r][p] = V::fma(total, both, acc[r][p]);
        });
      });
    }
    add_bias_and_store<V, R, P>(job, panel, row, acc);
  }

  template <int P>
  static void rows(const LinearJob& job, std::int64_t panel, Slice::Range rows) {
    run_tiles<Int8Kernel, P>(job, panel, rows);
  }
};

template <class V, class Weights>
inline void run_float(const LinearArgs& args, Slice slice) {
  constexpr std::int64_t kManyRows = 16;
  if (args.rows >= kManyRows) return run_linear<BlockedFloatKernel<V, Weights>>(args, slice);
  run_linear<FloatKernel<V, Weights>>(args, slice);
}

template <class V>
inline void linear_impl(const LinearArgs& args, Slice slice) {
  const bool int8 = args.quantized.data != nullptr;
  switch (args.weight.format) {
    case WeightFormat::kF32:
      return run_float<V, F32Weights<V>>(args, slice);
    case WeightFormat::kBf16:
      return run_float<V, Bf16Weights<V>>(args, slice);
    case WeightFormat::kI8:
      return int8 ? run_linear<Int8Kernel<V, I8Weights<V>>>(args, slice) : run_float<V, I8Weights<V>>(args, slice);
    case WeightFormat::kI4:
      return int8 ? run_linear<Int8Kernel<V, I4Weights<V>>>(args, slice) : run_float<V, I4Weights<V>>(args, slice);
  }
}

}  // namespace
}  // namespace trtc::kernels
