// Linear layers over packed weights: y = x W^T + b, and embedding look-ups from the same packed matrix.
//
// Packed layout, the same for every ISA: panels of kPanelCols output columns. Inside a panel, for
//   kF32   k-major: 16 float32 per k
//   kBf16  pairs of k: [k/2][16 columns][2] bfloat16 (the VDPBF16PS order)
//   kI8    quads of k: [k/4][16 columns][4] int8 (the VPDPBUSD order)
//   kI4    octets of k: [k/8][16 columns][4] bytes; byte i of octet j holds k = 8j + i in its low and k = 8j + 4 + i in
//          its high nibble, q in [0, 15]
// n is padded to 16 columns and k to the group size (kI8, kI4) or to 2 (kBf16) with zeros.
// Quantized weights carry float16 scales [panels][groups][16]. kI8: W[n][k] = q * scale; also int32 column sums per
// group, same shape, which take out the +128 shift that VPDPBUSD's unsigned operand needs. kI4:
// W[n][k] = (q - zero) * scale with float16 zero points, same shape, which need not be integers.
//
// Order of summation, identical for one row and for many, and for every number of threads:
//   float weights and A16: one accumulator per output, over k ascending, with fused multiply-add
//     A16 dequantizes first: w = q * scale (exact) for kI8, w = fma(q, scale, -(zero * scale)) for kI4;
//     kBf16 on avx512_bf16 alone rounds the activations to bfloat16 too and adds pairs, see linear_avx512_bf16.cc;
//   A8: exact int32 sums inside a group, sum of x * q and, for kI4, of x; then over groups ascending
//     acc = fma(total, x_scale * w_scale, acc), total = sum(x * q) for kI8, fma(-zero, sum(x), sum(x * q)) for kI4.
// The bias is added last. So every ISA gives the same bits, but for kBf16 on avx512_bf16.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/cpu_features.h"
#include "common/slice.h"

namespace trtc::kernels {

constexpr int kPanelCols = 16;

enum class WeightFormat : std::uint32_t { kF32 = 0, kBf16 = 1, kI8 = 2, kI4 = 3 };

// Where the parts of one packed weight lie inside its 64-byte-aligned blob. Offsets and sizes in bytes.
struct PackedLayout {
  std::int64_t panels;
  std::int64_t k_padded;
  std::int64_t groups;       // 0 for float formats
  std::int64_t panel_bytes;  // data of one panel; its scales and sums are [groups][16] each
  std::size_t data_offset;
  std::size_t scales_offset;
  std::size_t sums_offset;   // of the column sums of kI8
  std::size_t zeros_offset;  // of the zero points of kI4
  std::size_t total_bytes;
};

// group: 32, 64 or 128 for kI8 and kI4, ignored otherwise. Throws BuildError on a non-positive size or other group.
PackedLayout packed_layout(WeightFormat format, std::int64_t n, std::int64_t k, int group);

// A view of a packed blob (usually inside the mapped engine file).
struct PackedWeight {
  WeightFormat format;
  std::int64_t n;  // output features
  std::int64_t k;  // input features
  int group;
  const std::byte* blob;  // packed_layout(format, n, k, group).total_bytes bytes
};

// Rows quantized by quantize_rows: int8 in [-127, 127] [rows, k_padded], scales float32 [rows, groups].
struct QuantizedRows {
  const std::int8_t* data;
  std::int64_t stride;  // elements between rows
  const float* scales;
  std::int64_t scale_stride;
};

// scale = max|x| / 127 by groups, q = round_half_even(x * (1 / scale)). A scale below the smallest normal float counts
// as zero; one of infinity or NaN is kept, so that the outputs show it.
struct QuantizeRowsArgs {
  std::int64_t rows;
  std::int64_t k;
  int group;
  const float* x;  // [rows, k]
  std::int64_t x_stride;
  std::int8_t* data;  // [rows, k padded to group], the padding is written as zero
  std::int64_t stride;
  float* scales;  // [rows, ceil(k / group)]
  std::int64_t scale_stride;
};

struct LinearArgs {
  std::int64_t rows;
  const float* x;  // [rows, k]; null when `quantized` is used (A8)
  std::int64_t x_stride;
  QuantizedRows quantized;  // data null unless A8
  PackedWeight weight;
  const float* bias;  // [n] or null
  float* y;           // [rows, n]
  std::int64_t y_stride;
};

struct EmbeddingArgs {
  std::int64_t rows;
  const std::int32_t* ids;  // [rows], each in [0, weight.n)
  PackedWeight weight;      // row id of the table is output column id of the packed matrix
  float* y;                 // [rows, k]
  std::int64_t y_stride;
};

// Rounds w float32 [n, k] to q int8 [n, k] and float16 scales and zeros (as bits) [n, ceil(k / group)], as
// quantize_weights.h says. bits 8 leaves zeros alone; it may be null. threads 0: every core, here and below.
// Throws BuildError when a weight is not finite or its scale overflows float16.
void quantize_groupwise(const float* w, std::int64_t n, std::int64_t k, int bits, int group, std::int8_t* q,
                        std::uint16_t* scales, std::uint16_t* zeros, int threads);

// Source weights, row-major [n, k], into a blob of packed_layout(...).total_bytes.
void pack_f32(const float* w, std::int64_t n, std::int64_t k, std::byte* blob, int threads);
void pack_bf16(const std::uint16_t* w, std::int64_t n, std::int64_t k, std::byte* blob, int threads);
void pack_i8(const std::int8_t* q, const std::uint16_t* scales, std::int64_t n, std::int64_t k, int group,
             std::byte* blob, int threads);
void pack_i4(const std::int8_t* q, const std::uint16_t* scales, const std::uint16_t* zeros, std::int64_t n,
             std::int64_t k, int group, std::byte* blob, int threads);

}  // namespace trtc::kernels
