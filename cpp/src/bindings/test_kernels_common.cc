#include <pybind11/functional.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/cpu_features.h"
#include "common/float_bits.h"
#include "common/thread_team.h"

namespace trtc::bindings {
namespace {

namespace py = pybind11;

// Levels that this machine has, lowest first.
std::vector<std::string> available_isas() {
  std::vector<std::string> names;
  for (int level = 0; level <= static_cast<int>(detect_isa()); ++level) {
    names.emplace_back(isa_name(static_cast<Isa>(level)));
  }
  return names;
}

// `runs` runs of `barriers` rounds each: every member publishes the round's number and, past the barrier, must read it
// from all members. Returns how often it did not.
int team_stress(ThreadTeam& team, int runs, int barriers) {
  std::atomic<int> violations{0};
  std::vector<std::int64_t> published(static_cast<std::size_t>(team.size()), -1);
  for (int run = 0; run < runs; ++run) {
    team.run([&](Slice slice) {
      for (int round = 0; round < barriers; ++round) {
        const std::int64_t number = static_cast<std::int64_t>(run) * barriers + round;
        published[static_cast<std::size_t>(slice.thread)] = number;
        team.barrier();
        for (const std::int64_t seen : published) violations += seen != number;
        team.barrier();
      }
    });
  }
  return violations;
}

// Member `failing` throws before its `at`-th barrier of `barriers`. Returns how many barriers the members passed.
std::vector<int> team_fail(ThreadTeam& team, int failing, int at, int barriers) {
  std::vector<int> passed(static_cast<std::size_t>(team.size()), 0);
  bool thrown = false;
  try {
    team.run([&](Slice slice) {
      for (int round = 0; round < barriers; ++round) {
        if (slice.thread == failing && round == at) throw std::out_of_range("member failed");
        team.barrier();
        ++passed[static_cast<std::size_t>(slice.thread)];
      }
    });
  } catch (const std::out_of_range&) {
    thrown = true;
  }
  if (!thrown) throw std::logic_error("run() did not rethrow the member's exception");
  return passed;
}

}  // namespace

void bind_test_common(py::module_& module) {
  module.def("available_isas", &available_isas);
  module.def("selected_isa", [] { return std::string(isa_name(selected_isa())); });

  module.def("f32_to_bf16", py::vectorize([](float x) { return f32_to_bf16(x); }));
  module.def("bf16_to_f32", py::vectorize([](std::uint16_t x) { return bf16_to_f32(x); }));
  module.def("f32_to_f16", py::vectorize([](float x) { return f32_to_f16(x); }));
  module.def("f16_to_f32", py::vectorize([](std::uint16_t x) { return f16_to_f32(x); }));

  const auto release = py::call_guard<py::gil_scoped_release>();
  py::class_<ThreadTeam>(module, "ThreadTeam")
      .def(py::init<int>(), py::arg("threads"))
      .def_property_readonly("size", &ThreadTeam::size)
      .def(
          "run",
          [](ThreadTeam& team, const std::function<void(int, int)>& body) {
            team.run([&](Slice slice) { body(slice.thread, slice.threads); });
          },
          py::arg("body"), release, "body(thread, threads) on every member")
      .def("barrier", &ThreadTeam::barrier, release)
      .def("stress", &team_stress, py::arg("runs"), py::arg("barriers"), release)
      .def("fail", &team_fail, py::arg("failing"), py::arg("at"), py::arg("barriers"), release);
}

}  // namespace trtc::bindings
