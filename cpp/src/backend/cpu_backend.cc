#include "backend/cpu_backend.h"

#include <cstdint>
#include <cstring>
#include <utility>

#include "backend/anonymous_memory.h"
#include "backend/call_runner.h"
#include "backend/plan_check.h"
#include "backend/step_check.h"
#include "common/cpu_features.h"
#include "common/thread_team.h"
#include "engine/mapped_file.h"
#include "trtc/errors.h"

namespace trtc {
namespace {

constexpr std::size_t kPageBytes = 4096;

ModelInfo model_info(const engine::Plan& plan) {
  const engine::ModelRecord& model = plan.model;
  ModelInfo info;
  info.engine_hash = plan.engine_hash;
  info.vocab_size = model.vocab_size;
  info.num_layers = model.num_layers;
  info.max_batch_size = model.max_batch_size;
  info.max_num_tokens = model.max_num_tokens;
  info.max_seq_len = model.max_seq_len;
  info.max_logit_rows = model.max_logit_rows;
  info.tokens_per_block = model.tokens_per_block;
  info.kv_bytes_per_block = model.kv_bytes_per_block;
  return info;
}

// Refuses an engine that needs more than this machine uses.
void check_isa(const engine::Plan& plan, Isa isa) {
  if (plan.model.required_isa > static_cast<std::uint32_t>(isa)) {
    plan.fail("it needs instruction set level " + std::to_string(plan.model.required_isa) + ", this process uses " +
              std::string(isa_name(isa)));
  }
}

class CpuBackend final : public ModelBackend {
 public:
  CpuBackend(const std::string& path, int num_threads)
      : file_(path),
        plan_(engine::read_plan(file_.bytes(), path)),
        info_(model_info(plan_)),
        kernels_(kernels::kernel_table(selected_isa())),
        team_(num_threads) {
    check_isa(plan_, selected_isa());
    check_calls(plan_);
    arena_ = AnonymousMemory(plan_.model.arena_bytes, "activations");
    memory_.file = file_.bytes().data();
    memory_.arena = arena_.data();
  }

  const ModelInfo& info() const override { return info_; }

  void allocate_kv_cache(std::int32_t num_blocks) override {
    if (num_blocks_ != 0) throw ExecutorError("the KV cache is allocated already");
    if (num_blocks < 1) throw ExecutorError("got " + std::to_string(num_blocks) + " KV blocks, expected at least 1");
    constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 46;  // far below where the sums overflow
    if (static_cast<std::uint64_t>(num_blocks) > kMostBytes / plan_.model.kv_bytes_per_block) {
      throw ExecutorError("got " + std::to_string(num_blocks) + " KV blocks of " +
                          std::to_string(plan_.model.kv_bytes_per_block) + " bytes, more than any machine has");
    }
    std::size_t total = 0;
    for (const engine::KvLayerRecord& layer : plan_.kv_layers) total += layer_bytes(layer, num_blocks);
    kv_memory_ = AnonymousMemory(total, "the KV cache of " + std::to_string(num_blocks) + " blocks");
    std::byte* place = kv_memory_.data();
    for (const engine::KvLayerRecord& layer : plan_.kv_layers) {
      memory_.kv_pools.push_back({place, static_cast<kernels::KvDtype>(layer.dtype), layer.kv_heads,
                                  plan_.model.tokens_per_block, layer.head_dim});
      place += layer_bytes(layer, num_blocks);
    }
    num_blocks_ = num_blocks;
  }

  void run(const StepInputs& inputs, std::span<float> logits) override {
    check_step(inputs, logits.size(), info_, num_blocks_);
    const Step step{inputs, logits.data()};
    team_.run([this, &step](Slice slice) {
      for (const engine::CallRecord& call : plan_.calls) {
        runner_.run(call, step, slice);
        team_.barrier();
      }
    });
  }

  void copy_block(std::int32_t source, std::int32_t destination) override {
    for (const std::int32_t block : {source, destination}) {
      if (block < 0 || block >= num_blocks_) {
        throw ExecutorError("copy_block: block " + std::to_string(block) + " is not one of " +
                            std::to_string(num_blocks_));
      }
    }
    if (source == destination) return;
    for (std::size_t layer = 0; layer < memory_.kv_pools.size(); ++layer) {
      const std::size_t bytes = block_bytes(plan_.kv_layers[layer]);
      auto* pool = static_cast<std::byte*>(memory_.kv_pools[layer].data);
      std::memcpy(pool + static_cast<std::size_t>(destination) * bytes, pool + static_cast<std::size_t>(source) * bytes,
                  bytes);
    }
  }

 private:
  std::size_t block_bytes(const engine::KvLayerRecord& layer) const {
    const std::size_t element = layer.dtype == static_cast<std::uint32_t>(engine::KvStorage::kF32) ? 4 : 2;
    return 2 * element * static_cast<std::size_t>(layer.kv_heads) * static_cast<std::size_t>(layer.head_dim) *
           static_cast<std::size_t>(plan_.model.tokens_per_block);
  }

  std::size_t layer_bytes(const engine::KvLayerRecord& layer, std::int32_t num_blocks) const {
    const std::size_t bytes = block_bytes(layer) * static_cast<std::size_t>(num_blocks);
    return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  }

  engine::MappedFile file_;
  engine::Plan plan_;
  ModelInfo info_;
  const kernels::KernelTable& kernels_;
  ThreadTeam team_;
  AnonymousMemory arena_;
  AnonymousMemory kv_memory_;
  std::int32_t num_blocks_ = 0;
  CallMemory memory_;
  CallRunner runner_{plan_, memory_, kernels_};
};

}  // namespace

std::unique_ptr<ModelBackend> load_cpu_engine(const std::string& engine_dir, int num_threads) {
  return std::make_unique<CpuBackend>(engine_dir + "/rank0.engine", num_threads);
}

}  // namespace trtc
