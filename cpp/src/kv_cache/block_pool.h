// A pool of fixed KV blocks with reference counts. It knows numbers only: the memory belongs to the model backend.
#pragma once

#include <cstdint>
#include <vector>

namespace trtc::kv_cache {

// A physical block; its value is the number that goes into a block table.
enum class BlockId : std::int32_t {};

constexpr std::int32_t index_of(BlockId block) { return static_cast<std::int32_t>(block); }

class BlockPool {
 public:
  explicit BlockPool(std::int32_t num_blocks);

  std::int32_t num_blocks() const { return static_cast<std::int32_t>(ref_counts_.size()); }
  std::int32_t num_free() const { return static_cast<std::int32_t>(free_.size()); }
  std::int32_t ref_count(BlockId block) const;

  // A free block, now with one reference. Throws ExecutorError when none is free.
  BlockId allocate();

  // Another owner of a block that has one.
  void add_ref(BlockId block);

  // One owner less; returns how many are left. A block without owners is free again.
  std::int32_t release(BlockId block);

 private:
  std::int32_t& count_of_owned(BlockId block);

  std::vector<std::int32_t> ref_counts_;
  std::vector<BlockId> free_;  // the last freed block is used first, while its memory may still be warm
};

}  // namespace trtc::kv_cache
