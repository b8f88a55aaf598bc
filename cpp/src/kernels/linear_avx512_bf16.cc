// bfloat16 weights times activations rounded to bfloat16 (to nearest even), two k at a time by VDPBF16PS: for every
// pair, k ascending, the odd element's product is added to the accumulator, then the even one's, each sum rounded to
// nearest even; subnormal inputs and results count as zero. Other formats are the AVX-512 kernels'.

// GCC 12 warns about its own headers (https://gcc.gnu.org/bugzilla/show_bug.cgi?id=105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include "kernels/kernel_table.h"
#include "kernels/linear_tiles.h"

namespace trtc::kernels::avx512_bf16 {
namespace {

struct Vec {
  using F = __m512;
  static __mmask16 mask(int count) { return static_cast<__mmask16>((1u << count) - 1u); }
  static F load(const float* p, int count) { return _mm512_maskz_loadu_ps(mask(count), p); }
  static void store(float* p, F x, int count) { _mm512_mask_storeu_ps(p, mask(count), x); }
  static F zero() { return _mm512_setzero_ps(); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
};

struct Bf16Kernel {
  static constexpr int kTile = 16;
  static constexpr int kMaxPanels = 4;
  static constexpr int kMinPanels = 4;         // rounding activations is shared by the panels of a tile
  static constexpr std::int64_t kChunk = 256;  // k whose rounded activations wait on the stack

  // Rounds `count` activations; what follows up to a whole pair becomes zero.
  static void round_row(const float* x, std::int64_t count, std::uint32_t* pairs) {
    for (std::int64_t i = 0; i < count; i += 32) {
      const std::int64_t left = count - i;
      const __m512 low = Vec::load(x + i, left < 16 ? static_cast<int>(left) : 16);
      const __m512 high = Vec::load(x + i + 16, left < 16 ? 0 : left < 32 ? static_cast<int>(left - 16) : 16);
      _mm512_storeu_si512(pairs + i / 2, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
    }
  }

  template <int R, int P>
  [[gnu::noinline]] static void tile(const LinearJob& job, std::int64_t panel, std::int64_t row) {
    const float* x = job.args.x + row * job.args.x_stride;
    const std::byte* words = job.panel(panel);
    std::uint32_t pairs[R][kChunk / 2];
    __m512 acc[R][P];
    __m512i word[P];
    zero_tile<Vec, R, P>(acc);
    for (std::int64_t begin = 0; begin < job.k; begin += kChunk) {
      const std::int64_t count = job.k - begin < kChunk ? job.k - begin : kChunk;
      for (int r = 0; r < R; ++r) round_row(x + r * job.args.x_stride + begin, count, pairs[r]);
      for (std::int64_t i = 0; i < (count + 1) / 2; ++i, words += kWordBytes) {
        unroll<P>([&](auto p) TRTC_UNROLLED { word[p] = _mm512_loadu_si512(words + p * job.panel_bytes); });
        unroll<R>([&](auto r) TRTC_UNROLLED {
          const __m512i pair = _mm512_set1_epi32(static_cast<std::int32_t>(pairs[r][i]));
          unroll<P>([&](auto p) TRTC_UNROLLED {
            acc[r][p] =
                _mm512_dpbf16_ps(acc[r][p], reinterpret_cast<__m512bh>(pair), reinterpret_cast<__m512bh>(word[p]));
          });
        });
      }
    }
    add_bias_and_store<Vec, R, P>(job, panel, row, acc);
  }

  template <int P>
  static void rows(const LinearJob& job, std::int64_t panel, Slice::Range rows) {
    run_tiles<Bf16Kernel, P>(job, panel, rows);
  }
};

}  // namespace

void linear(const LinearArgs& args, Slice slice) {
  if (args.weight.format != WeightFormat::kBf16) return avx512::linear(args, slice);
  run_linear<Bf16Kernel>(args, slice);
}

}  // namespace trtc::kernels::avx512_bf16
