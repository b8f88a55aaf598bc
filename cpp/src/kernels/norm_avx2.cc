#include "kernels/norm_impl.h"
#include "kernels/vec_avx2.h"

namespace trtc::kernels::avx2 {

void rms_norm(const NormArgs& args, Slice slice) { rms_norm_impl<Vec>(args, slice); }
void layer_norm(const NormArgs& args, Slice slice) { layer_norm_impl<Vec>(args, slice); }

}  // namespace trtc::kernels::avx2
