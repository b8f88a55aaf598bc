// Engines of any target.
#pragma once

#include <memory>
#include <string>

#include "backend/model_backend.h"

namespace trtc {

// Opens the engine with the backend of its target; num_threads is the CPU backend's. Throws EngineError or
// ExecutorError.
std::unique_ptr<ModelBackend> load_engine(const std::string& engine_dir, int num_threads);

}  // namespace trtc
