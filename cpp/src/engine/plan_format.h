// Generated from trtc/engine/format.py and operators.py by `python -m trtc.engine.generate_header`; do not edit.
// The records of rank<N>.engine, byte for byte (little-endian).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

// clang-format off
namespace trtc::engine {

constexpr std::string_view kMagic = "TRTCPLAN";
constexpr std::uint32_t kFormatVersion = 1;
constexpr std::size_t kAlignment = 64;
constexpr std::uint32_t kMaxOperands = 6;
constexpr std::uint32_t kMaxInts = 4;
constexpr std::uint32_t kMaxFloats = 2;

enum class SectionKind : std::uint32_t {
  kModel = 0,
  kKvLayers = 1,
  kWeights = 2,
  kCalls = 3,
  kStrings = 4,
  kWeightData = 5,
};
constexpr std::uint32_t kSectionKindCount = 6;

enum class BlobFormat : std::uint32_t {
  kPackedF32 = 0,
  kPackedBf16 = 1,
  kPackedI8 = 2,
  kPackedI4 = 3,
  kRowsF32 = 4,
};
constexpr std::uint32_t kBlobFormatCount = 5;

enum class KvStorage : std::uint32_t {
  kF32 = 0,
  kBf16 = 1,
};
constexpr std::uint32_t kKvStorageCount = 2;

enum class ActivationKind : std::uint32_t {
  kSilu = 0,
  kGelu = 1,
  kGeluTanh = 2,
  kTanh = 3,
};
constexpr std::uint32_t kActivationKindCount = 4;

enum class Rows : std::uint32_t {
  kTokens = 0,
  kLogitRows = 1,
};
constexpr std::uint32_t kRowsCount = 2;

enum class OperandKind : std::uint32_t {
  kNone = 0,
  kArena = 1,
  kStepInput = 2,
  kWeight = 3,
  kLogits = 4,
};
constexpr std::uint32_t kOperandKindCount = 5;

enum class StepInput : std::uint32_t {
  kInputIds = 0,
  kPositionIds = 1,
  kLogitRows = 2,
};
constexpr std::uint32_t kStepInputCount = 3;

enum class Op : std::uint32_t {
  kEmbedding = 0,
  kGatherRows = 1,
  kRmsNorm = 2,
  kLayerNorm = 3,
  kQuantizeRows = 4,
  kLinear = 5,
  kRotary = 6,
  kGatedActivation = 7,
  kActivation = 8,
  kAdd = 9,
  kMul = 10,
  kScale = 11,
  kKvWrite = 12,
  kAttention = 13,
};
constexpr std::uint32_t kOpCount = 14;

// Where a section lies; count is records, or bytes for STRINGS and WEIGHT_DATA.
struct SectionEntry {
  std::uint32_t kind;
  std::uint32_t record_bytes;
  std::uint64_t offset;
  std::uint64_t count;
};
static_assert(sizeof(SectionEntry) == 24);

// The first bytes of the file.
struct Header {
  std::uint8_t magic[8];
  std::uint32_t format_version;
  std::uint32_t plan_crc32;  // of bytes [0, plan_bytes), this field as zero
  std::uint64_t file_bytes;
  std::uint64_t plan_bytes;  // everything before the weights
  std::uint8_t engine_hash[32];
  SectionEntry sections[6];
};
static_assert(sizeof(Header) == 208);

// Facts and limits; counts are tokens, sequences or blocks.
struct ModelRecord {
  std::int32_t vocab_size;
  std::int32_t num_layers;
  std::int32_t max_batch_size;
  std::int32_t max_num_tokens;
  std::int32_t max_seq_len;
  std::int32_t max_logit_rows;
  std::int32_t tokens_per_block;
  std::uint32_t required_isa;  // lowest Isa that runs the engine
  std::uint64_t kv_bytes_per_block;  // all layers, key and value
  std::uint64_t arena_bytes;  // activations of max_num_tokens rows
};
static_assert(sizeof(ModelRecord) == 48);

// One layer's pool [blocks, 2, kv_heads, tokens_per_block, head_dim].
struct KvLayerRecord {
  std::int32_t kv_heads;
  std::int32_t head_dim;
  std::uint32_t dtype;
  std::uint32_t reserved;
};
static_assert(sizeof(KvLayerRecord) == 16);

// One blob of the weight section; [n, k] is its logical shape.
struct WeightRecord {
  std::uint32_t format;
  std::uint32_t group;  // input channels per scale; 0 for float formats
  std::uint64_t n;
  std::uint64_t k;
  std::uint64_t offset;  // from the start of the file
  std::uint64_t size;  // bytes
  std::uint8_t sha256[32];
  std::uint32_t name;  // offset into the string table
  std::uint32_t reserved;
};
static_assert(sizeof(WeightRecord) == 80);

// A matrix that a call reads or writes.
struct OperandRecord {
  std::uint32_t kind;
  std::uint32_t index;  // STEP_INPUT: which; WEIGHT: record number
  std::uint64_t offset;  // ARENA: bytes from its start
  std::uint32_t row_stride;  // elements; 0 repeats one row
  std::uint32_t cols;
};
static_assert(sizeof(OperandRecord) == 24);

// One kernel call; slots and parameters by operator, see kOpSpecs.
struct CallRecord {
  std::uint32_t op;
  std::uint32_t rows;
  std::uint32_t name;  // offset into the string table
  std::uint32_t reserved;
  OperandRecord operands[6];
  std::int32_t ints[4];
  float floats[2];
  std::uint32_t padding[2];
};
static_assert(sizeof(CallRecord) == 192);

// Operand slots and parameters of each operator, as indexes into a CallRecord's arrays.

namespace embedding {  // y[i] = row ids[i] of a packed matrix
enum Slot : std::uint32_t { kIds = 0, kTable = 1, kY = 2 };
}  // namespace embedding

namespace gather_rows {  // y[i] = x[ids[i]]; x is activations or a ROWS_F32 weight
enum Slot : std::uint32_t { kIds = 0, kX = 1, kY = 2 };
}  // namespace gather_rows

namespace rms_norm {  // y = RMSNorm(x + residual), sum = x + residual
enum Slot : std::uint32_t { kX = 0, kResidual = 1, kScale = 2, kBias = 3, kY = 4, kSum = 5 };
enum Int : std::uint32_t { kGroups = 0 };
enum Float : std::uint32_t { kEpsilon = 0 };
}  // namespace rms_norm

namespace layer_norm {  // y = LayerNorm(x + residual), sum = x + residual
enum Slot : std::uint32_t { kX = 0, kResidual = 1, kScale = 2, kBias = 3, kY = 4, kSum = 5 };
enum Int : std::uint32_t { kGroups = 0 };
enum Float : std::uint32_t { kEpsilon = 0 };
}  // namespace layer_norm

namespace quantize_rows {  // y int8, scales: x by row and group
enum Slot : std::uint32_t { kX = 0, kY = 1, kScales = 2 };
enum Int : std::uint32_t { kGroup = 0 };
}  // namespace quantize_rows

namespace linear {  // y = x W^T + bias; x is float32, or q int8 with q_scales
enum Slot : std::uint32_t { kX = 0, kQ = 1, kQScales = 2, kWeight = 3, kBias = 4, kY = 5 };
}  // namespace linear

namespace rotary {  // rotates the first rotary_dim channels of each head
enum Slot : std::uint32_t { kX = 0, kPositionIds = 1, kCos = 2, kSin = 3, kY = 4 };
enum Int : std::uint32_t { kHeads = 0, kHeadDim = 1, kRotaryDim = 2 };
}  // namespace rotary

namespace gated_activation {  // y = act(x[:, :n]) * x[:, n:]
enum Slot : std::uint32_t { kX = 0, kY = 1 };
enum Int : std::uint32_t { kActivation = 0 };
}  // namespace gated_activation

namespace activation {  // y = act(x)
enum Slot : std::uint32_t { kX = 0, kY = 1 };
enum Int : std::uint32_t { kActivation = 0 };
}  // namespace activation

namespace add {  // y = a + b; b with row stride 0 is one row for all
enum Slot : std::uint32_t { kA = 0, kB = 1, kY = 2 };
}  // namespace add

namespace mul {  // y = a * b; b with row stride 0 is one row for all
enum Slot : std::uint32_t { kA = 0, kB = 1, kY = 2 };
}  // namespace mul

namespace scale {  // y = x * factor
enum Slot : std::uint32_t { kX = 0, kY = 1 };
enum Float : std::uint32_t { kFactor = 0 };
}  // namespace scale

namespace kv_write {  // stores the step's keys and values
enum Slot : std::uint32_t { kKey = 0, kValue = 1 };
enum Int : std::uint32_t { kLayer = 0 };
}  // namespace kv_write

namespace attention {  // causal attention over the layer's cache
enum Slot : std::uint32_t { kQuery = 0, kY = 1 };
enum Int : std::uint32_t { kLayer = 0, kHeads = 1, kWindow = 2 };
enum Float : std::uint32_t { kScale = 0, kSoftcap = 1 };
}  // namespace attention

// What one operand slot accepts: `kinds` is a bit set of 1 << OperandKind.
struct SlotSpec {
  std::string_view name;
  std::uint32_t kinds;
  std::uint32_t element_bytes;
  bool output;
};

struct OpSpec {
  std::string_view name;
  std::uint32_t slots;
  std::uint32_t ints;
  std::uint32_t floats;
  std::array<SlotSpec, kMaxOperands> slot;
};

// Indexed by Op.
constexpr std::array<OpSpec, kOpCount> kOpSpecs = {{
    {"EMBEDDING", 3, 0, 0, {{
        {"ids", 0x04, 4, false},
        {"table", 0x08, 4, false},
        {"y", 0x02, 4, true}}}},
    {"GATHER_ROWS", 3, 0, 0, {{
        {"ids", 0x04, 4, false},
        {"x", 0x0a, 4, false},
        {"y", 0x02, 4, true}}}},
    {"RMS_NORM", 6, 1, 1, {{
        {"x", 0x02, 4, false},
        {"residual", 0x03, 4, false},
        {"scale", 0x08, 4, false},
        {"bias", 0x09, 4, false},
        {"y", 0x02, 4, true},
        {"sum", 0x03, 4, true}}}},
    {"LAYER_NORM", 6, 1, 1, {{
        {"x", 0x02, 4, false},
        {"residual", 0x03, 4, false},
        {"scale", 0x08, 4, false},
        {"bias", 0x09, 4, false},
        {"y", 0x02, 4, true},
        {"sum", 0x03, 4, true}}}},
    {"QUANTIZE_ROWS", 3, 1, 0, {{
        {"x", 0x02, 4, false},
        {"y", 0x02, 1, true},
        {"scales", 0x02, 4, true}}}},
    {"LINEAR", 6, 0, 0, {{
        {"x", 0x03, 4, false},
        {"q", 0x03, 1, false},
        {"q_scales", 0x03, 4, false},
        {"weight", 0x08, 4, false},
        {"bias", 0x09, 4, false},
        {"y", 0x12, 4, true}}}},
    {"ROTARY", 5, 3, 0, {{
        {"x", 0x02, 4, false},
        {"position_ids", 0x04, 4, false},
        {"cos", 0x08, 4, false},
        {"sin", 0x08, 4, false},
        {"y", 0x02, 4, true}}}},
    {"GATED_ACTIVATION", 2, 1, 0, {{
        {"x", 0x02, 4, false},
        {"y", 0x02, 4, true}}}},
    {"ACTIVATION", 2, 1, 0, {{
        {"x", 0x12, 4, false},
        {"y", 0x12, 4, true}}}},
    {"ADD", 3, 0, 0, {{
        {"a", 0x12, 4, false},
        {"b", 0x1a, 4, false},
        {"y", 0x12, 4, true}}}},
    {"MUL", 3, 0, 0, {{
        {"a", 0x12, 4, false},
        {"b", 0x1a, 4, false},
        {"y", 0x12, 4, true}}}},
    {"SCALE", 2, 0, 1, {{
        {"x", 0x12, 4, false},
        {"y", 0x12, 4, true}}}},
    {"KV_WRITE", 2, 1, 0, {{
        {"key", 0x02, 4, false},
        {"value", 0x02, 4, false}}}},
    {"ATTENTION", 2, 3, 2, {{
        {"query", 0x02, 4, false},
        {"y", 0x02, 4, true}}}},
}};

}  // namespace trtc::engine
// clang-format on
