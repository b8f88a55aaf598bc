#include "kv_cache/capacity.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include "trtc/errors.h"

namespace trtc::kv_cache {

namespace {

// The number in a file that holds just one ("max" is no number), or after a key at the start of a line.
std::optional<std::uint64_t> read_number(const std::string& path, const std::string& key = "") {
  std::ifstream file(path);
  std::string word;
  std::uint64_t number = 0;
  if (key.empty()) return file >> number ? std::optional(number) : std::nullopt;
  while (file >> word) {
    if (word == key) return file >> number ? std::optional(number) : std::nullopt;
  }
  return std::nullopt;
}

// The directory of this process's group in a cgroup hierarchy: "0::" is version 2, ":memory:" version 1.
std::string cgroup_path(const std::string& marker) {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const auto at = line.find(marker);
    if (at != std::string::npos) return line.substr(at + marker.size());
  }
  return "";
}

// Limit minus use of a group and of all groups above it; inside a container the path may not be mounted and only the
// root of the hierarchy counts.
std::uint64_t cgroup_room(const std::string& mount, std::string group, const char* limit_file, const char* use_file) {
  std::uint64_t room = std::numeric_limits<std::uint64_t>::max();
  while (true) {
    const std::string directory = mount + group + "/";
    const auto limit = read_number(directory + limit_file);
    const auto use = read_number(directory + use_file);
    const auto reclaimable = read_number(directory + "memory.stat", "inactive_file").value_or(0);
    if (limit && use)
      room = std::min(room, *limit > *use ? std::min(*limit, *limit - *use + reclaimable) : reclaimable);
    if (group.empty()) return room;
    group.resize(group.find_last_of('/') == std::string::npos ? 0 : group.find_last_of('/'));
  }
}

}  // namespace

std::size_t available_memory() {
  constexpr std::uint64_t kKiB = 1024;
  const auto host = read_number("/proc/meminfo", "MemAvailable:");
  const std::uint64_t free = host ? *host * kKiB : std::numeric_limits<std::uint64_t>::max();
  const auto v2 = cgroup_room("/sys/fs/cgroup", cgroup_path("0::"), "memory.max", "memory.current");
  const auto v1 =
      cgroup_room("/sys/fs/cgroup/memory", cgroup_path(":memory:"), "memory.limit_in_bytes", "memory.usage_in_bytes");
  return std::min({free, v2, v1});
}

std::int32_t capacity_blocks(const executor::KvCacheConfig& config, const ModelInfo& model, std::int32_t max_batch_size,
                             std::size_t available_bytes) {
  if (config.max_tokens && *config.max_tokens < 1) {
    throw ExecutorError("kv_cache_config.max_tokens is " + std::to_string(*config.max_tokens) + "; expected 1 or more");
  }
  if (config.max_bytes && *config.max_bytes < 1) {
    throw ExecutorError("kv_cache_config.max_bytes is " + std::to_string(*config.max_bytes) + "; expected 1 or more");
  }
  if (!(config.free_memory_fraction > 0.0 && config.free_memory_fraction <= 1.0)) {
    throw ExecutorError("kv_cache_config.free_memory_fraction is " + std::to_string(config.free_memory_fraction) +
                        "; expected more than 0 and at most 1");
  }
  const std::int64_t block_tokens = model.tokens_per_block;
  constexpr std::size_t kLeastBytes = 32;  // what the block pool and the prefix tree keep about a block
  const auto block_bytes = static_cast<double>(std::max(model.kv_bytes_per_block, kLeastBytes));
  const std::int64_t per_sequence = (model.max_seq_len + block_tokens - 1) / block_tokens;

  std::int64_t blocks = per_sequence * max_batch_size;
  std::string reason;
  const auto limit_to = [&](double limit, const std::string& why) {
    if (limit >= static_cast<double>(blocks)) return;
    blocks = static_cast<std::int64_t>(limit);
    reason = why;
  };
  if (config.max_tokens) {
    limit_to(static_cast<double>((*config.max_tokens - 1) / block_tokens + 1),
             "kv_cache_config.max_tokens = " + std::to_string(*config.max_tokens));
  }
  if (config.max_bytes) {
    limit_to(static_cast<double>(*config.max_bytes) / block_bytes,
             "kv_cache_config.max_bytes = " + std::to_string(*config.max_bytes));
  }
  limit_to(config.free_memory_fraction * static_cast<double>(available_bytes) / block_bytes,
           "kv_cache_config.free_memory_fraction = " + std::to_string(config.free_memory_fraction) + " of " +
               std::to_string(available_bytes) + " available bytes");
  limit_to(static_cast<double>(model.max_kv_blocks), "the engine's largest pool");
  if (blocks < per_sequence) {
    throw ExecutorError(reason + " gives a KV cache of " + std::to_string(blocks) + " blocks of " +
                        std::to_string(block_tokens) + " tokens (" + std::to_string(model.kv_bytes_per_block) +
                        " bytes), but one sequence of max_seq_len " + std::to_string(model.max_seq_len) + " needs " +
                        std::to_string(per_sequence) + " blocks; raise the limit or build with a smaller max_seq_len");
  }
  return static_cast<std::int32_t>(std::min<std::int64_t>(blocks, std::numeric_limits<std::int32_t>::max()));
}

}  // namespace trtc::kv_cache
