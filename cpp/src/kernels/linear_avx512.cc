// Linear kernels for AVX-512 (F, BW, DQ, VL) with VNNI.

// GCC 12 warns about its own headers (https://gcc.gnu.org/bugzilla/show_bug.cgi?id=105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include <cstring>

#include "kernels/linear_impl.h"
#include "kernels/quantize_rows_impl.h"

namespace trtc::kernels::avx512 {
namespace {

struct Vec {
  using F = __m512;
  using I = __m512i;
  using W = __m512i;
  // Tile sizes, rows x panels, and panels side by side. An int8 tile's float accumulators, used once per group, may
  // wait on the stack.
  static constexpr int kFloatTile = 16;
  static constexpr int kIntTile = 16;
  static constexpr int kMaxPanels = 4;
  static constexpr int kMinIntPanels = 4;
  static constexpr int kBlockPanels = 2;

  static __mmask16 mask(int count) { return static_cast<__mmask16>((1u << count) - 1u); }
  static F zero() { return _mm512_setzero_ps(); }
  static F set(float x) { return _mm512_set1_ps(x); }
  static F load(const float* p, int count) { return _mm512_maskz_loadu_ps(mask(count), p); }
  static void store(float* p, F x, int count) { _mm512_mask_storeu_ps(p, mask(count), x); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F negate(F x) { return _mm512_xor_ps(x, set(-0.0f)); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F to_float(I x) { return _mm512_cvtepi32_ps(x); }

  static W load_words(const void* p) { return _mm512_loadu_si512(p); }
  static F load_halves(const std::uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }

  static F f32(W word) { return _mm512_castsi512_ps(word); }

  template <int i>
  static F bf16(W word) {
    return _mm512_castsi512_ps(i == 0 ? _mm512_slli_epi32(word, 16)
                                      : _mm512_and_si512(word, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }

  // The byte goes to the top of its word, which makes it q * 2^24; the scale takes the power out again. Both exact.
  static F i8_scale(F scale) { return mul(scale, set(0x1p-24f)); }
  template <int i>
  static F i8(W word) {
    if constexpr (i < 3) word = _mm512_slli_epi32(word, 24 - 8 * i);
    if constexpr (i > 0) word = _mm512_and_si512(word, _mm512_set1_epi32(static_cast<int>(0xff000000u)));
    return _mm512_cvtepi32_ps(word);
  }

  // A look-up by the low four bits of each word.
  static F i4_scale(F scale) { return scale; }
  template <int i>
  static F i4(W word) {
    const F values = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    constexpr int kShift = i < 4 ? 8 * i : 8 * (i - 4) + 4;
    if constexpr (kShift > 0) word = _mm512_srli_epi32(word, kShift);
    return _mm512_permutexvar_ps(word, values);
  }

  static I zero_int() { return _mm512_setzero_si512(); }
  static std::int32_t load_quad(const std::int8_t* x) {
    std::int32_t quad;
    std::memcpy(&quad, x, sizeof quad);
    return quad;
  }

  // VPDPBUSD wants one operand unsigned. int8 weights: x + 128, taken out by 128 times the column's sum.
  static I start_i8(const std::int32_t* sums) {
    return _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(_mm512_loadu_si512(sums), 7));
  }
  static I input_i8(const std::int8_t* x) {
    return _mm512_set1_epi32(static_cast<std::int32_t>(static_cast<std::uint32_t>(load_quad(x)) ^ 0x80808080u));
  }
  static I dot_i8(I sum, I x, W word) { return _mm512_dpbusd_epi32(sum, x, word); }

  static F sum_i8(const std::int8_t* x, std::int64_t group) {
    __m256i sum = _mm256_setzero_si256();
    for (std::int64_t i = 0; i < group; i += 32) {
      const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i));
      sum = _mm256_dpbusd_epi32(sum, _mm256_set1_epi8(1), bytes);
    }
    __m128i half = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1));
    return to_float(_mm512_broadcastd_epi32(half));
  }

  struct Octet {
    I low, high;
  };
  static Octet input_i4(const std::int8_t* x) {
    return {_mm512_set1_epi32(load_quad(x)), _mm512_set1_epi32(load_quad(x + 4))};
  }
  static I dot_i4(I sum, Octet x, W word) {
    const __m512i nibble = _mm512_set1_epi8(0x0f);
    sum = _mm512_dpbusd_epi32(sum, _mm512_and_si512(word, nibble), x.low);
    return _mm512_dpbusd_epi32(sum, _mm512_and_si512(_mm512_srli_epi32(word, 4), nibble), x.high);
  }

  // Magnitudes as bits: these order like the values, infinity and NaN last.
  static I start_magnitude() { return _mm512_setzero_si512(); }
  static I max_magnitude(I largest, F x) {
    return _mm512_max_epi32(largest, _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff)));
  }
  static std::uint32_t largest(I magnitude) { return static_cast<std::uint32_t>(_mm512_reduce_max_epi32(magnitude)); }
  static void store_i8(std::int8_t* p, F x) {
    const F clipped = _mm512_min_ps(_mm512_max_ps(x, set(-127.0f)), set(127.0f));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(clipped)));
  }
};

}  // namespace

void linear(const LinearArgs& args, Slice slice) { linear_impl<Vec>(args, slice); }
void quantize_rows(const QuantizeRowsArgs& args, Slice slice) { quantize_rows_impl<Vec>(args, slice); }
void embedding(const EmbeddingArgs& args, Slice slice) { embedding_impl(args, slice); }

}  // namespace trtc::kernels::avx512
