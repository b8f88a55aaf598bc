// trtc._core: quantizing weights and packing them into the panel layout of cpp/src/kernels/linear.h.
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
using Matrix = py::array_t<T, py::array::c_style>;  // no forcecast: another dtype is a TypeError
using Blob = py::array_t<std::uint8_t, py::array::c_style>;

WeightFormat format_of(const std::string& name) {
  if (name == "f32") return WeightFormat::kF32;
  if (name == "bf16") return WeightFormat::kBf16;
  if (name == "i8") return WeightFormat::kI8;
  if (name == "i4") return WeightFormat::kI4;
  throw BuildError("weight format '" + name + "' is unknown; expected f32, bf16, i8 or i4");
}

struct Size {
  std::int64_t n;
  std::int64_t k;
};

Size size_of(const py::array& matrix) {
  if (matrix.ndim() != 2) throw BuildError("expected a matrix [n, k], got " + std::to_string(matrix.ndim()) + " axes");
  return {matrix.shape(0), matrix.shape(1)};
}

std::byte* checked_blob(Blob& out, const PackedLayout& layout) {
  if (out.ndim() != 1 || static_cast<std::size_t>(out.size()) != layout.total_bytes) {
    throw BuildError("the output holds " + std::to_string(out.size()) + " bytes; the packed weight takes " +
                     std::to_string(layout.total_bytes));
  }
  return reinterpret_cast<std::byte*>(out.mutable_data());
}

py::tuple quantize(const Matrix<float>& w, int bits, int group, int threads) {
  const auto [n, k] = size_of(w);
  const PackedLayout layout = kernels::packed_layout(bits == 8 ? WeightFormat::kI8 : WeightFormat::kI4, n, k, group);
  Matrix<std::int8_t> q({n, k});
  Matrix<std::uint16_t> scales({n, layout.groups});
  std::int8_t* q_data = q.mutable_data();
  std::uint16_t* scale_data = scales.mutable_data();
  {
    const py::gil_scoped_release release;
    kernels::quantize_groupwise(w.data(), n, k, bits, group, q_data, scale_data, threads);
  }
  return py::make_tuple(q, scales);
}

py::dict layout_dict(const std::string& format, std::int64_t n, std::int64_t k, int group) {
  const PackedLayout layout = kernels::packed_layout(format_of(format), n, k, group);
  py::dict result;
  result["panels"] = layout.panels;
  result["k_padded"] = layout.k_padded;
  result["groups"] = layout.groups;
  result["panel_bytes"] = layout.panel_bytes;
  result["data_offset"] = layout.data_offset;
  result["scales_offset"] = layout.scales_offset;
  result["sums_offset"] = layout.sums_offset;
  result["total_bytes"] = layout.total_bytes;
  return result;
}

void pack_f32(const Matrix<float>& w, Blob out, int threads) {
  const auto [n, k] = size_of(w);
  std::byte* blob = checked_blob(out, kernels::packed_layout(WeightFormat::kF32, n, k, 0));
  const py::gil_scoped_release release;
  kernels::pack_f32(w.data(), n, k, blob, threads);
}

void pack_bf16(const Matrix<std::uint16_t>& w, Blob out, int threads) {
  const auto [n, k] = size_of(w);
  std::byte* blob = checked_blob(out, kernels::packed_layout(WeightFormat::kBf16, n, k, 0));
  const py::gil_scoped_release release;
  kernels::pack_bf16(w.data(), n, k, blob, threads);
}

void pack_quantized(const Matrix<std::int8_t>& q, const Matrix<std::uint16_t>& scales, const std::string& format,
                    int group, Blob out, int threads) {
  const auto [n, k] = size_of(q);
  const WeightFormat parsed = format_of(format);
  const PackedLayout layout = kernels::packed_layout(parsed, n, k, group);
  const auto [scale_rows, scale_groups] = size_of(scales);
  if (scale_rows != n || scale_groups != layout.groups) {
    throw BuildError("scales are " + std::to_string(scale_rows) + " x " + std::to_string(scale_groups) + "; expected " +
                     std::to_string(n) + " x " + std::to_string(layout.groups));
  }
  std::byte* blob = checked_blob(out, layout);
  const py::gil_scoped_release release;
  kernels::pack_quantized(q.data(), scales.data(), parsed, n, k, group, blob, threads);
}

}  // namespace

void bind_weights(py::module_& module) {
  module.def("quantize_groupwise", &quantize, py::arg("w").noconvert(), py::arg("bits"), py::arg("group"),
             py::arg("threads") = 0,
             "float32 [n, k] -> (int8 [n, k], float16 bits uint16 [n, ceil(k / group)]); threads 0: every core");
  module.def("packed_layout", &layout_dict, py::arg("format"), py::arg("n"), py::arg("k"), py::arg("group"),
             "Sizes and byte offsets of a packed weight");
  module.def("pack_f32", &pack_f32, py::arg("w").noconvert(), py::arg("out").noconvert(), py::arg("threads") = 0,
             "float32 [n, k] into out uint8 [total_bytes]");
  module.def("pack_bf16", &pack_bf16, py::arg("w").noconvert(), py::arg("out").noconvert(), py::arg("threads") = 0,
             "bfloat16 bits uint16 [n, k] into out uint8 [total_bytes]");
  module.def("pack_quantized", &pack_quantized, py::arg("q").noconvert(), py::arg("scales").noconvert(),
             py::arg("format"), py::arg("group"), py::arg("out").noconvert(), py::arg("threads") = 0,
             "int8 [n, k] and float16 bits uint16 [n, groups] into out uint8 [total_bytes]");
}

}  // namespace trtc::bindings
