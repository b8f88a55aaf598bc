// The scheduler on given states, for tests.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "batch/scheduler.h"

namespace py = pybind11;

namespace trtc::bindings {

using namespace batch;

namespace {

// {admitted, context_tokens, generation_tokens, chunks: [(sequence, begin, count, "none" | "last" | "all")]}
py::dict as_dict(const StepPlan& plan) {
  py::list chunks;
  for (const PlannedChunk& chunk : plan.chunks) {
    static constexpr const char* kNames[] = {"none", "last", "all"};
    chunks.append(py::make_tuple(chunk.sequence, chunk.begin, chunk.count, kNames[static_cast<int>(chunk.logits)]));
  }
  return py::dict(py::arg("admitted") = plan.admitted, py::arg("context_tokens") = plan.context_tokens,
                  py::arg("generation_tokens") = plan.generation_tokens, py::arg("chunks") = chunks);
}

py::dict plan(const std::vector<RunningSequence>& running, const std::vector<WaitingRequest>& waiting,
              std::int32_t slots_used, std::int32_t available_blocks, const SchedulerLimits& limits) {
  SchedulerState state{running, slots_used, available_blocks, nullptr};
  state.waiting = [&](std::int32_t i) { return i < std::ssize(waiting) ? std::optional(waiting[i]) : std::nullopt; };
  return as_dict(plan_step(state, limits));
}

}  // namespace

void bind_test_scheduler(py::module_& module) {
  py::class_<RunningSequence>(module, "RunningSequence")
      .def(py::init([](int length, int computed, bool decoding, bool all_logits) {
             return RunningSequence{length, computed, decoding, all_logits};
           }),
           py::kw_only(), py::arg("length"), py::arg("computed"), py::arg("decoding") = false,
           py::arg("all_logits") = false);
  py::class_<WaitingRequest>(module, "WaitingRequest")
      .def(py::init([](int length, int reused, int sequences, int blocks_needed, bool all_logits) {
             return WaitingRequest{length, reused, sequences, blocks_needed, all_logits};
           }),
           py::kw_only(), py::arg("length"), py::arg("reused") = 0, py::arg("sequences") = 1,
           py::arg("blocks_needed") = 0, py::arg("all_logits") = false);
  py::class_<SchedulerLimits>(module, "SchedulerLimits")
      .def(py::init([](int max_batch_size, int max_num_tokens, int max_logit_rows, bool chunked_prefill) {
             return SchedulerLimits{max_batch_size, max_num_tokens, max_logit_rows, chunked_prefill};
           }),
           py::kw_only(), py::arg("max_batch_size"), py::arg("max_num_tokens"), py::arg("max_logit_rows"),
           py::arg("chunked_prefill") = true);
  module.def("plan_step", &plan, py::kw_only(), py::arg("running"), py::arg("waiting"), py::arg("slots_used"),
             py::arg("available_blocks"), py::arg("limits"));
}

}  // namespace trtc::bindings
