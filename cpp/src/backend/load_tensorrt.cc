// Finds the library that runs TensorRT plans: it lies beside this one, where the build found TensorRT.
#include <dlfcn.h>
#include <unistd.h>

#include <string>

#include "backend/tensorrt_backend.h"
#include "trtc/errors.h"

namespace trtc {
namespace {

// The folder of the library or program that this code is part of.
std::string own_folder() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&own_folder), &info) == 0 || info.dli_fname == nullptr) return ".";
  const std::string path = info.dli_fname;
  const auto slash = path.find_last_of('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

struct Runtime {
  const char* flavour;
  const char* library;
};
constexpr Runtime kRuntimes[] = {{"tensorrt", "libtrtc_tensorrt.so"}, {"tensorrt-rtx", "libtrtc_tensorrt_rtx.so"}};

std::string library_path(const Runtime& runtime) { return own_folder() + "/" + runtime.library; }

std::string library_path(const std::string& flavour) {
  for (const Runtime& runtime : kRuntimes) {
    if (flavour == runtime.flavour) return library_path(runtime);
  }
  throw EngineError("the engine was built with " + flavour + ", which this version of trtc does not know");
}

}  // namespace

std::vector<std::string> tensorrt_runtimes() {
  std::vector<std::string> flavours;
  for (const Runtime& runtime : kRuntimes) {
    if (::access(library_path(runtime).c_str(), R_OK) == 0) flavours.emplace_back(runtime.flavour);
  }
  return flavours;
}

std::unique_ptr<ModelBackend> load_tensorrt_engine(const std::string& engine_dir, const engine::Manifest& manifest,
                                                   const GpuEngineOptions& options) {
  if (manifest.ranks != 1) {
    throw EngineError(engine_dir + " has " + std::to_string(manifest.ranks) +
                      " ranks; this version of trtc runs engines of one rank");
  }
  const std::string path = library_path(manifest.tensorrt->flavour);
  // Never closed: its code must outlive every engine.
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw EngineError(engine_dir + " is an engine of target " + manifest.target + ", and " + ::dlerror() +
                      "; install trtc where CMake finds TensorRT and CUDA (docs/tensorrt_runtime.md)");
  }
  const auto open = reinterpret_cast<OpenGpuEngine*>(::dlsym(library, kOpenGpuEngine));
  if (open == nullptr) throw EngineError(path + " is of another version of trtc; build it again");
  return make_tensorrt_backend(
      std::unique_ptr<GpuEngine>(open(engine_dir + "/rank0.engine", *manifest.tensorrt, options)), manifest);
}

}  // namespace trtc
