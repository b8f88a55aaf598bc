// A request on its way through the executor: queued -> prefilling -> decoding -> finished.
#pragma once

#include <cstdint>
#include <vector>

#include "kv_cache/kv_cache_manager.h"
#include "sampling/sampler.h"
#include "sampling/stop_criteria.h"
#include "trtc/executor.h"

namespace trtc::executor {

// One of a request's num_return_sequences outputs.
struct Sequence {
  std::int32_t index = 0;
  VecTokens tokens;  // prompt and output
  std::int32_t computed = 0;
  kv_cache::SequenceCache cache;
  sampling::TokenCounts counts;  // when the request has penalties
  FinishReason finish_reason = FinishReason::kNOT_FINISHED;
  float cum_log_prob = 0.0f;

  // What no result has told yet.
  std::int32_t untold_from = 0;  // into tokens
  std::vector<TokenLogProbs> log_probs;
  std::vector<float> generation_logits;

  bool finished() const { return finish_reason != FinishReason::kNOT_FINISHED; }
};

struct RequestState {
  RequestState(IdType id, Request request);

  IdType id;
  Request request;
  sampling::SamplingParams params;
  sampling::StopCriteria stop;
  std::int32_t prompt_tokens;
  std::int32_t reused_tokens = 0;
  bool started = false;
  bool failed = false;
  std::vector<Sequence> sequences;  // all of them, from the start; only the first one runs until the prompt is done
  std::int32_t unfinished;          // sequences
  std::vector<TokenLogProbs> prompt_log_probs;
  std::vector<float> context_logits;

  bool wants_all_logits() const {
    return request.output_config.return_context_logits || request.output_config.prompt_log_probs;
  }
  std::string_view salt() const { return request.cache_salt ? std::string_view(*request.cache_salt) : ""; }
  bool prefilling() const { return !sequences.front().finished() && sequences.front().computed < prompt_tokens; }
  sampling::SamplingState sampling_state(const Sequence& sequence) const;

  // The logits of the prompt's row `position`, in order.
  void take_prompt_row(std::int32_t position, std::span<const float> row, sampling::Sampler& sampler);

  // The next token of a sequence, sampled from `row`; sets finish_reason.
  void take_token(Sequence& sequence, sampling::SampledToken token, std::span<const float> row);

  // What there is to tell about a sequence since the last call.
  Response tell(Sequence& sequence, std::int32_t vocab_size);
};

}  // namespace trtc::executor
