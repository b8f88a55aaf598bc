// What a deserialized plan says of its bindings and profiles.
#pragma once

#include <NvInferRuntime.h>

#include "backend/gpu_engine.h"

namespace trtc::tensorrt {

// Throws EngineError naming the binding that is missing or has another type or rank than a step's.
GpuEngineFacts plan_facts(const nvinfer1::ICudaEngine& engine);

// kv_cache.<layer>, and the output that aliases it.
std::string kv_cache_name(std::size_t layer);
std::string kv_cache_out_name(std::size_t layer);

}  // namespace trtc::tensorrt
