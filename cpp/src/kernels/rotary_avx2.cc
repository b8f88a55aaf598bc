#include "kernels/rotary_impl.h"
#include "kernels/vec_avx2.h"

namespace trtc::kernels::avx2 {

void rotary(const RotaryArgs& args, Slice slice) { rotary_impl<Vec>(args, slice); }

}  // namespace trtc::kernels::avx2
