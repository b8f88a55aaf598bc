// From one row of logits to one token: a pure function of (logits, params, state), whatever else is in the batch.
//
// Order of operations:
//   1. NaN and +infinity are refused.
//   2. Repetition penalty r over prompt and output: l > 0 ? l / r : l * r  (Keskar et al., arXiv 1909.05858).
//   3. Frequency and presence penalty over the output: l -= frequency * count; l -= presence if count > 0. Penalties
//   that
//      make a finite logit infinite are refused.
//   4. While the output is shorter than min_tokens, end ids get -infinity.
//   5. The last token of a bad word gets -infinity when the output ends with the tokens before it.
//   6. Log-probabilities are those of this distribution.
//   7. Greedy: the greatest logit, the lowest id among equals.
//   8. Else: weights exp((l - max) / temperature); top-k; top-p within that; min-p relative to the greatest weight; one
//      draw from what is left with Philox at (seed, sequence index, position of the token).
// Sums run in double in a fixed order: ascending ids, or descending weight after top-k and top-p.
#pragma once

#include <span>
#include <vector>

#include "sampling/sampling_params.h"

namespace trtc::sampling {

struct SampledToken {
  TokenIdType id = 0;
  std::optional<executor::TokenLogProbs> log_probs;  // when params.log_probs
};

// Holds scratch memory only; one per thread.
class Sampler {
 public:
  explicit Sampler(std::int32_t vocab_size);

  // logits: float32 [vocab]. Throws RequestError when they admit no token.
  SampledToken sample(std::span<const float> logits, const SamplingParams& params, const SamplingState& state);

  // Log-probabilities of a prompt token from the row before it.
  executor::TokenLogProbs prompt_log_probs(std::span<const float> logits, TokenIdType token, std::int32_t top_n);

 private:
  std::span<const float> adjust(std::span<const float> logits, const SamplingParams& params,
                                const SamplingState& state);
  TokenIdType draw(std::span<const float> logits, const SamplingParams& params, double uniform);
  void select_candidates(std::span<const float> logits, const SamplingParams& params);

  std::vector<float> adjusted_;
  std::vector<std::int32_t> order_;
  struct Candidate {
    TokenIdType id;
    double weight;
  };
  std::vector<Candidate> candidates_;
};

}  // namespace trtc::sampling
