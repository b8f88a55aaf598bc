// Generated from trtc/graph/contract.py by `python -m trtc.engine.generate_header`; do not edit.
// The names of a step's bindings.
#pragma once

#include <array>

// clang-format off
namespace trtc::engine {

// int32 inputs of every step, in the order of StepInputs.
constexpr std::array<const char*, 6> kStepInputNames{{
    "input_ids",  // [tokens]
    "position_ids",  // [tokens]
    "query_start",  // [seqs + 1]
    "context_lens",  // [seqs]
    "block_table",  // [seqs, max_blocks]
    "logit_rows",  // [logit_rows]
}};
constexpr const char* kLogitsName = "logits";
constexpr const char* kKvCachePrefix = "kv_cache.";  // then the layer's number
constexpr const char* kKvCacheOutSuffix = ".out";  // of the output that aliases a layer's cache

}  // namespace trtc::engine
// clang-format on
