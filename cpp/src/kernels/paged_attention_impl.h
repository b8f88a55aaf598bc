// paged_attention of paged_attention.h, written once for the vectors of vec.h.
//
// The unit of work is a pair: one query row and one query head. All pairs of a sequence that share a key/value head
// stand in one line, rows first; a task is a piece of that line and walks the cache once for all of its pairs. Per
// tile (one block):
//   1. scores   16 keys at a time are transposed to [head_dim, 16]; a score is one chain of fused multiply-adds over
//               head_dim, sixteen keys in the lanes, several pairs side by side
//   2. softmax  the running maximum and sum of each pair move to the tile's
//   3. output   y += weight * value, keys ascending, several pairs and vectors of head_dim side by side
// Blocking changes which results are computed together, never the operations behind one result.
#pragma once

#include "kernels/attention_tasks.h"
#include "kernels/kv_write_impl.h"
#include "kernels/paged_attention.h"
#include "kernels/vec.h"
#include "kernels/vec_math.h"

namespace trtc::kernels {

constexpr int kStrip = 16;  // keys transposed at a time

template <int n>
struct Count {
  static constexpr int value = n;
};

// Calls body(first item, Count<n>) with n = kMost while that many items are left, then with half as many, down to 1.
template <int kMost, class Body>
inline void for_blocks(int begin, int end, const Body& body) {
  for (; begin + kMost <= end; begin += kMost) body(begin, Count<kMost>{});
  if constexpr (kMost > 1) for_blocks<kMost / 2>(begin, end, body);
}

// What a task keeps about each of its pairs.
struct Pairs {
  int count;
  const float* query[kTaskPairs];
  float* y[kTaskPairs];
  std::int64_t begin[kTaskPairs];  // visible positions [begin, end), both ascending over the pairs
  std::int64_t end[kTaskPairs];
  float maximum[kTaskPairs];
  float total[kTaskPairs];
  alignas(64) float scores[kTaskPairs * kMaxBlockSize];  // of the tile at hand, then the softmax weights
};

// keys [count <= 16, head_dim] to [head_dim, 16], zeros for the missing ones.
template <class V, class Element>
inline void transpose_keys(const Element* keys, int count, int head_dim, float* strip) {
  using F = typename V::F;
  constexpr int kLanes = V::kLanes;
  for (int first = 0; first < kStrip; first += kLanes) {
    for_columns<V>(0, head_dim, [&](std::int64_t d, auto lanes) {
      F rows[kLanes];
      for (int j = 0; j < kLanes; ++j) {
        const std::int64_t key = first + j;
        rows[j] = key < count ? load_kv<V>(keys + key * head_dim + d, lanes) : V::zero();
      }
      V::transpose(rows);
      const int dims = head_dim - d < kLanes ? static_cast<int>(head_dim - d) : kLanes;
      for (int i = 0; i < kLanes; ++i) {
        if (i < dims) V::store(strip + (d + i) * kStrip + first, rows[i], All{});
      }
    });
  }
}

// scores[pair][0..16) = query . key for kCount pairs.
template <class V, int kCount>
inline void score_strip(const float* const* query, const float* strip, int head_dim, float* scores) {
  using F = typename V::F;
  constexpr int kVectors = kStrip / V::kLanes;
  F dot[kCount][kVectors];
  for (int p = 0; p < kCount; ++p) {
    for (int v = 0; v < kVectors; ++v) dot[p][v] = V::zero();
  }
  for (int d = 0; d < head_dim; ++d) {
    F keys[kVectors];
    for (int v = 0; v < kVectors; ++v) keys[v] = V::load(strip + d * kStrip + v * V::kLanes, All{});
    for (int p = 0; p < kCount; ++p) {
      const F q = V::set(query[p][d]);
      for (int v = 0; v < kVectors; ++v) dot[p][v] = V::fma(q, keys[v], dot[p][v]);
    }
  }
  for (int p = 0; p < kCount; ++p) {
    for (int v = 0; v < kVectors; ++v) V::store(scores + p * kMaxBlockSize + v * V::kLanes, dot[p][v], All{});
  }
}

// Turns a pair's scores over [0, padded) into softmax weights relative to the new maximum, zero outside [first, last),
// and rescales what the pair has gathered so far. padded is a multiple of 16.
template <class V>
inline void softmax_tile(const PagedAttentionArgs& a, Pairs& pairs, int pair, int first, int last, int padded) {
  using F = typename V::F;
  constexpr float kLargest = 3.40282347e38f;
  float* scores = pairs.scores + pair * kMaxBlockSize;
  const F hidden = V::set(-__builtin_inff());
  const F first_slot = V::set(static_cast<float>(first)), end_slot = V::set(static_cast<float>(last));
  F highest = V::set(pairs.maximum[pair]);
  for (int j = 0; j < padded; j += V::kLanes) {
    F score = V::load(scores + j, All{}) * V::set(a.scale);
    if (a.softcap > 0.0f) score = V::set(a.softcap) * tanh<V>(score / V::set(a.softcap));
    score = V::min(V::set(kLargest), V::max(V::set(-kLargest), score));
    const F slot = V::ramp() + V::set(static_cast<float>(j));
    score = V::select_less(slot, first_slot, hidden, V::select_less(slot, end_slot, score, hidden));
    V::store(scores + j, score, All{});
    highest = V::max(highest, score);
  }
  const float maximum = V::largest(highest);
  F total = V::zero();
  for (int j = 0; j < padded; j += V::kLanes) {
    const F weight = exp<V>(V::load(scores + j, All{}) - V::set(maximum));
    V::store(scores + j, weight, All{});
    total = total + weight;
  }

  if (maximum != pairs.maximum[pair]) {
    const F rescale = exp<V>(V::set(pairs.maximum[pair] - maximum));
    pairs.total[pair] *= V::first(rescale);
    float* y = pairs.y[pair];
    for_columns<V>(0, a.pool.head_dim,
                   [&](std::int64_t d, auto lanes) { V::store(y + d, V::load(y + d, lanes) * rescale, lanes); });
    pairs.maximum[pair] = maximum;
  }
  pairs.total[pair] += V::sum(total);
}

// y[pair][0..kVectors vectors) += sum over keys [first, last) of weight * value, for kCount pairs from `pair`.
template <class V, int kCount, int kVectors, class Element, class Lanes>
inline void add_values(Pairs& pairs, int pair, const Element* values, int head_dim, std::int64_t column, int first,
                       int last, Lanes lanes) {
  using F = typename V::F;
  F sum[kCount][kVectors];
  for (int p = 0; p < kCount; ++p) {
    for (int v = 0; v < kVectors; ++v) sum[p][v] = V::load(pairs.y[pair + p] + column + v * V::kLanes, lanes);
  }
  const float* weights = pairs.scores + pair * kMaxBlockSize;
  for (int j = first; j < last; ++j) {
    const Element* row = values + static_cast<std::int64_t>(j) * head_dim + column;
    F value[kVectors];
    for (int v = 0; v < kVectors; ++v) value[v] = load_kv<V>(row + v * V::kLanes, lanes);
    for (int p = 0; p < kCount; ++p) {
      const F weight = V::set(weights[p * kMaxBlockSize + j]);
      for (int v = 0; v < kVectors; ++v) sum[p][v] = V::fma(weight, value[v], sum[p][v]);
    }
  }
  for (int p = 0; p < kCount; ++p) {
    for (int v = 0; v < kVectors; ++v) V::store(pairs.y[pair + p] + column + v * V::kLanes, sum[p][v], lanes);
  }
}

// The same over all of head_dim.
template <class V, int kCount, class Element>
inline void add_value_rows(Pairs& pairs, int pair, const Element* values, int head_dim, int first, int last) {
  if (first >= last) return;
  constexpr int kVectors = V::kRegisters == 32 ? 4 : 2;
  std::int64_t column = 0;
  for (; column + kVectors * V::kLanes <= head_dim; column += kVectors * V::kLanes) {
    add_values<V, kCount, kVectors>(pairs, pair, values, head_dim, column, first, last, All{});
  }
  for_columns<V>(column, head_dim, [&](std::int64_t d, auto lanes) {
    add_values<V, kCount, 1>(pairs, pair, values, head_dim, d, first, last, lanes);
  });
}

// One tile for the pairs [from, to), which all see some of it. The tile starts at position `start`; only its first
// `keys` slots hold tokens that any of them sees.
template <class V, class Element>
inline void attend_tile(const PagedAttentionArgs& a, Pairs& pairs, int from, int to, const Element* key,
                        const Element* value, std::int64_t start, int keys, float* strip) {
  const int head_dim = a.pool.head_dim;
  for (int j = 0; j < keys; j += kStrip) {
    transpose_keys<V>(key + static_cast<std::int64_t>(j) * head_dim, keys - j, head_dim, strip);
    for_blocks<V::kRegisters / 4>(from, to, [&](int pair, auto count) {
      score_strip<V, count.value>(pairs.query + pair, strip, head_dim, pairs.scores + pair * kMaxBlockSize + j);
    });
  }
  const auto first_key = [&](int pair) { return pairs.begin[pair] > start ? int(pairs.begin[pair] - start) : 0; };
  const auto last_key = [&](int pair) { return pairs.end[pair] - start < keys ? int(pairs.end[pair] - start) : keys; };
  const int padded = (keys + kStrip - 1) / kStrip * kStrip;
  for (int pair = from; pair < to; ++pair) {
    softmax_tile<V>(a, pairs, pair, first_key(pair), last_key(pair), padded);
  }
  for_blocks<4>(from, to, [&](int pair, auto count) {
    // Keys that every pair of the block sees go together; those at the edges, which later or earlier rows do not see,
    // go alone before and after.
    constexpr int kCount = count.value;
    const int common_first = first_key(pair + kCount - 1);
    const int common_last = last_key(pair) > common_first ? last_key(pair) : common_first;
    for (int p = pair; p < pair + kCount; ++p) {
      const int last = last_key(p) < common_first ? last_key(p) : common_first;
      add_value_rows<V, 1>(pairs, p, value, head_dim, first_key(p), last);
    }
    add_value_rows<V, kCount>(pairs, pair, value, head_dim, common_first, common_last);
    for (int p = pair; p < pair + kCount; ++p) {
      add_value_rows<V, 1>(pairs, p, value, head_dim, common_last, last_key(p));
    }
  });
}

template <class V>
inline void begin_pairs(const PagedAttentionArgs& a, const AttentionTask& task, Pairs& pairs) {
  const int group = a.heads / a.pool.kv_heads;
  const std::int64_t first_token = a.ragged.query_start[task.seq];
  pairs.count = static_cast<int>(task.pair_end - task.pair_begin);
  for (int i = 0; i < pairs.count; ++i) {
    const std::int64_t token = first_token + (task.pair_begin + i) / group;
    const std::int64_t head = static_cast<std::int64_t>(task.kv_head) * group + (task.pair_begin + i) % group;
    const std::int64_t end = position_of(a.ragged, task.seq, token) + 1;
    pairs.query[i] = a.query + token * a.query_stride + head * a.pool.head_dim;
    pairs.y[i] = a.y + token * a.y_stride + head * a.pool.head_dim;
    pairs.end[i] = end;
    pairs.begin[i] = a.window > 0 && end > a.window ? end - a.window : 0;
    pairs.maximum[i] = -__builtin_inff();
    pairs.total[i] = 0.0f;
    for_columns<V>(0, a.pool.head_dim, [&](std::int64_t d, auto lanes) { V::store(pairs.y[i] + d, V::zero(), lanes); });
  }
}

template <class V>
inline void finish_pairs(const PagedAttentionArgs& a, Pairs& pairs) {
  for (int i = 0; i < pairs.count; ++i) {
    float* y = pairs.y[i];
    const auto inverse = V::set(1.0f / pairs.total[i]);
    for_columns<V>(0, a.pool.head_dim,
                   [&](std::int64_t d, auto lanes) { V::store(y + d, V::load(y + d, lanes) * inverse, lanes); });
  }
}

template <class V, class Element>
inline void attend_task(const PagedAttentionArgs& a, const AttentionTask& task) {
  Pairs pairs;
  alignas(64) float strip[kMaxHeadDim * kStrip];
  begin_pairs<V>(a, task, pairs);
  const Element* data = static_cast<const Element*>(a.pool.data);
  const std::int32_t* table = a.ragged.block_table + task.seq * a.ragged.max_blocks;
  const std::int64_t block_size = a.pool.block_size;
  const std::int64_t end = pairs.end[pairs.count - 1];
  int from = 0, to = 0;
  for (std::int64_t tile = pairs.begin[0] / block_size; tile * block_size < end; ++tile) {
    const std::int64_t start = tile * block_size;
    while (pairs.end[from] <= start) ++from;
    while (to < pairs.count && pairs.begin[to] < start + block_size) ++to;
    const int keys = static_cast<int>(end - start < block_size ? end - start : block_size);
    const Element* key = data + kv_offset(a.pool, table[tile], KvPart::kKey, task.kv_head);
    const Element* value = data + kv_offset(a.pool, table[tile], KvPart::kValue, task.kv_head);
    attend_tile<V>(a, pairs, from, to, key, value, start, keys, strip);
  }
  finish_pairs<V>(a, pairs);
}

template <class V>
inline void paged_attention_impl(const PagedAttentionArgs& args, Slice slice) {
  for_attention_tasks(args, slice, [&](const AttentionTask& task) {
    if (args.pool.dtype == KvDtype::kF32) {
      attend_task<V, float>(args, task);
    } else {
      attend_task<V, std::uint16_t>(args, task);
    }
  });
}

}  // namespace trtc::kernels
