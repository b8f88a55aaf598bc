#include "plugins/cuda_driver.h"

#include <dlfcn.h>

#include <string>

#include "trtc/errors.h"

namespace trtc::plugins {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";

template <typename Function>
void look_up(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  if (function == nullptr) {
    throw ExecutorError(std::string(kLibrary) + " has no " + name + "; install a newer NVIDIA driver");
  }
}

CudaDriver load_driver() {
  void* library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw ExecutorError(std::string("this machine has no NVIDIA driver (") + kLibrary +
                        " cannot be opened); install one, or build the engine with target cpu");
  }
  CudaDriver driver;
  look_up(library, "cuCtxGetCurrent", driver.get_current_context);
  look_up(library, "cuModuleLoadData", driver.load_module);
  look_up(library, "cuModuleUnload", driver.unload_module);
  look_up(library, "cuModuleGetFunction", driver.get_function);
  look_up(library, "cuFuncSetAttribute", driver.set_function_attribute);
  look_up(library, "cuLaunchKernel", driver.launch_kernel);
  look_up(library, "cuGetErrorName", driver.get_error_name);
  return driver;
}

}  // namespace

void CudaDriver::check(int result, const char* action) const {
  if (result == 0) return;
  const char* name = nullptr;
  if (get_error_name(result, &name) != 0 || name == nullptr) name = "unknown error";
  throw ExecutorError(std::string(action) + " failed: " + name + " (CUDA error " + std::to_string(result) + ")");
}

const CudaDriver& cuda_driver() {
  static const CudaDriver driver = load_driver();
  return driver;
}

}  // namespace trtc::plugins
