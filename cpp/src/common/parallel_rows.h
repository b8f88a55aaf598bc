// A loop over independent items on short-lived threads: for work at build time, where no ThreadTeam exists.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>

namespace trtc {

// Calls body(item) once for every item of [0, count), cut into contiguous parts. threads 0: one per core.
// The first exception is rethrown after all parts ended.
void parallel_rows(std::int64_t count, int threads, const std::function<void(std::int64_t)>& body);

}  // namespace trtc
