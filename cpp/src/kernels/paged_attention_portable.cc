#include "kernels/paged_attention_ref.h"

namespace trtc::kernels::portable {

void kv_write(const KvWriteArgs& args, Slice slice) {
  const auto [begin, end] = slice.of(args.ragged.query_start[args.ragged.seqs]);
  reference::kv_write(args, begin, end);
}

void paged_attention(const PagedAttentionArgs& args, Slice slice) {
  const auto [begin, end] = slice.of(static_cast<std::int64_t>(args.ragged.query_start[args.ragged.seqs]) * args.heads);
  reference::paged_attention(args, begin, end);
}

}  // namespace trtc::kernels::portable
