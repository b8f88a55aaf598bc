// trtc._core.Executor. Every call that may wait releases the GIL.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "backend/model_backend.h"
#include "trtc/executor.h"

namespace py = pybind11;

namespace trtc::bindings {

void bind_executor_types(py::module_& module);  // core_executor_types.cc

namespace {

using namespace executor;

std::vector<Response> await_responses(Executor& self, std::optional<std::int64_t> timeout_ms,
                                      std::optional<IdType> request_id) {
  if (!timeout_ms) return self.awaitResponses(request_id);
  return self.awaitResponses(request_id, std::chrono::milliseconds(*timeout_ms));
}

}  // namespace

void bind_executor(py::module_& module) {
  bind_executor_types(module);
  const auto unlocked = py::call_guard<py::gil_scoped_release>();
  py::class_<Executor>(module, "Executor")
      .def(py::init<const std::string&, const ExecutorConfig&>(), py::arg("engine_path"),
           py::arg("config") = ExecutorConfig{}, unlocked)
      .def("enqueue_request", &Executor::enqueueRequest, py::arg("request"), unlocked)
      .def("enqueue_requests", &Executor::enqueueRequests, py::arg("requests"), unlocked)
      .def("await_responses", &await_responses, py::arg("timeout_ms") = py::none(), py::arg("request_id") = py::none(),
           unlocked)
      .def("get_num_responses_ready", &Executor::getNumResponsesReady, py::arg("request_id") = py::none(), unlocked)
      .def("cancel_request", &Executor::cancelRequest, py::arg("request_id"), unlocked)
      .def("get_latest_iteration_stats", &Executor::getLatestIterationStats, unlocked)
      .def("get_kv_cache_stats", &Executor::getKvCacheStats, unlocked)
      .def("shutdown", &Executor::shutdown, unlocked)
      .def("__enter__", [](py::object self) { return self; })
      .def("__exit__", [](Executor& self, const py::args&) {
        py::gil_scoped_release release;
        self.shutdown();
      });
}

}  // namespace trtc::bindings
