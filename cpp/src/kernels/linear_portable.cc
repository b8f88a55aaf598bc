// Linear kernels as plain loops over the 16 columns of a panel, for compilers to vectorize where they can.
#include <cstring>

#include "common/float_bits.h"
#include "kernels/linear_impl.h"
#include "kernels/linear_ref.h"

namespace trtc::kernels::portable {
namespace {

template <class T>
struct Lanes {
  T v[kPanelCols];
};

// The Lanes whose element c is f(c).
template <class T, class Function>
[[gnu::always_inline]] inline Lanes<T> lanes(const Function& f) {
  Lanes<T> result;
  for (int c = 0; c < kPanelCols; ++c) result.v[c] = f(c);
  return result;
}

struct Vec {
  using F = Lanes<float>;
  using I = Lanes<std::int32_t>;
  using W = Lanes<std::uint32_t>;
  static constexpr int kFloatTile = 4;
  static constexpr int kIntTile = 4;
  static constexpr int kMaxPanels = 1;
  static constexpr int kMinIntPanels = 1;
  static constexpr int kBlockPanels = 1;

  static F zero() { return F{}; }
  static F set(float x) {
    return lanes<float>([x](int) { return x; });
  }
  static F load(const float* p, int count) {
    F x{};
    std::memcpy(x.v, p, static_cast<std::size_t>(count) * sizeof(float));
    return x;
  }
  static void store(float* p, const F& x, int count) {
    std::memcpy(p, x.v, static_cast<std::size_t>(count) * sizeof(float));
  }
  static F add(const F& a, const F& b) {
    return lanes<float>([&](int c) { return a.v[c] + b.v[c]; });
  }
  static F negate(const F& x) {
    return lanes<float>([&](int c) { return -x.v[c]; });
  }
  static F mul(const F& a, const F& b) {
    return lanes<float>([&](int c) { return a.v[c] * b.v[c]; });
  }
  static F fma(const F& a, const F& b, const F& sum) {
    return lanes<float>([&](int c) { return __builtin_fmaf(a.v[c], b.v[c], sum.v[c]); });
  }
  static F to_float(const I& x) {
    return lanes<float>([&](int c) { return static_cast<float>(x.v[c]); });
  }

  static W load_words(const void* p) {
    W words;
    std::memcpy(words.v, p, sizeof words.v);
    return words;
  }
  static F load_halves(const std::uint16_t* p) {
    return lanes<float>([p](int c) { return f16_to_f32(p[c]); });
  }

  static F f32(const W& word) {
    return lanes<float>([&](int c) { return bits_float(word.v[c]); });
  }
  template <int i>
  static F bf16(const W& word) {
    return lanes<float>([&](int c) { return bits_float(i == 0 ? word.v[c] << 16 : word.v[c] & 0xffff0000u); });
  }

  static F i8_scale(const F& scale) { return scale; }
  template <int i>
  static std::int32_t byte(std::uint32_t word) {
    return static_cast<std::int8_t>(word >> (8 * i));
  }
  template <int i>
  static F i8(const W& word) {
    return lanes<float>([&](int c) { return static_cast<float>(byte<i>(word.v[c])); });
  }

  static F i4_scale(const F& scale) { return scale; }
  template <int i>
  static std::int32_t nibble(std::uint32_t word) {
    return static_cast<std::int32_t>((word >> (i < 4 ? 8 * i : 8 * (i - 4) + 4)) & 15u);
  }
  template <int i>
  static F i4(const W& word) {
    return lanes<float>([&](int c) { return static_cast<float>(nibble<i>(word.v[c])); });
  }

  static I zero_int() { return I{}; }
  static I start_i8(const std::int32_t*) { return I{}; }
  static F sum_i8(const std::int8_t* x, std::int64_t group) {
    std::int32_t sum = 0;
    for (std::int64_t i = 0; i < group; ++i) sum += x[i];
    return set(static_cast<float>(sum));
  }
  static const std::int8_t* input_i8(const std::int8_t* x) { return x; }
  static const std::int8_t* input_i4(const std::int8_t* x) { return x; }
  static I dot_i8(I sum, const std::int8_t* x, const W& word) {
    unroll<4>([&](auto i) TRTC_UNROLLED {
      for (int c = 0; c < kPanelCols; ++c) sum.v[c] += x[i] * byte<i>(word.v[c]);
    });
    return sum;
  }
  static I dot_i4(I sum, const std::int8_t* x, const W& word) {
    unroll<8>([&](auto i) TRTC_UNROLLED {
      for (int c = 0; c < kPanelCols; ++c) sum.v[c] += x[i] * nibble<i>(word.v[c]);
    });
    return sum;
  }
};

}  // namespace

void linear(const LinearArgs& args, Slice slice) { linear_impl<Vec>(args, slice); }

void quantize_rows(const QuantizeRowsArgs& args, Slice slice) {
  const auto [begin, end] = slice.of(args.rows * ((args.k + args.group - 1) / args.group));
  reference::quantize_rows(args, begin, end);
}

void embedding(const EmbeddingArgs& args, Slice slice) {
  const auto [begin, end] = slice.of(args.rows);
  reference::embedding(args, begin, end);
}

}  // namespace trtc::kernels::portable
