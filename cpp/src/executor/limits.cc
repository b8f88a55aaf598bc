#include "executor/limits.h"

#include <algorithm>
#include <string>

#include "kv_cache/capacity.h"
#include "trtc/errors.h"

namespace trtc::executor {

namespace {

// The setting if given, else the engine's limit.
std::int32_t lowered(const char* name, std::optional<std::int32_t> setting, std::int32_t engine_limit) {
  if (!setting) return engine_limit;
  if (*setting < 1 || *setting > engine_limit) {
    throw ExecutorError("scheduler_config." + std::string(name) + " is " + std::to_string(*setting) +
                        "; expected 1 to the engine's own " + std::to_string(engine_limit));
  }
  return *setting;
}

void check_at_least(const char* name, std::int32_t value, std::int32_t least) {
  if (value >= least) return;
  throw ExecutorError(std::string(name) + " is " + std::to_string(value) + "; expected " + std::to_string(least) +
                      " or more");
}

// The memory of a step outside the backend: logits and the block table.
void check_step_memory(const ExecutorLimits& limits, std::size_t available_bytes) {
  const double logits = 4.0 * limits.step.max_logit_rows * limits.vocab_size;
  const double columns = static_cast<double>(limits.max_seq_len) / limits.tokens_per_block + 1;
  const double table = 4.0 * limits.step.max_batch_size * columns;
  if (logits + table <= static_cast<double>(available_bytes)) return;
  throw ExecutorError("a step of " + std::to_string(limits.step.max_logit_rows) + " rows of logits over " +
                      std::to_string(limits.vocab_size) + " tokens and " + std::to_string(limits.step.max_batch_size) +
                      " sequences of " + std::to_string(limits.max_seq_len) + " tokens does not fit into the " +
                      std::to_string(available_bytes) +
                      " bytes of available memory; build the engine with a smaller max_batch_size or max_seq_len");
}

}  // namespace

ExecutorLimits resolve_limits(const ExecutorConfig& config, const ModelInfo& model, std::size_t host_bytes,
                              std::size_t kv_bytes) {
  const SchedulerConfig& scheduler = config.scheduler_config;
  check_at_least("num_threads", config.num_threads, 0);
  check_at_least("iter_stats_max_iterations", config.iter_stats_max_iterations, 0);
  check_at_least("max_queue_size", config.max_queue_size, 1);

  ExecutorLimits limits;
  limits.step.max_num_tokens = lowered("max_num_tokens", scheduler.max_num_tokens, model.max_num_tokens);
  limits.step.max_batch_size = lowered("max_batch_size", scheduler.max_batch_size, model.max_batch_size);
  limits.step.max_logit_rows = model.max_logit_rows;
  limits.step.chunked_prefill = scheduler.enable_chunked_prefill;
  if (scheduler.max_batch_size && limits.step.max_batch_size > limits.step.max_num_tokens) {
    throw ExecutorError("scheduler_config.max_batch_size is " + std::to_string(limits.step.max_batch_size) +
                        " but max_num_tokens is " + std::to_string(limits.step.max_num_tokens) +
                        "; every running sequence needs one token per step");
  }
  // Every running sequence takes one row and one row of logits per step, so these bound the batch too.
  limits.step.max_batch_size =
      std::min({limits.step.max_batch_size, limits.step.max_num_tokens, limits.step.max_logit_rows});
  limits.vocab_size = model.vocab_size;
  limits.max_seq_len = model.max_seq_len;
  limits.tokens_per_block = model.tokens_per_block;
  check_step_memory(limits, host_bytes);
  limits.num_blocks = kv_cache::capacity_blocks(config.kv_cache_config, model, limits.step.max_batch_size, kv_bytes);
  limits.max_queue_size = config.max_queue_size;
  return limits;
}

std::int32_t own_blocks(const Request& request, std::int32_t tokens_per_block) {
  const auto prompt = static_cast<std::int64_t>(request.input_token_ids.size());
  const std::int64_t cached = prompt + request.max_tokens - 1;  // the last token's keys are never needed
  const std::int64_t all = (cached + tokens_per_block - 1) / tokens_per_block;
  return static_cast<std::int32_t>(all - prompt / tokens_per_block);
}

std::int64_t worst_case_blocks(const Request& request, std::int32_t tokens_per_block) {
  const auto shared = static_cast<std::int64_t>(request.input_token_ids.size()) / tokens_per_block;
  return shared + static_cast<std::int64_t>(request.sampling_config.num_return_sequences) *
                      own_blocks(request, tokens_per_block);
}

}  // namespace trtc::executor
