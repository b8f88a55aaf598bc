#include "kernels/linear_ref.h"

namespace trtc::kernels::portable {

void linear(const LinearArgs& args, Slice slice) {
  const auto [begin, end] = slice.of((args.weight.n + kPanelCols - 1) / kPanelCols);
  reference::linear(args, begin, end);
}

void quantize_rows(const QuantizeRowsArgs& args, Slice slice) {
  const auto [begin, end] = slice.of(args.rows * ((args.k + args.group - 1) / args.group));
  reference::quantize_rows(args, begin, end);
}

void embedding(const EmbeddingArgs& args, Slice slice) {
  const auto [begin, end] = slice.of(args.rows);
  reference::embedding(args, begin, end);
}

}  // namespace trtc::kernels::portable
