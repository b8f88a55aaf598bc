// How paged attention is cut into tasks and dealt to threads.
#pragma once

#include "kernels/paged_attention.h"

namespace trtc::kernels {

constexpr std::int64_t kTaskPairs = 64;

// Pairs [pair_begin, pair_end) of a sequence and key/value head: pair i is row i / group of the sequence's query and
// head i % group of the group of query heads that share kv_head.
struct AttentionTask {
  std::int64_t seq;
  int kv_head;
  std::int64_t pair_begin;
  std::int64_t pair_end;
};

// Calls body(task, cost) for every task of the step, in one fixed order. Cost counts visible (pair, key) products.
template <class Body>
inline void for_all_attention_tasks(const PagedAttentionArgs& a, const Body& body) {
  const std::int64_t group = a.heads / a.pool.kv_heads;
  for (std::int64_t seq = 0; seq < a.ragged.seqs; ++seq) {
    const std::int64_t first_token = a.ragged.query_start[seq];
    const std::int64_t pairs = (a.ragged.query_start[seq + 1] - first_token) * group;
    for (int kv_head = 0; kv_head < a.pool.kv_heads; ++kv_head) {
      for (std::int64_t begin = 0; begin < pairs; begin += kTaskPairs) {
        const std::int64_t end = begin + kTaskPairs < pairs ? begin + kTaskPairs : pairs;
        const std::int64_t context = position_of(a.ragged, seq, first_token + (end - 1) / group) + 1;
        const std::int64_t visible = a.window > 0 && a.window < context ? a.window : context;
        body(AttentionTask{seq, kv_head, begin, end}, (end - begin) * (visible + a.pool.block_size));
      }
    }
  }
}

// Calls body(task) for this thread's tasks: those whose middle, on the line of summed costs, lies in its equal share.
template <class Body>
inline void for_attention_tasks(const PagedAttentionArgs& a, Slice slice, const Body& body) {
  std::int64_t total = 0;
  for_all_attention_tasks(a, [&](const AttentionTask&, std::int64_t cost) { total += cost; });
  std::int64_t before = 0;
  for_all_attention_tasks(a, [&](const AttentionTask& task, std::int64_t cost) {
    const std::int64_t owner = (2 * before + cost) * slice.threads / (2 * total);
    before += cost;
    if (owner == slice.thread) body(task);
  });
}

}  // namespace trtc::kernels
