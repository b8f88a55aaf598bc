#include "sampling/log_probs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "trtc/errors.h"

namespace trtc::sampling {

std::span<const std::int32_t> top_tokens(std::span<const float> logits, std::int32_t count,
                                         std::vector<std::int32_t>& scratch) {
  scratch.resize(logits.size());
  std::iota(scratch.begin(), scratch.end(), 0);
  const auto before = [logits](std::int32_t a, std::int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  };
  const auto end = scratch.begin() + std::min<std::ptrdiff_t>(count, std::ssize(scratch));
  if (end != scratch.end()) std::nth_element(scratch.begin(), end, scratch.end(), before);
  std::sort(scratch.begin(), end, before);
  return {scratch.begin(), end};
}

std::int32_t best_token(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

executor::TokenLogProbs token_log_probs(std::span<const float> logits, executor::TokenIdType chosen, std::int32_t top_n,
                                        std::vector<std::int32_t>& scratch) {
  const float greatest = logits[best_token(logits)];
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(logit - greatest);
  const double log_sum = std::log(sum);
  const auto log_prob = [&](std::int32_t id) {
    return static_cast<float>(static_cast<double>(logits[id]) - greatest - log_sum);
  };

  executor::TokenLogProbs result;
  result.ids.push_back(chosen);
  result.values.push_back(log_prob(chosen));
  for (std::int32_t id = 0; id < std::ssize(logits); ++id) {
    if (logits[id] > logits[chosen] || (logits[id] == logits[chosen] && id < chosen)) ++result.chosen_rank;
  }
  if (top_n == 0) return result;
  for (const std::int32_t id : top_tokens(logits, top_n, scratch)) {
    result.ids.push_back(id);
    result.values.push_back(log_prob(id));
  }
  return result;
}

void check_logits(std::span<const float> logits) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  bool broken = false;
  bool any = false;
  for (const float logit : logits) {
    broken |= !(logit <= kLargest);
    any |= logit >= -kLargest;
  }
  if (broken) throw RequestError("the model gave logits that are NaN or infinite; the engine's weights may be damaged");
  if (!any) throw RequestError("no token is allowed: the model's logits or bad_words exclude the whole vocabulary");
}

}  // namespace trtc::sampling
