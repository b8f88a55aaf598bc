// Rounding of weights to int8 or int4 by groups along k, and the row kernel of each instruction set.
//
// A group holds `group` neighbouring elements of a row (the last may hold fewer; they are repeated to fill
// it when scale and zero are chosen).
//   int8: W ~= q * scale, scale = max|w| / 127, q = clip(round_to_even(w * (1 / scale))) in [-127, 127].
//   int4: W ~= (q - zero) * scale, q = clip(round_to_even(w * (1 / scale) + zero)) in [0, 15]. With the range
//         [low, high] = [min(w, 0), max(w, 0)] and steps d of kInt4Steps, scale = (high - low) / d and
//         zero = -low / scale - max(0, d - 15) / 2: of these the one with the least squared error, the earlier when
//         equal. Steps above 15 clip both ends; steps below 15 find the grid of weights that had 4 bits before
//         (GGUF's Q4_0, Q4_1, Q4_K), which then lose next to nothing.
// All in float32; scale and zero are the nearest float16. Where a subnormal scale came out so low that the largest
// element would be clipped by more than half a step, the next one up is taken, so that |w - W| <= scale / 2 holds for
// int8 and, but for the rounding of zero (2^-8 steps), for int4's first candidate.
// A group of zeros has scale, zero and q 0.
#pragma once

#include <cstdint>

namespace trtc::kernels {

constexpr float kInt4Steps[] = {15.0f, 15.5f, 16.0f, 16.5f, 17.0f, 14.0f, 13.0f, 12.0f, 11.0f, 10.0f, 9.0f, 8.0f};

// Rounds one row w [k] to q [k], scales and zeros [ceil(k / group)] (zeros only for 4 bits). Returns the first group
// that cannot be: it holds a value that is not finite, or its scale exceeds float16; -1 when all could.
using QuantizeRowKernel = std::int64_t (*)(const float* w, std::int64_t k, int bits, int group, std::int8_t* q,
                                           std::uint16_t* scales, std::uint16_t* zeros);

namespace portable {
std::int64_t quantize_weight_row(const float*, std::int64_t, int, int, std::int8_t*, std::uint16_t*, std::uint16_t*);
}
namespace avx2 {
std::int64_t quantize_weight_row(const float*, std::int64_t, int, int, std::int8_t*, std::uint16_t*, std::uint16_t*);
}
namespace avx512 {
std::int64_t quantize_weight_row(const float*, std::int64_t, int, int, std::int8_t*, std::uint16_t*, std::uint16_t*);
}

}  // namespace trtc::kernels
