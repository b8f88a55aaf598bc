// Vectors of 16 float32 for AVX-512 (F, BW, DQ, VL); interface in vec.h. Only *_avx512.cc files include this.
#pragma once

// GCC 12 warns about its own headers (https://gcc.gnu.org/bugzilla/show_bug.cgi?id=105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include "kernels/vec.h"

namespace trtc::kernels::avx512 {
namespace {

struct Vec {
  using F = __m512;
  static constexpr int kLanes = 16;
  static constexpr int kRegisters = 32;

  static F zero() { return _mm512_setzero_ps(); }
  static F set(float x) { return _mm512_set1_ps(x); }
  static F ramp() { return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); }

  static __mmask16 mask(First first) { return static_cast<__mmask16>((1u << first.n) - 1u); }
  static F load(const float* p, All) { return _mm512_loadu_ps(p); }
  static F load(const float* p, First first) { return _mm512_maskz_loadu_ps(mask(first), p); }
  static void store(float* p, F x, All) { _mm512_storeu_ps(p, x); }
  static void store(float* p, F x, First first) { _mm512_mask_storeu_ps(p, mask(first), x); }
  static F keep(F x, All) { return x; }
  static F keep(F x, First first) { return _mm512_maskz_mov_ps(mask(first), x); }

  static F widen_bf16(__m256i halves) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
  static F load_bf16(const std::uint16_t* p, All) {
    return widen_bf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static F load_bf16(const std::uint16_t* p, First first) {
    return widen_bf16(_mm256_maskz_loadu_epi16(mask(first), p));
  }
  static __m256i narrow_bf16(F x) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i lsb = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(lsb, _mm512_set1_epi32(0x7fff)));
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const __m512i kept = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(kept, 16));
  }
  static void store_bf16(std::uint16_t* p, F x, All) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow_bf16(x));
  }
  static void store_bf16(std::uint16_t* p, F x, First first) {
    _mm256_mask_storeu_epi16(p, mask(first), narrow_bf16(x));
  }

  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
  static F min(F a, F b) { return _mm512_min_ps(a, b); }
  static F abs(F x) { return _mm512_abs_ps(x); }
  static F with_sign_of(F magnitude, F sign) {
    return _mm512_or_ps(abs(magnitude), _mm512_and_ps(_mm512_set1_ps(-0.0f), sign));
  }
  static F select_less(F a, F b, F if_less, F otherwise) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), otherwise, if_less);
  }
  static F round(F x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static F scale_pow2(F x, F n) { return _mm512_scalef_ps(x, n); }

  static float first(F x) { return _mm512_cvtss_f32(x); }
  static float sum(F x) {
    const __m256 v = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 w = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    w = _mm_add_ps(w, _mm_movehl_ps(w, w));
    return _mm_cvtss_f32(_mm_add_ss(w, _mm_movehdup_ps(w)));
  }
  static float largest(F x) {
    const __m256 v = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 w = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    w = _mm_max_ps(w, _mm_movehl_ps(w, w));
    return _mm_cvtss_f32(_mm_max_ss(w, _mm_movehdup_ps(w)));
  }

  // Pairs of rows, pairs of pairs: then t[4 g + c] holds, in its quarter q, column 4 q + c of rows 4 g .. 4 g + 3.
  // Two rounds of quarter shuffles bring the groups g of a column together.
  static void transpose(F (&r)[16]) {
    F s[16];
    for (int i = 0; i < 16; i += 2) {
      s[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
      s[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    F t[16];
    for (int i = 0; i < 16; i += 4) {
      t[i] = _mm512_shuffle_ps(s[i], s[i + 2], 0x44);
      t[i + 1] = _mm512_shuffle_ps(s[i], s[i + 2], 0xee);
      t[i + 2] = _mm512_shuffle_ps(s[i + 1], s[i + 3], 0x44);
      t[i + 3] = _mm512_shuffle_ps(s[i + 1], s[i + 3], 0xee);
    }
    for (int c = 0; c < 4; ++c) {
      const F even_low = _mm512_shuffle_f32x4(t[c], t[4 + c], 0x88);
      const F odd_low = _mm512_shuffle_f32x4(t[c], t[4 + c], 0xdd);
      const F even_high = _mm512_shuffle_f32x4(t[8 + c], t[12 + c], 0x88);
      const F odd_high = _mm512_shuffle_f32x4(t[8 + c], t[12 + c], 0xdd);
      r[c] = _mm512_shuffle_f32x4(even_low, even_high, 0x88);
      r[4 + c] = _mm512_shuffle_f32x4(odd_low, odd_high, 0x88);
      r[8 + c] = _mm512_shuffle_f32x4(even_low, even_high, 0xdd);
      r[12 + c] = _mm512_shuffle_f32x4(odd_low, odd_high, 0xdd);
    }
  }
};

}  // namespace
}  // namespace trtc::kernels::avx512
