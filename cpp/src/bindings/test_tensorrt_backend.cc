// The TensorRT backend over a GPU that only keeps what it is asked for; manifests.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/gpu_engine.h"
#include "backend/load_engine.h"
#include "backend/tensorrt_backend.h"
#include "engine/json.h"
#include "engine/manifest.h"

namespace py = pybind11;

namespace trtc::bindings {
namespace {

using Ints = std::vector<std::int32_t>;

// Calls in order, e.g. "upload 1536", "enqueue decode 4 4 2 4", "capture ...", "launch 0", "copy 3 5".
struct GpuRecord {
  GpuEngineFacts facts;
  bool refuses_capture = false;
  std::vector<std::string> calls;
  std::vector<std::byte> staging;
  std::vector<std::byte> uploaded;
  GpuStepShape last;
};

std::string described(const GpuStep& step) {
  const GpuStepShape& shape = step.shape;
  std::string text = step.profile == GpuProfile::kDecode ? "decode" : "mixed";
  for (const std::int32_t size : {shape.tokens, shape.seqs, shape.max_blocks, shape.logit_rows}) {
    text += " " + std::to_string(size);
  }
  return text;
}

// Row r of its logits is r * 1000, r * 1000 + 1, ...
class RecordingGpu final : public GpuEngine {
 public:
  explicit RecordingGpu(std::shared_ptr<GpuRecord> record) : record_(std::move(record)) {}

  const GpuEngineFacts& facts() const override { return record_->facts; }
  std::size_t free_memory() const override { return 123456; }
  void allocate_kv_cache(std::int32_t blocks) override { record_->calls.push_back("kv " + std::to_string(blocks)); }
  std::span<std::byte> allocate_staging(std::size_t bytes) override {
    record_->staging.resize(bytes, std::byte{0xEE});
    return record_->staging;
  }
  void upload(std::size_t bytes) override {
    record_->calls.push_back("upload " + std::to_string(bytes));
    record_->uploaded.assign(record_->staging.begin(), record_->staging.begin() + static_cast<std::ptrdiff_t>(bytes));
  }
  void enqueue(const GpuStep& step) override {
    record_->calls.push_back("enqueue " + described(step));
    record_->last = step.shape;
  }
  std::optional<std::size_t> capture(const GpuStep& step) override {
    record_->calls.push_back("capture " + described(step));
    record_->last = step.shape;
    if (record_->refuses_capture) return std::nullopt;
    return graphs_++;
  }
  void launch(std::size_t graph) override { record_->calls.push_back("launch " + std::to_string(graph)); }
  void download(std::span<float> logits) override {
    const auto vocab = static_cast<std::size_t>(record_->facts.vocab_size);
    for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i / vocab * 1000 + i % vocab);
  }
  void copy_block(std::int32_t source, std::int32_t destination) override {
    record_->calls.push_back("copy " + std::to_string(source) + " " + std::to_string(destination));
  }

 private:
  std::shared_ptr<GpuRecord> record_;
  std::size_t graphs_ = 0;
};

class RecordedBackend {
 public:
  RecordedBackend(const engine::Manifest& manifest, const GpuEngineFacts& facts, bool refuses_capture)
      : record_(std::make_shared<GpuRecord>()) {
    record_->facts = facts;
    record_->refuses_capture = refuses_capture;
    backend_ = make_tensorrt_backend(std::make_unique<RecordingGpu>(record_), manifest);
  }

  ModelBackend& backend() { return *backend_; }

  py::array_t<float> run(const Ints& input_ids, const Ints& position_ids, const Ints& query_start,
                         const Ints& context_lens, const std::vector<Ints>& block_table, const Ints& logit_rows) {
    Ints table;
    for (const Ints& row : block_table) table.insert(table.end(), row.begin(), row.end());
    StepInputs inputs{input_ids, position_ids, query_start, context_lens, table, 0, logit_rows};
    inputs.max_blocks = static_cast<std::int32_t>(block_table.at(0).size());
    py::array_t<float> logits(
        {static_cast<py::ssize_t>(logit_rows.size()), static_cast<py::ssize_t>(record_->facts.vocab_size)});
    backend_->run(inputs, {logits.mutable_data(), static_cast<std::size_t>(logits.size())});
    return logits;
  }

  std::vector<std::string> calls() { return std::exchange(record_->calls, {}); }

  // The inputs of the step as the device has them, by name.
  py::dict staged(std::int32_t tokens, std::int32_t seqs, std::int32_t max_blocks, std::int32_t logit_rows) const {
    const StagingLayout layout = staging_layout({tokens, seqs, max_blocks, logit_rows});
    const std::int32_t sizes[] = {tokens, tokens, seqs + 1, seqs, seqs * max_blocks, logit_rows};
    py::dict staged;
    for (std::size_t i = 0; i < layout.offsets.size(); ++i) {
      Ints values(static_cast<std::size_t>(sizes[i]));
      std::memcpy(values.data(), record_->uploaded.data() + layout.offsets[i], values.size() * sizeof(std::int32_t));
      staged[engine::kStepInputNames[i]] = values;
    }
    return staged;
  }

  std::size_t staging_bytes() const { return record_->staging.size(); }

 private:
  std::shared_ptr<GpuRecord> record_;
  std::unique_ptr<ModelBackend> backend_;
};

py::object to_python(const engine::Json& json) {
  return std::visit(
      [](const auto& value) -> py::object {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, std::nullptr_t>) {
          return py::none();
        } else if constexpr (std::is_same_v<T, engine::JsonArray>) {
          py::list list;
          for (const engine::Json& item : value) list.append(to_python(item));
          return list;
        } else if constexpr (std::is_same_v<T, engine::JsonObject>) {
          py::dict dict;
          for (const auto& [name, item] : value) dict[py::str(name)] = to_python(item);
          return dict;
        } else {
          return py::cast(value);
        }
      },
      json.value());
}

}  // namespace

void bind_test_backend(py::module_& module) {
  module.def("parse_json", [](const py::bytes& text) { return to_python(engine::parse_json(std::string_view(text))); });
  module.def("open_engine", [](const std::string& engine_dir) { load_engine(engine_dir, 1); }, py::arg("engine_dir"));

  py::class_<engine::TensorRtManifest>(module, "TensorRtManifest")
      .def_readonly("flavour", &engine::TensorRtManifest::flavour)
      .def_readonly("version", &engine::TensorRtManifest::version)
      .def_readonly("sm", &engine::TensorRtManifest::sm);
  py::class_<engine::Manifest>(module, "Manifest")
      .def(py::init<>())
      .def_readonly("target", &engine::Manifest::target)
      .def_readonly("ranks", &engine::Manifest::ranks)
      .def_readonly("tensorrt", &engine::Manifest::tensorrt)
      .def_readwrite("engine_hash", &engine::Manifest::engine_hash)
      .def_readwrite("vocab_size", &engine::Manifest::vocab_size)
      .def_readwrite("max_batch_size", &engine::Manifest::max_batch_size)
      .def_readwrite("max_num_tokens", &engine::Manifest::max_num_tokens)
      .def_readwrite("max_seq_len", &engine::Manifest::max_seq_len)
      .def_readwrite("max_logit_rows", &engine::Manifest::max_logit_rows)
      .def_readwrite("tokens_per_block", &engine::Manifest::tokens_per_block);
  module.def("read_manifest", &engine::read_manifest, py::arg("engine_dir"));

  py::class_<GpuEngineFacts>(module, "GpuEngineFacts")
      .def(py::init<>())
      .def_readwrite("layer_block_bytes", &GpuEngineFacts::layer_block_bytes)
      .def_readwrite("vocab_size", &GpuEngineFacts::vocab_size)
      .def_readwrite("tokens_per_block", &GpuEngineFacts::tokens_per_block)
      .def_readwrite("max_decode_seqs", &GpuEngineFacts::max_decode_seqs)
      .def_readwrite("max_seqs", &GpuEngineFacts::max_seqs)
      .def_readwrite("max_tokens", &GpuEngineFacts::max_tokens)
      .def_readwrite("max_logit_rows", &GpuEngineFacts::max_logit_rows)
      .def_readwrite("max_columns", &GpuEngineFacts::max_columns)
      .def_readwrite("max_kv_blocks", &GpuEngineFacts::max_kv_blocks);

  py::class_<RecordedBackend>(module, "RecordedBackend")
      .def(py::init<const engine::Manifest&, const GpuEngineFacts&, bool>(), py::arg("manifest"), py::arg("facts"),
           py::arg("refuses_capture") = false)
      .def_property_readonly("kv_bytes_per_block",
                             [](RecordedBackend& b) { return b.backend().info().kv_bytes_per_block; })
      .def_property_readonly("max_kv_blocks", [](RecordedBackend& b) { return b.backend().info().max_kv_blocks; })
      .def_property_readonly("free_device_memory", [](RecordedBackend& b) { return b.backend().free_device_memory(); })
      .def("allocate_kv_cache", [](RecordedBackend& b, std::int32_t blocks) { b.backend().allocate_kv_cache(blocks); })
      .def("copy_block",
           [](RecordedBackend& b, std::int32_t from, std::int32_t to) { b.backend().copy_block(from, to); })
      .def("run", &RecordedBackend::run, py::arg("input_ids"), py::arg("position_ids"), py::arg("query_start"),
           py::arg("context_lens"), py::arg("block_table"), py::arg("logit_rows"))
      .def("calls", &RecordedBackend::calls)
      .def("staged", &RecordedBackend::staged, py::arg("tokens"), py::arg("seqs"), py::arg("max_blocks"),
           py::arg("logit_rows"))
      .def_property_readonly("staging_bytes", &RecordedBackend::staging_bytes);
}

}  // namespace trtc::bindings
