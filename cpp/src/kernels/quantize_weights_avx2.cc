#include "kernels/quantize_weights_impl.h"

namespace trtc::kernels::avx2 {

std::int64_t quantize_weight_row(const float* w, std::int64_t k, int bits, int group, std::int8_t* q,
                                 std::uint16_t* scales, std::uint16_t* zeros) {
  return quantize_weight_row_impl<32>(w, k, bits, group, q, scales, zeros);
}

}  // namespace trtc::kernels::avx2
