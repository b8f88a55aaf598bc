// Vectors of 8 float32 for AVX2 with FMA; interface in vec.h. Only *_avx2.cc files include this.
#pragma once

#include <immintrin.h>

#include "kernels/vec.h"

namespace trtc::kernels::avx2 {
namespace {

struct Vec {
  using F = __m256;
  static constexpr int kLanes = 8;
  static constexpr int kRegisters = 16;

  static F zero() { return _mm256_setzero_ps(); }
  static F set(float x) { return _mm256_set1_ps(x); }
  static F ramp() { return _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7); }

  static __m256i mask(First first) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(first.n), lane);
  }
  static F load(const float* p, All) { return _mm256_loadu_ps(p); }
  static F load(const float* p, First first) { return _mm256_maskload_ps(p, mask(first)); }
  static void store(float* p, F x, All) { _mm256_storeu_ps(p, x); }
  static void store(float* p, F x, First first) { _mm256_maskstore_ps(p, mask(first), x); }
  static F keep(F x, All) { return x; }
  static F keep(F x, First first) { return _mm256_and_ps(x, _mm256_castsi256_ps(mask(first))); }

  static F widen_bf16(__m128i halves) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
  static F load_bf16(const std::uint16_t* p, All) {
    return widen_bf16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static F load_bf16(const std::uint16_t* p, First first) {
    alignas(16) std::uint16_t lanes[8] = {};
    for (int i = 0; i < first.n; ++i) lanes[i] = p[i];
    return load_bf16(lanes, All{});
  }
  static __m128i narrow_bf16(F x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i lsb = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(lsb, _mm256_set1_epi32(0x7fff)));
    const __m256i quieted = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i high = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quieted, nan), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
  }
  static void store_bf16(std::uint16_t* p, F x, All) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow_bf16(x));
  }
  static void store_bf16(std::uint16_t* p, F x, First first) {
    alignas(16) std::uint16_t lanes[8];
    store_bf16(lanes, x, All{});
    for (int i = 0; i < first.n; ++i) p[i] = lanes[i];
  }

  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F fnma(F a, F b, F c) { return _mm256_fnmadd_ps(a, b, c); }
  static F max(F a, F b) { return _mm256_max_ps(a, b); }
  static F min(F a, F b) { return _mm256_min_ps(a, b); }
  static F abs(F x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }
  static F with_sign_of(F magnitude, F sign) {
    return _mm256_or_ps(abs(magnitude), _mm256_and_ps(_mm256_set1_ps(-0.0f), sign));
  }
  static F select_less(F a, F b, F if_less, F otherwise) {
    return _mm256_blendv_ps(otherwise, if_less, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
  }
  static F round(F x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

  static F pow2(__m256i n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
  }
  static F scale_pow2(F x, F n) {
    const __m256i whole = _mm256_cvtps_epi32(n);
    const __m256i half = _mm256_srai_epi32(whole, 1);
    return x * pow2(half) * pow2(_mm256_sub_epi32(whole, half));
  }

  static float first(F x) { return _mm256_cvtss_f32(x); }
  static float sum(F x) {
    __m128 v = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    v = _mm_add_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)));
  }
  static float largest(F x) {
    __m128 v = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    v = _mm_max_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_max_ss(v, _mm_movehdup_ps(v)));
  }

  // Pairs of rows, then pairs of pairs, then the two halves.
  static void transpose(F (&r)[8]) {
    F t[8];
    for (int i = 0; i < 8; i += 2) {
      t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
      t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    F u[8];
    for (int i = 0; i < 8; i += 4) {
      u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
      u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
      u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
      u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; ++i) {
      r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
      r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
    }
  }
};

}  // namespace
}  // namespace trtc::kernels::avx2
