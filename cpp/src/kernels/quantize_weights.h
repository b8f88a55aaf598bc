// Rounding of weights to int8 or int4 by groups along k, and the row kernel of each instruction set.
//
// A group holds `group` neighbouring elements of a row (the last may hold fewer) and W ~= q * scale, where scale is the
// float16 nearest to the one wanted and q = clip(round_to_even(w * (1 / scale))) in float32.
//   int8: scale = max|w| / 127, q in [-127, 127].
//   int4: q in [-8, 7]. Of max|w| / 7 and extreme / -d, d in kInt4Divisors, extreme being the first element of largest
//         magnitude, the scale with the least squared error; the earlier one when equal. It may be negative, so that
//         the extreme always has the longer side of the range.
// Where a subnormal float16 came out so low that max|w| would be clipped by more than half a step, the next one up is
// taken: |w - q * scale| <= |scale| / 2 holds for int8 and for int4's first candidate.
// A group of zeros has scale 0 and q 0.
#pragma once

#include <cstdint>

namespace trtc::kernels {

constexpr float kInt4Divisors[] = {7.0f, 7.25f, 7.5f, 7.75f, 8.0f, 8.25f, 8.5f, 8.75f, 9.0f, 9.5f, 10.0f};

// Rounds one row w [k] to q [k] and scales [ceil(k / group)]. Returns the first group that cannot be: it holds a value
// that is not finite, or its scale exceeds float16; -1 when all could.
using QuantizeRowKernel = std::int64_t (*)(const float* w, std::int64_t k, int bits, int group, std::int8_t* q,
                                           std::uint16_t* scales);

namespace portable {
std::int64_t quantize_weight_row(const float*, std::int64_t, int, int, std::int8_t*, std::uint16_t*);
}
namespace avx2 {
std::int64_t quantize_weight_row(const float*, std::int64_t, int, int, std::int8_t*, std::uint16_t*);
}
namespace avx512 {
std::int64_t quantize_weight_row(const float*, std::int64_t, int, int, std::int8_t*, std::uint16_t*);
}

}  // namespace trtc::kernels
