#include "bindings/test_executor_scripted_backend.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "trtc/errors.h"

namespace trtc::testing {

namespace {

void require(bool condition, const char* what) {
  if (!condition) throw ExecutorError(std::string("malformed step: ") + what);
}

std::uint64_t splitmix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// In [-4, 4), exact in float32.
float logit_of(std::uint64_t hash, std::int32_t token) {
  const std::uint64_t bits = splitmix64(hash + static_cast<std::uint64_t>(token)) >> 40;
  return static_cast<float>(bits) * 0x1.0p-21f - 4.0f;
}

}  // namespace

void ScriptControl::hold() {
  const std::lock_guard lock(mutex_);
  held_ = true;
}

void ScriptControl::allow(int steps) {
  const std::lock_guard lock(mutex_);
  permits_ += steps;
  changed_.notify_all();
}

void ScriptControl::open() {
  const std::lock_guard lock(mutex_);
  held_ = false;
  changed_.notify_all();
}

bool ScriptControl::wait_started(int run) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return runs_ >= run; });
}

int ScriptControl::runs() const {
  const std::lock_guard lock(mutex_);
  return runs_;
}

void ScriptControl::begin_run() {
  std::unique_lock lock(mutex_);
  ++runs_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return !held_ || permits_ > 0; });
  if (held_) --permits_;
}

ScriptedBackend::ScriptedBackend(ScriptedModel model, std::shared_ptr<ScriptControl> control)
    : model_(std::move(model)), control_(std::move(control)) {}

void ScriptedBackend::allocate_kv_cache(std::int32_t num_blocks) {
  if (model_.fail_allocation) throw ExecutorError("scripted allocation failure");
  num_blocks_ = num_blocks;
  store_.assign(static_cast<std::size_t>(num_blocks) * model_.info.tokens_per_block, -1);
}

void ScriptedBackend::run(const StepInputs& inputs, std::span<float> logits) {
  control_->begin_run();
  if (model_.fail_at_run && control_->runs() >= *model_.fail_at_run) throw ExecutorError("scripted backend failure");
  check_sizes(inputs, logits);
  std::set<std::size_t> written;
  for (std::size_t s = 0; s < inputs.context_lens.size(); ++s) write_tokens(inputs, s, written);

  const auto vocab = static_cast<std::size_t>(model_.info.vocab_size);
  for (std::size_t i = 0; i < inputs.logit_rows.size(); ++i) {
    const std::int32_t row = inputs.logit_rows[i];
    const auto after = std::ranges::upper_bound(inputs.query_start, row);
    const auto sequence = static_cast<std::size_t>(after - inputs.query_start.begin()) - 1;
    const std::uint64_t hash = prefix_hash(inputs, sequence, inputs.position_ids[row]);
    const bool broken = model_.nan_after_token == inputs.input_ids[row];
    for (std::size_t v = 0; v < vocab; ++v) {
      logits[i * vocab + v] =
          broken ? std::numeric_limits<float>::quiet_NaN() : logit_of(hash, static_cast<std::int32_t>(v));
    }
  }
}

void ScriptedBackend::copy_block(std::int32_t source, std::int32_t destination) {
  const std::int32_t size = model_.info.tokens_per_block;
  require(source >= 0 && source < num_blocks_ && destination >= 0 && destination < num_blocks_, "copied block");
  std::copy_n(store_.begin() + source * size, size, store_.begin() + destination * size);
}

void ScriptedBackend::check_sizes(const StepInputs& inputs, std::span<float> logits) const {
  const ModelInfo& info = model_.info;
  const std::size_t tokens = inputs.input_ids.size();
  const std::size_t seqs = inputs.context_lens.size();
  require(tokens >= 1 && std::ssize(inputs.input_ids) <= info.max_num_tokens, "number of tokens");
  require(seqs >= 1 && std::ssize(inputs.context_lens) <= info.max_batch_size, "number of sequences");
  require(std::ssize(inputs.logit_rows) <= info.max_logit_rows, "number of logit rows");
  require(inputs.position_ids.size() == tokens, "position_ids");
  require(inputs.query_start.size() == seqs + 1 && inputs.query_start.front() == 0, "query_start");
  require(inputs.query_start.back() == static_cast<std::int32_t>(tokens), "query_start");
  require(std::ranges::adjacent_find(inputs.query_start, std::greater_equal{}) == inputs.query_start.end(),
          "query_start does not rise");
  require(inputs.block_table.size() == seqs * inputs.max_blocks, "block_table");
  require(logits.size() == inputs.logit_rows.size() * info.vocab_size, "logits");
  require(std::ranges::adjacent_find(inputs.logit_rows, std::greater_equal{}) == inputs.logit_rows.end(),
          "logit_rows do not rise");
  require(inputs.logit_rows.empty() ||
              (inputs.logit_rows.front() >= 0 && inputs.logit_rows.back() < static_cast<std::int32_t>(tokens)),
          "logit_rows");
}

void ScriptedBackend::write_tokens(const StepInputs& inputs, std::size_t sequence, std::set<std::size_t>& written) {
  const std::int32_t begin = inputs.query_start[sequence];
  const std::int32_t end = inputs.query_start[sequence + 1];
  const std::int32_t first = inputs.context_lens[sequence] - (end - begin);
  require(first >= 0 && inputs.context_lens[sequence] <= model_.info.max_seq_len, "context_lens");
  for (std::int32_t row = begin; row < end; ++row) {
    require(inputs.position_ids[row] == first + row - begin, "position_ids");
    const std::size_t target = slot(inputs, sequence, inputs.position_ids[row]);
    require(written.insert(target).second, "two rows write one cache slot");
    store_[target] = inputs.input_ids[row];
  }
}

std::uint64_t ScriptedBackend::prefix_hash(const StepInputs& inputs, std::size_t sequence,
                                           std::int32_t position) const {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (std::int32_t p = 0; p <= position; ++p) {
    const std::int32_t token = store_[slot(inputs, sequence, p)];
    require(token >= 0, "a cache slot is read that was never written");
    hash = (hash ^ static_cast<std::uint64_t>(token)) * 0x100000001b3ULL;
  }
  return hash;
}

std::size_t ScriptedBackend::slot(const StepInputs& inputs, std::size_t sequence, std::int32_t position) const {
  const std::int32_t size = model_.info.tokens_per_block;
  require(position / size < inputs.max_blocks, "position past the block table");
  const std::int32_t block = inputs.block_table[sequence * inputs.max_blocks + position / size];
  require(block >= 0 && block < num_blocks_, "block number");
  return static_cast<std::size_t>(block) * size + position % size;
}

}  // namespace trtc::testing
