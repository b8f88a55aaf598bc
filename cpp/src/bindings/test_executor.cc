// trtc._test_executor: the parts of the executor one by one, and executors over a scripted backend, for tests only.
#include <pybind11/pybind11.h>

#include "bindings/errors.h"

namespace trtc::bindings {
void bind_test_kv_cache(pybind11::module_& module);   // test_executor_kv_cache.cc
void bind_test_scheduler(pybind11::module_& module);  // test_executor_scheduler.cc
void bind_test_sampling(pybind11::module_& module);   // test_executor_sampling.cc
void bind_test_loop(pybind11::module_& module);       // test_executor_loop.cc
}  // namespace trtc::bindings

PYBIND11_MODULE(_test_executor, module) {
  module.doc() = "Parts of libtrtc's executor, for tests";
  pybind11::module_::import("trtc._core");  // the classes of the public structs
  trtc::bindings::register_errors();
  trtc::bindings::bind_test_kv_cache(module);
  trtc::bindings::bind_test_scheduler(module);
  trtc::bindings::bind_test_sampling(module);
  trtc::bindings::bind_test_loop(module);
}
