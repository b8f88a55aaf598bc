#include "sampling/sampling_params.h"

namespace trtc::sampling {

SamplingParams make_sampling_params(const executor::Request& request) {
  const executor::SamplingConfig& config = request.sampling_config;
  SamplingParams params;
  const bool anything_set = config.temperature || config.top_k || config.top_p || config.min_p;
  params.greedy = !anything_set || config.temperature == 0.0f || config.top_k == 1;
  params.temperature = config.temperature.value_or(1.0f);
  params.top_k = config.top_k.value_or(0);
  params.top_p = config.top_p.value_or(1.0f);
  params.min_p = config.min_p.value_or(0.0f);
  params.repetition_penalty = config.repetition_penalty.value_or(1.0f);
  params.presence_penalty = config.presence_penalty.value_or(0.0f);
  params.frequency_penalty = config.frequency_penalty.value_or(0.0f);
  params.min_tokens = config.min_tokens.value_or(0);
  params.seed = config.seed.value_or(0);
  params.end_ids = request.stop_token_ids;
  if (request.end_id) params.end_ids.push_back(*request.end_id);
  params.bad_words = request.bad_words;
  params.log_probs = request.output_config.log_probs;
  return params;
}

void TokenCounts::add_prompt(std::span<const TokenIdType> tokens) {
  for (const TokenIdType token : tokens) counts_.try_emplace(token, 0);
}

}  // namespace trtc::sampling
