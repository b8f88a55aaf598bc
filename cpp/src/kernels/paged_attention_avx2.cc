#include "kernels/paged_attention_impl.h"
#include "kernels/vec_avx2.h"

namespace trtc::kernels::avx2 {

void kv_write(const KvWriteArgs& args, Slice slice) { kv_write_impl<Vec>(args, slice); }
void paged_attention(const PagedAttentionArgs& args, Slice slice) { paged_attention_impl<Vec>(args, slice); }

}  // namespace trtc::kernels::avx2
