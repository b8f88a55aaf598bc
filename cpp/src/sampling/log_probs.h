// Order of tokens by logit, and log-probabilities.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trtc/executor.h"

namespace trtc::sampling {

// The ids of the `count` greatest logits, greatest first; the lower id first among equals. scratch holds the result.
std::span<const std::int32_t> top_tokens(std::span<const float> logits, std::int32_t count,
                                         std::vector<std::int32_t>& scratch);

// The id of the greatest logit, the lowest among equals.
std::int32_t best_token(std::span<const float> logits);

// log softmax(logits) of `chosen` and of the top_n most likely tokens; the sum runs in double over ascending ids.
executor::TokenLogProbs token_log_probs(std::span<const float> logits, executor::TokenIdType chosen, std::int32_t top_n,
                                        std::vector<std::int32_t>& scratch);

// Throws RequestError when a logit is NaN or +infinity, or all are -infinity.
void check_logits(std::span<const float> logits);

}  // namespace trtc::sampling
