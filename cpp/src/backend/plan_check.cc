#include "backend/plan_check.h"

#include <cstdint>
#include <string>

#include "engine/plan_format.h"
#include "kernels/elementwise.h"
#include "kernels/paged_attention.h"

namespace trtc {
namespace {

using engine::BlobFormat;
using engine::CallRecord;
using engine::Op;
using engine::OperandKind;
using engine::OperandRecord;
using engine::StepInput;
using engine::WeightRecord;

template <typename A, typename B>
constexpr bool same(A a, B b) {
  return static_cast<std::uint32_t>(a) == static_cast<std::uint32_t>(b);
}

// The file's codes are the kernels' own.
static_assert(same(BlobFormat::kPackedF32, kernels::WeightFormat::kF32));
static_assert(same(BlobFormat::kPackedBf16, kernels::WeightFormat::kBf16));
static_assert(same(BlobFormat::kPackedI8, kernels::WeightFormat::kI8));
static_assert(same(BlobFormat::kPackedI4, kernels::WeightFormat::kI4));
static_assert(same(engine::KvStorage::kF32, kernels::KvDtype::kF32));
static_assert(same(engine::KvStorage::kBf16, kernels::KvDtype::kBf16));
static_assert(same(engine::ActivationKind::kSilu, kernels::Activation::kSilu));
static_assert(same(engine::ActivationKind::kGelu, kernels::Activation::kGelu));
static_assert(same(engine::ActivationKind::kGeluTanh, kernels::Activation::kGeluTanh));
static_assert(same(engine::ActivationKind::kTanh, kernels::Activation::kTanh));

bool is_packed(const WeightRecord& weight) { return !same(weight.format, BlobFormat::kRowsF32); }

// Checks the calls of one plan; `require` throws with the call's name.
class CallChecker {
 public:
  CallChecker(const engine::Plan& plan, const CallRecord& call) : plan_(plan), call_(call) {}

  void check() const {
    switch (static_cast<Op>(call_.op)) {
      case Op::kEmbedding:
        return embedding();
      case Op::kGatherRows:
        return gather_rows();
      case Op::kRmsNorm:
        return norm(/*takes_bias=*/false);
      case Op::kLayerNorm:
        return norm(/*takes_bias=*/true);
      case Op::kQuantizeRows:
        return quantize_rows();
      case Op::kLinear:
        return linear();
      case Op::kRotary:
        return rotary();
      case Op::kGatedActivation:
        return gated_activation();
      case Op::kActivation:
        return activation();
      case Op::kAdd:
      case Op::kMul:
        return binary();
      case Op::kScale:
        return require(cols(engine::scale::kX) == cols(engine::scale::kY), "columns");
      case Op::kKvWrite:
        return kv_write();
      case Op::kAttention:
        return attention();
    }
  }

 private:
  void require(bool condition, const char* what) const {
    if (!condition) plan_.fail(call_, std::string("has inconsistent ") + what);
  }

  const OperandRecord& operand(std::uint32_t slot) const { return call_.operands[slot]; }
  bool present(std::uint32_t slot) const { return !same(operand(slot).kind, OperandKind::kNone); }
  bool is_weight(std::uint32_t slot) const { return same(operand(slot).kind, OperandKind::kWeight); }
  std::int64_t cols(std::uint32_t slot) const { return operand(slot).cols; }
  const WeightRecord& weight(std::uint32_t slot) const { return plan_.weights[operand(slot).index]; }
  bool reads(std::uint32_t slot, StepInput input) const { return same(operand(slot).index, input); }
  bool per_token() const { return same(call_.rows, engine::Rows::kTokens); }

  // A float32 table of that many columns.
  bool is_table(std::uint32_t slot, std::int64_t columns, std::int64_t min_rows) const {
    const WeightRecord& table = weight(slot);
    return !is_packed(table) && static_cast<std::int64_t>(table.k) == columns &&
           static_cast<std::int64_t>(table.n) >= min_rows;
  }

  // One float32 row of that many columns.
  bool is_row(std::uint32_t slot, std::int64_t columns) const {
    return is_table(slot, columns, 1) && weight(slot).n == 1;
  }

  void embedding() const {
    namespace slot = engine::embedding;
    const WeightRecord& table = weight(slot::kTable);
    require(reads(slot::kIds, StepInput::kInputIds), "ids");
    require(is_packed(table) && static_cast<std::int64_t>(table.n) >= plan_.model.vocab_size, "table");
    require(static_cast<std::int64_t>(table.k) == cols(slot::kY), "columns");
  }

  void gather_rows() const {
    namespace slot = engine::gather_rows;
    require(cols(slot::kX) == cols(slot::kY), "columns");
    if (is_weight(slot::kX)) {
      require(reads(slot::kIds, StepInput::kPositionIds), "ids");
      require(is_table(slot::kX, cols(slot::kY), plan_.model.max_seq_len), "table");
    } else {
      require(reads(slot::kIds, StepInput::kLogitRows), "ids");
    }
  }

  void norm(bool takes_bias) const {
    namespace slot = engine::rms_norm;  // layer_norm's slots are the same
    const std::int64_t groups = call_.ints[slot::kGroups];
    const std::int64_t width = weight(slot::kScale).k;
    require(groups >= 1 && groups * width == cols(slot::kX), "groups");
    require(cols(slot::kY) == cols(slot::kX), "columns");
    require(is_row(slot::kScale, width), "scale");
    require(!present(slot::kBias) || (takes_bias && is_row(slot::kBias, width)), "bias");
    require(present(slot::kResidual) == present(slot::kSum), "residual");
    if (present(slot::kResidual)) {
      require(cols(slot::kResidual) == cols(slot::kX) && cols(slot::kSum) == cols(slot::kX), "residual");
    }
    require(call_.floats[slot::kEpsilon] >= 0.0f, "epsilon");
  }

  void quantize_rows() const {
    namespace slot = engine::quantize_rows;
    const std::int64_t group = call_.ints[slot::kGroup];
    require(group == 32 || group == 64 || group == 128, "group size");
    const std::int64_t groups = (cols(slot::kX) + group - 1) / group;
    require(cols(slot::kY) == groups * group && cols(slot::kScales) == groups, "columns");
  }

  void linear() const {
    namespace slot = engine::linear;
    const WeightRecord& matrix = weight(slot::kWeight);
    const auto n = static_cast<std::int64_t>(matrix.n);
    const auto k = static_cast<std::int64_t>(matrix.k);
    require(is_packed(matrix), "weight");
    require(present(slot::kX) != present(slot::kQ) && present(slot::kQ) == present(slot::kQScales), "input");
    if (present(slot::kX)) {
      require(cols(slot::kX) == k, "columns");
    } else {
      require(matrix.group != 0, "weight");
      const std::int64_t groups = (k + matrix.group - 1) / matrix.group;
      require(cols(slot::kQ) == groups * matrix.group && cols(slot::kQScales) == groups, "columns");
    }
    require(!present(slot::kBias) || is_row(slot::kBias, n), "bias");
    require(cols(slot::kY) == n, "columns");
  }

  void rotary() const {
    namespace slot = engine::rotary;
    const std::int64_t heads = call_.ints[slot::kHeads];
    const std::int64_t head_dim = call_.ints[slot::kHeadDim];
    const std::int64_t rotary_dim = call_.ints[slot::kRotaryDim];
    require(heads >= 1 && head_dim >= 1 && heads * head_dim == cols(slot::kX), "heads");
    require(rotary_dim >= 2 && rotary_dim % 2 == 0 && rotary_dim <= head_dim, "rotary dimension");
    require(reads(slot::kPositionIds, StepInput::kPositionIds), "positions");
    require(cols(slot::kY) == cols(slot::kX), "columns");
    require(is_table(slot::kCos, rotary_dim / 2, plan_.model.max_seq_len), "cos table");
    require(is_table(slot::kSin, rotary_dim / 2, plan_.model.max_seq_len), "sin table");
  }

  void gated_activation() const {
    namespace slot = engine::gated_activation;
    require(cols(slot::kX) == 2 * cols(slot::kY), "columns");
    const std::int32_t kind = call_.ints[slot::kActivation];
    require(kind >= 0 && kind <= static_cast<std::int32_t>(kernels::Activation::kGeluTanh), "activation");
  }

  void activation() const {
    namespace slot = engine::activation;
    require(cols(slot::kX) == cols(slot::kY), "columns");
    const std::int32_t kind = call_.ints[slot::kActivation];
    require(kind >= 0 && kind < static_cast<std::int32_t>(engine::kActivationKindCount), "activation");
  }

  void binary() const {
    namespace slot = engine::add;  // mul's slots are the same
    require(cols(slot::kA) == cols(slot::kY) && cols(slot::kB) == cols(slot::kY), "columns");
    if (is_weight(slot::kB)) require(is_row(slot::kB, cols(slot::kY)) && operand(slot::kB).row_stride == 0, "row");
  }

  const engine::KvLayerRecord& kv_layer(std::int32_t layer) const {
    require(per_token() && layer >= 0 && layer < plan_.model.num_layers, "layer");
    return plan_.kv_layers[static_cast<std::size_t>(layer)];
  }

  void kv_write() const {
    namespace slot = engine::kv_write;
    const engine::KvLayerRecord& layer = kv_layer(call_.ints[slot::kLayer]);
    const std::int64_t width = std::int64_t{layer.kv_heads} * layer.head_dim;
    require(cols(slot::kKey) == width && cols(slot::kValue) == width, "columns");
  }

  void attention() const {
    namespace slot = engine::attention;
    const engine::KvLayerRecord& layer = kv_layer(call_.ints[slot::kLayer]);
    const std::int64_t heads = call_.ints[slot::kHeads];
    require(heads >= 1 && heads % layer.kv_heads == 0, "heads");
    require(layer.head_dim <= kernels::kMaxHeadDim && plan_.model.tokens_per_block <= kernels::kMaxBlockSize,
            "head or block size");
    require(cols(slot::kQuery) == heads * layer.head_dim && cols(slot::kY) == cols(slot::kQuery), "columns");
    require(call_.ints[slot::kWindow] >= 0 && call_.floats[slot::kSoftcap] >= 0.0f, "window or soft cap");
  }

  const engine::Plan& plan_;
  const CallRecord& call_;
};

}  // namespace

kernels::PackedWeight packed_weight(const WeightRecord& weight, const std::byte* file) {
  return {static_cast<kernels::WeightFormat>(weight.format), static_cast<std::int64_t>(weight.n),
          static_cast<std::int64_t>(weight.k), static_cast<int>(weight.group), file + weight.offset};
}

void check_calls(const engine::Plan& plan) {
  for (const WeightRecord& weight : plan.weights) {
    if (!is_packed(weight)) continue;
    const auto layout =
        kernels::packed_layout(static_cast<kernels::WeightFormat>(weight.format), static_cast<std::int64_t>(weight.n),
                               static_cast<std::int64_t>(weight.k), static_cast<int>(weight.group));
    if (layout.total_bytes != weight.size) plan.fail(weight, "has the wrong size");
  }
  for (const CallRecord& call : plan.calls) CallChecker(plan, call).check();
}

}  // namespace trtc
