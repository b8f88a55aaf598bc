// Linear kernels for AVX2 with FMA and F16C: two registers stand for the 16 columns of a panel.
#include <immintrin.h>

#include <cstring>

#include "kernels/linear_impl.h"
#include "kernels/quantize_rows_impl.h"

namespace trtc::kernels::avx2 {
namespace {

struct Floats {
  __m256 low, high;
};
struct Ints {
  __m256i low, high;
};

struct Vec {
  using F = Floats;
  using I = Ints;
  using W = Ints;
  // Tile sizes, rows x panels, and panels side by side; as for AVX-512, an int8 tile may spill.
  static constexpr int kFloatTile = 4;
  static constexpr int kIntTile = 8;
  static constexpr int kMaxPanels = 2;
  static constexpr int kMinIntPanels = 1;
  static constexpr int kBlockPanels = 1;

  static __m256i mask(int count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static F zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static F set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static F load(const float* p, int count) {
    if (count == kPanelCols) return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
    return {_mm256_maskload_ps(p, mask(count)), _mm256_maskload_ps(p + 8, mask(count - 8))};
  }
  static void store(float* p, F x, int count) {
    if (count == kPanelCols) {
      _mm256_storeu_ps(p, x.low);
      _mm256_storeu_ps(p + 8, x.high);
    } else {
      _mm256_maskstore_ps(p, mask(count), x.low);
      _mm256_maskstore_ps(p + 8, mask(count - 8), x.high);
    }
  }
  static F add(F a, F b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
  static F mul(F a, F b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
  static F negate(F x) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return {_mm256_xor_ps(x.low, sign), _mm256_xor_ps(x.high, sign)};
  }
  static F fma(F a, F b, F c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
  }
  static F to_float(I x) { return {_mm256_cvtepi32_ps(x.low), _mm256_cvtepi32_ps(x.high)}; }

  static I load_words(const void* p) {
    const auto* words = static_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(words), _mm256_loadu_si256(words + 1)};
  }
  static F load_halves(const std::uint16_t* p) {
    const auto* halves = reinterpret_cast<const __m128i*>(p);
    return {_mm256_cvtph_ps(_mm_loadu_si128(halves)), _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))};
  }

  static F f32(W word) { return {_mm256_castsi256_ps(word.low), _mm256_castsi256_ps(word.high)}; }

  template <int i>
  static __m256 bf16_half(__m256i word) {
    return _mm256_castsi256_ps(i == 0 ? _mm256_slli_epi32(word, 16)
                                      : _mm256_and_si256(word, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  template <int i>
  static F bf16(W word) {
    return {bf16_half<i>(word.low), bf16_half<i>(word.high)};
  }

  // The integer goes to bit 24 of its word, which makes it q * 2^24; the scale takes the power out again. All exact.
  static F i8_scale(F scale) { return mul(scale, set(0x1p-24f)); }
  template <int i>
  static __m256 i8_half(__m256i word) {
    if constexpr (i < 3) word = _mm256_slli_epi32(word, 24 - 8 * i);
    if constexpr (i > 0) word = _mm256_and_si256(word, _mm256_set1_epi32(static_cast<int>(0xff000000u)));
    return _mm256_cvtepi32_ps(word);
  }
  template <int i>
  static F i8(W word) {
    return {i8_half<i>(word.low), i8_half<i>(word.high)};
  }

  static F i4_scale(F scale) { return mul(scale, set(0x1p-24f)); }
  template <int i>
  static __m256 i4_half(__m256i word) {
    constexpr int kBit = i < 4 ? 8 * i : 8 * (i - 4) + 4;
    if constexpr (kBit < 24) word = _mm256_slli_epi32(word, 24 - kBit);
    if constexpr (kBit > 24) word = _mm256_srli_epi32(word, kBit - 24);
    return _mm256_cvtepi32_ps(_mm256_and_si256(word, _mm256_set1_epi32(0x0f000000)));
  }
  template <int i>
  static F i4(W word) {
    return {i4_half<i>(word.low), i4_half<i>(word.high)};
  }

  static I zero_int() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  static __m256i quad(const std::int8_t* x) {
    std::int32_t bytes;
    std::memcpy(&bytes, x, sizeof bytes);
    return _mm256_set1_epi32(bytes);
  }
  static __m256i pairs_to_words(__m256i pairs) { return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)); }

  // int8 weights: |w| times x with the sign of w. Pairs stay within int16: 2 * 128 * 127 = 32512, as |x| <= 127.
  static I start_i8(const std::int32_t*) { return zero_int(); }
  static __m256i input_i8(const std::int8_t* x) { return quad(x); }
  static __m256i dot_i8_half(__m256i sum, __m256i x, __m256i word) {
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(word), _mm256_sign_epi8(x, word));
    return _mm256_add_epi32(sum, pairs_to_words(pairs));
  }
  static I dot_i8(I sum, __m256i x, W word) {
    return {dot_i8_half(sum.low, x, word.low), dot_i8_half(sum.high, x, word.high)};
  }

  static F sum_i8(const std::int8_t* x, std::int64_t group) {
    __m256i sum = _mm256_setzero_si256();
    for (std::int64_t i = 0; i < group; i += 32) {
      const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i));
      sum = _mm256_add_epi32(sum, pairs_to_words(_mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes)));
    }
    __m128i half = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1));
    const __m256i wide = _mm256_broadcastd_epi32(half);
    return to_float({wide, wide});
  }

  // int4 weights: two pairs stay within int16, 4 * 15 * 128 = 7680.
  struct Octet {
    __m256i low, high;
  };
  static Octet input_i4(const std::int8_t* x) { return {quad(x), quad(x + 4)}; }
  static __m256i dot_i4_half(__m256i sum, Octet x, __m256i word) {
    const __m256i nibble = _mm256_set1_epi8(0x0f);
    const __m256i low = _mm256_maddubs_epi16(_mm256_and_si256(word, nibble), x.low);
    const __m256i high = _mm256_maddubs_epi16(_mm256_and_si256(_mm256_srli_epi32(word, 4), nibble), x.high);
    return _mm256_add_epi32(sum, pairs_to_words(_mm256_add_epi16(low, high)));
  }
  static I dot_i4(I sum, Octet x, W word) {
    return {dot_i4_half(sum.low, x, word.low), dot_i4_half(sum.high, x, word.high)};
  }

  // Magnitudes as bits: these order like the values, infinity and NaN last.
  static __m256i start_magnitude() { return _mm256_setzero_si256(); }
  static __m256i max_magnitude(__m256i largest, F x) {
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    largest = _mm256_max_epi32(largest, _mm256_and_si256(_mm256_castps_si256(x.low), magnitude));
    return _mm256_max_epi32(largest, _mm256_and_si256(_mm256_castps_si256(x.high), magnitude));
  }
  static std::uint32_t largest(__m256i magnitude) {
    __m128i half = _mm_max_epi32(_mm256_castsi256_si128(magnitude), _mm256_extracti128_si256(magnitude, 1));
    half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0xb1));
    return static_cast<std::uint32_t>(_mm_cvtsi128_si32(half));
  }
  static __m256i rounded(__m256 x) {
    return _mm256_cvtps_epi32(_mm256_min_ps(_mm256_max_ps(x, _mm256_set1_ps(-127.0f)), _mm256_set1_ps(127.0f)));
  }
  static void store_i8(std::int8_t* p, F x) {
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(rounded(x.low), rounded(x.high)), 0xd8);
    const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
  }
};

}  // namespace

void linear(const LinearArgs& args, Slice slice) { linear_impl<Vec>(args, slice); }
void quantize_rows(const QuantizeRowsArgs& args, Slice slice) { quantize_rows_impl<Vec>(args, slice); }
void embedding(const EmbeddingArgs& args, Slice slice) { embedding_impl(args, slice); }

}  // namespace trtc::kernels::avx2
