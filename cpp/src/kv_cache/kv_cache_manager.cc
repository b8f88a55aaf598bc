#include "kv_cache/kv_cache_manager.h"

#include <algorithm>

#include "trtc/errors.h"

namespace trtc::kv_cache {

KvCacheManager::KvCacheManager(std::int32_t num_blocks, std::int32_t tokens_per_block, bool enable_block_reuse)
    : tokens_per_block_(tokens_per_block),
      enable_block_reuse_(enable_block_reuse),
      pool_(num_blocks),
      tree_(pool_, tokens_per_block) {}

std::int32_t KvCacheManager::blocks_for(std::int64_t tokens) const {
  return static_cast<std::int32_t>((tokens + tokens_per_block_ - 1) / tokens_per_block_);
}

PrefixMatch KvCacheManager::match(Tokens prompt, std::string_view salt) const {
  PrefixMatch result;
  if (!enable_block_reuse_ || prompt.empty()) return result;
  const auto most = static_cast<std::int32_t>(prompt.size() - 1) / tokens_per_block_;
  result.path = tree_.match(prompt, salt, most);
  result.unused =
      static_cast<std::int32_t>(std::ranges::count_if(result.path, [](auto* node) { return !node->in_use; }));
  return result;
}

SequenceCache KvCacheManager::start(const PrefixMatch& match, std::string_view salt, std::int32_t further_blocks,
                                    std::int32_t prompt_tokens) {
  if (match.unused + further_blocks > available_blocks()) {
    throw ExecutorError("a sequence needs " + std::to_string(match.unused + further_blocks) +
                        " KV cache blocks but only " + std::to_string(available_blocks()) + " are available");
  }
  SequenceCache sequence;
  sequence.salt = salt;
  for (const RadixTree::Node* node : match.path) {
    pool_.add_ref(node->block);
    tree_.acquire(node->block);
    sequence.blocks.push_back(node->block);
    sequence.tip = node;
  }
  sequence.committed = match.blocks();
  sequence.promised = further_blocks;
  promised_ += further_blocks;
  reused_blocks_ += match.blocks();
  missed_blocks_ += blocks_for(prompt_tokens) - match.blocks();
  return sequence;
}

void KvCacheManager::extend(SequenceCache& sequence, std::int32_t tokens) {
  const auto wanted = static_cast<std::size_t>(blocks_for(tokens));
  while (sequence.blocks.size() < wanted) sequence.blocks.push_back(allocate(sequence));
}

void KvCacheManager::commit(SequenceCache& sequence, Tokens tokens, std::int32_t computed) {
  if (!enable_block_reuse_) return;
  for (; sequence.committed < computed / tokens_per_block_; ++sequence.committed) {
    BlockId& block = sequence.blocks[sequence.committed];
    const auto first = static_cast<std::size_t>(sequence.committed) * tokens_per_block_;
    sequence.tip = tree_.insert(sequence.tip, sequence.salt, tokens.subspan(first, tokens_per_block_), block);
    if (sequence.tip->block == block) continue;
    const BlockId duplicate = std::exchange(block, sequence.tip->block);
    pool_.add_ref(block);
    tree_.acquire(block);
    drop(duplicate);
  }
}

std::pair<SequenceCache, std::optional<BlockCopy>> KvCacheManager::fork(SequenceCache& parent, std::int32_t tokens,
                                                                        std::int32_t child_blocks) {
  if (child_blocks > parent.promised) {
    throw ExecutorError("a fork asks for " + std::to_string(child_blocks) + " KV cache blocks of a promise of " +
                        std::to_string(parent.promised));
  }
  const std::int32_t full = tokens / tokens_per_block_;
  SequenceCache child;
  child.blocks.assign(parent.blocks.begin(), parent.blocks.begin() + full);
  child.committed = parent.committed;
  child.tip = parent.tip;
  child.salt = parent.salt;
  for (const BlockId block : child.blocks) pool_.add_ref(block);
  parent.promised -= child_blocks;
  child.promised = child_blocks;
  if (tokens % tokens_per_block_ == 0) return {std::move(child), std::nullopt};
  extend(child, tokens);
  const BlockCopy copy{parent.blocks[full], child.blocks[full]};
  return {std::move(child), copy};
}

void KvCacheManager::release(SequenceCache& sequence) {
  for (auto block = sequence.blocks.rbegin(); block != sequence.blocks.rend(); ++block) drop(*block);
  promised_ -= sequence.promised;
  sequence = SequenceCache{};
}

executor::KvCacheStats KvCacheManager::stats() const {
  executor::KvCacheStats stats;
  stats.max_num_blocks = pool_.num_blocks();
  stats.free_num_blocks = pool_.num_free();
  stats.cached_num_blocks = tree_.num_unused();
  stats.used_num_blocks = pool_.num_blocks() - pool_.num_free() - tree_.num_unused();
  stats.tokens_per_block = tokens_per_block_;
  stats.reused_blocks = reused_blocks_;
  stats.missed_blocks = missed_blocks_;
  return stats;
}

BlockId KvCacheManager::allocate(SequenceCache& sequence) {
  if (sequence.promised == 0) throw ExecutorError("a sequence asks for more KV cache blocks than it was promised");
  if (pool_.num_free() == 0) tree_.evict();
  const BlockId block = pool_.allocate();
  --sequence.promised;
  --promised_;
  return block;
}

void KvCacheManager::drop(BlockId block) {
  if (pool_.release(block) > 0) tree_.release(block);
}

}  // namespace trtc::kv_cache
