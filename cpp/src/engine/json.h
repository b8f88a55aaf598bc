// A reader of JSON (RFC 8259) for the few fields of engine.json that C++ needs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace trtc::engine {

class Json;
using JsonArray = std::vector<Json>;
using JsonObject = std::map<std::string, Json, std::less<>>;

class Json {
 public:
  using Value = std::variant<std::nullptr_t, bool, double, std::string, JsonArray, JsonObject>;

  Json() = default;
  explicit Json(Value value) : value_(std::move(value)) {}

  const Value& value() const { return value_; }

  // Throw EngineError naming the field that is missing or of another type. A number must be an int32.
  const Json& at(std::string_view name) const;
  const std::string& text(std::string_view name) const;
  std::int32_t integer(std::string_view name) const;
  const JsonArray& array(std::string_view name) const;

 private:
  Value value_;
};

// Throws EngineError saying at which byte `text` is no JSON: also for what nests deeper than 64 or repeats a name.
Json parse_json(std::string_view text);

}  // namespace trtc::engine
