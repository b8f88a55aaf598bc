#include "trtc/executor.h"

#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "backend/load_engine.h"
#include "backend/model_backend.h"
#include "executor/limits.h"
#include "executor/response_box.h"
#include "executor/step_loop.h"
#include "executor/validate_request.h"
#include "kv_cache/capacity.h"
#include "trtc/errors.h"

namespace trtc::executor {

namespace {

ExecutorLimits limits_of(const ModelBackend& backend, const ExecutorConfig& config) {
  const std::size_t host = kv_cache::available_memory();
  return resolve_limits(config, backend.info(), host, backend.free_device_memory().value_or(host));
}

}  // namespace

// Callers leave requests and cancellations in an inbox; the worker takes them between two steps and is the only one
// that touches the loop. Locks are held for copies of small values only.
class Executor::Impl {
 public:
  Impl(std::unique_ptr<ModelBackend> backend, const ExecutorConfig& config)
      : backend_(std::move(backend)),
        limits_(limits_of(*backend_, config)),
        most_iterations_(config.iter_stats_max_iterations),
        loop_(*backend_, limits_, config.kv_cache_config.enable_block_reuse) {
    backend_->allocate_kv_cache(limits_.num_blocks);
    kv_cache_stats_ = loop_.kv_cache_stats();
    try {
      worker_ = std::thread([this] { work(); });
    } catch (const std::system_error& error) {
      throw ExecutorError(std::string("the executor's thread could not be started (") + error.what() +
                          "); raise the process limit");
    }
  }

  ~Impl() { shutdown(); }

  // In a forked child the worker does not exist, and its locks may be held for ever.
  bool forked() const { return getpid() != owner_; }

  std::vector<IdType> enqueue(std::vector<Request> requests) {
    check_process();
    for (const Request& request : requests) validate_request(request, limits_);
    std::vector<IdType> ids;
    {
      const std::lock_guard lock(mutex_);
      check_accepts(requests.size());
      for (Request& request : requests) {
        ids.push_back(++last_id_);
        responses_.open(last_id_);
        inbox_.requests.emplace_back(last_id_, std::move(request));
      }
      num_waiting_ += requests.size();
    }
    wake_.notify_one();
    return ids;
  }

  void cancel(IdType id) {
    if (forked()) return;
    {
      const std::lock_guard lock(mutex_);
      if (stopping_ || !failure_.empty()) return;  // everything has ended or is about to
      inbox_.cancelled.push_back(id);
    }
    wake_.notify_one();
  }

  ResponseBox& responses() {
    check_process();
    return responses_;
  }

  std::vector<IterationStats> take_iteration_stats() {
    check_process();
    const std::lock_guard lock(mutex_);
    const auto stats = std::exchange(iteration_stats_, {});
    return {stats.begin(), stats.end()};
  }

  KvCacheStats kv_cache_stats() const {
    check_process();
    const std::lock_guard lock(mutex_);
    return kv_cache_stats_;
  }

  void shutdown() {
    if (forked()) return;
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_one();
    const std::lock_guard lock(join_mutex_);
    if (worker_.joinable()) worker_.join();
  }

 private:
  struct Inbox {
    std::vector<std::pair<IdType, Request>> requests;
    std::vector<IdType> cancelled;
    bool empty() const { return requests.empty() && cancelled.empty(); }
  };

  void check_process() const {
    if (!forked()) return;
    throw ExecutorError("the executor was made before this process forked; load the model in the child process");
  }

  // mutex_ is held.
  void check_accepts(std::size_t count) const {
    if (!failure_.empty()) throw ExecutorError("the executor stopped after a failure: " + failure_);
    if (stopping_) throw ExecutorError("the executor was shut down; no more requests are taken");
    if (num_waiting_ + count > static_cast<std::size_t>(limits_.max_queue_size)) {
      throw ExecutorError("the queue is full: " + std::to_string(num_waiting_) +
                          " requests wait and max_queue_size is " + std::to_string(limits_.max_queue_size) +
                          "; fetch responses first or raise it");
    }
  }

  void work() {
    try {
      while (take_inbox()) {
        if (!loop_.idle()) publish(loop_.step());
      }
      loop_.cancel_all();
      publish(std::nullopt);
    } catch (const std::exception& error) {
      fail(error.what());
    } catch (...) {
      fail("the backend threw something that is no std::exception");
    }
    responses_.close();
  }

  // Waits for something to do and hands it to the loop. False: time to stop.
  bool take_inbox() {
    Inbox inbox;
    bool stopping = false;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !inbox_.empty() || !loop_.idle(); });
      std::swap(inbox, inbox_);
      stopping = stopping_;
    }
    for (auto& [id, request] : inbox.requests) loop_.add(id, std::move(request));
    for (const IdType id : inbox.cancelled) loop_.cancel(id);
    if (!inbox.cancelled.empty()) publish(std::nullopt);  // not only after the next step
    return !stopping;
  }

  // State first, then responses: who has a response sees the state that goes with it.
  void publish(const std::optional<IterationStats>& stats) {
    {
      const std::lock_guard lock(mutex_);
      kv_cache_stats_ = loop_.kv_cache_stats();
      num_waiting_ = loop_.num_waiting() + inbox_.requests.size();
      if (stats) iteration_stats_.push_back(*stats);
      if (std::ssize(iteration_stats_) > most_iterations_) iteration_stats_.pop_front();
    }
    responses_.push(loop_.take_responses());
  }

  void fail(const std::string& cause) {
    Inbox inbox;
    {
      const std::lock_guard lock(mutex_);
      failure_ = cause.empty() ? "unknown" : cause;
      std::swap(inbox, inbox_);
    }
    for (auto& [id, request] : inbox.requests) loop_.add(id, std::move(request));
    loop_.fail_all("the executor failed: " + cause);
    publish(std::nullopt);
  }

  const pid_t owner_ = getpid();
  std::unique_ptr<ModelBackend> backend_;
  const ExecutorLimits limits_;
  const std::int32_t most_iterations_;
  StepLoop loop_;  // the worker's
  ResponseBox responses_;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  Inbox inbox_;
  IdType last_id_ = 0;
  std::size_t num_waiting_ = 0;
  bool stopping_ = false;
  std::string failure_;
  std::deque<IterationStats> iteration_stats_;
  KvCacheStats kv_cache_stats_;

  std::mutex join_mutex_;
  std::thread worker_;
};

Executor::Executor(const std::string& engine_path, const ExecutorConfig& config)
    : Executor(load_engine(engine_path, config.num_threads), config) {}

Executor::Executor(std::unique_ptr<ModelBackend> backend, const ExecutorConfig& config) try
    : impl_(std::make_unique<Impl>(std::move(backend), config)) {
} catch (const std::bad_alloc&) {
  throw ExecutorError("not enough memory for the executor; lower max_batch_size or max_num_tokens");
}

Executor::~Executor() {
  if (impl_->forked()) impl_.release();  // there is no thread to join, and its locks may be held
}

IdType Executor::enqueueRequest(const Request& request) { return impl_->enqueue({request}).front(); }

std::vector<IdType> Executor::enqueueRequests(const std::vector<Request>& requests) { return impl_->enqueue(requests); }

std::vector<Response> Executor::awaitResponses(std::optional<IdType> request_id,
                                               std::optional<std::chrono::milliseconds> timeout) {
  return impl_->responses().await(request_id, timeout);
}

std::int32_t Executor::getNumResponsesReady(std::optional<IdType> request_id) const {
  return impl_->responses().num_ready(request_id);
}

void Executor::cancelRequest(IdType request_id) { impl_->cancel(request_id); }

std::vector<IterationStats> Executor::getLatestIterationStats() { return impl_->take_iteration_stats(); }

KvCacheStats Executor::getKvCacheStats() const { return impl_->kv_cache_stats(); }

void Executor::shutdown() { impl_->shutdown(); }

}  // namespace trtc::executor
