#include "kernels/quantize_weights.h"

#include <cstdint>
#include <cstdio>
#include <string>

#include "common/cpu_features.h"
#include "common/thread_team.h"
#include "kernels/linear.h"
#include "kernels/quantize_weights_impl.h"
#include "trtc/errors.h"

namespace trtc::kernels {

namespace portable {
std::int64_t quantize_weight_row(const float* w, std::int64_t k, int bits, int group, std::int8_t* q,
                                 std::uint16_t* scales, std::uint16_t* zeros) {
  return quantize_weight_row_impl<16>(w, k, bits, group, q, scales, zeros);
}
}  // namespace portable

namespace {

QuantizeRowKernel row_kernel() {
#if defined(TRTC_X86)
  if (selected_isa() >= Isa::kAvx512) return avx512::quantize_weight_row;
  if (selected_isa() >= Isa::kAvx2) return avx2::quantize_weight_row;
#endif
  return portable::quantize_weight_row;
}

[[noreturn]] void refuse(const float* row, std::int64_t row_index, std::int64_t k, int bits, std::int64_t begin,
                         std::int64_t end) {
  std::int64_t worst = begin;  // NaN, then infinity, then the largest magnitude
  for (std::int64_t i = begin; i < end && i < k; ++i) {
    if ((float_bits(row[i]) & 0x7fffffffu) > (float_bits(row[worst]) & 0x7fffffffu)) worst = i;
  }
  char value[32];
  std::snprintf(value, sizeof value, "%g", static_cast<double>(row[worst]));
  const char* limit = bits == 8 ? "below 8321040 in magnitude" : "that span less than 982800 within a group";
  throw BuildError("weight [" + std::to_string(row_index) + ", " + std::to_string(worst) + "] is " + value + ": int" +
                   std::to_string(bits) + " needs finite weights " + limit +
                   ", or their float16 scale overflows; check the checkpoint or build without quantization");
}

}  // namespace

void quantize_groupwise(const float* w, std::int64_t n, std::int64_t k, int bits, int group, std::int8_t* q,
                        std::uint16_t* scales, std::uint16_t* zeros, int threads) {
  if (bits != 4 && bits != 8) throw BuildError("weights can have 4 or 8 bits, not " + std::to_string(bits));
  const std::int64_t groups = packed_layout(bits == 8 ? WeightFormat::kI8 : WeightFormat::kI4, n, k, group).groups;
  const QuantizeRowKernel kernel = row_kernel();
  ThreadTeam team(threads);
  team.run([&](Slice slice) {
    const Slice::Range rows = slice.of(n);
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      std::uint16_t* row_zeros = bits == 4 ? zeros + row * groups : nullptr;
      const std::int64_t bad = kernel(w + row * k, k, bits, group, q + row * k, scales + row * groups, row_zeros);
      if (bad >= 0) refuse(w + row * k, row, k, bits, bad * group, (bad + 1) * group);
    }
  });
}

}  // namespace trtc::kernels
