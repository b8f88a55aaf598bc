// The engine room: plan -> run -> sample -> commit, one step per call, on one thread and without locks.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/model_backend.h"
#include "batch/batch_builder.h"
#include "batch/scheduler.h"
#include "executor/limits.h"
#include "executor/request_state.h"
#include "kv_cache/kv_cache_manager.h"
#include "sampling/sampler.h"

namespace trtc::executor {

class StepLoop {
 public:
  // backend must outlive the loop and have its KV cache.
  StepLoop(ModelBackend& backend, const ExecutorLimits& limits, bool enable_block_reuse);

  // Puts a validated request at the end of the queue.
  void add(IdType id, Request request);

  // Ends a request and frees what it holds; an unknown id is ignored.
  void cancel(IdType id);
  void cancel_all();
  void fail_all(const std::string& cause);

  bool idle() const { return waiting_.empty() && active_.empty(); }
  std::size_t num_waiting() const { return waiting_.size(); }

  // One step over all that can run. RequestErrors end their request; what the backend throws passes through.
  IterationStats step();

  // Everything to tell since the last call, in order.
  std::vector<Response> take_responses();
  KvCacheStats kv_cache_stats() const { return kv_cache_.stats(); }

 private:
  using Requests = std::list<RequestState>;
  struct Running {
    RequestState* request;
    Sequence* sequence;
  };

  // Plan: reads only.
  batch::StepPlan plan() const;
  batch::WaitingRequest view_of_waiting(const RequestState& request) const;
  kv_cache::PrefixMatch match_prefix(const RequestState& request) const;
  std::int32_t further_blocks(const RequestState& request, const kv_cache::PrefixMatch& match) const;

  // Commit (step_loop_commit.cc).
  void admit(std::int32_t count);
  void build(const batch::StepPlan& plan);
  void take_chunk(const Running& running, const batch::PlannedChunk& chunk, std::int32_t first_logit_row);
  void take_first_token(RequestState& request, std::span<const float> row);
  void sample(RequestState& request, Sequence& sequence, std::span<const float> row);
  void settle(RequestState& request, Sequence& sequence);
  void fail(RequestState& request, const std::string& cause);
  void cancel_sequences(RequestState& request);
  void list_running();
  std::int32_t remove_finished();
  std::span<const float> logit_row(std::int32_t row) const;

  ModelBackend& backend_;
  const ExecutorLimits limits_;
  kv_cache::KvCacheManager kv_cache_;
  batch::BatchBuilder batch_;
  sampling::Sampler sampler_;
  std::unique_ptr<float[]> logits_;  // [max_logit_rows, vocab]

  Requests waiting_;
  Requests active_;  // in order of arrival
  std::unordered_map<IdType, Requests::iterator> by_id_;
  std::vector<Running> running_;  // sequences of active_ that run
  std::vector<std::int32_t> first_logit_rows_;
  std::vector<Response> responses_;
  std::int64_t iteration_ = 0;
};

}  // namespace trtc::executor
