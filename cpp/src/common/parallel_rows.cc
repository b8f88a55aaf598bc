#include "common/parallel_rows.h"

#include <algorithm>
#include <mutex>
#include <thread>
#include <vector>

#include "common/slice.h"

namespace trtc {

void parallel_rows(std::int64_t count, int threads, const std::function<void(std::int64_t)>& body) {
  if (threads <= 0) threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  threads = static_cast<int>(std::min<std::int64_t>(threads, std::max<std::int64_t>(count, 1)));
  std::mutex mutex;
  std::exception_ptr error;
  const auto run_part = [&](int thread) {
    try {
      const Slice::Range range = Slice{thread, threads}.of(count);
      for (std::int64_t item = range.begin; item < range.end; ++item) body(item);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  };
  std::vector<std::jthread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(run_part, thread);
  run_part(0);
  others.clear();
  if (error) std::rethrow_exception(error);
}

}  // namespace trtc
