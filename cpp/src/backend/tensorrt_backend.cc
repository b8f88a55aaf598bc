#include "backend/tensorrt_backend.h"

#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "backend/step_check.h"
#include "trtc/errors.h"

namespace trtc {
namespace {

ModelInfo model_info(const engine::Manifest& manifest, const GpuEngineFacts& facts) {
  ModelInfo info;
  info.engine_hash = manifest.engine_hash;
  info.vocab_size = manifest.vocab_size;
  info.num_layers = static_cast<std::int32_t>(facts.layer_block_bytes.size());
  info.max_batch_size = manifest.max_batch_size;
  info.max_num_tokens = manifest.max_num_tokens;
  info.max_seq_len = manifest.max_seq_len;
  info.max_logit_rows = manifest.max_logit_rows;
  info.tokens_per_block = manifest.tokens_per_block;
  info.max_kv_blocks = facts.max_kv_blocks;
  info.kv_bytes_per_block =
      std::accumulate(facts.layer_block_bytes.begin(), facts.layer_block_bytes.end(), std::size_t{0});
  return info;
}

void check_facts(const GpuEngineFacts& facts, const ModelInfo& info) {
  const auto check = [](const char* what, std::int32_t got, std::int32_t expected, bool right) {
    if (right) return;
    throw EngineError("the plan takes " + std::to_string(got) + " " + what + ", but engine.json says " +
                      std::to_string(expected) + "; build the engine again");
  };
  const auto same = [&](const char* what, std::int32_t got, std::int32_t expected) {
    check(what, got, expected, got == expected);
  };
  const auto at_least = [&](const char* what, std::int32_t got, std::int32_t expected) {
    check(what, got, expected, got >= expected);
  };
  same("words", facts.vocab_size, info.vocab_size);
  same("tokens per block", facts.tokens_per_block, info.tokens_per_block);
  at_least("sequences in a decode step", facts.max_decode_seqs, info.max_batch_size);
  at_least("sequences in a mixed step", facts.max_seqs, info.max_batch_size);
  at_least("tokens", facts.max_tokens, info.max_num_tokens);
  at_least("rows of logits", facts.max_logit_rows, info.max_logit_rows);
  at_least("blocks per sequence", facts.max_columns, (info.max_seq_len - 1) / info.tokens_per_block + 1);
  if (facts.layer_block_bytes.empty()) throw EngineError("the plan has no KV cache; build the engine again");
}

class TensorRtBackend final : public ModelBackend {
 public:
  TensorRtBackend(std::unique_ptr<GpuEngine> gpu, const engine::Manifest& manifest)
      : gpu_(std::move(gpu)), info_(model_info(manifest, gpu_->facts())) {
    check_facts(gpu_->facts(), info_);
    staging_ = gpu_->allocate_staging(max_staging_bytes(info_));
  }

  const ModelInfo& info() const override { return info_; }

  std::optional<std::size_t> free_device_memory() const override { return gpu_->free_memory(); }

  void allocate_kv_cache(std::int32_t num_blocks) override {
    if (num_blocks_ != 0) throw ExecutorError("the KV cache is allocated already");
    if (num_blocks < 1 || num_blocks > info_.max_kv_blocks) {
      throw ExecutorError("got " + std::to_string(num_blocks) + " KV blocks, expected 1 to the plan's own " +
                          std::to_string(info_.max_kv_blocks));
    }
    gpu_->allocate_kv_cache(num_blocks);
    num_blocks_ = num_blocks;
  }

  void run(const StepInputs& inputs, std::span<float> logits) override {
    check_step(inputs, logits.size(), info_, num_blocks_);
    const GpuStep step = plan_gpu_step(inputs, info_);
    stage_inputs(inputs, step.shape, staging_);
    gpu_->upload(staging_layout(step.shape).bytes);
    execute(step);
    gpu_->download(logits);
  }

  void copy_block(std::int32_t source, std::int32_t destination) override {
    for (const std::int32_t block : {source, destination}) {
      if (block < 0 || block >= num_blocks_) {
        throw ExecutorError("copy_block: block " + std::to_string(block) + " is not one of " +
                            std::to_string(num_blocks_));
      }
    }
    if (source != destination) gpu_->copy_block(source, destination);
  }

 private:
  // A decode step of a shape is enqueued when it first comes, which lets TensorRT settle on it, then captured, then
  // launched as a graph. One refused capture ends all capturing.
  void execute(const GpuStep& step) {
    if (step.profile != GpuProfile::kDecode || !captures_) return gpu_->enqueue(step);
    const auto [found, first] = graphs_.try_emplace(step.shape);
    if (first) return gpu_->enqueue(step);
    if (!found->second) {
      found->second = gpu_->capture(step);
      captures_ = found->second.has_value();
    }
    if (found->second) return gpu_->launch(*found->second);
    gpu_->enqueue(step);
  }

  std::unique_ptr<GpuEngine> gpu_;
  ModelInfo info_;
  std::span<std::byte> staging_;
  std::int32_t num_blocks_ = 0;
  bool captures_ = true;
  std::map<GpuStepShape, std::optional<std::size_t>> graphs_;  // of decode steps that have come before
};

}  // namespace

std::unique_ptr<ModelBackend> make_tensorrt_backend(std::unique_ptr<GpuEngine> gpu, const engine::Manifest& manifest) {
  return std::make_unique<TensorRtBackend>(std::move(gpu), manifest);
}

}  // namespace trtc
