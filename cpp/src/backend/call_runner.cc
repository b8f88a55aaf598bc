#include "backend/call_runner.h"

#include "backend/plan_check.h"

namespace trtc {

using engine::CallRecord;
using engine::Op;
using engine::OperandKind;
using engine::OperandRecord;

// A call's operands as pointers, for one step.
struct CallRunner::Operands {
  const CallRunner& runner;
  const CallRecord& call;
  const Step& step;

  std::int64_t rows() const {
    const bool tokens = call.rows == static_cast<std::uint32_t>(engine::Rows::kTokens);
    return static_cast<std::int64_t>(tokens ? step.inputs.input_ids.size() : step.inputs.logit_rows.size());
  }

  const OperandRecord& record(std::uint32_t slot) const { return call.operands[slot]; }
  std::int64_t cols(std::uint32_t slot) const { return record(slot).cols; }
  std::int64_t stride(std::uint32_t slot) const { return record(slot).row_stride; }

  // Null when the slot is absent. Read-only for weights.
  template <typename T>
  const T* input(std::uint32_t slot) const {
    const OperandRecord& operand = record(slot);
    if (operand.kind == static_cast<std::uint32_t>(OperandKind::kWeight)) {
      return reinterpret_cast<const T*>(runner.memory_.file + runner.plan_.weights[operand.index].offset);
    }
    return output<T>(slot);
  }

  template <typename T>
  T* output(std::uint32_t slot) const {
    const OperandRecord& operand = record(slot);
    if (operand.kind == static_cast<std::uint32_t>(OperandKind::kNone)) return nullptr;
    if (operand.kind == static_cast<std::uint32_t>(OperandKind::kLogits)) return reinterpret_cast<T*>(step.logits);
    return reinterpret_cast<T*>(runner.memory_.arena + operand.offset);
  }

  const std::int32_t* ids(std::uint32_t slot) const {
    switch (static_cast<engine::StepInput>(record(slot).index)) {
      case engine::StepInput::kInputIds:
        return step.inputs.input_ids.data();
      case engine::StepInput::kPositionIds:
        return step.inputs.position_ids.data();
      case engine::StepInput::kLogitRows:
        return step.inputs.logit_rows.data();
    }
    return nullptr;
  }

  kernels::PackedWeight packed(std::uint32_t slot) const {
    return packed_weight(runner.plan_.weights[record(slot).index], runner.memory_.file);
  }

  kernels::RaggedRows ragged() const {
    const StepInputs& inputs = step.inputs;
    return {static_cast<std::int64_t>(inputs.context_lens.size()), inputs.query_start.data(),
            inputs.context_lens.data(), inputs.block_table.data(), inputs.max_blocks};
  }

  const kernels::KvPool& pool(std::int32_t layer) const {
    return runner.memory_.kv_pools[static_cast<std::size_t>(layer)];
  }
};

void CallRunner::run(const CallRecord& call, const Step& step, Slice slice) const {
  const Operands operands{*this, call, step};
  if (operands.rows() == 0) return;
  switch (static_cast<Op>(call.op)) {
    case Op::kEmbedding:
      return run_embedding(operands, slice);
    case Op::kGatherRows:
      return run_gather_rows(operands, slice);
    case Op::kRmsNorm:
    case Op::kLayerNorm:
      return run_norm(operands, slice);
    case Op::kQuantizeRows:
      return run_quantize_rows(operands, slice);
    case Op::kLinear:
      return run_linear(operands, slice);
    case Op::kRotary:
      return run_rotary(operands, slice);
    case Op::kGatedActivation:
      return run_gated_activation(operands, slice);
    case Op::kActivation:
      return run_activation(operands, slice);
    case Op::kAdd:
    case Op::kMul:
      return run_binary(operands, slice);
    case Op::kScale:
      return run_scale(operands, slice);
    case Op::kKvWrite:
      return run_kv_write(operands, slice);
    case Op::kAttention:
      return run_attention(operands, slice);
  }
}

void CallRunner::run_embedding(const Operands& o, Slice slice) const {
  namespace slot = engine::embedding;
  kernels::EmbeddingArgs args{};
  args.rows = o.rows();
  args.ids = o.ids(slot::kIds);
  args.weight = o.packed(slot::kTable);
  args.y = o.output<float>(slot::kY);
  args.y_stride = o.stride(slot::kY);
  kernels_.embedding(args, slice);
}

void CallRunner::run_gather_rows(const Operands& o, Slice slice) const {
  namespace slot = engine::gather_rows;
  kernels::GatherRowsArgs args{};
  args.rows = o.rows();
  args.cols = o.cols(slot::kY);
  args.row_ids = o.ids(slot::kIds);
  args.x = o.input<float>(slot::kX);
  args.x_stride = o.stride(slot::kX);
  args.y = o.output<float>(slot::kY);
  args.y_stride = o.stride(slot::kY);
  kernels_.gather_rows(args, slice);
}

void CallRunner::run_norm(const Operands& o, Slice slice) const {
  namespace slot = engine::rms_norm;
  kernels::NormArgs args{};
  args.rows = o.rows();
  args.groups = o.call.ints[slot::kGroups];
  args.cols = o.cols(slot::kScale);
  args.x = o.input<float>(slot::kX);
  args.x_stride = o.stride(slot::kX);
  args.residual = o.input<float>(slot::kResidual);
  args.residual_stride = o.stride(slot::kResidual);
  args.sum = o.output<float>(slot::kSum);
  args.sum_stride = o.stride(slot::kSum);
  args.scale = o.input<float>(slot::kScale);
  args.bias = o.input<float>(slot::kBias);
  args.epsilon = o.call.floats[slot::kEpsilon];
  args.y = o.output<float>(slot::kY);
  args.y_stride = o.stride(slot::kY);
  const bool rms = o.call.op == static_cast<std::uint32_t>(Op::kRmsNorm);
  (rms ? kernels_.rms_norm : kernels_.layer_norm)(args, slice);
}

void CallRunner::run_quantize_rows(const Operands& o, Slice slice) const {
  namespace slot = engine::quantize_rows;
  kernels::QuantizeRowsArgs args{};
  args.rows = o.rows();
  args.k = o.cols(slot::kX);
  args.group = o.call.ints[slot::kGroup];
  args.x = o.input<float>(slot::kX);
  args.x_stride = o.stride(slot::kX);
  args.data = o.output<std::int8_t>(slot::kY);
  args.stride = o.stride(slot::kY);
  args.scales = o.output<float>(slot::kScales);
  args.scale_stride = o.stride(slot::kScales);
  kernels_.quantize_rows(args, slice);
}

void CallRunner::run_linear(const Operands& o, Slice slice) const {
  namespace slot = engine::linear;
  kernels::LinearArgs args{};
  args.rows = o.rows();
  args.x = o.input<float>(slot::kX);
  args.x_stride = o.stride(slot::kX);
  args.quantized = {o.input<std::int8_t>(slot::kQ), o.stride(slot::kQ), o.input<float>(slot::kQScales),
                    o.stride(slot::kQScales)};
  args.weight = o.packed(slot::kWeight);
  args.bias = o.input<float>(slot::kBias);
  args.y = o.output<float>(slot::kY);
  args.y_stride = o.stride(slot::kY);
  kernels_.linear(args, slice);
}

void CallRunner::run_rotary(const Operands& o, Slice slice) const {
  namespace slot = engine::rotary;
  kernels::RotaryArgs args{};
  args.rows = o.rows();
  args.heads = o.call.ints[slot::kHeads];
  args.head_dim = o.call.ints[slot::kHeadDim];
  args.rotary_dim = o.call.ints[slot::kRotaryDim];
  args.position_ids = o.ids(slot::kPositionIds);
  args.cos = o.input<float>(slot::kCos);
  args.sin = o.input<float>(slot::kSin);
  args.x = o.input<float>(slot::kX);
  args.x_stride = o.stride(slot::kX);
  args.y = o.output<float>(slot::kY);
  args.y_stride = o.stride(slot::kY);
  kernels_.rotary(args, slice);
}

void CallRunner::run_gated_activation(const Operands& o, Slice slice) const {
  namespace slot = engine::gated_activation;
  kernels::GatedActivationArgs args{};
  args.rows = o.rows();
  args.cols = o.cols(slot::kY);
  args.activation = static_cast<kernels::Activation>(o.call.ints[slot::kActivation]);
  args.x = o.input<float>(slot::kX);
  args.x_stride = o.stride(slot::kX);
  args.y = o.output<float>(slot::kY);
  args.y_stride = o.stride(slot::kY);
  kernels_.gated_activation(args, slice);
}

void CallRunner::run_activation(const Operands& o, Slice slice) const {
  namespace slot = engine::activation;
  kernels::ActivationArgs args{};
  args.rows = o.rows();
  args.cols = o.cols(slot::kY);
  args.activation = static_cast<kernels::Activation>(o.call.ints[slot::kActivation]);
  args.x = o.input<float>(slot::kX);
  args.x_stride = o.stride(slot::kX);
  args.y = o.output<float>(slot::kY);
  args.y_stride = o.stride(slot::kY);
  kernels_.activation(args, slice);
}

void CallRunner::run_binary(const Operands& o, Slice slice) const {
  namespace slot = engine::add;
  kernels::AddArgs args{};
  args.rows = o.rows();
  args.cols = o.cols(slot::kY);
  args.a = o.input<float>(slot::kA);
  args.a_stride = o.stride(slot::kA);
  args.b = o.input<float>(slot::kB);
  args.b_stride = o.stride(slot::kB);
  args.y = o.output<float>(slot::kY);
  args.y_stride = o.stride(slot::kY);
  const bool add = o.call.op == static_cast<std::uint32_t>(Op::kAdd);
  (add ? kernels_.add : kernels_.mul)(args, slice);
}

void CallRunner::run_scale(const Operands& o, Slice slice) const {
  namespace slot = engine::scale;
  kernels::ScaleArgs args{};
  args.rows = o.rows();
  args.cols = o.cols(slot::kY);
  args.factor = o.call.floats[slot::kFactor];
  args.x = o.input<float>(slot::kX);
  args.x_stride = o.stride(slot::kX);
  args.y = o.output<float>(slot::kY);
  args.y_stride = o.stride(slot::kY);
  kernels_.scale(args, slice);
}

void CallRunner::run_kv_write(const Operands& o, Slice slice) const {
  namespace slot = engine::kv_write;
  kernels::KvWriteArgs args{};
  args.ragged = o.ragged();
  args.pool = o.pool(o.call.ints[slot::kLayer]);
  args.key = o.input<float>(slot::kKey);
  args.key_stride = o.stride(slot::kKey);
  args.value = o.input<float>(slot::kValue);
  args.value_stride = o.stride(slot::kValue);
  kernels_.kv_write(args, slice);
}

void CallRunner::run_attention(const Operands& o, Slice slice) const {
  namespace slot = engine::attention;
  kernels::PagedAttentionArgs args{};
  args.ragged = o.ragged();
  args.pool = o.pool(o.call.ints[slot::kLayer]);
  args.heads = o.call.ints[slot::kHeads];
  args.scale = o.call.floats[slot::kScale];
  args.window = o.call.ints[slot::kWindow];
  args.softcap = o.call.floats[slot::kSoftcap];
  args.query = o.input<float>(slot::kQuery);
  args.query_stride = o.stride(slot::kQuery);
  args.y = o.output<float>(slot::kY);
  args.y_stride = o.stride(slot::kY);
  kernels_.paged_attention(args, slice);
}

}  // namespace trtc
