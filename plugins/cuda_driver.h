// The few functions of the CUDA driver that launch kernels, looked up in libcuda when first needed: a library with the
// plugin loads on machines without a GPU, and tests put functions of their own in this table.
#pragma once

#include <cstddef>

namespace trtc::plugins {

// As in cuda.h, whose binary interface is stable: handles are pointers, results and attributes ints.
struct CudaDriver {
  using Context = void*;
  using Module = void*;
  using Function = void*;
  using Stream = void*;

  static constexpr int kMaxDynamicSharedSizeBytes = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

  int (*get_current_context)(Context* context) = nullptr;                                // cuCtxGetCurrent
  int (*load_module)(Module* module, const void* image) = nullptr;                       // cuModuleLoadData
  int (*unload_module)(Module module) = nullptr;                                         // cuModuleUnload
  int (*get_function)(Function* function, Module module, const char* name) = nullptr;    // cuModuleGetFunction
  int (*set_function_attribute)(Function function, int attribute, int value) = nullptr;  // cuFuncSetAttribute
  int (*launch_kernel)(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                       unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream stream, void** parameters,
                       void** extra) = nullptr;                    // cuLaunchKernel
  int (*get_error_name)(int result, const char** name) = nullptr;  // cuGetErrorName

  // Throws ExecutorError saying what was tried when `result` is no success.
  void check(int result, const char* action) const;
};

// The driver of this machine. Throws ExecutorError when it has none.
const CudaDriver& cuda_driver();

}  // namespace trtc::plugins
