#include "executor/step_loop.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "trtc/errors.h"

namespace trtc::executor {

StepLoop::StepLoop(ModelBackend& backend, const ExecutorLimits& limits, bool enable_block_reuse)
    : backend_(backend),
      limits_(limits),
      kv_cache_(limits.num_blocks, limits.tokens_per_block, enable_block_reuse),
      batch_(limits.step, (limits.max_seq_len + limits.tokens_per_block - 1) / limits.tokens_per_block),
      sampler_(limits.vocab_size),
      logits_(std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(limits.step.max_logit_rows) *
                                                      limits.vocab_size)) {}

void StepLoop::add(IdType id, Request request) {
  waiting_.emplace_back(id, std::move(request));
  by_id_.emplace(id, std::prev(waiting_.end()));
}

void StepLoop::cancel(IdType id) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return;
  const Requests::iterator request = found->second;
  cancel_sequences(*request);
  by_id_.erase(found);
  (request->started ? active_ : waiting_).erase(request);
}

void StepLoop::cancel_all() {
  for (Requests* requests : {&active_, &waiting_}) {
    for (RequestState& request : *requests) cancel_sequences(request);
    requests->clear();
  }
  by_id_.clear();
}

void StepLoop::fail_all(const std::string& cause) {
  for (Requests* requests : {&active_, &waiting_}) {
    for (RequestState& request : *requests) fail(request, cause);
    requests->clear();
  }
  by_id_.clear();
}

IterationStats StepLoop::step() {
  const auto start = std::chrono::steady_clock::now();
  list_running();
  const batch::StepPlan plan = this->plan();
  admit(plan.admitted);

  IterationStats stats;
  stats.iter = iteration_++;
  stats.num_active_requests = static_cast<std::int32_t>(active_.size());
  stats.num_queued_requests = static_cast<std::int32_t>(waiting_.size());
  stats.num_context_tokens = plan.context_tokens;
  stats.num_generation_tokens = plan.generation_tokens;

  build(plan);
  const StepInputs inputs = batch_.inputs();
  backend_.run(inputs, {logits_.get(), inputs.logit_rows.size() * limits_.vocab_size});
  for (std::size_t i = 0; i < plan.chunks.size(); ++i) {
    const Running& running = running_[plan.chunks[i].sequence];
    if (running.request->failed) continue;
    try {
      take_chunk(running, plan.chunks[i], first_logit_rows_[i]);
    } catch (const RequestError& error) {
      fail(*running.request, error.what());
    }
  }
  stats.num_completed_requests = remove_finished();
  stats.kv_cache_stats = kv_cache_.stats();
  const std::chrono::duration<double, std::milli> latency = std::chrono::steady_clock::now() - start;
  stats.iter_latency_ms = latency.count();
  return stats;
}

std::vector<Response> StepLoop::take_responses() { return std::exchange(responses_, {}); }

void StepLoop::list_running() {
  running_.clear();
  for (RequestState& request : active_) {
    if (request.prefilling()) {
      running_.push_back({&request, &request.sequences.front()});
      continue;
    }
    for (Sequence& sequence : request.sequences) {
      if (!sequence.finished()) running_.push_back({&request, &sequence});
    }
  }
}

batch::StepPlan StepLoop::plan() const {
  std::vector<batch::RunningSequence> running;
  batch::SchedulerState state;
  for (const auto& [request, sequence] : running_) {
    const auto length = static_cast<std::int32_t>(sequence->tokens.size());
    running.push_back({length, sequence->computed, length > request->prompt_tokens, request->wants_all_logits()});
  }
  for (const RequestState& request : active_) state.slots_used += request.unfinished;
  state.running = running;
  state.available_blocks = kv_cache_.available_blocks();
  auto next = waiting_.begin();
  std::int32_t index = 0;
  state.waiting = [&](std::int32_t i) -> std::optional<batch::WaitingRequest> {
    for (; index < i && next != waiting_.end(); ++index) ++next;
    if (next == waiting_.end()) return std::nullopt;
    return view_of_waiting(*next);
  };
  return batch::plan_step(state, limits_.step);
}

batch::WaitingRequest StepLoop::view_of_waiting(const RequestState& request) const {
  batch::WaitingRequest view;
  view.length = request.prompt_tokens;
  view.sequences = request.unfinished;
  view.all_logits = request.wants_all_logits();
  const kv_cache::PrefixMatch match = match_prefix(request);
  view.reused = match.blocks() * limits_.tokens_per_block;
  view.blocks_needed = match.unused + further_blocks(request, match);
  return view;
}

// A prompt whose every row of logits is wanted reuses nothing.
kv_cache::PrefixMatch StepLoop::match_prefix(const RequestState& request) const {
  if (request.wants_all_logits()) return {};
  return kv_cache_.match(request.request.input_token_ids, request.salt());
}

std::int32_t StepLoop::further_blocks(const RequestState& request, const kv_cache::PrefixMatch& match) const {
  const std::int64_t most = worst_case_blocks(request.request, limits_.tokens_per_block);
  return static_cast<std::int32_t>(most) - match.blocks();
}

}  // namespace trtc::executor
