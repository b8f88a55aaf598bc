// The half of StepLoop that changes state.
#include <utility>

#include "executor/step_loop.h"

namespace trtc::executor {

// First every start, which claims cached blocks, then (in build) every allocation, which may evict unclaimed ones.
void StepLoop::admit(std::int32_t count) {
  for (std::int32_t i = 0; i < count; ++i) {
    active_.splice(active_.end(), waiting_, waiting_.begin());
    RequestState& request = active_.back();
    const kv_cache::PrefixMatch match = match_prefix(request);
    Sequence& first = request.sequences.front();
    first.cache = kv_cache_.start(match, request.salt(), further_blocks(request, match), request.prompt_tokens);
    first.computed = match.blocks() * limits_.tokens_per_block;
    request.reused_tokens = first.computed;
    request.started = true;
    running_.push_back({&request, &first});
  }
}

void StepLoop::build(const batch::StepPlan& plan) {
  batch_.clear();
  first_logit_rows_.clear();
  for (const batch::PlannedChunk& chunk : plan.chunks) {
    Sequence& sequence = *running_[chunk.sequence].sequence;
    kv_cache_.extend(sequence.cache, chunk.begin + chunk.count);
    first_logit_rows_.push_back(batch_.add(chunk, sequence.tokens, sequence.cache.blocks));
  }
}

void StepLoop::take_chunk(const Running& running, const batch::PlannedChunk& chunk, std::int32_t first_logit_row) {
  auto& [request, sequence] = running;
  sequence->computed = chunk.begin + chunk.count;
  kv_cache_.commit(sequence->cache, sequence->tokens, sequence->computed);
  const bool all = chunk.logits == batch::LogitRows::kAll;
  for (std::int32_t i = 0; all && i < chunk.count; ++i) {
    request->take_prompt_row(chunk.begin + i, logit_row(first_logit_row + i), sampler_);
  }
  if (sequence->computed < std::ssize(sequence->tokens)) return;
  const std::span<const float> row = logit_row(first_logit_row + (all ? chunk.count - 1 : 0));
  if (sequence->computed == request->prompt_tokens) return take_first_token(*request, row);
  sample(*request, *sequence, row);
  settle(*request, *sequence);
}

// Every sequence samples from the last row of the prompt; those that go on share its blocks.
void StepLoop::take_first_token(RequestState& request, std::span<const float> row) {
  for (Sequence& sequence : request.sequences) sample(request, sequence, row);
  Sequence& first = request.sequences.front();
  for (Sequence& sequence : request.sequences) {
    if (&sequence == &first || sequence.finished()) continue;
    auto [cache, copy] =
        kv_cache_.fork(first.cache, request.prompt_tokens, own_blocks(request.request, limits_.tokens_per_block));
    sequence.cache = std::move(cache);
    sequence.computed = request.prompt_tokens;
    if (copy) backend_.copy_block(kv_cache::index_of(copy->source), kv_cache::index_of(copy->destination));
  }
  for (Sequence& sequence : request.sequences) settle(request, sequence);
}

void StepLoop::sample(RequestState& request, Sequence& sequence, std::span<const float> row) {
  const sampling::SamplingState state = request.sampling_state(sequence);
  request.take_token(sequence, sampler_.sample(row, request.params, state), row);
}

// After a sequence's state changed: frees what a finished one holds and says what there is to say.
void StepLoop::settle(RequestState& request, Sequence& sequence) {
  if (sequence.finished()) {
    --request.unfinished;
    kv_cache_.release(sequence.cache);
  }
  if (sequence.finished() || request.request.streaming) {
    responses_.push_back(request.tell(sequence, limits_.vocab_size));
  }
}

void StepLoop::fail(RequestState& request, const std::string& cause) {
  if (request.failed || request.unfinished == 0) return;  // its end is told already
  request.failed = true;
  for (Sequence& sequence : request.sequences) kv_cache_.release(sequence.cache);
  Response response{request.id, cause, {}};
  response.result.is_final = true;
  responses_.push_back(std::move(response));
}

void StepLoop::cancel_sequences(RequestState& request) {
  for (Sequence& sequence : request.sequences) {
    if (sequence.finished()) continue;
    sequence.finish_reason = FinishReason::kCANCELLED;
    settle(request, sequence);
  }
}

std::int32_t StepLoop::remove_finished() {
  return static_cast<std::int32_t>(active_.remove_if([this](const RequestState& request) {
    const bool done = request.failed || request.unfinished == 0;
    if (done) by_id_.erase(request.id);
    return done;
  }));
}

std::span<const float> StepLoop::logit_row(std::int32_t row) const {
  return {logits_.get() + static_cast<std::size_t>(row) * limits_.vocab_size,
          static_cast<std::size_t>(limits_.vocab_size)};
}

}  // namespace trtc::executor
