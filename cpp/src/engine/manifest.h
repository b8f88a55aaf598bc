// What C++ needs of engine.json (trtc/engine/manifest.py), for engines whose rank file is not trtc's own format.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trtc::engine {

// What a TensorRT plan was built with and for.
struct TensorRtManifest {
  std::string flavour;  // "tensorrt" or "tensorrt-rtx"
  std::string version;  // of TensorRT
  std::int32_t sm = 0;
};

struct Manifest {
  std::string target;
  std::int32_t ranks = 0;
  std::string engine_hash;  // of rank 0
  std::int32_t vocab_size = 0;
  std::int32_t max_batch_size = 0;
  std::int32_t max_num_tokens = 0;
  std::int32_t max_seq_len = 0;
  std::int32_t max_logit_rows = 0;
  std::int32_t tokens_per_block = 0;
  std::optional<TensorRtManifest> tensorrt;
};

// Throws EngineError when the directory has no engine.json, or it lacks a field or is damaged. The checksum and the
// fields that C++ does not need are left to the tools in Python.
Manifest read_manifest(const std::string& engine_dir);

}  // namespace trtc::engine
