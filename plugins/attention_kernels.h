// The kernels of one attention shape, loaded into a CUDA context and launched step by step.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "plugins/attention_fields.h"
#include "plugins/attention_launch.h"
#include "plugins/cuda_driver.h"

namespace trtc::plugins {

// Device addresses of the plugin's inputs and outputs. cos and sin are null without rotation.
struct StepPointers {
  std::array<const void*, kNumPluginInputs> inputs{};  // in the order of Argument
  void* output = nullptr;
  void* workspace = nullptr;
};

class AttentionKernels {
 public:
  // Loads every kernel of fields.kernels into the calling thread's CUDA context. Throws EngineError for a bundle that
  // is damaged or of another shape, ExecutorError when the driver refuses a kernel.
  AttentionKernels(const CudaDriver& driver, const AttentionFields& fields);
  ~AttentionKernels();
  AttentionKernels(const AttentionKernels&) = delete;
  AttentionKernels& operator=(const AttentionKernels&) = delete;

  // Enqueues one step: writes its keys and values into the cache and its rows into pointers.output. Allocates nothing.
  // The workspace has the size of workspace_layout for these tokens or more. Throws ExecutorError.
  void launch(const StepShape& step, const StepPointers& pointers, CudaDriver::Stream stream) const;

 private:
  struct Kernel {
    CudaDriver::Module module = nullptr;
    CudaDriver::Function function = nullptr;
    unsigned threads = 0;
    unsigned shared_bytes = 0;
  };

  void load(const KernelImage& image, Kernel& kernel);
  void unload();

  const CudaDriver& driver_;
  const AttentionFields fields_;
  LaunchConstants constants_;
  std::array<Kernel, 3> kernels_;  // of roles()
};

// The kernels of these fields in the calling thread's context: layers and execution contexts of one shape share them.
// Throws as the constructor does.
std::shared_ptr<const AttentionKernels> shared_kernels(const CudaDriver& driver, const AttentionFields& fields);

}  // namespace trtc::plugins
