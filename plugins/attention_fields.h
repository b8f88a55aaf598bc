// The fields of the plugin trtc::PagedAttention, as its build half writes them (trtc/targets/tensorrt/plugin.py).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

namespace trtc::plugins {

inline constexpr const char* kPluginName = "PagedAttention";
inline constexpr const char* kPluginVersion = "1";
inline constexpr const char* kPluginNamespace = "trtc";

enum class FieldType { kInt32, kFloat32, kBytes };

struct FieldSpec {
  const char* name;
  FieldType type;
};

// In the order in which they are serialized.
inline constexpr std::array<FieldSpec, 14> kFields{{
    {"layer", FieldType::kInt32},
    {"num_heads", FieldType::kInt32},
    {"num_kv_heads", FieldType::kInt32},
    {"head_dim", FieldType::kInt32},
    {"rotary_dim", FieldType::kInt32},
    {"window", FieldType::kInt32},
    {"block_size", FieldType::kInt32},
    {"compute_dtype", FieldType::kInt32},
    {"cache_dtype", FieldType::kInt32},
    {"sm", FieldType::kInt32},
    {"workspace_rows", FieldType::kInt32},
    {"scale", FieldType::kFloat32},
    {"softcap", FieldType::kFloat32},
    {"kernels", FieldType::kBytes},
}};

enum class ComputeDtype : std::int32_t { kFloat16 = 0, kBFloat16 = 1 };
enum class CacheDtype : std::int32_t { kAsCompute = 0, kFloat8E4M3 = 1 };

// One attention layer. Sizes in heads, channels, positions or tokens.
struct AttentionFields {
  std::int32_t layer = 0;
  std::int32_t num_heads = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t rotary_dim = 0;  // channels of each head that are rotated, 0 for none
  std::int32_t window = 0;      // positions a row sees, itself included, 0 for all
  std::int32_t block_size = 0;
  ComputeDtype compute_dtype = ComputeDtype::kFloat16;
  CacheDtype cache_dtype = CacheDtype::kAsCompute;
  std::int32_t sm = 0;
  std::int32_t workspace_rows = 0;  // rows [num_heads, head_dim] that partial_output has room for
  float scale = 0.0F;
  float softcap = 0.0F;                                   // 0 for none
  std::shared_ptr<const std::vector<std::byte>> kernels;  // a KernelBundle's bytes, shared by all copies
};

// A field as it was found, of whatever width.
struct FieldValue {
  std::string_view name;
  std::variant<std::int64_t, double, std::span<const std::byte>> value;
};

// Throws EngineError naming the field that is missing, unknown, given twice, of the wrong type or out of range.
AttentionFields read_fields(std::span<const FieldValue> values);

// Whether two layers can use the same loaded kernels: all but the layer's number is equal.
bool same_kernels(const AttentionFields& a, const AttentionFields& b);

// The value of an int32 or float32 field of kFields, where it lies in `fields`; nullptr for the kernels.
const void* field_address(const AttentionFields& fields, std::string_view name);

}  // namespace trtc::plugins
