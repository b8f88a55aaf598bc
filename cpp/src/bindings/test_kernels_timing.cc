// Timing of linear kernels inside the process, for scripts/bench/linear_kernels.py.
#include <chrono>
#include <cstddef>
#include <vector>

#include "bindings/test_arrays.h"
#include "bindings/test_weight.h"

namespace trtc::bindings {
namespace {

namespace py = pybind11;
using kernels::KernelTable;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Calls body(slice, repetition) on every member, a barrier after each repetition. Returns the fastest one's seconds.
template <class Body>
double fastest(int threads, int repetitions, const Body& body) {
  double best = 0.0;
  const py::gil_scoped_release release;
  ThreadTeam team(threads);
  team.run([&](Slice slice) {
    for (int repetition = 0; repetition < repetitions; ++repetition) {
      team.barrier();
      const auto start = Clock::now();
      body(slice, repetition);
      team.barrier();
      const double seconds = seconds_since(start);
      if (slice.thread == 0 && (repetition == 0 || seconds < best)) best = seconds;
    }
  });
  return best;
}

kernels::KernelTable table_of(const std::string& isa) {
  for (const Isa level : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16}) {
    if (isa_name(level) == isa) return kernels::kernel_table(level);
  }
  throw std::invalid_argument("unknown level " + isa);
}

// Seconds of a call.
double time_linear(const std::string& isa, const TestWeight& weight, int copies, int rows, bool int8_activations,
                   int threads, int repetitions) {
  const kernels::PackedWeight& view = weight.view();
  const auto layout = kernels::packed_layout(view.format, view.n, view.k, view.group);
  std::vector<TestWeight> weights;  // cycled through, so that none is in a cache
  for (int i = 0; i < copies; ++i) weights.emplace_back(weight);
  const auto count = static_cast<std::size_t>(rows);
  std::vector<float> x(count * static_cast<std::size_t>(view.k), 0.5f), y(count * static_cast<std::size_t>(view.n));
  std::vector<std::int8_t> q(count * static_cast<std::size_t>(layout.k_padded));
  std::vector<float> scales(count * static_cast<std::size_t>(layout.groups));
  const kernels::QuantizedRows quantized = {q.data(), layout.k_padded, scales.data(), layout.groups};
  const KernelTable table = table_of(isa);
  return fastest(threads, repetitions, [&](Slice slice, int repetition) {
    kernels::LinearArgs args{};
    args.rows = rows;
    args.x = int8_activations ? nullptr : x.data();
    args.x_stride = view.k;
    if (int8_activations) args.quantized = quantized;
    args.weight = weights[static_cast<std::size_t>(repetition % copies)].view();
    args.y = y.data();
    args.y_stride = view.n;
    table.linear(args, slice);
  });
}

// Seconds to read `bytes` that are in no cache, all members together, each in 4 streams. Short calls, like those of
// time_linear, so that a busy machine disturbs both alike.
double time_reading(std::int64_t bytes, int copies, int threads, int repetitions) {
  constexpr std::int64_t kStreams = 4;
  const std::int64_t words = bytes / 8;
  const std::vector<std::uint64_t> memory(static_cast<std::size_t>(words * copies), 1);
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(threads) * 8);  // a cache line each: nothing is shared
  return fastest(threads, repetitions, [&](Slice slice, int repetition) {
    const auto range = slice.of(words);
    const std::int64_t length = (range.end - range.begin) / kStreams;
    const std::uint64_t* start = memory.data() + repetition % copies * words + range.begin;
    std::uint64_t streams[kStreams] = {};
    for (std::int64_t i = 0; i < length; i += 8) {  // one element brings in its cache line
      for (std::int64_t stream = 0; stream < kStreams; ++stream) streams[stream] += start[stream * length + i];
    }
    for (const std::uint64_t sum : streams) sums[static_cast<std::size_t>(slice.thread) * 8] += sum;
  });
}

}  // namespace

void bind_test_timing(py::module_& module) {
  module.def("time_linear", &time_linear, py::arg("isa"), py::arg("weight"), py::kw_only(), py::arg("copies"),
             py::arg("rows"), py::arg("int8_activations"), py::arg("threads"), py::arg("repetitions"));
  module.def("time_reading", &time_reading, py::kw_only(), py::arg("bytes"), py::arg("copies"), py::arg("threads"),
             py::arg("repetitions"));
}

}  // namespace trtc::bindings
