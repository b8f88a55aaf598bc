// The prefix tree: which blocks hold the keys and values of which token prefixes.
//
// One node is one full block of tokens. A child is found by hash and accepted only when its tokens and salt are equal.
// The tree owns one reference of each of its blocks; sequences that use a block own further ones. A sequence that uses
// a node uses all its ancestors, so the descendants of an unused node are unused, and eviction takes leaves only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kv_cache/block_pool.h"

namespace trtc::kv_cache {

using Tokens = std::span<const std::int32_t>;

class RadixTree {
 public:
  struct Node;

  // pool must outlive the tree.
  RadixTree(BlockPool& pool, std::int32_t tokens_per_block);
  ~RadixTree();

  // The longest path whose tokens are a prefix of `tokens`, from the first block on, at most max_blocks long.
  std::vector<const Node*> match(Tokens tokens, std::string_view salt, std::int32_t max_blocks) const;

  // The child of `parent` (null: a first block, under `salt`) with these tokens. An equal one that is there already is
  // returned and `block` is left alone; else a node is made that owns a new reference of `block`.
  const Node* insert(const Node* parent, std::string_view salt, Tokens tokens, BlockId block);

  // A sequence has begun to own, or ceased to own, a reference of this block.
  void acquire(BlockId block);
  void release(BlockId block);

  // Frees the least recently used leaf that no sequence owns; false when there is none.
  bool evict();

  std::int32_t num_nodes() const { return num_nodes_; }
  std::int32_t num_unused() const { return num_unused_; }  // nodes that no sequence owns

  struct NodeSnapshot {
    std::vector<std::int32_t> tokens;
    BlockId block;
    std::int32_t parent;  // index into the snapshot, -1 for a first block
    std::string salt;     // of first blocks
    bool in_use;
  };
  std::vector<NodeSnapshot> snapshot() const;  // parents before children

 private:
  struct Key {
    std::string salt;
    std::vector<std::int32_t> tokens;
  };
  struct KeyView {
    std::string_view salt;
    Tokens tokens;
    KeyView(std::string_view s, Tokens t) : salt(s), tokens(t) {}
    KeyView(const Key& key) : salt(key.salt), tokens(key.tokens) {}  // NOLINT: the maps compare both
  };
  struct KeyHash {
    using is_transparent = void;
    std::size_t operator()(const KeyView& key) const;
  };
  struct KeyEqual {
    using is_transparent = void;
    bool operator()(const KeyView& a, const KeyView& b) const;
  };
  using Children = std::unordered_map<Key, std::unique_ptr<Node>, KeyHash, KeyEqual>;

  Node* node_of(BlockId block) const { return node_of_block_[index_of(block)]; }
  void add_to_leaves(Node& node);

  BlockPool& pool_;
  const std::int32_t tokens_per_block_;
  std::unique_ptr<Node> root_;  // holds no block
  std::vector<Node*> node_of_block_;
  std::set<std::pair<std::uint64_t, BlockId>> evictable_;  // unused leaves by time of last use
  std::uint64_t clock_ = 0;
  std::int32_t num_nodes_ = 0;
  std::int32_t num_unused_ = 0;

 public:
  struct Node {
    BlockId block{};
    Node* parent = nullptr;
    const Key* key = nullptr;  // inside the parent's map
    std::uint64_t last_use = 0;
    bool in_use = false;
    Children children;
  };
};

}  // namespace trtc::kv_cache
