#include "bindings/test_arrays.h"

namespace trtc::bindings {
namespace {

namespace py = pybind11;
using kernels::Activation;
using kernels::KernelTable;
using OptionalArray = std::optional<py::array>;

// x, residual, sum, y: [rows, groups * cols]; scale, bias: [cols].
kernels::NormArgs norm_args(const py::array& x, const py::array& y, const py::array& scale, float epsilon,
                            const OptionalArray& bias, const OptionalArray& residual, const OptionalArray& sum) {
  const auto rows_x = rows_of<float>(x), rows_y = rows_of<float>(y), rows_scale = rows_of<float>(scale);
  const auto rows_residual = rows_of<float>(residual), rows_sum = rows_of<float>(sum);
  return {.rows = rows_x.rows,
          .groups = rows_x.cols / rows_scale.cols,
          .cols = rows_scale.cols,
          .x = rows_x.data,
          .x_stride = rows_x.stride,
          .residual = rows_residual.data,
          .residual_stride = rows_residual.stride,
          .sum = rows_sum.data,
          .sum_stride = rows_sum.stride,
          .scale = rows_scale.data,
          .bias = rows_of<float>(bias).data,
          .epsilon = epsilon,
          .y = rows_y.data,
          .y_stride = rows_y.stride};
}

Activation activation_named(const std::string& name) {
  if (name == "silu") return Activation::kSilu;
  if (name == "gelu") return Activation::kGelu;
  if (name == "gelu_tanh") return Activation::kGeluTanh;
  if (name == "tanh") return Activation::kTanh;
  throw std::invalid_argument("unknown activation " + name);
}

void bind_norms(py::module_& module) {
  const auto bind = [&](const char* name, void (*KernelTable::*kernel)(const kernels::NormArgs&, Slice)) {
    module.def(
        name,
        [kernel](const std::string& isa, const py::array& x, const py::array& y, const py::array& scale, float epsilon,
                 const OptionalArray& bias, const OptionalArray& residual, const OptionalArray& sum, int threads) {
          run_kernel(isa, threads, kernel, norm_args(x, y, scale, epsilon, bias, residual, sum));
        },
        py::arg("isa"), py::arg("x"), py::arg("y"), py::arg("scale"), py::arg("epsilon"), py::kw_only(),
        py::arg("bias") = py::none(), py::arg("residual") = py::none(), py::arg("sum") = py::none(),
        py::arg("threads") = 1);
  };
  bind("rms_norm", &KernelTable::rms_norm);
  bind("layer_norm", &KernelTable::layer_norm);
}

void bind_rotary(py::module_& module) {
  module.def(
      "rotary",
      [](const std::string& isa, const py::array& x, const py::array& y, int heads, const py::array& position_ids,
         const py::array& cos, const py::array& sin, int threads) {
        const auto rows_x = rows_of<float>(x), rows_y = rows_of<float>(y), rows_cos = rows_of<float>(cos);
        const kernels::RotaryArgs args{.rows = rows_x.rows,
                                       .heads = heads,
                                       .head_dim = static_cast<int>(rows_x.cols / heads),
                                       .rotary_dim = static_cast<int>(2 * rows_cos.cols),
                                       .position_ids = rows_of<std::int32_t>(position_ids).data,
                                       .cos = rows_cos.data,
                                       .sin = rows_of<float>(sin).data,
                                       .x = rows_x.data,
                                       .x_stride = rows_x.stride,
                                       .y = rows_y.data,
                                       .y_stride = rows_y.stride};
        run_kernel(isa, threads, &KernelTable::rotary, args);
      },
      py::arg("isa"), py::arg("x"), py::arg("y"), py::arg("heads"), py::arg("position_ids"), py::arg("cos"),
      py::arg("sin"), py::kw_only(), py::arg("threads") = 1);
}

void bind_activations(py::module_& module) {
  module.def(
      "gated_activation",
      [](const std::string& isa, const std::string& activation, const py::array& x, const py::array& y, int threads) {
        const auto in = rows_of<float>(x), out = rows_of<float>(y);
        const kernels::GatedActivationArgs args{out.rows, out.cols,  activation_named(activation), in.data, in.stride,
                                                out.data, out.stride};
        run_kernel(isa, threads, &KernelTable::gated_activation, args);
      },
      py::arg("isa"), py::arg("activation"), py::arg("x"), py::arg("y"), py::kw_only(), py::arg("threads") = 1);
  module.def(
      "activation",
      [](const std::string& isa, const std::string& activation, const py::array& x, const py::array& y, int threads) {
        const auto in = rows_of<float>(x), out = rows_of<float>(y);
        const kernels::ActivationArgs args{out.rows, out.cols,  activation_named(activation), in.data, in.stride,
                                           out.data, out.stride};
        run_kernel(isa, threads, &KernelTable::activation, args);
      },
      py::arg("isa"), py::arg("activation"), py::arg("x"), py::arg("y"), py::kw_only(), py::arg("threads") = 1);
}

void bind_arithmetic(py::module_& module) {
  const auto bind = [&](const char* name, void (*KernelTable::*kernel)(const kernels::AddArgs&, Slice)) {
    module.def(
        name,
        [kernel](const std::string& isa, const py::array& a, const py::array& b, const py::array& y, int threads) {
          const auto left = rows_of<float>(a), right = rows_of<float>(b), out = rows_of<float>(y);
          const kernels::AddArgs args{out.rows,    out.cols,   left.data,
                                      left.stride, right.data, right.rows == 1 ? 0 : right.stride,
                                      out.data,    out.stride};
          run_kernel(isa, threads, kernel, args);
        },
        py::arg("isa"), py::arg("a"), py::arg("b"), py::arg("y"), py::kw_only(), py::arg("threads") = 1,
        "b with one row is broadcast (stride 0)");
  };
  bind("add", &KernelTable::add);
  bind("mul", &KernelTable::mul);
  module.def(
      "scale",
      [](const std::string& isa, const py::array& x, float factor, const py::array& y, int threads) {
        const auto in = rows_of<float>(x), out = rows_of<float>(y);
        const kernels::ScaleArgs args{out.rows, out.cols, factor, in.data, in.stride, out.data, out.stride};
        run_kernel(isa, threads, &KernelTable::scale, args);
      },
      py::arg("isa"), py::arg("x"), py::arg("factor"), py::arg("y"), py::kw_only(), py::arg("threads") = 1);
  module.def(
      "gather_rows",
      [](const std::string& isa, const py::array& x, const py::array& row_ids, const py::array& y, int threads) {
        const auto in = rows_of<float>(x), out = rows_of<float>(y);
        const kernels::GatherRowsArgs args{out.rows, out.cols,  rows_of<std::int32_t>(row_ids).data, in.data, in.stride,
                                           out.data, out.stride};
        run_kernel(isa, threads, &KernelTable::gather_rows, args);
      },
      py::arg("isa"), py::arg("x"), py::arg("row_ids"), py::arg("y"), py::kw_only(), py::arg("threads") = 1);
}

}  // namespace

void bind_test_rowwise(py::module_& module) {
  bind_norms(module);
  bind_rotary(module);
  bind_activations(module);
  bind_arithmetic(module);
}

}  // namespace trtc::bindings
