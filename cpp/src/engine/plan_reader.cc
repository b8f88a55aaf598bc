#include "engine/plan_reader.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "engine/crc32.h"
#include "trtc/errors.h"

namespace trtc::engine {
namespace {

static_assert(std::endian::native == std::endian::little, "plan records are little-endian");

constexpr std::int32_t kMaxCount = 1 << 24;           // of tokens, sequences, heads and the like
constexpr std::uint64_t kMaxFeatures = 1ull << 30;    // rows or columns of a weight
constexpr std::uint64_t kMaxElements = 1ull << 40;    // of a weight
constexpr std::uint64_t kMaxArenaBytes = 1ull << 46;  // far below where sums of sizes overflow
constexpr std::uint64_t kMaxKvBlockBytes = 1ull << 46;
constexpr std::int32_t kMaxLayers = 1 << 16;
constexpr std::int32_t kMaxTokensPerBlock = 1 << 16;

template <typename Record>
Record load(std::span<const std::byte> file, std::uint64_t offset) {
  static_assert(std::is_trivially_copyable_v<Record>);
  Record record;
  std::memcpy(&record, file.data() + offset, sizeof(Record));
  return record;
}

std::string hex(const std::uint8_t (&bytes)[32]) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

// Everything the header says, checked against the file.
class Sections {
 public:
  Sections(std::span<const std::byte> file, Plan& plan) : file_(file), plan_(plan) {
    check_header();
    for (std::uint32_t kind = 0; kind < kSectionKindCount; ++kind) check_section(kind);
  }

  const Header& header() const { return header_; }

  template <typename Record>
  std::vector<Record> records(SectionKind kind) const {
    const SectionEntry& entry = section(kind);
    std::vector<Record> all;
    all.reserve(entry.count);
    for (std::uint64_t i = 0; i < entry.count; ++i)
      all.push_back(load<Record>(file_, entry.offset + i * sizeof(Record)));
    return all;
  }

  std::string_view strings() const {
    const SectionEntry& entry = section(SectionKind::kStrings);
    return {reinterpret_cast<const char*>(file_.data() + entry.offset), entry.count};
  }

 private:
  const SectionEntry& section(SectionKind kind) const { return header_.sections[static_cast<std::size_t>(kind)]; }

  void check_header() {
    if (file_.size() < sizeof(Header) || std::memcmp(file_.data(), kMagic.data(), kMagic.size()) != 0) {
      plan_.fail("it is not an engine file of the CPU target");
    }
    header_ = load<Header>(file_, 0);
    if (header_.format_version != kFormatVersion) {
      plan_.fail("it has plan format " + std::to_string(header_.format_version) + ", this version of trtc reads " +
                 std::to_string(kFormatVersion));
    }
    if (header_.file_bytes != file_.size()) {
      plan_.fail("it has " + std::to_string(file_.size()) + " bytes, its header says " +
                 std::to_string(header_.file_bytes) + ": it is truncated or damaged");
    }
    if (header_.plan_bytes < sizeof(Header) || header_.plan_bytes > file_.size() ||
        header_.plan_bytes % kAlignment != 0) {
      plan_.fail("the plan's size " + std::to_string(header_.plan_bytes) + " is impossible");
    }
    Crc32 crc;
    constexpr std::size_t at = offsetof(Header, plan_crc32);
    constexpr std::byte zeros[sizeof(header_.plan_crc32)] = {};
    crc.update(file_.first(at));
    crc.update(zeros);
    crc.update(file_.subspan(at + sizeof(zeros), header_.plan_bytes - at - sizeof(zeros)));
    if (crc.value() != header_.plan_crc32) plan_.fail("the plan's checksum does not match: the file is damaged");
    plan_.engine_hash = hex(header_.engine_hash);
  }

  void check_section(std::uint32_t kind) const {
    static constexpr std::uint32_t kRecordBytes[kSectionKindCount] = {
        sizeof(ModelRecord), sizeof(KvLayerRecord), sizeof(WeightRecord), sizeof(CallRecord), 1, 1};
    const SectionEntry& entry = header_.sections[kind];
    const bool is_data = kind == static_cast<std::uint32_t>(SectionKind::kWeightData);
    const std::uint64_t begin = is_data ? header_.plan_bytes : sizeof(Header);
    const std::uint64_t end = is_data ? file_.size() : header_.plan_bytes;
    if (entry.kind != kind || entry.record_bytes != kRecordBytes[kind] || entry.offset % kAlignment != 0 ||
        entry.offset < begin || entry.offset > end || entry.count > (end - entry.offset) / entry.record_bytes) {
      plan_.fail("section " + std::to_string(kind) + " lies outside the file");
    }
    if (kind == static_cast<std::uint32_t>(SectionKind::kModel) && entry.count != 1) {
      plan_.fail("it has " + std::to_string(entry.count) + " model records, expected 1");
    }
    if (kind == static_cast<std::uint32_t>(SectionKind::kStrings) &&
        (entry.count == 0 || file_[entry.offset + entry.count - 1] != std::byte{0})) {
      plan_.fail("the string table does not end with a NUL");
    }
  }

  std::span<const std::byte> file_;
  Plan& plan_;
  Header header_{};
};

bool is_count(std::int32_t value) { return value >= 1 && value <= kMaxCount; }

void check_model(const Plan& plan) {
  const ModelRecord& model = plan.model;
  for (const std::int32_t value : {model.vocab_size, model.num_layers, model.max_batch_size, model.max_num_tokens,
                                   model.max_seq_len, model.max_logit_rows, model.tokens_per_block}) {
    if (!is_count(value)) plan.fail("a size in the model record is " + std::to_string(value));
  }
  if (model.arena_bytes > kMaxArenaBytes || model.num_layers > kMaxLayers ||
      model.tokens_per_block > kMaxTokensPerBlock) {
    plan.fail("the model record asks for an impossible arena, number of layers or block size");
  }
  if (plan.kv_layers.size() != static_cast<std::size_t>(model.num_layers)) {
    plan.fail("it has " + std::to_string(plan.kv_layers.size()) + " KV layers, expected " +
              std::to_string(model.num_layers));
  }
  std::uint64_t kv_bytes = 0;
  for (const KvLayerRecord& layer : plan.kv_layers) {
    constexpr std::int32_t kMaxHeads = 1 << 16;
    if (layer.kv_heads < 1 || layer.kv_heads > kMaxHeads || layer.head_dim < 1 || layer.head_dim > kMaxHeads ||
        layer.dtype >= kKvStorageCount || layer.reserved != 0) {
      plan.fail("a KV layer record is invalid");
    }
    const std::uint64_t element = layer.dtype == static_cast<std::uint32_t>(KvStorage::kF32) ? 4 : 2;
    kv_bytes += 2 * element * layer.kv_heads * layer.head_dim * model.tokens_per_block;
    if (kv_bytes > kMaxKvBlockBytes) plan.fail("the KV layers are too large");  // checked each time: sums must not wrap
  }
  if (kv_bytes != model.kv_bytes_per_block)
    plan.fail("the KV layers do not add up to the block size in the model record");
}

void check_weight(const Plan& plan, const WeightRecord& weight, const Header& header) {
  if (weight.name >= plan.strings.size()) plan.fail("a weight's name lies outside the string table");
  const bool grouped = weight.format == static_cast<std::uint32_t>(BlobFormat::kPackedI8) ||
                       weight.format == static_cast<std::uint32_t>(BlobFormat::kPackedI4);
  const bool good_group = grouped ? weight.group == 32 || weight.group == 64 || weight.group == 128 : weight.group == 0;
  if (weight.format >= kBlobFormatCount || !good_group || weight.reserved != 0) {
    plan.fail(weight, "has an unknown format");
  }
  if (weight.n < 1 || weight.n > kMaxFeatures || weight.k < 1 || weight.k > kMaxFeatures ||
      weight.n > kMaxElements / weight.k) {
    plan.fail(weight, "has an impossible shape");
  }
  if (weight.offset % kAlignment != 0 || weight.offset < header.plan_bytes || weight.offset > header.file_bytes ||
      weight.size > header.file_bytes - weight.offset) {
    plan.fail(weight, "lies outside the file");
  }
  if (weight.format == static_cast<std::uint32_t>(BlobFormat::kRowsF32) && weight.size != 4 * weight.n * weight.k) {
    plan.fail(weight, "has the wrong size");
  }
}

bool is_zero(const OperandRecord& operand) {
  return operand.kind == 0 && operand.index == 0 && operand.offset == 0 && operand.row_stride == 0 && operand.cols == 0;
}

// Rows of the arena that an operand spans.
std::uint64_t arena_rows(const Plan& plan, const CallRecord& call, std::uint32_t slot) {
  const bool gathered = call.op == static_cast<std::uint32_t>(Op::kGatherRows) && slot == gather_rows::kX;
  const bool tokens = gathered || call.rows == static_cast<std::uint32_t>(Rows::kTokens);
  return static_cast<std::uint64_t>(tokens ? plan.model.max_num_tokens : plan.model.max_logit_rows);
}

bool arena_operand_fits(const Plan& plan, const CallRecord& call, std::uint32_t slot, std::uint32_t element_bytes) {
  const OperandRecord& operand = call.operands[slot];
  if (operand.index != 0 || operand.cols == 0 || operand.row_stride < operand.cols ||
      operand.offset % element_bytes != 0 || operand.offset > plan.model.arena_bytes) {
    return false;
  }
  const std::uint64_t elements = (arena_rows(plan, call, slot) - 1) * operand.row_stride + operand.cols;
  return elements <= (plan.model.arena_bytes - operand.offset) / element_bytes;
}

bool step_input_fits(const CallRecord& call, const OperandRecord& operand) {
  if (operand.index >= kStepInputCount || operand.offset != 0) return false;
  const bool per_logit_row = operand.index == static_cast<std::uint32_t>(StepInput::kLogitRows);
  return per_logit_row == (call.rows == static_cast<std::uint32_t>(Rows::kLogitRows));
}

bool weight_operand_fits(const Plan& plan, const OperandRecord& operand) {
  if (operand.index >= plan.weights.size() || operand.offset != 0) return false;
  const WeightRecord& weight = plan.weights[operand.index];
  return operand.cols == weight.k && (operand.row_stride == weight.k || (operand.row_stride == 0 && weight.n == 1));
}

bool logits_operand_fits(const Plan& plan, const CallRecord& call, const OperandRecord& operand) {
  const auto vocab = static_cast<std::uint32_t>(plan.model.vocab_size);
  return call.rows == static_cast<std::uint32_t>(Rows::kLogitRows) && operand.index == 0 && operand.offset == 0 &&
         operand.cols == vocab && operand.row_stride == vocab;
}

bool operand_fits(const Plan& plan, const CallRecord& call, std::uint32_t slot, const SlotSpec& spec) {
  const OperandRecord& operand = call.operands[slot];
  if (operand.kind >= kOperandKindCount || (spec.kinds & (1u << operand.kind)) == 0) return false;
  switch (static_cast<OperandKind>(operand.kind)) {
    case OperandKind::kNone:
      return is_zero(operand);
    case OperandKind::kArena:
      return arena_operand_fits(plan, call, slot, spec.element_bytes);
    case OperandKind::kStepInput:
      return step_input_fits(call, operand);
    case OperandKind::kWeight:
      return weight_operand_fits(plan, operand);
    case OperandKind::kLogits:
      return logits_operand_fits(plan, call, operand);
  }
  return false;
}

void check_call(const Plan& plan, const CallRecord& call) {
  if (call.op >= kOpCount || call.rows >= kRowsCount || call.name >= plan.strings.size() || call.reserved != 0 ||
      call.padding[0] != 0 || call.padding[1] != 0) {
    plan.fail("a call record is invalid");
  }
  const OpSpec& spec = kOpSpecs[call.op];
  for (std::uint32_t slot = 0; slot < kMaxOperands; ++slot) {
    const bool good =
        slot < spec.slots ? operand_fits(plan, call, slot, spec.slot[slot]) : is_zero(call.operands[slot]);
    if (!good) {
      const std::string_view name = slot < spec.slots ? spec.slot[slot].name : "extra";
      plan.fail(call, "has an invalid operand '" + std::string(name) + "'");
    }
  }
  for (std::uint32_t i = spec.ints; i < kMaxInts; ++i) {
    if (call.ints[i] != 0) plan.fail(call, "has an extra parameter");
  }
  for (std::uint32_t i = 0; i < kMaxFloats; ++i) {
    if (!std::isfinite(call.floats[i]) || (i >= spec.floats && call.floats[i] != 0.0f)) {
      plan.fail(call, "has an invalid parameter");
    }
  }
}

}  // namespace

void Plan::fail(const std::string& problem) const {
  throw EngineError(path + ": " + problem + "; copy or build the engine again");
}

void Plan::fail(const CallRecord& call, const std::string& problem) const {
  fail(std::string(kOpSpecs[call.op].name) + " " + std::string(name(call.name)) + " " + problem);
}

void Plan::fail(const WeightRecord& weight, const std::string& problem) const {
  fail("weight " + std::string(name(weight.name)) + " " + problem);
}

Plan read_plan(std::span<const std::byte> file, const std::string& path) {
  Plan plan{};
  plan.path = path;
  const Sections sections(file, plan);
  plan.model = sections.records<ModelRecord>(SectionKind::kModel).front();
  plan.kv_layers = sections.records<KvLayerRecord>(SectionKind::kKvLayers);
  plan.weights = sections.records<WeightRecord>(SectionKind::kWeights);
  plan.calls = sections.records<CallRecord>(SectionKind::kCalls);
  plan.strings = sections.strings();
  check_model(plan);
  for (const WeightRecord& weight : plan.weights) check_weight(plan, weight, sections.header());
  for (const CallRecord& call : plan.calls) check_call(plan, call);
  return plan;
}

}  // namespace trtc::engine
