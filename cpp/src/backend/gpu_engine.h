// A loaded plan on one GPU, as the backend drives it. cpp/tensorrt implements it; tests do without a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/gpu_step.h"
#include "engine/manifest.h"

namespace trtc {

// What the plan itself says. Counts are tokens, sequences, rows or blocks.
struct GpuEngineFacts {
  std::vector<std::size_t> layer_block_bytes;  // of one KV block, key and value; by layer
  std::int32_t vocab_size = 0;
  std::int32_t tokens_per_block = 0;
  std::int32_t max_decode_seqs = 0;  // of the decode profile; the others of the mixed one
  std::int32_t max_seqs = 0;
  std::int32_t max_tokens = 0;
  std::int32_t max_logit_rows = 0;
  std::int32_t max_columns = 0;    // of the block table
  std::int32_t max_kv_blocks = 0;  // of the pool
};

// Where an engine runs.
struct GpuEngineOptions {
  int device = 0;
  // An ncclComm_t of as many ranks as the engine has, made by ncclCommInitRank, which must outlive the engine; null for
  // one rank.
  void* nccl_communicator = nullptr;
};

// One device, one stream, one thread at a time. Everything throws ExecutorError saying what the device refused.
class GpuEngine {
 public:
  virtual ~GpuEngine() = default;

  virtual const GpuEngineFacts& facts() const = 0;

  // Bytes of device memory that are free now.
  virtual std::size_t free_memory() const = 0;

  // Zeroed pools of every layer.
  virtual void allocate_kv_cache(std::int32_t num_blocks) = 0;

  // Page-locked host memory for the inputs of a step; staging_bytes of it are reserved with its twin on the device.
  virtual std::span<std::byte> allocate_staging(std::size_t bytes) = 0;

  // Enqueues the copy of the first `bytes` of the staging memory to the device.
  virtual void upload(std::size_t bytes) = 0;

  // Enqueues the plan on inputs that lie in the staging memory as staging_layout says.
  virtual void enqueue(const GpuStep& step) = 0;

  // Records the same as a CUDA graph and returns its number, or nothing when this cannot be captured.
  virtual std::optional<std::size_t> capture(const GpuStep& step) = 0;
  virtual void launch(std::size_t graph) = 0;

  // Waits for all that is enqueued and copies the first rows of the logits.
  virtual void download(std::span<float> logits) = 0;

  // Enqueues the copy of one block of every layer.
  virtual void copy_block(std::int32_t source, std::int32_t destination) = 0;
};

// What a library that implements GpuEngine exports under the name kOpenGpuEngine, with C linkage. The name changes with
// anything that such a library shares with this one. The caller owns the result. Throws EngineError or ExecutorError.
using OpenGpuEngine = GpuEngine*(const std::string& plan_path, const engine::TensorRtManifest& manifest,
                                 const GpuEngineOptions& options);
inline constexpr const char* kOpenGpuEngine = "trtc_open_gpu_engine_1";

}  // namespace trtc
