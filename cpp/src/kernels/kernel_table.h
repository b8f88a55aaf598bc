// Every kernel of one ISA level. A family's ISA file defines its functions in trtc::kernels::<isa>.
#pragma once

#include "common/cpu_features.h"
#include "kernels/elementwise.h"
#include "kernels/linear.h"
#include "kernels/norm.h"
#include "kernels/paged_attention.h"
#include "kernels/rotary.h"

namespace trtc::kernels {

struct KernelTable {
  void (*linear)(const LinearArgs&, Slice);
  void (*quantize_rows)(const QuantizeRowsArgs&, Slice);
  void (*embedding)(const EmbeddingArgs&, Slice);
  void (*rms_norm)(const NormArgs&, Slice);
  void (*layer_norm)(const NormArgs&, Slice);
  void (*rotary)(const RotaryArgs&, Slice);
  void (*gated_activation)(const GatedActivationArgs&, Slice);
  void (*activation)(const ActivationArgs&, Slice);
  void (*add)(const AddArgs&, Slice);
  void (*mul)(const MulArgs&, Slice);
  void (*scale)(const ScaleArgs&, Slice);
  void (*gather_rows)(const GatherRowsArgs&, Slice);
  void (*kv_write)(const KvWriteArgs&, Slice);
  void (*paged_attention)(const PagedAttentionArgs&, Slice);
};

#define TRTC_DECLARE_KERNELS(isa)                           \
  namespace isa {                                           \
  void linear(const LinearArgs&, Slice);                    \
  void quantize_rows(const QuantizeRowsArgs&, Slice);       \
  void embedding(const EmbeddingArgs&, Slice);              \
  void rms_norm(const NormArgs&, Slice);                    \
  void layer_norm(const NormArgs&, Slice);                  \
  void rotary(const RotaryArgs&, Slice);                    \
  void gated_activation(const GatedActivationArgs&, Slice); \
  void activation(const ActivationArgs&, Slice);            \
  void add(const AddArgs&, Slice);                          \
  void mul(const MulArgs&, Slice);                          \
  void scale(const ScaleArgs&, Slice);                      \
  void gather_rows(const GatherRowsArgs&, Slice);           \
  void kv_write(const KvWriteArgs&, Slice);                 \
  void paged_attention(const PagedAttentionArgs&, Slice);   \
  }

TRTC_DECLARE_KERNELS(portable)
TRTC_DECLARE_KERNELS(avx2)
TRTC_DECLARE_KERNELS(avx512)
namespace avx512_bf16 {  // only what bf16 dot products speed up; the rest is avx512's
void linear(const LinearArgs&, Slice);
}
#undef TRTC_DECLARE_KERNELS

// The kernels of a level. Throws EngineError if this build of the library or this machine lacks it.
const KernelTable& kernel_table(Isa isa);

}  // namespace trtc::kernels
