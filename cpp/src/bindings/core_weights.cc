// Quantizing and packing of weights, for the build.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>

#include "kernels/linear.h"
#include "trtc/errors.h"

namespace py = pybind11;

namespace trtc::bindings {
namespace {

using kernels::PackedLayout;
using kernels::WeightFormat;

template <typename T>
using Matrix = py::array_t<T, py::array::c_style>;

WeightFormat format_named(const std::string& name) {
  if (name == "f32") return WeightFormat::kF32;
  if (name == "bf16") return WeightFormat::kBf16;
  if (name == "i8") return WeightFormat::kI8;
  if (name == "i4") return WeightFormat::kI4;
  throw BuildError("unknown weight format '" + name + "'; expected f32, bf16, i8 or i4");
}

void require_matrix(const py::array& array, const char* name) {
  if (array.ndim() == 2) return;
  throw BuildError(std::string(name) + " has " + std::to_string(array.ndim()) + " dimensions, expected 2: [n, k]");
}

// The blob to fill: exactly as many bytes as the layout has, 64-byte aligned parts relative to its own start.
std::byte* blob_of(Matrix<std::uint8_t>& out, const PackedLayout& layout) {
  if (out.ndim() != 1 || static_cast<std::size_t>(out.size()) != layout.total_bytes) {
    throw BuildError("out has " + std::to_string(out.size()) + " bytes in " + std::to_string(out.ndim()) +
                     " dimensions, expected " + std::to_string(layout.total_bytes) +
                     " in one: packed_layout(...)['total_bytes']");
  }
  if (reinterpret_cast<std::uintptr_t>(out.data()) % 4 != 0) {
    throw BuildError("out must be 4-byte aligned; allocate it with numpy.empty");
  }
  return reinterpret_cast<std::byte*>(out.mutable_data());
}

py::dict layout_dict(const std::string& format, std::int64_t n, std::int64_t k, int group) {
  const PackedLayout layout = kernels::packed_layout(format_named(format), n, k, group);
  py::dict result;
  result["panels"] = layout.panels;
  result["k_padded"] = layout.k_padded;
  result["groups"] = layout.groups;
  result["panel_bytes"] = layout.panel_bytes;
  result["data_offset"] = layout.data_offset;
  result["scales_offset"] = layout.scales_offset;
  result["sums_offset"] = layout.sums_offset;
  result["zeros_offset"] = layout.zeros_offset;
  result["total_bytes"] = layout.total_bytes;
  return result;
}

// (q, scales) for 8 bits, (q, scales, zeros) for 4.
py::tuple quantize_groupwise(const Matrix<float>& w, int bits, int group, int threads) {
  require_matrix(w, "w");
  const std::int64_t n = w.shape(0), k = w.shape(1);
  const std::int64_t groups = kernels::packed_layout(WeightFormat::kI8, n, k, group).groups;
  Matrix<std::int8_t> q({n, k});
  Matrix<std::uint16_t> scales({n, groups}), zeros({bits == 4 ? n : 0, groups});
  const float* source = w.data();
  std::int8_t* values = q.mutable_data();
  std::uint16_t *scale_bits = scales.mutable_data(), *zero_bits = zeros.mutable_data();
  {
    const py::gil_scoped_release release;
    kernels::quantize_groupwise(source, n, k, bits, group, values, scale_bits, zero_bits, threads);
  }
  if (bits == 8) return py::make_tuple(q, scales);
  return py::make_tuple(q, scales, zeros);
}

void pack_f32(const Matrix<float>& w, Matrix<std::uint8_t> out, int threads) {
  require_matrix(w, "w");
  const std::int64_t n = w.shape(0), k = w.shape(1);
  std::byte* blob = blob_of(out, kernels::packed_layout(WeightFormat::kF32, n, k, 0));
  const float* source = w.data();
  const py::gil_scoped_release release;
  kernels::pack_f32(source, n, k, blob, threads);
}

void pack_bf16(const Matrix<std::uint16_t>& w, Matrix<std::uint8_t> out, int threads) {
  require_matrix(w, "w");
  const std::int64_t n = w.shape(0), k = w.shape(1);
  std::byte* blob = blob_of(out, kernels::packed_layout(WeightFormat::kBf16, n, k, 0));
  const std::uint16_t* source = w.data();
  const py::gil_scoped_release release;
  kernels::pack_bf16(source, n, k, blob, threads);
}

void require_per_group(const Matrix<std::uint16_t>& array, const char* name, std::int64_t n,
                       const PackedLayout& layout) {
  require_matrix(array, name);
  if (array.shape(0) == n && array.shape(1) == layout.groups) return;
  throw BuildError(std::string(name) + " is [" + std::to_string(array.shape(0)) + ", " +
                   std::to_string(array.shape(1)) + "], expected [" + std::to_string(n) + ", " +
                   std::to_string(layout.groups) + "]: one float16 per row and group of q");
}

void pack_i8(const Matrix<std::int8_t>& q, const Matrix<std::uint16_t>& scales, int group, Matrix<std::uint8_t> out,
             int threads) {
  require_matrix(q, "q");
  const std::int64_t n = q.shape(0), k = q.shape(1);
  const PackedLayout layout = kernels::packed_layout(WeightFormat::kI8, n, k, group);
  require_per_group(scales, "scales", n, layout);
  std::byte* blob = blob_of(out, layout);
  const std::int8_t* values = q.data();
  const std::uint16_t* scale_bits = scales.data();
  const py::gil_scoped_release release;
  kernels::pack_i8(values, scale_bits, n, k, group, blob, threads);
}

void pack_i4(const Matrix<std::int8_t>& q, const Matrix<std::uint16_t>& scales, const Matrix<std::uint16_t>& zeros,
             int group, Matrix<std::uint8_t> out, int threads) {
  require_matrix(q, "q");
  const std::int64_t n = q.shape(0), k = q.shape(1);
  const PackedLayout layout = kernels::packed_layout(WeightFormat::kI4, n, k, group);
  require_per_group(scales, "scales", n, layout);
  require_per_group(zeros, "zeros", n, layout);
  std::byte* blob = blob_of(out, layout);
  const std::int8_t* values = q.data();
  const std::uint16_t *scale_bits = scales.data(), *zero_bits = zeros.data();
  const py::gil_scoped_release release;
  kernels::pack_i4(values, scale_bits, zero_bits, n, k, group, blob, threads);
}

}  // namespace

// Arrays must have the stated dtype and be C-contiguous: nothing is converted, so that no weight is copied unseen.
void bind_weights(py::module_& module) {
  module.def("packed_layout", &layout_dict, py::arg("format"), py::arg("n"), py::arg("k"), py::arg("group") = 0,
             "Sizes and byte offsets of a packed [n, k] weight; format f32, bf16, i8 or i4.");
  module.def("quantize_groupwise", &quantize_groupwise, py::arg("w").noconvert(), py::arg("bits"), py::arg("group"),
             py::arg("threads") = 0,
             "float32 [n, k] -> (q int8 [n, k], scales uint16 [n, ceil(k / group)], the bits of float16); with 4 bits "
             "also zeros, like scales: W = (q - zero) * scale.");
  module.def("pack_f32", &pack_f32, py::arg("w").noconvert(), py::arg("out").noconvert(), py::arg("threads") = 0,
             "Packs float32 [n, k] into out, uint8 [total_bytes].");
  module.def("pack_bf16", &pack_bf16, py::arg("w").noconvert(), py::arg("out").noconvert(), py::arg("threads") = 0,
             "Packs bfloat16 [n, k], given as its uint16 bits, into out, uint8 [total_bytes].");
  module.def("pack_i8", &pack_i8, py::arg("q").noconvert(), py::arg("scales").noconvert(), py::arg("group"),
             py::arg("out").noconvert(), py::arg("threads") = 0,
             "Packs int8 q [n, k] and scales uint16 [n, groups] into out, uint8 [total_bytes].");
  module.def("pack_i4", &pack_i4, py::arg("q").noconvert(), py::arg("scales").noconvert(), py::arg("zeros").noconvert(),
             py::arg("group"), py::arg("out").noconvert(), py::arg("threads") = 0,
             "Packs q [n, k], int8 in [0, 15], scales and zeros uint16 [n, groups] into out, uint8 [total_bytes].");
}

}  // namespace trtc::bindings
