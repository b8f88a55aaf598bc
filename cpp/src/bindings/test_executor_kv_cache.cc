// Block pool, prefix tree, cache manager and capacity, for tests. Blocks are plain ints here.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "kv_cache/block_pool.h"
#include "kv_cache/capacity.h"
#include "kv_cache/kv_cache_manager.h"
#include "kv_cache/radix_tree.h"

namespace py = pybind11;

namespace trtc::bindings {

using namespace kv_cache;

namespace {

using TokenVector = std::vector<std::int32_t>;

std::vector<std::int32_t> numbers(const std::vector<BlockId>& blocks) {
  std::vector<std::int32_t> result;
  for (const BlockId block : blocks) result.push_back(index_of(block));
  return result;
}

std::vector<std::int32_t> numbers(const std::vector<const RadixTree::Node*>& path) {
  std::vector<std::int32_t> result;
  for (const RadixTree::Node* node : path) result.push_back(index_of(node->block));
  return result;
}

std::vector<std::int32_t> ref_counts(const BlockPool& pool) {
  std::vector<std::int32_t> counts;
  for (std::int32_t i = 0; i < pool.num_blocks(); ++i) counts.push_back(pool.ref_count(BlockId{i}));
  return counts;
}

// [{tokens, block, parent, salt, in_use}], parents before children.
py::list tree_snapshot(const RadixTree& tree) {
  py::list nodes;
  for (const RadixTree::NodeSnapshot& node : tree.snapshot()) {
    nodes.append(py::dict(py::arg("tokens") = node.tokens, py::arg("block") = index_of(node.block),
                          py::arg("parent") = node.parent, py::arg("salt") = node.salt,
                          py::arg("in_use") = node.in_use));
  }
  return nodes;
}

void bind_pool(py::module_& module) {
  py::class_<BlockPool>(module, "BlockPool")
      .def(py::init<std::int32_t>(), py::arg("num_blocks"))
      .def_property_readonly("num_blocks", &BlockPool::num_blocks)
      .def_property_readonly("num_free", &BlockPool::num_free)
      .def("ref_count", [](const BlockPool& self, int block) { return self.ref_count(BlockId{block}); })
      .def("allocate", [](BlockPool& self) { return index_of(self.allocate()); })
      .def("add_ref", [](BlockPool& self, int block) { self.add_ref(BlockId{block}); })
      .def("release", [](BlockPool& self, int block) { return self.release(BlockId{block}); });
}

// A tree with the node of every block at hand, as tests name nodes by their blocks.
void bind_tree(py::module_& module) {
  py::class_<RadixTree>(module, "RadixTree")
      .def(py::init<BlockPool&, std::int32_t>(), py::arg("pool"), py::arg("tokens_per_block"), py::keep_alive<1, 2>())
      .def("match", [](const RadixTree& self, const TokenVector& tokens, const std::string& salt,
                       int max_blocks) { return numbers(self.match(tokens, salt, max_blocks)); })
      .def("insert_path",
           [](RadixTree& self, const std::string& salt, const std::vector<TokenVector>& tokens,
              const std::vector<int>& blocks) {
             const RadixTree::Node* node = nullptr;
             std::vector<int> path;
             for (std::size_t i = 0; i < tokens.size(); ++i) {
               node = self.insert(node, salt, tokens[i], BlockId{blocks[i]});
               path.push_back(index_of(node->block));
             }
             return path;
           })
      .def("acquire", [](RadixTree& self, int block) { self.acquire(BlockId{block}); })
      .def("release", [](RadixTree& self, int block) { self.release(BlockId{block}); })
      .def("evict", &RadixTree::evict)
      .def_property_readonly("num_nodes", &RadixTree::num_nodes)
      .def_property_readonly("num_unused", &RadixTree::num_unused)
      .def("snapshot", &tree_snapshot);
}

void bind_manager(py::module_& module) {
  py::class_<SequenceCache>(module, "SequenceCache")
      .def_property_readonly("blocks", [](const SequenceCache& self) { return numbers(self.blocks); })
      .def_readonly("promised", &SequenceCache::promised)
      .def_readonly("committed", &SequenceCache::committed);
  py::class_<KvCacheManager>(module, "KvCacheManager")
      .def(py::init<std::int32_t, std::int32_t, bool>(), py::arg("num_blocks"), py::arg("tokens_per_block"),
           py::arg("enable_block_reuse") = true)
      .def_property_readonly("available_blocks", &KvCacheManager::available_blocks)
      .def("match",  // -> (blocks, number of unused ones)
           [](const KvCacheManager& self, const TokenVector& prompt, const std::string& salt) {
             const PrefixMatch match = self.match(prompt, salt);
             return std::pair(numbers(match.path), match.unused);
           })
      .def("start",
           [](KvCacheManager& self, const TokenVector& prompt, const std::string& salt, int total_blocks) {
             const PrefixMatch match = self.match(prompt, salt);
             return self.start(match, salt, total_blocks - match.blocks(), static_cast<int>(prompt.size()));
           })
      .def("extend", &KvCacheManager::extend)
      .def("commit", [](KvCacheManager& self, SequenceCache& sequence, const TokenVector& tokens,
                        int computed) { self.commit(sequence, tokens, computed); })
      .def("fork",  // -> (child, (source, destination) or None)
           [](KvCacheManager& self, SequenceCache& parent, int tokens, int child_blocks) {
             auto [child, copy] = self.fork(parent, tokens, child_blocks);
             py::object blocks = py::none();
             if (copy) blocks = py::make_tuple(index_of(copy->source), index_of(copy->destination));
             return py::make_tuple(std::move(child), blocks);
           })
      .def("release", &KvCacheManager::release)
      .def("stats", &KvCacheManager::stats)
      .def("ref_counts", [](const KvCacheManager& self) { return ref_counts(self.pool()); })
      .def("tree", [](const KvCacheManager& self) { return tree_snapshot(self.tree()); });
}

}  // namespace

void bind_test_kv_cache(py::module_& module) {
  bind_pool(module);
  bind_tree(module);
  bind_manager(module);
  module.def("available_memory", &available_memory);
  module.def(
      "capacity_blocks",
      [](const executor::KvCacheConfig& config, int max_seq_len, int tokens_per_block, std::size_t bytes_per_block,
         int max_batch_size, std::size_t available_bytes, int max_kv_blocks) {
        ModelInfo model;
        model.max_seq_len = max_seq_len;
        model.tokens_per_block = tokens_per_block;
        model.kv_bytes_per_block = bytes_per_block;
        model.max_kv_blocks = max_kv_blocks;
        return capacity_blocks(config, model, max_batch_size, available_bytes);
      },
      py::arg("config"), py::kw_only(), py::arg("max_seq_len"), py::arg("tokens_per_block"), py::arg("bytes_per_block"),
      py::arg("max_batch_size"), py::arg("available_bytes"), py::arg("max_kv_blocks"));
}

}  // namespace trtc::bindings
