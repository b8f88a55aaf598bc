// trtc._test_tensorrt: the parts of the TensorRT runtime that need neither TensorRT nor a GPU, for tests only.
#include <pybind11/pybind11.h>

#include "bindings/errors.h"

namespace trtc::bindings {
void bind_test_plugin(pybind11::module_& module);   // test_tensorrt_plugin.cc
void bind_test_backend(pybind11::module_& module);  // test_tensorrt_backend.cc
}  // namespace trtc::bindings

PYBIND11_MODULE(_test_tensorrt, module) {
  module.doc() = "Parts of the TensorRT runtime, for tests";
  trtc::bindings::register_errors();
  trtc::bindings::bind_test_plugin(module);
  trtc::bindings::bind_test_backend(module);
}
