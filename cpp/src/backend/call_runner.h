// Turns call records into kernel arguments and runs them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/model_backend.h"
#include "common/slice.h"
#include "engine/plan_reader.h"
#include "kernels/kernel_table.h"

namespace trtc {

// Where a plan's operands lie. The weights belong to the mapped file, the rest to the backend.
struct CallMemory {
  const std::byte* file = nullptr;
  std::byte* arena = nullptr;
  std::vector<kernels::KvPool> kv_pools;  // by layer
};

// The part of a step that changes from one to the next.
struct Step {
  const StepInputs& inputs;
  float* logits;
};

class CallRunner {
 public:
  // The references must outlive the runner; the plan has passed check_calls.
  CallRunner(const engine::Plan& plan, const CallMemory& memory, const kernels::KernelTable& kernels)
      : plan_(plan), memory_(memory), kernels_(kernels) {}

  // This thread's share of one call. Allocates nothing.
  void run(const engine::CallRecord& call, const Step& step, Slice slice) const;

 private:
  struct Operands;

  void run_embedding(const Operands& operands, Slice slice) const;
  void run_gather_rows(const Operands& operands, Slice slice) const;
  void run_norm(const Operands& operands, Slice slice) const;
  void run_quantize_rows(const Operands& operands, Slice slice) const;
  void run_linear(const Operands& operands, Slice slice) const;
  void run_rotary(const Operands& operands, Slice slice) const;
  void run_gated_activation(const Operands& operands, Slice slice) const;
  void run_activation(const Operands& operands, Slice slice) const;
  void run_binary(const Operands& operands, Slice slice) const;
  void run_scale(const Operands& operands, Slice slice) const;
  void run_kv_write(const Operands& operands, Slice slice) const;
  void run_attention(const Operands& operands, Slice slice) const;

  const engine::Plan& plan_;
  const CallMemory& memory_;
  const kernels::KernelTable& kernels_;
};

}  // namespace trtc
