// A model backend for tests whose tokens are a known function of the visible prefix.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "backend/model_backend.h"

namespace trtc::testing {

// Lets a test hold the backend before a step and count steps.
class ScriptControl {
 public:
  void hold();                 // from now on each step needs a permit
  void allow(int steps);       // gives permits
  void open();                 // steps need no permits any more
  bool wait_started(int run);  // until step `run` (from 1) has begun, at most 60 s
  int runs() const;

  void begin_run();  // the backend's

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;
  int permits_ = 0;
  int runs_ = 0;
};

struct ScriptedModel {
  ModelInfo info;
  std::optional<std::int32_t> nan_after_token;  // logits after this token are NaN
  std::optional<int> fail_at_run;               // from 1
  bool fail_allocation = false;
};

// Keeps the tokens of every cache slot and reads the visible prefix back through the block table: a wrong table, a
// stale block or a missed copy gives other logits. Logit v after tokens t0..tp is drawn from splitmix64(h + v) with
// h the FNV-1a hash of t0..tp. Malformed steps throw ExecutorError.
class ScriptedBackend : public ModelBackend {
 public:
  ScriptedBackend(ScriptedModel model, std::shared_ptr<ScriptControl> control);

  const ModelInfo& info() const override { return model_.info; }
  void allocate_kv_cache(std::int32_t num_blocks) override;
  void run(const StepInputs& inputs, std::span<float> logits) override;
  void copy_block(std::int32_t source, std::int32_t destination) override;

 private:
  void check_sizes(const StepInputs& inputs, std::span<float> logits) const;
  void write_tokens(const StepInputs& inputs, std::size_t sequence, std::set<std::size_t>& written);
  std::uint64_t prefix_hash(const StepInputs& inputs, std::size_t sequence, std::int32_t position) const;
  std::size_t slot(const StepInputs& inputs, std::size_t sequence, std::int32_t position) const;

  const ScriptedModel model_;
  const std::shared_ptr<ScriptControl> control_;
  std::int32_t num_blocks_ = 0;
  std::vector<std::int32_t> store_;  // [blocks, tokens_per_block]; -1: never written
};

}  // namespace trtc::testing
