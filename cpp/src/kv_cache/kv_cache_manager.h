// Who owns which KV block: sequences hold blocks, the prefix tree keeps full ones for reuse, promises keep running
// sequences from ever being evicted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kv_cache/block_pool.h"
#include "kv_cache/radix_tree.h"
#include "trtc/executor.h"

namespace trtc::kv_cache {

// The blocks of one sequence. Made by KvCacheManager::start or fork, given back by release.
struct SequenceCache {
  std::vector<BlockId> blocks;           // logical block -> physical block
  std::int32_t promised = 0;             // further blocks that this sequence is sure to get
  std::int32_t committed = 0;            // leading blocks that are nodes of the prefix tree
  const RadixTree::Node* tip = nullptr;  // node of the last committed block
  std::string salt;
};

// What of a prompt is cached. Valid until the manager changes.
struct PrefixMatch {
  std::vector<const RadixTree::Node*> path;
  std::int32_t unused = 0;  // nodes of path that no sequence owns: claiming them takes them from the available blocks

  std::int32_t blocks() const { return static_cast<std::int32_t>(path.size()); }
};

struct BlockCopy {
  BlockId source;
  BlockId destination;
};

class KvCacheManager {
 public:
  KvCacheManager(std::int32_t num_blocks, std::int32_t tokens_per_block, bool enable_block_reuse);

  std::int32_t tokens_per_block() const { return tokens_per_block_; }
  std::int32_t blocks_for(std::int64_t tokens) const;  // rounded up

  // Blocks that are free or only cached, and promised to nobody.
  std::int32_t available_blocks() const { return pool_.num_free() + tree_.num_unused() - promised_; }

  // Full blocks of the prompt that are cached. The block with the last token is never among them: that token has to
  // be computed to get its logits, and a shared block is never written.
  PrefixMatch match(Tokens prompt, std::string_view salt) const;

  // A sequence that owns the matched blocks and is promised further_blocks more (its forks' included).
  // prompt_tokens is for the statistics. ExecutorError when match.unused + further_blocks exceed the available blocks.
  SequenceCache start(const PrefixMatch& match, std::string_view salt, std::int32_t further_blocks,
                      std::int32_t prompt_tokens);

  // Makes room for `tokens` tokens out of the promise, evicting cached blocks if need be.
  void extend(SequenceCache& sequence, std::int32_t tokens);

  // Puts the blocks that `computed` tokens fill into the prefix tree. If an equal block is there already the sequence
  // switches to it and gives its own back.
  void commit(SequenceCache& sequence, Tokens tokens, std::int32_t computed);

  // A second sequence with the same first `tokens` tokens: full blocks are shared, a partial one gets a block of its
  // own into which the backend has to copy. child_blocks of the parent's promise go to the child.
  std::pair<SequenceCache, std::optional<BlockCopy>> fork(SequenceCache& parent, std::int32_t tokens,
                                                          std::int32_t child_blocks);

  // Gives back all blocks and the promise; the cache is empty afterwards.
  void release(SequenceCache& sequence);

  executor::KvCacheStats stats() const;
  const BlockPool& pool() const { return pool_; }
  const RadixTree& tree() const { return tree_; }

 private:
  BlockId allocate(SequenceCache& sequence);
  void drop(BlockId block);

  const std::int32_t tokens_per_block_;
  const bool enable_block_reuse_;
  BlockPool pool_;
  RadixTree tree_;
  std::int32_t promised_ = 0;  // over all sequences
  std::int64_t reused_blocks_ = 0;
  std::int64_t missed_blocks_ = 0;
};

}  // namespace trtc::kv_cache
