// A request's sampling settings with every default filled in, and the history that penalties look at.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "trtc/executor.h"

namespace trtc::sampling {

using executor::TokenIdType;
using executor::VecTokens;

struct SamplingParams {
  bool greedy = true;
  float temperature = 1.0f;
  std::int32_t top_k = 0;  // 0: off
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  std::int32_t min_tokens = 0;
  std::uint64_t seed = 0;
  VecTokens end_ids;
  std::vector<VecTokens> bad_words;
  std::optional<std::int32_t> log_probs;

  bool has_penalties() const {
    return repetition_penalty != 1.0f || presence_penalty != 0.0f || frequency_penalty != 0.0f;
  }
};

SamplingParams make_sampling_params(const executor::Request& request);

// How often each token occurs in a sequence. Kept only for requests with penalties.
class TokenCounts {
 public:
  void add_prompt(std::span<const TokenIdType> tokens);
  void add_output(TokenIdType token) { ++counts_[token]; }

  // token -> occurrences in the output (0: only in the prompt)
  const std::unordered_map<TokenIdType, std::int32_t>& output_counts() const { return counts_; }

 private:
  std::unordered_map<TokenIdType, std::int32_t> counts_;
};

// What the next token of one sequence depends on besides the logits and the settings.
struct SamplingState {
  std::span<const TokenIdType> tokens;  // prompt and output so far
  std::int32_t prompt_tokens = 0;
  std::int32_t sequence_index = 0;
  const TokenCounts* counts = nullptr;  // null when the request has no penalties

  std::span<const TokenIdType> output() const { return tokens.subspan(prompt_tokens); }
};

}  // namespace trtc::sampling
