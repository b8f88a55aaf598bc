// Scalar reference of paged_attention.h.
#pragma once

#include <cmath>
#include <limits>

#include "common/float_bits.h"
#include "kernels/paged_attention.h"

namespace trtc::kernels::reference {

static inline float read_kv(const KvPool& pool, std::int64_t index) {
  return pool.dtype == KvDtype::kF32 ? static_cast<const float*>(pool.data)[index]
                                     : bf16_to_f32(static_cast<const std::uint16_t*>(pool.data)[index]);
}

static inline void write_kv(const KvPool& pool, std::int64_t index, float value) {
  if (pool.dtype == KvDtype::kF32) {
    static_cast<float*>(pool.data)[index] = value;
  } else {
    static_cast<std::uint16_t*>(pool.data)[index] = f32_to_bf16(value);
  }
}

// Tokens [begin, end).
static inline void kv_write(const KvWriteArgs& a, std::int64_t begin, std::int64_t end) {
  std::int64_t seq = 0;
  for (std::int64_t token = begin; token < end; ++token) {
    seq = sequence_of(a.ragged, token, seq);
    const std::int64_t position = position_of(a.ragged, seq, token);
    const std::int32_t block = a.ragged.block_table[seq * a.ragged.max_blocks + position / a.pool.block_size];
    const std::int64_t slot = position % a.pool.block_size * a.pool.head_dim;
    for (int head = 0; head < a.pool.kv_heads; ++head) {
      const std::int64_t column = static_cast<std::int64_t>(head) * a.pool.head_dim;
      for (int d = 0; d < a.pool.head_dim; ++d) {
        write_kv(a.pool, kv_offset(a.pool, block, KvPart::kKey, head) + slot + d,
                 a.key[token * a.key_stride + column + d]);
        write_kv(a.pool, kv_offset(a.pool, block, KvPart::kValue, head) + slot + d,
                 a.value[token * a.value_stride + column + d]);
      }
    }
  }
}

static inline float attention_score(const PagedAttentionArgs& a, const float* query, std::int64_t key) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  float dot = 0.0f;
  for (int d = 0; d < a.pool.head_dim; ++d) dot += query[d] * read_kv(a.pool, key + d);
  float score = dot * a.scale;
  if (a.softcap > 0.0f) score = a.softcap * std::tanh(score / a.softcap);
  return score > kLargest ? kLargest : score < -kLargest ? -kLargest : score;
}

// One query row and head: per tile of one block, rescale what is there to the new maximum, then add the tile.
static inline void attend(const PagedAttentionArgs& a, std::int64_t seq, std::int64_t token, int head) {
  const KvPool& pool = a.pool;
  const int kv_head = head / (a.heads / pool.kv_heads);
  const float* query = a.query + token * a.query_stride + static_cast<std::int64_t>(head) * pool.head_dim;
  float* y = a.y + token * a.y_stride + static_cast<std::int64_t>(head) * pool.head_dim;
  const std::int64_t end = position_of(a.ragged, seq, token) + 1;
  const std::int64_t begin = a.window > 0 && end > a.window ? end - a.window : 0;

  for (int d = 0; d < pool.head_dim; ++d) y[d] = 0.0f;
  float maximum = -std::numeric_limits<float>::infinity(), total = 0.0f;
  for (std::int64_t tile = begin / pool.block_size; tile * pool.block_size < end; ++tile) {
    const std::int64_t start = tile * pool.block_size;
    const int first = static_cast<int>(begin > start ? begin - start : 0);
    const int last = static_cast<int>(end - start < pool.block_size ? end - start : pool.block_size);
    const std::int32_t block = a.ragged.block_table[seq * a.ragged.max_blocks + tile];
    const std::int64_t keys = kv_offset(pool, block, KvPart::kKey, kv_head);
    const std::int64_t values = kv_offset(pool, block, KvPart::kValue, kv_head);

    float scores[kMaxBlockSize];
    float new_maximum = maximum;
    for (int j = first; j < last; ++j) {
      scores[j] = attention_score(a, query, keys + static_cast<std::int64_t>(j) * pool.head_dim);
      if (scores[j] > new_maximum) new_maximum = scores[j];
    }
    const float rescale = std::exp(maximum - new_maximum);
    maximum = new_maximum;
    total *= rescale;
    for (int d = 0; d < pool.head_dim; ++d) y[d] *= rescale;
    for (int j = first; j < last; ++j) {
      const float weight = std::exp(scores[j] - maximum);
      total += weight;
      for (int d = 0; d < pool.head_dim; ++d) {
        y[d] += weight * read_kv(pool, values + static_cast<std::int64_t>(j) * pool.head_dim + d);
      }
    }
  }
  for (int d = 0; d < pool.head_dim; ++d) y[d] /= total;
}

// (token, head) items [begin, end).
static inline void paged_attention(const PagedAttentionArgs& a, std::int64_t begin, std::int64_t end) {
  std::int64_t seq = 0;
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t token = item / a.heads;
    seq = sequence_of(a.ragged, token, seq);
    attend(a, seq, token, static_cast<int>(item % a.heads));
  }
}

}  // namespace trtc::kernels::reference
