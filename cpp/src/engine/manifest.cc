#include "engine/manifest.h"

#include <string_view>

#include "engine/json.h"
#include "engine/mapped_file.h"
#include "trtc/errors.h"

namespace trtc::engine {
namespace {

std::int32_t positive(const Json& limits, const char* name) {
  const std::int32_t value = limits.integer(name);
  if (value < 1) throw EngineError("field " + std::string(name) + " is " + std::to_string(value) + ", not positive");
  return value;
}

Manifest manifest_of(const Json& json) {
  const std::int32_t version = json.integer("schema_version");
  if (version != 1) throw EngineError("schema version " + std::to_string(version) + ", expected 1");
  Manifest manifest;
  manifest.target = json.text("target");
  const JsonArray& ranks = json.array("ranks");
  if (ranks.empty()) throw EngineError("field ranks is empty");
  manifest.ranks = static_cast<std::int32_t>(ranks.size());
  manifest.engine_hash = ranks.front().text("engine_hash");
  const Json& limits = json.at("limits");
  manifest.vocab_size = positive(limits, "vocab_size");
  manifest.max_batch_size = positive(limits, "max_batch_size");
  manifest.max_num_tokens = positive(limits, "max_num_tokens");
  manifest.max_seq_len = positive(limits, "max_seq_len");
  manifest.max_logit_rows = positive(limits, "max_logit_rows");
  manifest.tokens_per_block = positive(limits, "tokens_per_block");
  if (manifest.target != "cpu") {
    const Json& tensorrt = json.at("tensorrt");
    manifest.tensorrt = {tensorrt.text("flavour"), tensorrt.text("version"), positive(tensorrt, "sm")};
  }
  return manifest;
}

}  // namespace

Manifest read_manifest(const std::string& engine_dir) {
  const std::string path = engine_dir + "/engine.json";
  const MappedFile file(path);
  const auto bytes = file.bytes();
  try {
    return manifest_of(parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
  } catch (const EngineError& error) {
    throw EngineError(path + " is damaged (" + error.what() + "); build the engine again");
  }
}

}  // namespace trtc::engine
