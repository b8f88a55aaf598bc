// The TensorRT backend: steps of a plan on one GPU. What it does on the device goes through GpuEngine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/gpu_engine.h"
#include "backend/model_backend.h"
#include "engine/manifest.h"

namespace trtc {

// The flavours whose runtime this build of trtc has: "tensorrt", "tensorrt-rtx". Opens nothing.
std::vector<std::string> tensorrt_runtimes();

// Throws EngineError when the plan and the manifest beside it contradict each other.
std::unique_ptr<ModelBackend> make_tensorrt_backend(std::unique_ptr<GpuEngine> gpu, const engine::Manifest& manifest);

// Opens <engine_dir>/rank0.engine with the library of the manifest's flavour, which this build of
// trtc may lack. Throws EngineError, or ExecutorError when the device is missing or refuses.
std::unique_ptr<ModelBackend> load_tensorrt_engine(const std::string& engine_dir, const engine::Manifest& manifest,
                                                   const GpuEngineOptions& options);

}  // namespace trtc
