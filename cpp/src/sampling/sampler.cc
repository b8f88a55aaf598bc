#include "sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sampling/log_probs.h"
#include "sampling/philox.h"
#include "trtc/errors.h"

namespace trtc::sampling {

namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();

void apply_penalties(std::span<float> logits, const SamplingParams& params, const TokenCounts& counts) {
  for (const auto& [token, count] : counts.output_counts()) {
    float& logit = logits[token];
    const bool finite = std::isfinite(logit);
    logit = logit > 0.0f ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    logit -= params.frequency_penalty * static_cast<float>(count);
    if (count > 0) logit -= params.presence_penalty;
    if (finite && !std::isfinite(logit)) {
      throw RequestError(
          "repetition_penalty, frequency_penalty and presence_penalty take a logit beyond float32; expected values "
          "nearer to 1, 0 and 0");
    }
  }
}

bool ends_with(std::span<const TokenIdType> tokens, std::span<const TokenIdType> tail) {
  return tokens.size() >= tail.size() && std::ranges::equal(tokens.last(tail.size()), tail);
}

void mask_bad_words(std::span<float> logits, const std::vector<VecTokens>& bad_words,
                    std::span<const TokenIdType> output) {
  for (const VecTokens& word : bad_words) {
    if (ends_with(output, std::span(word).first(word.size() - 1))) logits[word.back()] = kMasked;
  }
}

}  // namespace

Sampler::Sampler(std::int32_t vocab_size) {
  adjusted_.reserve(vocab_size);
  order_.reserve(vocab_size);
  candidates_.reserve(vocab_size);
}

SampledToken Sampler::sample(std::span<const float> logits, const SamplingParams& params, const SamplingState& state) {
  check_logits(logits);
  const std::span<const float> row = adjust(logits, params, state);
  SampledToken result;
  if (params.greedy) {
    result.id = best_token(row);
  } else {
    const auto position = static_cast<std::uint32_t>(state.tokens.size());
    const auto sequence_index = static_cast<std::uint32_t>(state.sequence_index);
    result.id = draw(row, params, uniform_draw(params.seed, sequence_index, position));
  }
  if (params.log_probs) result.log_probs = token_log_probs(row, result.id, *params.log_probs, order_);
  return result;
}

executor::TokenLogProbs Sampler::prompt_log_probs(std::span<const float> logits, TokenIdType token,
                                                  std::int32_t top_n) {
  check_logits(logits);
  return token_log_probs(logits, token, top_n, order_);
}

// Steps 2 to 5. Returns the row itself when they change nothing.
std::span<const float> Sampler::adjust(std::span<const float> logits, const SamplingParams& params,
                                       const SamplingState& state) {
  const bool masks_end = !params.end_ids.empty() && std::ssize(state.output()) < params.min_tokens;
  if (!params.has_penalties() && !masks_end && params.bad_words.empty()) return logits;
  adjusted_.assign(logits.begin(), logits.end());
  if (params.has_penalties()) apply_penalties(adjusted_, params, *state.counts);
  if (masks_end) {
    for (const TokenIdType id : params.end_ids) adjusted_[id] = kMasked;
  }
  mask_bad_words(adjusted_, params.bad_words, state.output());
  check_logits(adjusted_);
  return adjusted_;
}

TokenIdType Sampler::draw(std::span<const float> logits, const SamplingParams& params, double uniform) {
  select_candidates(logits, params);
  std::erase_if(candidates_, [&](const Candidate& c) { return c.weight <= 0.0 || c.weight < params.min_p; });
  double total = 0.0;
  for (const Candidate& candidate : candidates_) total += candidate.weight;
  const double target = uniform * total;
  double sum = 0.0;
  for (const Candidate& candidate : candidates_) {
    sum += candidate.weight;
    if (sum > target) return candidate.id;
  }
  return candidates_.back().id;
}

// Fills candidates_ with what top-k and top-p leave. Weights are relative to the greatest, which is 1.
void Sampler::select_candidates(std::span<const float> logits, const SamplingParams& params) {
  const auto vocab = static_cast<std::int32_t>(logits.size());
  const float greatest = logits[best_token(logits)];
  const auto weight = [&](std::int32_t id) {
    return static_cast<double>(std::exp((logits[id] - greatest) / params.temperature));
  };
  candidates_.clear();
  const bool by_top_k = params.top_k > 0 && params.top_k < vocab;
  if (!by_top_k && params.top_p >= 1.0f) {
    for (std::int32_t id = 0; id < vocab; ++id) candidates_.push_back({id, weight(id)});
    return;
  }

  double total = 0.0;
  if (by_top_k) {
    for (const std::int32_t id : top_tokens(logits, params.top_k, order_)) candidates_.push_back({id, weight(id)});
    for (const Candidate& candidate : candidates_) total += candidate.weight;
  } else {
    for (std::int32_t id = 0; id < vocab; ++id) total += weight(id);
  }
  if (params.top_p >= 1.0f) return;

  // The shortest run of the most likely tokens whose weight reaches top_p. Sorting a few is mostly enough.
  const double wanted = static_cast<double>(params.top_p) * total;
  const std::int32_t most = by_top_k ? params.top_k : vocab;
  for (std::int32_t count = std::min(most, 256);; count = std::min(most, count * 8)) {
    candidates_.clear();
    double sum = 0.0;
    for (const std::int32_t id : top_tokens(logits, count, order_)) {
      candidates_.push_back({id, weight(id)});
      sum += candidates_.back().weight;
      if (sum >= wanted) return;
    }
    if (count == most) return;
  }
}

}  // namespace trtc::sampling
