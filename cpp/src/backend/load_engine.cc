#include "backend/load_engine.h"

#include <unistd.h>

#include <cstring>

#include "backend/cpu_backend.h"
#include "backend/tensorrt_backend.h"
#include "engine/manifest.h"
#include "engine/mapped_file.h"
#include "engine/plan_format.h"

namespace trtc {
namespace {

bool has_cpu_plan(const std::string& path) {
  const engine::MappedFile file(path);
  const auto bytes = file.bytes();
  return bytes.size() >= engine::kMagic.size() &&
         std::memcmp(bytes.data(), engine::kMagic.data(), engine::kMagic.size()) == 0;
}

}  // namespace

std::unique_ptr<ModelBackend> load_engine(const std::string& engine_dir, int num_threads) {
  const bool has_manifest = ::access((engine_dir + "/engine.json").c_str(), F_OK) == 0;
  if (has_manifest && !has_cpu_plan(engine_dir + "/rank0.engine")) {
    const engine::Manifest manifest = engine::read_manifest(engine_dir);
    if (manifest.tensorrt) return load_tensorrt_engine(engine_dir, manifest, GpuEngineOptions{});
  }
  return load_cpu_engine(engine_dir, num_threads);  // which says what is wrong with a file of no known form
}

}  // namespace trtc
