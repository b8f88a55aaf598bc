#include "kernels/kernel_table.h"

#include <string>

#include "trtc/errors.h"

namespace trtc::kernels {
namespace {

#define TRTC_KERNELS_OF(isa, isa_of_linear)                                                                     \
  KernelTable {                                                                                                 \
    .linear = isa_of_linear::linear, .quantize_rows = isa::quantize_rows, .embedding = isa::embedding,          \
    .rms_norm = isa::rms_norm, .layer_norm = isa::layer_norm, .rotary = isa::rotary,                            \
    .gated_activation = isa::gated_activation, .activation = isa::activation, .add = isa::add, .mul = isa::mul, \
    .scale = isa::scale, .gather_rows = isa::gather_rows, .kv_write = isa::kv_write,                            \
    .paged_attention = isa::paged_attention                                                                     \
  }

constexpr KernelTable kPortableTable = TRTC_KERNELS_OF(portable, portable);
#if defined(TRTC_X86)
constexpr KernelTable kAvx2Table = TRTC_KERNELS_OF(avx2, avx2);
constexpr KernelTable kAvx512Table = TRTC_KERNELS_OF(avx512, avx512);
constexpr KernelTable kAvx512Bf16Table = TRTC_KERNELS_OF(avx512, avx512_bf16);
#endif

#undef TRTC_KERNELS_OF

}  // namespace

const KernelTable& kernel_table(Isa isa) {
  if (isa > detect_isa()) {
    throw EngineError("kernels of level " + std::string(isa_name(isa)) +
                      " cannot run here: this machine's highest is " + std::string(isa_name(detect_isa())) +
                      "; choose that or a lower one");
  }
  switch (isa) {
    case Isa::kPortable:
      return kPortableTable;
#if defined(TRTC_X86)
    case Isa::kAvx2:
      return kAvx2Table;
    case Isa::kAvx512:
      return kAvx512Table;
    case Isa::kAvx512Bf16:
      return kAvx512Bf16Table;
#endif
    default:
      throw EngineError("this build of libtrtc has no kernels of level " + std::string(isa_name(isa)) +
                        "; choose portable or build for x86-64");
  }
}

}  // namespace trtc::kernels
