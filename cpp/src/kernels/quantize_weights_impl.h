// quantize_weights.h as plain loops over 16 lanes that the compiler vectorizes; every instruction set includes its own
// copy and gets the same bits.
#pragma once

#include <cstdint>

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

// `size` is a multiple of kLanes. The squares are summed lane by lane, then by halves.
inline float squared_error(const float* w, int size, float scale) {
  const float inverse = 1.0f / scale;
  float sums[kLanes] = {};
  for (int i = 0; i < size; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const float q = clip(round_to_even(w[i + lane] * inverse), -8.0f, 7.0f);
      const float error = w[i + lane] - q * scale;
      sums[lane] += error * error;
    }
  }
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  }
  return sums[0];
}

// The float16 nearest to largest / steps, or the next one up where that would clip by more than half a step.
inline std::uint16_t covering_scale(float largest, float steps) {
  const std::uint16_t scale = f32_to_f16(largest / steps);
  const bool clips = largest > (steps + 0.5f) * f16_to_f32(scale);
  return static_cast<std::uint16_t>(scale + (clips ? 1 : 0));
}

inline std::uint16_t int4_scale(const float* w, int size, float largest) {
  float extreme = 0.0f;
  for (int i = size - 1; i >= 0; --i) {
    if (w[i] == largest || w[i] == -largest) extreme = w[i];
  }
  std::uint16_t best = covering_scale(largest, 7.0f);
  float least = squared_error(w, size, f16_to_f32(best));
  for (const float divisor : kInt4Divisors) {
    const std::uint16_t candidate = f32_to_f16(extreme / -divisor);
    if ((candidate & 0x7fffu) == 0) continue;
    const float error = squared_error(w, size, f16_to_f32(candidate));
    if (error < least) {
      least = error;
      best = candidate;
    }
  }
  return best;
}

// w and q hold `size` elements, a multiple of kLanes. Returns whether the group could be rounded.
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
    *scale = bits == 8 ? covering_scale(largest, 127.0f) : int4_scale(w, size, largest);
    inverse = 1.0f / f16_to_f32(*scale);
  }
  const float low = bits == 8 ? -127.0f : -8.0f;
  const float high = bits == 8 ? 127.0f : 7.0f;
  for (int i = 0; i < size; ++i) {
    q[i] = static_cast<std::int8_t>(static_cast<std::int32_t>(clip(round_to_even(w[i] * inverse), low, high)));
  }
  return true;
}

inline std::int64_t quantize_weight_row_impl(const float* w, std::int64_t k, int bits, int group, std::int8_t* q,
                                             std::uint16_t* scales) {
  std::int64_t index = 0;
  for (std::int64_t begin = 0; begin < k; begin += group, ++index) {
    if (k - begin >= group) {
      if (!quantize_group(w + begin, group, bits, q + begin, scales + index)) return index;
      continue;
    }
    float padded[kMaxGroup] = {};
    std::int8_t rounded[kMaxGroup];
    const int size = static_cast<int>(k - begin);
    for (int i = 0; i < size; ++i) padded[i] = w[begin + i];
    const int whole = (size + kLanes - 1) / kLanes * kLanes;
    if (!quantize_group(padded, whole, bits, rounded, scales + index)) return index;
    for (int i = 0; i < size; ++i) q[begin + i] = rounded[i];
  }
  return -1;
}

}  // namespace
}  // namespace trtc::kernels
