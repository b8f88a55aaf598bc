#include "executor/validate_request.h"

#include <cmath>
#include <sstream>

#include "trtc/errors.h"

namespace trtc::executor {

namespace {

template <typename Value>
[[noreturn]] void refuse(const std::string& field, const Value& got, const std::string& expected) {
  std::ostringstream message;
  message << field << " is " << got << "; expected " << expected;
  throw RequestError(message.str());
}

void check_ids(const std::string& field, const VecTokens& ids, std::int32_t vocab_size) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size) {
      refuse(field + "[" + std::to_string(i) + "]", ids[i],
             "a token id below the vocabulary size " + std::to_string(vocab_size));
    }
  }
}

void check_words(const std::string& field, const std::vector<VecTokens>& words, std::int32_t vocab_size) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string name = field + "[" + std::to_string(i) + "]";
    if (words[i].empty()) throw RequestError(name + " is empty; expected one token or more");
    check_ids(name, words[i], vocab_size);
  }
}

void check_lengths(const Request& request, const ExecutorLimits& limits) {
  const auto prompt = static_cast<std::int64_t>(request.input_token_ids.size());
  const std::int64_t longest = limits.max_seq_len;
  if (prompt == 0) throw RequestError("input_token_ids is empty; expected one token or more");
  if (prompt >= longest) {
    throw RequestError("input_token_ids has " + std::to_string(prompt) + " tokens; expected at most " +
                       std::to_string(longest - 1) + ", so that max_seq_len " + std::to_string(longest) +
                       " leaves room for an answer");
  }
  if (request.max_tokens < 1) refuse("max_tokens", request.max_tokens, "1 or more");
  if (prompt + request.max_tokens > longest) {
    throw RequestError("max_tokens is " + std::to_string(request.max_tokens) + " but the prompt of " +
                       std::to_string(prompt) + " tokens leaves room for " + std::to_string(longest - prompt) +
                       " of the engine's max_seq_len " + std::to_string(longest));
  }
}

void check_sampling(const SamplingConfig& config, const Request& request, const ExecutorLimits& limits) {
  const auto check = [](const char* field, std::optional<float> value, auto valid, const char* expected) {
    if (value && !(std::isfinite(*value) && valid(*value))) refuse(field, *value, expected);
  };
  const auto any = [](float) { return true; };
  const std::int32_t n = config.num_return_sequences;
  if (n < 1 || n > limits.step.max_batch_size) {
    refuse("num_return_sequences", n, "1 to the batch size " + std::to_string(limits.step.max_batch_size));
  }
  check("temperature", config.temperature, [](float v) { return v >= 0.0f; }, "0 (greedy) or more");
  if (config.top_k && *config.top_k < 0) refuse("top_k", *config.top_k, "0 (off) or more");
  check("top_p", config.top_p, [](float v) { return v > 0.0f && v <= 1.0f; }, "more than 0 and at most 1");
  check("min_p", config.min_p, [](float v) { return v >= 0.0f && v <= 1.0f; }, "0 to 1");
  check("repetition_penalty", config.repetition_penalty, [](float v) { return v > 0.0f; }, "more than 0");
  check("presence_penalty", config.presence_penalty, any, "a finite number");
  check("frequency_penalty", config.frequency_penalty, any, "a finite number");
  if (config.min_tokens && (*config.min_tokens < 0 || *config.min_tokens > request.max_tokens)) {
    refuse("min_tokens", *config.min_tokens, "0 to max_tokens " + std::to_string(request.max_tokens));
  }
}

void check_output(const OutputConfig& config, const ExecutorLimits& limits) {
  const auto check = [&](const char* field, std::optional<std::int32_t> value) {
    if (value && (*value < 0 || *value > limits.vocab_size)) {
      refuse(field, *value, "0 to the vocabulary size " + std::to_string(limits.vocab_size));
    }
  };
  check("log_probs", config.log_probs);
  check("prompt_log_probs", config.prompt_log_probs);
}

// Without chunked prefill the whole prompt has to fit into one step.
void check_single_step(const Request& request, const ExecutorLimits& limits) {
  if (limits.step.chunked_prefill) return;
  const auto prompt = static_cast<std::int64_t>(request.input_token_ids.size());
  const OutputConfig& output = request.output_config;
  const bool all_logits = output.return_context_logits || output.prompt_log_probs;
  if (prompt > limits.step.max_num_tokens) {
    throw RequestError("input_token_ids has " + std::to_string(prompt) + " tokens but a step takes max_num_tokens " +
                       std::to_string(limits.step.max_num_tokens) + " and chunked prefill is off");
  }
  if (all_logits && prompt > limits.step.max_logit_rows) {
    throw RequestError("logits of all " + std::to_string(prompt) + " prompt tokens are wanted but a step gives " +
                       std::to_string(limits.step.max_logit_rows) + " rows and chunked prefill is off");
  }
}

}  // namespace

void validate_request(const Request& request, const ExecutorLimits& limits) {
  check_lengths(request, limits);
  check_ids("input_token_ids", request.input_token_ids, limits.vocab_size);
  if (request.end_id) check_ids("end_id", {*request.end_id}, limits.vocab_size);
  check_ids("stop_token_ids", request.stop_token_ids, limits.vocab_size);
  check_words("stop_words", request.stop_words, limits.vocab_size);
  check_words("bad_words", request.bad_words, limits.vocab_size);
  check_sampling(request.sampling_config, request, limits);
  check_output(request.output_config, limits);
  check_single_step(request, limits);
  const std::int64_t blocks = worst_case_blocks(request, limits.tokens_per_block);
  if (blocks > limits.num_blocks) {
    throw RequestError("the request can come to need " + std::to_string(blocks) + " KV cache blocks but there are " +
                       std::to_string(limits.num_blocks) +
                       "; lower max_tokens or num_return_sequences, or enlarge "
                       "the KV cache");
  }
}

}  // namespace trtc::executor
