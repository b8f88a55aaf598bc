// A step's inputs against the limits of the model: what keeps a caller's bug from becoming a wild memory access.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/model_backend.h"

namespace trtc {

// Throws ExecutorError naming the first input that is out of range. num_blocks: size of the KV pool.
void check_step(const StepInputs& inputs, std::size_t logits_size, const ModelInfo& info, std::int32_t num_blocks);

}  // namespace trtc
