// The entry point of libtrtc_tensorrt*.so; cpp/src/backend/load_tensorrt.cc looks it up.
#include "tensorrt_engine.h"

// The name is that of kOpenGpuEngine.
extern "C" __attribute__((visibility("default"))) trtc::GpuEngine* trtc_open_gpu_engine_1(
    const std::string& plan_path, const trtc::engine::TensorRtManifest& manifest,
    const trtc::GpuEngineOptions& options) {
  return new trtc::tensorrt::TensorRtEngine(plan_path, manifest, options);
}
