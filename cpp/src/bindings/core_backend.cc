// A CPU engine, step by step, for tests and tools; serving goes through the executor.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

#include "backend/cpu_backend.h"
#include "backend/model_backend.h"
#include "backend/tensorrt_backend.h"
#include "common/cpu_features.h"

namespace py = pybind11;

namespace trtc::bindings {
namespace {

using Int32Array = py::array_t<std::int32_t, py::array::c_style | py::array::forcecast>;

std::span<const std::int32_t> vector_view(const Int32Array& array, const char* name) {
  if (array.ndim() != 1) throw std::invalid_argument(std::string(name) + " must have one dimension");
  return {array.data(), static_cast<std::size_t>(array.size())};
}

class CpuModel {
 public:
  CpuModel(const std::string& engine_dir, int num_threads) : backend_(load_cpu_engine(engine_dir, num_threads)) {}

  const ModelInfo& info() const { return backend_->info(); }
  void allocate_kv_cache(std::int32_t num_blocks) { backend_->allocate_kv_cache(num_blocks); }
  void copy_block(std::int32_t source, std::int32_t destination) { backend_->copy_block(source, destination); }

  py::array_t<float> run(const Int32Array& input_ids, const Int32Array& position_ids, const Int32Array& query_start,
                         const Int32Array& context_lens, const Int32Array& block_table, const Int32Array& logit_rows) {
    if (block_table.ndim() != 2) throw std::invalid_argument("block_table must have two dimensions");
    StepInputs inputs;
    inputs.input_ids = vector_view(input_ids, "input_ids");
    inputs.position_ids = vector_view(position_ids, "position_ids");
    inputs.query_start = vector_view(query_start, "query_start");
    inputs.context_lens = vector_view(context_lens, "context_lens");
    inputs.block_table = {block_table.data(), static_cast<std::size_t>(block_table.size())};
    inputs.max_blocks = static_cast<std::int32_t>(block_table.shape(1));
    inputs.logit_rows = vector_view(logit_rows, "logit_rows");
    py::array_t<float> logits({logit_rows.size(), static_cast<py::ssize_t>(info().vocab_size)});
    const std::span<float> out{logits.mutable_data(), static_cast<std::size_t>(logits.size())};
    {
      const py::gil_scoped_release released;
      backend_->run(inputs, out);
    }
    return logits;
  }

 private:
  std::unique_ptr<ModelBackend> backend_;
};

}  // namespace

void bind_backend(py::module_& module) {
  py::class_<ModelInfo>(module, "ModelInfo", "Facts and limits of a loaded engine.")
      .def_readonly("engine_hash", &ModelInfo::engine_hash)
      .def_readonly("vocab_size", &ModelInfo::vocab_size)
      .def_readonly("num_layers", &ModelInfo::num_layers)
      .def_readonly("max_batch_size", &ModelInfo::max_batch_size)
      .def_readonly("max_num_tokens", &ModelInfo::max_num_tokens)
      .def_readonly("max_seq_len", &ModelInfo::max_seq_len)
      .def_readonly("max_logit_rows", &ModelInfo::max_logit_rows)
      .def_readonly("tokens_per_block", &ModelInfo::tokens_per_block)
      .def_readonly("kv_bytes_per_block", &ModelInfo::kv_bytes_per_block);
  py::class_<CpuModel>(module, "CpuModel", "A loaded CPU engine; run() executes one packed step.")
      .def(py::init<const std::string&, int>(), py::arg("engine_dir"), py::arg("num_threads") = 0)
      .def_property_readonly("info", &CpuModel::info, py::return_value_policy::reference_internal)
      .def("allocate_kv_cache", &CpuModel::allocate_kv_cache, py::arg("num_blocks"))
      .def("run", &CpuModel::run, py::arg("input_ids"), py::arg("position_ids"), py::arg("query_start"),
           py::arg("context_lens"), py::arg("block_table"), py::arg("logit_rows"),
           "float32 [logit_rows, vocab_size]; inputs are int32 as in trtc/graph/contract.py.")
      .def("copy_block", &CpuModel::copy_block, py::arg("source"), py::arg("destination"));
  module.def("tensorrt_runtimes", &tensorrt_runtimes, "TensorRT flavours whose engines this build of trtc can run.");
  module.def(
      "selected_isa", [] { return std::string(isa_name(selected_isa())); },
      "Name of the instruction set level that kernels use; TRTC_CPU_ISA forces one.");
}

}  // namespace trtc::bindings
