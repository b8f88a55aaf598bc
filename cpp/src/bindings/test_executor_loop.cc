// The step loop, one step per call, and whole executors, both over the scripted backend, for tests.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "bindings/test_executor_scripted_backend.h"
#include "executor/limits.h"
#include "executor/step_loop.h"
#include "executor/validate_request.h"
#include "trtc/executor.h"

namespace py = pybind11;

namespace trtc::bindings {

using namespace executor;
using testing::ScriptControl;
using testing::ScriptedBackend;
using testing::ScriptedModel;

namespace {

constexpr std::size_t kPlentyOfMemory = std::size_t{1} << 40;

// A step loop with its backend; requests are validated as the executor does.
class ScriptedLoop {
 public:
  ScriptedLoop(const ScriptedModel& model, const ExecutorConfig& config)
      : backend_(model, std::make_shared<ScriptControl>()),
        limits_(resolve_limits(config, model.info, kPlentyOfMemory, kPlentyOfMemory)),
        loop_(backend_, limits_, config.kv_cache_config.enable_block_reuse) {
    backend_.allocate_kv_cache(limits_.num_blocks);
  }

  void add(IdType id, Request request) {
    validate_request(request, limits_);
    loop_.add(id, std::move(request));
  }
  void cancel(IdType id) { loop_.cancel(id); }
  bool idle() const { return loop_.idle(); }
  IterationStats step() { return loop_.step(); }
  std::vector<Response> take_responses() { return loop_.take_responses(); }
  KvCacheStats kv_cache_stats() const { return loop_.kv_cache_stats(); }

 private:
  ScriptedBackend backend_;
  ExecutorLimits limits_;
  StepLoop loop_;
};

ScriptedModel make_model(int vocab_size, int max_batch_size, int max_num_tokens, int max_seq_len, int max_logit_rows,
                         int tokens_per_block, std::size_t kv_bytes_per_block, std::optional<int> nan_after_token,
                         std::optional<int> fail_at_run, bool fail_allocation) {
  ModelInfo info;
  info.engine_hash = "scripted";
  info.vocab_size = vocab_size;
  info.num_layers = 1;
  info.max_batch_size = max_batch_size;
  info.max_num_tokens = max_num_tokens;
  info.max_seq_len = max_seq_len;
  info.max_logit_rows = max_logit_rows;
  info.tokens_per_block = tokens_per_block;
  info.kv_bytes_per_block = kv_bytes_per_block;
  return {info, nan_after_token, fail_at_run, fail_allocation};
}

}  // namespace

void bind_test_loop(py::module_& module) {
  const auto unlocked = py::call_guard<py::gil_scoped_release>();
  py::class_<ScriptControl, std::shared_ptr<ScriptControl>>(module, "ScriptControl")
      .def(py::init<>())
      .def("hold", &ScriptControl::hold)
      .def("allow", &ScriptControl::allow, py::arg("steps"))
      .def("open", &ScriptControl::open)
      .def("wait_started", &ScriptControl::wait_started, py::arg("run"), unlocked)
      .def_property_readonly("runs", &ScriptControl::runs);
  py::class_<ScriptedModel>(module, "ScriptedModel")
      .def(py::init(&make_model), py::kw_only(), py::arg("vocab_size") = 32, py::arg("max_batch_size") = 4,
           py::arg("max_num_tokens") = 16, py::arg("max_seq_len") = 64, py::arg("max_logit_rows") = 16,
           py::arg("tokens_per_block") = 4, py::arg("kv_bytes_per_block") = 1024,
           py::arg("nan_after_token") = py::none(), py::arg("fail_at_run") = py::none(),
           py::arg("fail_allocation") = false);
  py::class_<ScriptedLoop>(module, "ScriptedLoop")
      .def(py::init<const ScriptedModel&, const ExecutorConfig&>(), py::arg("model"),
           py::arg("config") = ExecutorConfig{})
      .def("add", &ScriptedLoop::add, py::arg("request_id"), py::arg("request"))
      .def("cancel", &ScriptedLoop::cancel, py::arg("request_id"))
      .def_property_readonly("idle", &ScriptedLoop::idle)
      .def("step", &ScriptedLoop::step)
      .def("take_responses", &ScriptedLoop::take_responses)
      .def("kv_cache_stats", &ScriptedLoop::kv_cache_stats);
  module.def(
      "scripted_executor",
      [](const ScriptedModel& model, const ExecutorConfig& config, std::shared_ptr<ScriptControl> control) {
        if (!control) control = std::make_shared<ScriptControl>();
        return std::make_unique<Executor>(std::make_unique<ScriptedBackend>(model, std::move(control)), config);
      },
      py::arg("model"), py::arg("config") = ExecutorConfig{}, py::arg("control") = py::none());
}

}  // namespace trtc::bindings
