// quantize_weights.h over 16 lanes, made of vectors of kBytes as the instruction set has them. Every instruction set
// includes its own copy and gets the same bits.
#pragma once

#include <cstdint>

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "common/float_bits.h"
#include "kernels/quantize_weights.h"

namespace trtc::kernels {
namespace {

constexpr int kLanes = 16;
constexpr int kMaxGroup = 128;

// Half to even, for |x| < 2^22: the addition leaves no bits behind the point.
inline float round_to_even(float x) { return (x + 12582912.0f) - 12582912.0f; }

inline float clip(float x, float low, float high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}

// Vector types of a size; GCC takes no template parameter there.
template <int kBytes>
struct VectorTypes;
template <>
struct VectorTypes<16> {
  typedef float Floats __attribute__((vector_size(16)));
  typedef std::int32_t Ints __attribute__((vector_size(16)));
};
template <>
struct VectorTypes<32> {
  typedef float Floats __attribute__((vector_size(32)));
  typedef std::int32_t Ints __attribute__((vector_size(32)));
};
template <>
struct VectorTypes<64> {
  typedef float Floats __attribute__((vector_size(64)));
  typedef std::int32_t Ints __attribute__((vector_size(64)));
};

// kBytes / 4 neighbouring floats.
template <int kBytes>
struct Vector {
  using Floats = typename VectorTypes<kBytes>::Floats;
  using Ints = typename VectorTypes<kBytes>::Ints;
  static constexpr int kWidth = kBytes / 4;

  static Floats load(const float* p) {
    Floats x;
    __builtin_memcpy(&x, p, kBytes);
    return x;
  }

  // Adds the upper half of the lanes to the lower, and so on: the sum of all.
  static float sum(Floats x) {
    Ints lane;
    for (int i = 0; i < kWidth; ++i) lane[i] = i;
    for (int half = kWidth / 2; half > 0; half /= 2) x += __builtin_shuffle(x, (lane + half) & (kWidth - 1));
    return x[0];
  }
};

// Of W = (q - zero) * scale, over `size` elements, a multiple of kLanes. The squares are summed lane by lane, then by
// halves.
template <int kBytes>
inline float squared_error(const float* w, int size, float scale, float zero) {
  using V = Vector<kBytes>;
  using Floats = typename V::Floats;
  constexpr int kParts = kLanes / V::kWidth;
  const float inverse = 1.0f / scale;
  const Floats low = Floats{}, high = Floats{} + 15.0f;
  Floats sums[kParts] = {};
  for (int i = 0; i < size; i += kLanes) {
    for (int part = 0; part < kParts; ++part) {
      const Floats x = V::load(w + i + part * V::kWidth);
      Floats q = ((x * inverse + zero) + 12582912.0f) - 12582912.0f;
      q = q < low ? low : q;
      q = q > high ? high : q;
      const Floats error = x - (q - zero) * scale;
      sums[part] += error * error;
    }
  }
  for (int half = kParts / 2; half > 0; half /= 2) {
    for (int part = 0; part < half; ++part) sums[part] += sums[part + half];
  }
  return V::sum(sums[0]);
}

// The instructions round as float_bits.h does.
inline std::uint16_t to_f16(float x) {
#if defined(__F16C__)
  return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT);
#else
  return f32_to_f16(x);
#endif
}
inline float from_f16(std::uint16_t x) {
#if defined(__F16C__)
  return _cvtsh_ss(x);
#else
  return f16_to_f32(x);
#endif
}

// The float16 nearest to range / steps, or the next one up where that would clip by more than half a step.
inline std::uint16_t covering_scale(float range, float steps) {
  const std::uint16_t scale = to_f16(range / steps);
  const bool clips = range > (steps + 0.5f) * from_f16(scale);
  return static_cast<std::uint16_t>(scale + (clips ? 1 : 0));
}

// How one group is rounded; int8's zero is 0.
struct Rounding {
  std::uint16_t scale;
  std::uint16_t zero;
};

template <int kBytes>
inline Rounding int4_rounding(const float* w, int size, float low, float range) {
  Rounding best = {0, 0};
  float least = 0.0f;
  for (const float steps : kInt4Steps) {
    const bool first = steps == kInt4Steps[0];
    const std::uint16_t scale = first ? covering_scale(range, steps) : to_f16(range / steps);
    if (scale == 0) continue;
    const float beyond = steps > 15.0f ? (steps - 15.0f) * 0.5f : 0.0f;
    const std::uint16_t zero = to_f16(-low / from_f16(scale) - beyond);
    const float error = squared_error<kBytes>(w, size, from_f16(scale), from_f16(zero));
    if (first || error < least) {
      least = error;
      best = {scale, zero};
    }
  }
  return best;
}

// w holds `size` elements, a multiple of kLanes. Returns false when the group cannot be rounded.
template <int kBytes>
inline bool find_rounding(const float* w, int size, int bits, Rounding* rounding) {
  std::uint32_t magnitude = 0;  // of the largest element, as bits: these order like the values, infinity and NaN last
  for (int i = 0; i < size; ++i) {
    const std::uint32_t bits_of_w = float_bits(w[i]) & 0x7fffffffu;
    magnitude = bits_of_w > magnitude ? bits_of_w : magnitude;
  }
  *rounding = {0, 0};
  if (magnitude >= 0x7f800000u) return false;
  if (magnitude == 0) return true;
  constexpr float kTooLarge = 65520.0f;  // rounds to infinity
  if (bits == 8) {
    const float largest = bits_float(magnitude);
    if (largest / 127.0f >= kTooLarge) return false;
    rounding->scale = covering_scale(largest, 127.0f);
    return true;
  }
  float low = 0.0f, high = 0.0f;
  for (int i = 0; i < size; ++i) {
    low = w[i] < low ? w[i] : low;
    high = w[i] > high ? w[i] : high;
  }
  if ((high - low) / kInt4Steps[0] >= kTooLarge) return false;
  *rounding = int4_rounding<kBytes>(w, size, low, high - low);
  return true;
}

inline void round_group(const float* w, int size, int bits, Rounding rounding, std::int8_t* q) {
  const float scale = from_f16(rounding.scale), zero = from_f16(rounding.zero);
  const float inverse = rounding.scale != 0 ? 1.0f / scale : 0.0f;
  const float low = bits == 8 ? -127.0f : 0.0f;
  const float high = bits == 8 ? 127.0f : 15.0f;
  for (int i = 0; i < size; ++i) {
    const float nearest = round_to_even(w[i] * inverse + zero);
    q[i] = static_cast<std::int8_t>(static_cast<std::int32_t>(clip(nearest, low, high)));
  }
}

template <int kBytes>
inline std::int64_t quantize_weight_row_impl(const float* w, std::int64_t k, int bits, int group, std::int8_t* q,
                                             std::uint16_t* scales, std::uint16_t* zeros) {
  std::int64_t index = 0;
  for (std::int64_t begin = 0; begin < k; begin += group, ++index) {
    Rounding rounding;
    if (k - begin >= group) {
      if (!find_rounding<kBytes>(w + begin, group, bits, &rounding)) return index;
      round_group(w + begin, group, bits, rounding, q + begin);
    } else {
      float repeated[kMaxGroup];
      const int size = static_cast<int>(k - begin);
      for (int i = 0; i < group; ++i) repeated[i] = w[begin + i % size];
      if (!find_rounding<kBytes>(repeated, group, bits, &rounding)) return index;
      round_group(w + begin, size, bits, rounding, q + begin);
    }
    scales[index] = rounding.scale;
    if (bits == 4) zeros[index] = rounding.zero;
  }
  return -1;
}

}  // namespace
}  // namespace trtc::kernels
