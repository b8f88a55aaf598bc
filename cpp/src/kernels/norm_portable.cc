#include "kernels/norm_ref.h"

namespace trtc::kernels::portable {

void rms_norm(const NormArgs& args, Slice slice) {
  const auto [begin, end] = slice.of(args.rows * args.groups);
  reference::rms_norm(args, begin, end);
}

void layer_norm(const NormArgs& args, Slice slice) {
  const auto [begin, end] = slice.of(args.rows * args.groups);
  reference::layer_norm(args, begin, end);
}

}  // namespace trtc::kernels::portable
