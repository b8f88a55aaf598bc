#include "kernels/rotary_ref.h"

namespace trtc::kernels::portable {

void rotary(const RotaryArgs& args, Slice slice) {
  const auto [begin, end] = slice.of(args.rows * args.heads);
  reference::rotary(args, begin, end);
}

}  // namespace trtc::kernels::portable
