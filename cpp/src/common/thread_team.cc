#include "common/thread_team.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "trtc/errors.h"

#if defined(__linux__)
#include <sched.h>
#endif
#include <unistd.h>

namespace trtc {
namespace {

// Thrown out of barrier() when another member failed; never leaves run().
struct BarrierBroken : std::exception {
  const char* what() const noexcept override { return "another member of the thread team failed"; }
};

int usable_cores() {
#if defined(__linux__)
  for (int capacity = 1024; capacity <= 1 << 20; capacity *= 2) {
    cpu_set_t* set = CPU_ALLOC(capacity);
    const std::size_t bytes = CPU_ALLOC_SIZE(capacity);
    const bool known = sched_getaffinity(0, bytes, set) == 0;  // fails while the kernel's mask is larger
    const int count = known ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (known) return count > 0 ? count : 1;
  }
#endif
  const unsigned cores = std::thread::hardware_concurrency();
  return cores > 0 ? static_cast<int>(cores) : 1;
}

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

struct ThreadTeam::State {
  State(int threads, int cores) : size(threads), spins(threads <= cores ? 400 : 0) {}

  const int size;
  const int spins;  // none when there are more members than cores: whoever we wait for needs this one
  const pid_t owner = getpid();
  std::vector<std::thread> workers;
  std::mutex one_run;  // held for the whole of a run

  std::mutex mutex;  // guards the next five
  std::condition_variable wake, done;
  std::uint64_t run_count = 0;
  const std::function<void(Slice)>* body = nullptr;
  int unfinished = 0;
  bool stop = false;
  std::exception_ptr error;  // the first one; guarded by mutex

  // The barrier: the last to arrive starts the next generation.
  alignas(64) std::atomic<int> arrived{0};
  alignas(64) std::atomic<std::uint32_t> generation{0};
  std::atomic<bool> broken{false};

  // Spins, then yields, until ready() holds.
  template <typename Ready>
  void wait_until(Ready ready) const {
    for (int spin = 0; spin < spins; ++spin) {
      if (ready()) return;
      pause_briefly();
    }
    while (!ready()) std::this_thread::yield();
  }

  void barrier() {
    if (broken.load(std::memory_order_acquire)) throw BarrierBroken();
    const std::uint32_t current = generation.load(std::memory_order_relaxed);
    if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == size) {
      arrived.store(0, std::memory_order_relaxed);
      generation.store(current + 1, std::memory_order_release);
      return;
    }
    const auto passed = [&] { return generation.load(std::memory_order_acquire) != current; };
    wait_until([&] { return passed() || broken.load(std::memory_order_acquire); });
    if (!passed()) throw BarrierBroken();
  }

  void run_member(const std::function<void(Slice)>& member_body, int thread) {
    try {
      member_body(Slice{thread, size});
    } catch (const BarrierBroken&) {
    } catch (...) {
      {
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
      }
      broken.store(true, std::memory_order_release);
    }
  }

  void work(int thread) {
    std::uint64_t seen = 0;
    std::unique_lock lock(mutex);
    while (true) {
      wake.wait(lock, [&] { return stop || run_count != seen; });
      if (stop) return;
      seen = run_count;
      const std::function<void(Slice)>& current = *body;
      lock.unlock();
      run_member(current, thread);
      lock.lock();
      if (--unfinished == 0) done.notify_one();
    }
  }

  void join() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    wake.notify_all();
    for (std::thread& worker : workers) worker.join();
    workers.clear();
  }
};

ThreadTeam::ThreadTeam(int threads) {
  if (threads < 0) {
    throw ExecutorError("number of threads is " + std::to_string(threads) +
                        "; expected 1 or more, or 0 for one per usable core");
  }
  const int cores = usable_cores();
  state_ = std::make_unique<State>(threads == 0 ? cores : threads, cores);
  State* state = state_.get();
  try {
    for (int thread = 1; thread < state->size; ++thread) {
      state->workers.emplace_back([state, thread] { state->work(thread); });
    }
  } catch (const std::system_error& error) {
    const std::size_t started = state->workers.size() + 1;
    state->join();
    throw ExecutorError("only " + std::to_string(started) + " of " + std::to_string(state->size) +
                        " threads could be started (" + error.what() + "); ask for fewer or raise the process limit");
  }
}

ThreadTeam::~ThreadTeam() {
  if (!state_) return;
  if (state_->owner != getpid()) {
    state_.release();  // a forked child: the members live in the parent only, there is nobody to join
    return;
  }
  state_->join();
}

int ThreadTeam::size() const { return state_->size; }

void ThreadTeam::run(const std::function<void(Slice)>& body) {
  State& state = *state_;
  if (state.owner != getpid()) {
    throw ExecutorError("the thread team was made before this process forked; load the model in the child process");
  }
  const std::lock_guard one_run(state.one_run);
  {
    const std::lock_guard lock(state.mutex);
    state.body = &body;
    state.unfinished = state.size - 1;
    state.error = nullptr;
    state.arrived.store(0, std::memory_order_relaxed);
    state.broken.store(false, std::memory_order_relaxed);
    ++state.run_count;
  }
  state.wake.notify_all();
  state.run_member(body, 0);
  std::exception_ptr error;
  {
    std::unique_lock lock(state.mutex);
    state.done.wait(lock, [&] { return state.unfinished == 0; });
    state.body = nullptr;
    error = std::exchange(state.error, nullptr);
  }
  if (error) std::rethrow_exception(error);
}

void ThreadTeam::barrier() { state_->barrier(); }

}  // namespace trtc
