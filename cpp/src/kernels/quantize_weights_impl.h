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

// `size` is a multiple of kLanes. The squares are summed lane by lane, then by halves.
template <int kBytes>
inline float squared_error(const float* w, int size, float scale) {
  using V = Vector<kBytes>;
  using Floats = typename V::Floats;
  constexpr int kParts = kLanes / V::kWidth;
  const float inverse = 1.0f / scale;
  const Floats low = Floats{} - 8.0f, high = Floats{} + 7.0f;
  Floats sums[kParts] = {};
  for (int i = 0; i < size; i += kLanes) {
    for (int part = 0; part < kParts; ++part) {
      const Floats x = V::load(w + i + part * V::kWidth);
      Floats q = (x * inverse + 12582912.0f) - 12582912.0f;
      q = q < low ? low : q;
      q = q > high ? high : q;
      const Floats error = x - q * scale;
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

// The float16 nearest to largest / steps, or the next one up where that would clip by more than half a step.
inline std::uint16_t covering_scale(float largest, float steps) {
  const std::uint16_t scale = to_f16(largest / steps);
  const bool clips = largest > (steps + 0.5f) * from_f16(scale);
  return static_cast<std::uint16_t>(scale + (clips ? 1 : 0));
}

template <int kBytes>
inline std::uint16_t int4_scale(const float* w, int size, float largest) {
  const float* extreme = w;
  while (*extreme != largest && *extreme != -largest) ++extreme;
  std::uint16_t best = covering_scale(largest, 7.0f);
  float least = squared_error<kBytes>(w, size, from_f16(best));
  for (const float divisor : kInt4Divisors) {
    const std::uint16_t candidate = to_f16(*extreme / -divisor);
    if ((candidate & 0x7fffu) == 0) continue;
    const float error = squared_error<kBytes>(w, size, from_f16(candidate));
    if (error < least) {
      least = error;
      best = candidate;
    }
  }
  return best;
}

// w and q hold `size` elements, a multiple of kLanes. Returns whether the group could be rounded.
template <int kBytes>
inline bool quantize_group(const float* w, int size, int bits, std::int8_t* q, std::uint16_t* scale) {
  std::uint32_t magnitude = 0;  // of the largest element, as bits: these order like the values, infinity and NaN last
  for (int i = 0; i < size; ++i) {
    const std::uint32_t bits_of_w = float_bits(w[i]) & 0x7fffffffu;
    magnitude = bits_of_w > magnitude ? bits_of_w : magnitude;
  }
  if (magnitude >= 0x7f800000u) return false;
  *scale = 0;
  float inverse = 0.0f;
  if (magnitude != 0) {
    const float largest = bits_float(magnitude);
    if (largest / (bits == 8 ? 127.0f : 7.0f) >= 65520.0f) return false;  // rounds to infinity
    *scale = bits == 8 ? covering_scale(largest, 127.0f) : int4_scale<kBytes>(w, size, largest);
    inverse = 1.0f / from_f16(*scale);
  }
  const float low = bits == 8 ? -127.0f : -8.0f;
  const float high = bits == 8 ? 127.0f : 7.0f;
  for (int i = 0; i < size; ++i) {
    q[i] = static_cast<std::int8_t>(static_cast<std::int32_t>(clip(round_to_even(w[i] * inverse), low, high)));
  }
  return true;
}

template <int kBytes>
inline std::int64_t quantize_weight_row_impl(const float* w, std::int64_t k, int bits, int group, std::int8_t* q,
                                             std::uint16_t* scales) {
  std::int64_t index = 0;
  for (std::int64_t begin = 0; begin < k; begin += group, ++index) {
    if (k - begin >= group) {
      if (!quantize_group<kBytes>(w + begin, group, bits, q + begin, scales + index)) return index;
      continue;
    }
    float padded[kMaxGroup] = {};
    std::int8_t rounded[kMaxGroup];
    const int size = static_cast<int>(k - begin);
    for (int i = 0; i < size; ++i) padded[i] = w[begin + i];
    const int whole = (size + kLanes - 1) / kLanes * kLanes;
    if (!quantize_group<kBytes>(padded, whole, bits, rounded, scales + index)) return index;
    for (int i = 0; i < size; ++i) q[begin + i] = rounded[i];
  }
  return -1;
}

}  // namespace
}  // namespace trtc::kernels
