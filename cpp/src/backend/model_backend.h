// What the executor needs of a model, whatever runs it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>

namespace trtc {

// Facts and limits of a loaded engine. Counts are tokens, sequences or blocks.
struct ModelInfo {
  std::string engine_hash;  // hex; identifies weights and plan
  std::int32_t vocab_size = 0;
  std::int32_t num_layers = 0;
  std::int32_t max_batch_size = 0;
  std::int32_t max_num_tokens = 0;
  std::int32_t max_seq_len = 0;
  std::int32_t max_logit_rows = 0;  // rows of logits one step can return
  std::int32_t tokens_per_block = 0;
  std::size_t kv_bytes_per_block = 0;  // all layers, key and value
  std::int32_t max_kv_blocks = std::numeric_limits<std::int32_t>::max();
};

// One step, packed. Names and shapes as in trtc/graph/contract.py; the caller owns the memory.
struct StepInputs {
  std::span<const std::int32_t> input_ids;     // [tokens]
  std::span<const std::int32_t> position_ids;  // [tokens]
  std::span<const std::int32_t> query_start;   // [seqs + 1]
  std::span<const std::int32_t> context_lens;  // [seqs]
  std::span<const std::int32_t> block_table;   // [seqs, max_blocks]
  std::int32_t max_blocks = 0;
  std::span<const std::int32_t> logit_rows;  // [logit_rows], ascending
};

class ModelBackend {
 public:
  virtual ~ModelBackend() = default;

  virtual const ModelInfo& info() const = 0;

  // Bytes that the KV cache may take a part of, where they are not this machine's own memory but a device's.
  virtual std::optional<std::size_t> free_device_memory() const { return std::nullopt; }

  // Called once, before the first run. Throws ExecutorError when the memory cannot be had.
  virtual void allocate_kv_cache(std::int32_t num_blocks) = 0;

  // Runs one step and fills logits [logit_rows, vocab_size]. Inputs out of range are a bug of the caller: checked,
  // ExecutorError.
  virtual void run(const StepInputs& inputs, std::span<float> logits) = 0;

  // Copies one physical block of every layer.
  virtual void copy_block(std::int32_t source, std::int32_t destination) = 0;
};

}  // namespace trtc
