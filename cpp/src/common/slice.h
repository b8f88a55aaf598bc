// A thread's share of a kernel call.
#pragma once

#include <cstdint>

namespace trtc {

// Thread `thread` of `threads` that run the same call side by side. Kernels cut their work by output elements,
// never along a reduction, so results do not depend on `threads`.
struct Slice {
  int thread = 0;
  int threads = 1;

  struct Range {
    std::int64_t begin;
    std::int64_t end;
  };

  // This thread's contiguous part of `count` equal items; sizes differ by at most one.
  // Always inlined: a copy that some AVX-512 file emitted must never serve another machine.
  [[gnu::always_inline]] Range of(std::int64_t count) const {
    const std::int64_t base = count / threads;
    const std::int64_t extra = count % threads;
    const std::int64_t begin = thread * base + (thread < extra ? thread : extra);
    return {begin, begin + base + (thread < extra ? 1 : 0)};
  }
};

}  // namespace trtc
