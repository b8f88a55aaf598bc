#include "kernels/elementwise_ref.h"

namespace trtc::kernels::portable {

void gated_activation(const GatedActivationArgs& args, Slice slice) {
  const auto [begin, end] = slice.of(args.rows);
  reference::gated_activation(args, begin, end);
}

void activation(const ActivationArgs& args, Slice slice) {
  const auto [begin, end] = slice.of(args.rows);
  reference::activation(args, begin, end);
}

void add(const AddArgs& args, Slice slice) {
  const auto [begin, end] = slice.of(args.rows);
  reference::add(args, begin, end);
}

void mul(const MulArgs& args, Slice slice) {
  const auto [begin, end] = slice.of(args.rows);
  reference::mul(args, begin, end);
}

void scale(const ScaleArgs& args, Slice slice) {
  const auto [begin, end] = slice.of(args.rows);
  reference::scale(args, begin, end);
}

void gather_rows(const GatherRowsArgs& args, Slice slice) {
  const auto [begin, end] = slice.of(args.rows);
  reference::gather_rows(args, begin, end);
}

}  // namespace trtc::kernels::portable
