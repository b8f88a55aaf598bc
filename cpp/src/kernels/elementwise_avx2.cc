#include "kernels/elementwise_impl.h"
#include "kernels/vec_avx2.h"

namespace trtc::kernels::avx2 {

void gated_activation(const GatedActivationArgs& args, Slice slice) { gated_activation_impl<Vec>(args, slice); }
void activation(const ActivationArgs& args, Slice slice) { activation_impl<Vec>(args, slice); }
void add(const AddArgs& args, Slice slice) { add_impl<Vec>(args, slice); }
void mul(const MulArgs& args, Slice slice) { mul_impl<Vec>(args, slice); }
void scale(const ScaleArgs& args, Slice slice) { scale_impl<Vec>(args, slice); }
void gather_rows(const GatherRowsArgs& args, Slice slice) { gather_rows_impl<Vec>(args, slice); }

}  // namespace trtc::kernels::avx2
