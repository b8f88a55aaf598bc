#include "executor/request_state.h"

#include <utility>

namespace trtc::executor {

RequestState::RequestState(IdType id, Request request_)
    : id(id),
      request(std::move(request_)),
      params(sampling::make_sampling_params(request)),
      stop{params.end_ids, request.stop_words, params.min_tokens, request.max_tokens},
      prompt_tokens(static_cast<std::int32_t>(request.input_token_ids.size())),
      sequences(request.sampling_config.num_return_sequences),
      unfinished(request.sampling_config.num_return_sequences) {
  std::int32_t index = 0;
  for (Sequence& sequence : sequences) {
    sequence.index = index++;
    sequence.tokens = request.input_token_ids;
    sequence.untold_from = request.output_config.exclude_input_from_output ? prompt_tokens : 0;
    if (params.has_penalties()) sequence.counts.add_prompt(request.input_token_ids);
  }
}

sampling::SamplingState RequestState::sampling_state(const Sequence& sequence) const {
  return {sequence.tokens, prompt_tokens, sequence.index, &sequence.counts};
}

void RequestState::take_prompt_row(std::int32_t position, std::span<const float> row, sampling::Sampler& sampler) {
  const OutputConfig& output = request.output_config;
  if (output.return_context_logits) context_logits.insert(context_logits.end(), row.begin(), row.end());
  if (output.prompt_log_probs && position + 1 < prompt_tokens) {
    const TokenIdType next = request.input_token_ids[position + 1];
    prompt_log_probs.push_back(sampler.prompt_log_probs(row, next, *output.prompt_log_probs));
  }
}

void RequestState::take_token(Sequence& sequence, sampling::SampledToken token, std::span<const float> row) {
  sequence.tokens.push_back(token.id);
  if (params.has_penalties()) sequence.counts.add_output(token.id);
  if (token.log_probs) {
    sequence.cum_log_prob += token.log_probs->values.front();
    sequence.log_probs.push_back(std::move(*token.log_probs));
  }
  if (request.output_config.return_generation_logits) {
    sequence.generation_logits.insert(sequence.generation_logits.end(), row.begin(), row.end());
  }
  sequence.finish_reason = sampling::finish_reason(stop, std::span(sequence.tokens).subspan(prompt_tokens));
}

Response RequestState::tell(Sequence& sequence, std::int32_t vocab_size) {
  Response response{id, std::nullopt, {}};
  Result& result = response.result;
  result.sequence_index = sequence.index;
  result.is_sequence_final = sequence.finished();
  result.is_final = unfinished == 0;
  result.output_token_ids.assign(sequence.tokens.begin() + sequence.untold_from, sequence.tokens.end());
  sequence.untold_from = static_cast<std::int32_t>(sequence.tokens.size());
  result.log_probs = std::exchange(sequence.log_probs, {});
  result.generation_logits = {vocab_size, std::exchange(sequence.generation_logits, {})};
  if (sequence.index == 0) {
    result.prompt_log_probs = std::exchange(prompt_log_probs, {});
    result.context_logits = {vocab_size, std::exchange(context_logits, {})};
  }
  result.cum_log_prob = sequence.cum_log_prob;
  result.finish_reason = sequence.finish_reason;
  result.reused_tokens = reused_tokens;
  return response;
}

}  // namespace trtc::executor
