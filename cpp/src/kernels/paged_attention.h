// Causal attention over a paged KV cache (Kwon et al., https://arxiv.org/abs/2309.06180) with an online softmax
// (Milakov & Gimelshein, https://arxiv.org/abs/1805.02867).
//
// Order of summation: per query row and head, cache blocks from the first visible one upwards in tiles of one block,
// running maximum, sum and output rescaled per tile. It depends on the row's position alone: not on chunking, on the
// other rows, or on the number of threads.
#pragma once

#include <cstdint>

#include "common/slice.h"

namespace trtc::kernels {

enum class KvDtype : std::uint32_t { kF32 = 0, kBf16 = 1 };

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
  float* y;  // [tokens, heads * head_dim]
  std::int64_t y_stride;
};

}  // namespace trtc::kernels
