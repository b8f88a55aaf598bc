// trtc._test_kernels: every kernel of every ISA level, for tests only.
#include <pybind11/pybind11.h>

#include "bindings/errors.h"

namespace trtc::bindings {
void bind_test_common(pybind11::module_& module);   // test_kernels_common.cc: CPU features, float formats, thread team
void bind_test_linear(pybind11::module_& module);   // test_kernels_linear.cc
void bind_test_rowwise(pybind11::module_& module);  // test_kernels_rowwise.cc: norms, rotary, elementwise
void bind_test_attention(pybind11::module_& module);  // test_kernels_attention.cc
}  // namespace trtc::bindings

PYBIND11_MODULE(_test_kernels, module) {
  module.doc() = "Kernels of libtrtc by ISA level, for tests";
  trtc::bindings::register_errors();
  trtc::bindings::bind_test_common(module);
  trtc::bindings::bind_test_linear(module);
  trtc::bindings::bind_test_rowwise(module);
  trtc::bindings::bind_test_attention(module);
}
