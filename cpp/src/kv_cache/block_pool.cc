#include "kv_cache/block_pool.h"

#include "trtc/errors.h"

namespace trtc::kv_cache {

BlockPool::BlockPool(std::int32_t num_blocks) : ref_counts_(num_blocks, 0) {
  free_.reserve(num_blocks);
  for (std::int32_t i = num_blocks - 1; i >= 0; --i) free_.push_back(BlockId{i});
}

std::int32_t BlockPool::ref_count(BlockId block) const { return ref_counts_.at(index_of(block)); }

BlockId BlockPool::allocate() {
  if (free_.empty()) {
    throw ExecutorError("no free KV cache block: all " + std::to_string(num_blocks()) + " have owners");
  }
  const BlockId block = free_.back();
  free_.pop_back();
  ref_counts_[index_of(block)] = 1;
  return block;
}

void BlockPool::add_ref(BlockId block) { ++count_of_owned(block); }

std::int32_t BlockPool::release(BlockId block) {
  const std::int32_t left = --count_of_owned(block);
  if (left == 0) free_.push_back(block);
  return left;
}

std::int32_t& BlockPool::count_of_owned(BlockId block) {
  std::int32_t& count = ref_counts_.at(index_of(block));
  if (count == 0) throw ExecutorError("KV cache block " + std::to_string(index_of(block)) + " has no owner");
  return count;
}

}  // namespace trtc::kv_cache
