// Causal attention over a paged KV cache (Kwon et al., https://arxiv.org/abs/2309.06180) with an online softmax
// (Milakov & Gimelshein, https://arxiv.org/abs/1805.02867).
//
// Order of summation: per query row and head, cache blocks from the first visible one upwards in tiles of one block,
// running maximum, sum and output rescaled per tile. It depends on the row's position alone: not on chunking, on the
// other rows, or on the number of threads. Cache slots that a row does not see are never part of its arithmetic.
// Scores are clamped to the finite floats, so that overflow cannot make inf - inf; a NaN in a row's inputs stays
// visible.
#pragma once

#include <cstdint>

#include "common/slice.h"

namespace trtc::kernels {

enum class KvDtype : std::uint32_t { kF32 = 0, kBf16 = 1 };

// The kernels work in stack memory of fixed size; whoever loads an engine refuses larger ones.
constexpr int kMaxHeadDim = 512;
constexpr int kMaxBlockSize = 128;

// One layer's pool [blocks, 2, kv_heads, block_size, head_dim].
struct KvPool {
  void* data;
  KvDtype dtype;
  int kv_heads;
  int block_size;
  int head_dim;
};

// The packed rows of a step; see trtc/graph/contract.py.
struct RaggedRows {
  std::int64_t seqs;
  const std::int32_t* query_start;   // [seqs + 1]
  const std::int32_t* context_lens;  // [seqs]
  const std::int32_t* block_table;   // [seqs, max_blocks]
  std::int64_t max_blocks;
};

// Stores the step's keys and values at their positions; bf16 rounds to nearest even.
struct KvWriteArgs {
  RaggedRows ragged;
  KvPool pool;
  const float* key;  // [tokens, kv_heads * head_dim]
  std::int64_t key_stride;
  const float* value;
  std::int64_t value_stride;
};

struct PagedAttentionArgs {
  RaggedRows ragged;
  KvPool pool;
  int heads;  // query heads, a multiple of pool.kv_heads
  float scale;
  std::int32_t window;  // tokens visible including the row itself; 0: all
  float softcap;        // c > 0: scores x become c * tanh(x / c)
  const float* query;   // [tokens, heads * head_dim]
  std::int64_t query_stride;
  float* y;  // [tokens, heads * head_dim]; must not alias query
  std::int64_t y_stride;
};

enum class KvPart : int { kKey = 0, kValue = 1 };

// Index of the first element of a block's keys or values for one head: [block_size, head_dim] contiguous elements.
[[gnu::always_inline]] static inline std::int64_t kv_offset(const KvPool& pool, std::int32_t block, KvPart part,
                                                            int kv_head) {
  const std::int64_t plane = (static_cast<std::int64_t>(block) * 2 + static_cast<int>(part)) * pool.kv_heads + kv_head;
  return plane * pool.block_size * pool.head_dim;
}

// The sequence that `token` belongs to, searched upwards from `seq`.
[[gnu::always_inline]] static inline std::int64_t sequence_of(const RaggedRows& ragged, std::int64_t token,
                                                              std::int64_t seq) {
  while (ragged.query_start[seq + 1] <= token) ++seq;
  return seq;
}

// Position of a packed row of sequence `seq`.
[[gnu::always_inline]] static inline std::int64_t position_of(const RaggedRows& ragged, std::int64_t seq,
                                                              std::int64_t token) {
  return ragged.context_lens[seq] - ragged.query_start[seq + 1] + token;
}

}  // namespace trtc::kernels
