#include "bindings/test_arrays.h"
#include "bindings/test_weight.h"
#include "kernels/linear_ref.h"

namespace trtc::bindings {
namespace {

namespace py = pybind11;
using kernels::KernelTable;
using OptionalArray = std::optional<py::array>;
using Blob = py::array_t<std::uint8_t, py::array::c_style>;

kernels::LinearArgs linear_args(const TestWeight& weight, const py::array& y, const OptionalArray& x,
                                const OptionalArray& q, const OptionalArray& q_scales, const OptionalArray& bias) {
  const auto rows_x = rows_of<float>(x), rows_y = rows_of<float>(y), rows_scales = rows_of<float>(q_scales);
  const auto rows_q = rows_of<std::int8_t>(q);
  return {.rows = rows_y.rows,
          .x = rows_x.data,
          .x_stride = rows_x.stride,
          .quantized = {rows_q.data, rows_q.stride, rows_scales.data, rows_scales.stride},
          .weight = weight.view(),
          .bias = rows_of<float>(bias).data,
          .y = rows_y.data,
          .y_stride = rows_y.stride};
}

void bind_linear(py::module_& module) {
  module.def(
      "linear",
      [](const std::string& isa, const TestWeight& weight, const py::array& y, const OptionalArray& x,
         const OptionalArray& q, const OptionalArray& q_scales, const OptionalArray& bias, int threads) {
        const auto args = linear_args(weight, y, x, q, q_scales, bias);
        if (isa == "reference") {
          kernels::reference::linear(args, 0, (args.weight.n + kernels::kPanelCols - 1) / kernels::kPanelCols);
        } else {
          run_kernel(isa, threads, &KernelTable::linear, args);
        }
      },
      py::arg("isa"), py::arg("weight"), py::arg("y"), py::kw_only(), py::arg("x") = py::none(),
      py::arg("q") = py::none(), py::arg("q_scales") = py::none(), py::arg("bias") = py::none(), py::arg("threads") = 1,
      "x float32 [rows, k], or q int8 [rows, k_padded] with q_scales float32 [rows, groups]");
}

void bind_quantize_rows(py::module_& module) {
  module.def(
      "quantize_rows",
      [](const std::string& isa, const py::array& x, const py::array& q, const py::array& q_scales, int group,
         int threads) {
        const auto rows_x = rows_of<float>(x), rows_scales = rows_of<float>(q_scales);
        const auto rows_q = rows_of<std::int8_t>(q);
        const kernels::QuantizeRowsArgs args{.rows = rows_x.rows,
                                             .k = rows_x.cols,
                                             .group = group,
                                             .x = rows_x.data,
                                             .x_stride = rows_x.stride,
                                             .data = rows_q.data,
                                             .stride = rows_q.stride,
                                             .scales = rows_scales.data,
                                             .scale_stride = rows_scales.stride};
        run_kernel(isa, threads, &KernelTable::quantize_rows, args);
      },
      py::arg("isa"), py::arg("x"), py::arg("q"), py::arg("q_scales"), py::arg("group"), py::kw_only(),
      py::arg("threads") = 1);
}

void bind_embedding(py::module_& module) {
  module.def(
      "embedding",
      [](const std::string& isa, const TestWeight& table, const py::array& ids, const py::array& y, int threads) {
        const auto rows_y = rows_of<float>(y);
        const kernels::EmbeddingArgs args{.rows = rows_y.rows,
                                          .ids = rows_of<std::int32_t>(ids).data,
                                          .weight = table.view(),
                                          .y = rows_y.data,
                                          .y_stride = rows_y.stride};
        run_kernel(isa, threads, &KernelTable::embedding, args);
      },
      py::arg("isa"), py::arg("table"), py::arg("ids"), py::arg("y"), py::kw_only(), py::arg("threads") = 1);
}

}  // namespace

void bind_test_timing(py::module_& module);  // test_kernels_timing.cc

void bind_test_linear(py::module_& module) {
  py::class_<TestWeight>(module, "PackedWeight")
      .def(py::init([](const std::string& format, std::int64_t n, std::int64_t k, int group, const Blob& blob) {
             return TestWeight(format, n, k, group, blob.data(), static_cast<std::size_t>(blob.size()));
           }),
           py::arg("format"), py::arg("n"), py::arg("k"), py::arg("group"), py::arg("blob"));
  bind_linear(module);
  bind_quantize_rows(module);
  bind_embedding(module);
  bind_test_timing(module);
}

}  // namespace trtc::bindings
