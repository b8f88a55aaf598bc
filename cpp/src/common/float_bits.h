// Scalar conversions between float32 and the 16-bit float formats. Internal linkage, so that every translation unit,
// whatever its instruction set, keeps its own copy.
#pragma once

#include <cstdint>

namespace trtc {

static inline std::uint32_t float_bits(float value) { return __builtin_bit_cast(std::uint32_t, value); }
static inline float bits_float(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

static inline float bf16_to_f32(std::uint16_t bits) { return bits_float(static_cast<std::uint32_t>(bits) << 16); }

// Rounds to nearest even; a NaN stays a (quiet) NaN.
static inline std::uint16_t f32_to_bf16(float value) {
  const std::uint32_t bits = float_bits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// IEEE binary16; exact, subnormals included.
static inline float f16_to_f32(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1fu;
  const std::uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return bits_float(sign | float_bits(magnitude));
  }
  const std::uint32_t wide = exponent == 31 ? 255u : exponent + 112u;
  return bits_float(sign | (wide << 23) | (mantissa << 13));
}

// Rounds to nearest even; overflow gives infinity; a NaN stays a (quiet) NaN.
static inline std::uint16_t f32_to_f16(float value) {
  const std::uint32_t bits = float_bits(value);
  const std::uint16_t sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // 65520 and up
  if (magnitude < 0x38800000u) {
    // Below 2^-14 the result is subnormal: adding 0.5 leaves value * 2^24, rounded to even, in the low bits.
    const std::uint32_t shifted = float_bits(bits_float(magnitude) + 0.5f) - float_bits(0.5f);
    return static_cast<std::uint16_t>(sign | shifted);
  }
  const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

}  // namespace trtc
