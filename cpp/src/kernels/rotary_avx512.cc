#include "kernels/rotary_impl.h"
#include "kernels/vec_avx512.h"

namespace trtc::kernels::avx512 {

void rotary(const RotaryArgs& args, Slice slice) { rotary_impl<Vec>(args, slice); }

}  // namespace trtc::kernels::avx512
