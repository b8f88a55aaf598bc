// How many blocks the KV cache gets.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/model_backend.h"
#include "trtc/executor.h"

namespace trtc::kv_cache {

// Bytes that this process may still use: what the kernel calls available, or less if a cgroup limits it.
std::size_t available_memory();

// The least of: max_tokens, max_bytes, free_memory_fraction of available_bytes, the engine's largest pool, and what
// max_batch_size sequences of the engine's full length need. Throws ExecutorError when a setting is out of range or not
// even one such sequence fits.
std::int32_t capacity_blocks(const executor::KvCacheConfig& config, const ModelInfo& model, std::int32_t max_batch_size,
                             std::size_t available_bytes);

}  // namespace trtc::kv_cache
