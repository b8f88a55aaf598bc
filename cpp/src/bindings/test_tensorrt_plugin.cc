// The plugin's plain C++: the kernel bundle, fields, launch geometry, and launches on a driver that only records them.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plugins/attention_fields.h"
#include "plugins/attention_kernels.h"
#include "plugins/attention_launch.h"
#include "plugins/cuda_driver.h"
#include "plugins/kernel_bundle.h"

namespace py = pybind11;

namespace trtc::bindings {
namespace {

using plugins::AttentionFields;
using plugins::CudaDriver;

// Bytes in a block of exactly their size, so that a sanitizer sees a read beyond them.
std::unique_ptr<std::byte[]> exact_copy(std::string_view bytes) {
  auto copy = std::make_unique<std::byte[]>(bytes.size());
  std::memcpy(copy.get(), bytes.data(), bytes.size());
  return copy;
}

py::list parse_bundle(const py::bytes& data) {
  const std::string_view bytes(data);
  const auto copy = exact_copy(bytes);
  const plugins::KernelBundle bundle = plugins::parse_kernel_bundle({copy.get(), bytes.size()});
  py::list kernels;
  for (const plugins::KernelImage& kernel : bundle.kernels) {
    py::dict constants;
    for (const auto& [name, value] : kernel.constants) constants[py::str(std::string(name))] = value;
    kernels.append(py::dict(
        py::arg("role") = std::string(kernel.role), py::arg("entry") = std::string(kernel.entry),
        py::arg("num_warps") = kernel.num_warps, py::arg("shared_bytes") = kernel.shared_bytes,
        py::arg("registers") = kernel.registers, py::arg("spill_bytes") = kernel.spill_bytes,
        py::arg("constants") = constants,
        py::arg("cubin") = py::bytes(reinterpret_cast<const char*>(kernel.cubin.data()), kernel.cubin.size())));
  }
  return kernels;
}

// values: pairs of name and int, float or bytes.
AttentionFields fields_of(const std::vector<std::pair<std::string, py::object>>& values) {
  std::vector<plugins::FieldValue> fields;
  for (const auto& [name, value] : values) {
    if (py::isinstance<py::bytes>(value)) {
      const std::string_view bytes = value.cast<std::string_view>();
      fields.push_back({name, std::as_bytes(std::span(bytes.data(), bytes.size()))});
    } else if (py::isinstance<py::float_>(value)) {
      fields.push_back({name, value.cast<double>()});
    } else {
      fields.push_back({name, value.cast<std::int64_t>()});
    }
  }
  return plugins::read_fields(fields);
}

py::dict read_fields(const std::vector<std::pair<std::string, py::object>>& values) {
  const AttentionFields fields = fields_of(values);
  py::dict read;
  for (const plugins::FieldSpec& spec : plugins::kFields) {
    const void* address = plugins::field_address(fields, spec.name);
    if (spec.type == plugins::FieldType::kInt32) {
      read[spec.name] = *static_cast<const std::int32_t*>(address);
    } else if (spec.type == plugins::FieldType::kFloat32) {
      read[spec.name] = *static_cast<const float*>(address);
    } else {
      read[spec.name] = py::bytes(reinterpret_cast<const char*>(fields.kernels->data()), fields.kernels->size());
    }
  }
  return read;
}

// A CUDA driver without a device. Modules and functions are numbers, and every launch is kept.
struct RecordedLaunch {
  std::string entry;
  std::vector<unsigned> grid;
  unsigned threads = 0;
  unsigned shared_bytes = 0;
  std::uintptr_t stream = 0;
  std::vector<std::uint64_t> parameters;  // pointers and numbers by the order of roles(), then the two scratch pointers
};

struct RecordingDriver {
  std::string failing;  // name of the call that fails
  std::uintptr_t context = 1;
  std::uintptr_t made = 0;
  int modules = 0;  // loaded and not unloaded
  std::map<std::uintptr_t, std::string> entries;
  std::map<std::string, int> shared_attributes;
  std::vector<RecordedLaunch> launches;
};

RecordingDriver recording;

int result_of(const char* call) { return recording.failing == call ? 209 : 0; }

void* new_handle() { return reinterpret_cast<void*>(++recording.made); }

std::span<const plugins::Argument> parameters_of(const std::string& role) {
  for (const plugins::RoleSpec& spec : plugins::roles()) {
    if (spec.role == role) return spec.parameters;
  }
  return {};
}

int record_launch(void* function, unsigned x, unsigned y, unsigned z, unsigned block_x, unsigned, unsigned,
                  unsigned shared, void* stream, void** parameters, void**) {
  RecordedLaunch launch;
  launch.entry = recording.entries[reinterpret_cast<std::uintptr_t>(function)];
  launch.grid = {x, y, z};
  launch.threads = block_x;
  launch.shared_bytes = shared;
  launch.stream = reinterpret_cast<std::uintptr_t>(stream);
  std::size_t index = 0;
  for (const plugins::Argument argument :
       parameters_of(launch.entry)) {  // in these tests an entry is named as its role
    const bool pointer = static_cast<std::size_t>(argument) < plugins::kNumPointers;
    const void* place = parameters[index++];
    launch.parameters.push_back(pointer ? *static_cast<const std::uint64_t*>(place)
                                        : *static_cast<const std::uint32_t*>(place));
  }
  for (int i = 0; i < 2; ++i) launch.parameters.push_back(*static_cast<const std::uint64_t*>(parameters[index++]));
  recording.launches.push_back(launch);
  return result_of("cuLaunchKernel");
}

const CudaDriver& recording_driver() {
  static const CudaDriver driver = [] {
    CudaDriver table;
    table.get_current_context = [](void** context) {
      *context = reinterpret_cast<void*>(recording.context);
      return result_of("cuCtxGetCurrent");
    };
    table.load_module = [](void** module, const void*) {
      if (result_of("cuModuleLoadData") != 0) return 209;
      *module = new_handle();
      ++recording.modules;
      return 0;
    };
    table.unload_module = [](void*) {
      --recording.modules;
      return 0;
    };
    table.get_function = [](void** function, void*, const char* name) {
      *function = new_handle();
      recording.entries[reinterpret_cast<std::uintptr_t>(*function)] = name;
      return result_of("cuModuleGetFunction");
    };
    table.set_function_attribute = [](void* function, int, int value) {
      recording.shared_attributes[recording.entries[reinterpret_cast<std::uintptr_t>(function)]] = value;
      return result_of("cuFuncSetAttribute");
    };
    table.launch_kernel = &record_launch;
    table.get_error_name = [](int, const char** name) {
      *name = "CUDA_ERROR_NO_BINARY_FOR_GPU";
      return 0;
    };
    return table;
  }();
  return driver;
}

// Loaded kernels over the recording driver.
class RecordedKernels {
 public:
  explicit RecordedKernels(const std::vector<std::pair<std::string, py::object>>& fields)
      : kernels_(plugins::shared_kernels(recording_driver(), fields_of(fields))) {}

  void launch(std::int32_t tokens, std::int32_t seqs, std::int32_t max_blocks, const std::vector<std::uint64_t>& inputs,
              std::uint64_t output, std::uint64_t workspace, std::uint64_t stream) {
    plugins::StepPointers pointers;
    for (std::size_t i = 0; i < inputs.size(); ++i) pointers.inputs.at(i) = reinterpret_cast<const void*>(inputs[i]);
    pointers.output = reinterpret_cast<void*>(output);
    pointers.workspace = reinterpret_cast<void*>(workspace);
    kernels_->launch({tokens, seqs, max_blocks}, pointers, reinterpret_cast<void*>(stream));
  }

  bool same(const RecordedKernels& other) const { return kernels_ == other.kernels_; }

 private:
  std::shared_ptr<const plugins::AttentionKernels> kernels_;
};

py::dict parameter_names() {
  py::dict names;
  for (const plugins::RoleSpec& spec : plugins::roles()) {
    py::list parameters;
    for (const plugins::Argument argument : spec.parameters) {
      parameters.append(std::string(plugins::argument_name(argument)));
    }
    names[py::str(std::string(spec.role))] = parameters;
  }
  return names;
}

}  // namespace

void bind_test_plugin(py::module_& module) {
  module.def("parse_bundle", &parse_bundle, py::arg("data"));
  module.def("read_fields", &read_fields, py::arg("values"));
  module.def("field_names", [] {
    std::vector<std::string> names;
    for (const plugins::FieldSpec& spec : plugins::kFields) names.emplace_back(spec.name);
    return names;
  });
  module.def("parameter_names", &parameter_names);
  module.def("workspace", [](const std::vector<std::pair<std::string, py::object>>& values, std::int32_t max_tokens) {
    const plugins::Workspace layout = plugins::workspace_layout(fields_of(values), max_tokens);
    return py::dict(py::arg("partial_output") = layout.partial_output, py::arg("partial_state") = layout.partial_state,
                    py::arg("rotated_query") = layout.rotated_query, py::arg("bytes") = layout.bytes);
  });
  module.def("load_this_machines_driver", [] { plugins::cuda_driver(); });

  py::class_<RecordedLaunch>(module, "RecordedLaunch")
      .def_readonly("entry", &RecordedLaunch::entry)
      .def_readonly("grid", &RecordedLaunch::grid)
      .def_readonly("threads", &RecordedLaunch::threads)
      .def_readonly("shared_bytes", &RecordedLaunch::shared_bytes)
      .def_readonly("stream", &RecordedLaunch::stream)
      .def_readonly("parameters", &RecordedLaunch::parameters);
  py::class_<RecordedKernels>(module, "RecordedKernels")
      .def(py::init<const std::vector<std::pair<std::string, py::object>>&>(), py::arg("fields"))
      .def("launch", &RecordedKernels::launch, py::arg("tokens"), py::arg("seqs"), py::arg("max_blocks"),
           py::arg("inputs"), py::arg("output"), py::arg("workspace"), py::arg("stream"))
      .def("same", &RecordedKernels::same);
  module.def(
      "reset_driver",
      [](const std::string& failing, std::uintptr_t context) {
        const int modules = recording.modules;
        recording = {};
        recording.modules = modules;
        recording.failing = failing;
        recording.context = context;
      },
      py::arg("failing") = "", py::arg("context") = 1);
  module.def("launches", [] { return recording.launches; });
  module.def("loaded_modules", [] { return recording.modules; });
  module.def("shared_attributes", [] { return recording.shared_attributes; });
}

}  // namespace trtc::bindings
