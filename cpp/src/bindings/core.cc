// trtc._core: what the Python side uses of libtrtc.
#include <pybind11/pybind11.h>

#include "bindings/errors.h"

namespace trtc::bindings {
void bind_weights(pybind11::module_& module);   // core_weights.cc: quantizing and packing
void bind_backend(pybind11::module_& module);   // core_backend.cc: a CPU engine, step by step
void bind_executor(pybind11::module_& module);  // core_executor.cc: the executor
}  // namespace trtc::bindings

PYBIND11_MODULE(_core, module) {
  module.doc() = "libtrtc: weight packing, the CPU backend and the executor";
  trtc::bindings::register_errors();
  trtc::bindings::bind_weights(module);
  trtc::bindings::bind_backend(module);
  trtc::bindings::bind_executor(module);
}
