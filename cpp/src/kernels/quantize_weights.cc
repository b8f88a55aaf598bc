// Symmetric rounding of weights by groups; see quantize_groupwise in linear.h.
#include <cmath>
#include <cstring>
#include <string>

#include "common/float_bits.h"
#include "common/parallel_rows.h"
#include "kernels/linear.h"
#include "trtc/errors.h"

namespace trtc::kernels {
namespace {

constexpr int kMaxGroup = 128;
constexpr int kLanes = 16;  // partial sums of the squared error; fixes its order of summation

// int4 tries scale = max|w| / divisor for each and keeps the first with the least squared error. Divisors beyond 7 clip
// the largest positive weights and make the steps finer.
constexpr float kInt4Divisors[] = {7.0f, 7.25f, 7.5f, 7.75f, 8.0f, 8.25f, 8.5f, 9.0f};

#if defined(__x86_64__)
#define TRTC_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define TRTC_CLONES
#endif

// Rounds half to even for |x| < 2^22, as vector code on every machine.
inline float round_even(float x) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23
  return (x + kMagic) - kMagic;
}

// max|w| over a group of `size` weights, a multiple of kLanes.
TRTC_CLONES float max_magnitude(const float* w, int size) {
  float lanes[kLanes] = {};
  for (int i = 0; i < size; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const float magnitude = std::fabs(w[i + lane]);
      lanes[lane] = magnitude > lanes[lane] ? magnitude : lanes[lane];
    }
  }
  float largest = 0.0f;
  for (float lane : lanes) largest = lane > largest ? lane : largest;
  return largest;
}

// Rounds a padded group to q = clip(round(w * inverse), low, high) and returns the squared error against q * scale.
TRTC_CLONES float round_group(const float* w, int size, float scale, float low, float high, float* q) {
  const float inverse = 1.0f / scale;
  float lanes[kLanes] = {};
  for (int i = 0; i < size; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      float rounded = round_even(w[i + lane] * inverse);
      rounded = rounded < low ? low : rounded;
      rounded = rounded > high ? high : rounded;
      const float error = w[i + lane] - rounded * scale;
      q[i + lane] = rounded;
      lanes[lane] += error * error;
    }
  }
  float total = 0.0f;
  for (float lane : lanes) total += lane;
  return total;
}

// Quantizes one group of `count` weights; `padded` holds them followed by zeros up to `size`.
std::uint16_t quantize_group(const float* padded, int size, int count, int bits, std::int8_t* q) {
  const float largest = max_magnitude(padded, size);
  float rounded[2][kMaxGroup];
  int best = -1;
  float best_error = 0.0f;
  std::uint16_t best_scale = 0;
  const auto consider = [&](float divisor, float low, float high) {
    const std::uint16_t half = f32_to_f16(largest / divisor);
    const float scale = f16_to_f32(half);
    if (std::isinf(scale) || scale == 0.0f) {
      if (std::isinf(scale)) best_scale = half;
      return;
    }
    const int slot = best == 0 ? 1 : 0;
    const float error = round_group(padded, size, scale, low, high, rounded[slot]);
    if (best >= 0 && !(error < best_error)) return;
    best = slot;
    best_error = error;
    best_scale = half;
  };
  if (bits == 8) {
    consider(127.0f, -127.0f, 127.0f);
  } else {
    for (float divisor : kInt4Divisors) consider(divisor, -8.0f, 7.0f);
  }
  for (int i = 0; i < count; ++i) q[i] = best < 0 ? 0 : static_cast<std::int8_t>(rounded[best][i]);
  return best_scale;
}

}  // namespace

void quantize_groupwise(const float* w, std::int64_t n, std::int64_t k, int bits, int group, std::int8_t* q,
                        std::uint16_t* scales, int threads) {
  if (bits != 4 && bits != 8) throw BuildError("weights can be rounded to 4 or 8 bits, not " + std::to_string(bits));
  const PackedLayout layout = packed_layout(bits == 8 ? WeightFormat::kI8 : WeightFormat::kI4, n, k, group);
  parallel_rows(n, threads, [&](std::int64_t row) {
    for (std::int64_t g = 0; g < layout.groups; ++g) {
      const std::int64_t begin = g * group;
      const int count = static_cast<int>(k - begin < group ? k - begin : group);
      float padded[kMaxGroup] = {};
      std::memcpy(padded, w + row * k + begin, static_cast<std::size_t>(count) * sizeof(float));
      const std::uint16_t scale = quantize_group(padded, group, count, bits, q + row * k + begin);
      if (std::isinf(f16_to_f32(scale))) {
        throw BuildError("row " + std::to_string(row) + " holds weights too large for a float16 scale at " +
                         std::to_string(bits) + " bits; build without quantization");
      }
      scales[row * layout.groups + g] = scale;
    }
  });
}

}  // namespace trtc::kernels
