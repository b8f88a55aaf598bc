#include "kv_cache/radix_tree.h"

#include <algorithm>
#include <functional>

namespace trtc::kv_cache {

std::size_t RadixTree::KeyHash::operator()(const KeyView& key) const {
  std::uint64_t hash = std::hash<std::string_view>{}(key.salt);
  for (const std::int32_t token : key.tokens) {  // the mixing step of splitmix64 per token
    hash += 0x9e3779b97f4a7c15ULL + static_cast<std::uint32_t>(token);
    hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9ULL;
    hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebULL;
  }
  return hash ^ (hash >> 31);
}

bool RadixTree::KeyEqual::operator()(const KeyView& a, const KeyView& b) const {
  return a.salt == b.salt && std::ranges::equal(a.tokens, b.tokens);
}

RadixTree::RadixTree(BlockPool& pool, std::int32_t tokens_per_block)
    : pool_(pool),
      tokens_per_block_(tokens_per_block),
      root_(std::make_unique<Node>()),
      node_of_block_(pool.num_blocks(), nullptr) {}

RadixTree::~RadixTree() {
  while (evict()) {  // leaf by leaf: destroying a long path in one go would recurse deeply
  }
}

std::vector<const RadixTree::Node*> RadixTree::match(Tokens tokens, std::string_view salt,
                                                     std::int32_t max_blocks) const {
  std::vector<const Node*> path;
  const Node* node = root_.get();
  const std::int32_t full_blocks = static_cast<std::int32_t>(tokens.size()) / tokens_per_block_;
  for (std::int32_t i = 0; i < std::min(full_blocks, max_blocks); ++i) {
    const auto block_tokens = tokens.subspan(static_cast<std::size_t>(i) * tokens_per_block_, tokens_per_block_);
    const auto child = node->children.find(KeyView(i == 0 ? salt : std::string_view(), block_tokens));
    if (child == node->children.end()) break;
    node = child->second.get();
    path.push_back(node);
  }
  return path;
}

const RadixTree::Node* RadixTree::insert(const Node* parent, std::string_view salt, Tokens tokens, BlockId block) {
  Node* above = parent == nullptr ? root_.get() : node_of(parent->block);
  const KeyView view(parent == nullptr ? salt : std::string_view(), tokens);
  if (const auto found = above->children.find(view); found != above->children.end()) return found->second.get();

  pool_.add_ref(block);
  if (above->children.empty() && above != root_.get()) evictable_.erase({above->last_use, above->block});
  const auto [entry, inserted] = above->children.emplace(
      Key{std::string(view.salt), std::vector<std::int32_t>(tokens.begin(), tokens.end())}, std::make_unique<Node>());
  Node& node = *entry->second;
  node.block = block;
  node.parent = above;
  node.key = &entry->first;
  node.in_use = pool_.ref_count(block) > 1;
  node.last_use = ++clock_;
  node_of_block_[index_of(block)] = &node;
  ++num_nodes_;
  if (!node.in_use) {
    ++num_unused_;
    add_to_leaves(node);
  }
  return &node;
}

void RadixTree::acquire(BlockId block) {
  Node* node = node_of(block);
  if (node == nullptr || node->in_use) return;
  evictable_.erase({node->last_use, node->block});
  node->in_use = true;
  --num_unused_;
}

void RadixTree::release(BlockId block) {
  Node* node = node_of(block);
  if (node == nullptr || !node->in_use || pool_.ref_count(block) > 1) return;
  node->in_use = false;
  node->last_use = ++clock_;
  ++num_unused_;
  add_to_leaves(*node);
}

bool RadixTree::evict() {
  if (evictable_.empty()) return false;
  Node* node = node_of(evictable_.begin()->second);
  evictable_.erase(evictable_.begin());
  Node* parent = node->parent;
  node_of_block_[index_of(node->block)] = nullptr;
  pool_.release(node->block);
  --num_nodes_;
  --num_unused_;
  parent->children.erase(parent->children.find(KeyView(*node->key)));
  if (parent != root_.get() && !parent->in_use) add_to_leaves(*parent);
  return true;
}

void RadixTree::add_to_leaves(Node& node) {
  if (node.children.empty()) evictable_.insert({node.last_use, node.block});
}

std::vector<RadixTree::NodeSnapshot> RadixTree::snapshot() const {
  std::vector<NodeSnapshot> result;
  std::vector<std::pair<const Node*, std::int32_t>> stack{{root_.get(), -1}};
  while (!stack.empty()) {
    const auto [node, index] = stack.back();
    stack.pop_back();
    for (const auto& [key, child] : node->children) {
      result.push_back({key.tokens, child->block, index, key.salt, child->in_use});
      stack.push_back({child.get(), static_cast<std::int32_t>(result.size()) - 1});
    }
  }
  return result;
}

}  // namespace trtc::kv_cache
