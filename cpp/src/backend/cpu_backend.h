// The CPU backend: runs the kernel-call plan of an engine's rank file, whose weights stay in the mapped file.
#pragma once

#include <memory>
#include <string>

#include "backend/model_backend.h"

namespace trtc {

// Maps <engine_dir>/rank0.engine and checks its plan; reads no weights. num_threads 0: one per usable core.
// Kernels are those of selected_isa(). Throws EngineError, or ExecutorError when the activations do not fit in memory.
std::unique_ptr<ModelBackend> load_cpu_engine(const std::string& engine_dir, int num_threads);

}  // namespace trtc
