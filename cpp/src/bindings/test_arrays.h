// numpy arrays as the strided rows that kernels take, for the test modules. Nothing is copied: a test hands in views of
// guarded buffers and sees every byte that a kernel touched.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#include "common/thread_team.h"
#include "kernels/kernel_table.h"

namespace trtc::bindings {

template <typename T>
struct Rows {
  T* data;
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t stride;  // elements between rows
};

// A [cols] or [rows, cols] array whose rows are contiguous; a missing array is a null pointer.
template <typename T>
Rows<T> rows_of(const std::optional<pybind11::array>& array) {
  if (!array) return {nullptr, 0, 0, 0};
  if (!array->dtype().is(pybind11::dtype::of<T>())) throw std::invalid_argument("array has another dtype");
  const auto ndim = array->ndim();
  if (ndim != 1 && ndim != 2) throw std::invalid_argument("expected a [cols] or [rows, cols] array");
  const auto item = static_cast<pybind11::ssize_t>(sizeof(T));
  if (array->shape(ndim - 1) > 1 && array->strides(ndim - 1) != item) throw std::invalid_argument("rows have gaps");
  T* data = static_cast<T*>(const_cast<void*>(array->data()));
  if (ndim == 1) return {data, 1, array->shape(0), array->shape(0)};
  return {data, array->shape(0), array->shape(1), array->strides(0) / item};
}

// Runs a kernel of the named level on a team of `threads`.
template <typename Args>
void run_kernel(const std::string& isa, int threads, void (*kernels::KernelTable::*kernel)(const Args&, Slice),
                const Args& args) {
  for (const Isa level : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16}) {
    if (isa_name(level) != isa) continue;
    const auto function = kernels::kernel_table(level).*kernel;
    const pybind11::gil_scoped_release release;
    ThreadTeam team(threads);
    team.run([&](Slice slice) { function(args, slice); });
    return;
  }
  throw std::invalid_argument("unknown level " + isa);
}

}  // namespace trtc::bindings
