// Reads the plan of a rank file and checks every field that memory safety rests on: section and string bounds, blob
// ranges, operand kinds and arena bounds. What a call means (shapes that must agree) is checked by the backend.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/plan_format.h"

namespace trtc::engine {

struct Plan {
  std::string path;         // for messages
  std::string engine_hash;  // hex
  ModelRecord model;
  std::vector<KvLayerRecord> kv_layers;
  std::vector<WeightRecord> weights;
  std::vector<CallRecord> calls;
  std::string_view strings;  // inside the file

  std::string_view name(std::uint32_t offset) const { return strings.data() + offset; }

  // Throws EngineError: "<path>: <problem>; build the engine again".
  [[noreturn]] void fail(const std::string& problem) const;
  // The same, about one call or weight.
  [[noreturn]] void fail(const CallRecord& call, const std::string& problem) const;
  [[noreturn]] void fail(const WeightRecord& weight, const std::string& problem) const;
};

// `file` holds the whole file and must outlive the plan; `path` is for messages. Throws EngineError.
Plan read_plan(std::span<const std::byte> file, const std::string& path);

}  // namespace trtc::engine
