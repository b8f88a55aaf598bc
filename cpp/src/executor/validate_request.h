// The checks of a request at the door.
#pragma once

#include "executor/limits.h"
#include "trtc/executor.h"

namespace trtc::executor {

// Throws RequestError that names the field, what it is and what it may be.
void validate_request(const Request& request, const ExecutorLimits& limits);

}  // namespace trtc::executor
