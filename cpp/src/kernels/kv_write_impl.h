// kv_write of paged_attention.h, written once for the vectors of vec.h.
#pragma once

#include "kernels/paged_attention.h"
#include "kernels/vec.h"

namespace trtc::kernels {

// Elements of a KV pool: float32, or bfloat16 as its bits.
template <class V, class Lanes>
inline typename V::F load_kv(const float* p, Lanes lanes) {
  return V::load(p, lanes);
}
template <class V, class Lanes>
inline typename V::F load_kv(const std::uint16_t* p, Lanes lanes) {
  return V::load_bf16(p, lanes);
}
template <class V, class Lanes>
inline void store_kv(float* p, typename V::F x, Lanes lanes) {
  V::store(p, x, lanes);
}
template <class V, class Lanes>
inline void store_kv(std::uint16_t* p, typename V::F x, Lanes lanes) {
  V::store_bf16(p, x, lanes);
}

template <class V, class Element>
inline void write_tokens(const KvWriteArgs& a, Slice slice) {
  Element* data = static_cast<Element*>(a.pool.data);
  const Slice::Range range = slice.of(a.ragged.query_start[a.ragged.seqs]);
  std::int64_t seq = 0;
  for (std::int64_t token = range.begin; token < range.end; ++token) {
    seq = sequence_of(a.ragged, token, seq);
    const std::int64_t position = position_of(a.ragged, seq, token);
    const std::int32_t block = a.ragged.block_table[seq * a.ragged.max_blocks + position / a.pool.block_size];
    const std::int64_t slot = position % a.pool.block_size * a.pool.head_dim;
    for (int head = 0; head < a.pool.kv_heads; ++head) {
      const std::int64_t column = static_cast<std::int64_t>(head) * a.pool.head_dim;
      const float* key = a.key + token * a.key_stride + column;
      const float* value = a.value + token * a.value_stride + column;
      Element* key_slot = data + kv_offset(a.pool, block, KvPart::kKey, head) + slot;
      Element* value_slot = data + kv_offset(a.pool, block, KvPart::kValue, head) + slot;
      for_columns<V>(0, a.pool.head_dim, [&](std::int64_t i, auto lanes) {
        store_kv<V>(key_slot + i, V::load(key + i, lanes), lanes);
        store_kv<V>(value_slot + i, V::load(value + i, lanes), lanes);
      });
    }
  }
}

template <class V>
inline void kv_write_impl(const KvWriteArgs& args, Slice slice) {
  if (args.pool.dtype == KvDtype::kF32) {
    write_tokens<V, float>(args, slice);
  } else {
    write_tokens<V, std::uint16_t>(args, slice);
  }
}

}  // namespace trtc::kernels
