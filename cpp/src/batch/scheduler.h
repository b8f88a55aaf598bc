// In-flight batching with the policy GUARANTEED_NO_EVICT and chunked prefill.
//
// 1. Every decoding sequence gets one row.
// 2. Prompts that have started continue, in order of arrival, with the rows that are left.
// 3. Requests start in order of arrival while rows, batch slots and KV blocks for their worst case are left. The first
//    one that does not fit stops this: nothing overtakes it, and what runs ends in bounded time, so nothing starves.
// A row whose logits are wanted also counts against max_logit_rows.
#pragma once

#include "batch/step_plan.h"

namespace trtc::batch {

// Pure: equal arguments give equal plans.
StepPlan plan_step(const SchedulerState& state, const SchedulerLimits& limits);

}  // namespace trtc::batch
