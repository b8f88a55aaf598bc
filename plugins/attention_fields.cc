#include "plugins/attention_fields.h"

#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <tuple>

#include "trtc/errors.h"

namespace trtc::plugins {
namespace {

constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();

[[noreturn]] void fail(const std::string& problem) {
  throw EngineError(std::string(kPluginNamespace) + "::" + kPluginName + " " + problem + "; build the engine again");
}

// Fields by name; every one of kFields is there, once, with a value of its type.
class Values {
 public:
  explicit Values(std::span<const FieldValue> values) {
    for (const FieldValue& value : values) {
      const FieldValue*& place = found_[index_of(value.name)];
      if (place != nullptr) fail("has the field " + std::string(value.name) + " twice");
      place = &value;
    }
    for (std::size_t i = 0; i < kFields.size(); ++i) {
      const std::string name = kFields[i].name;
      if (found_[i] == nullptr) fail("lacks the field " + name);
      if (found_[i]->value.index() != static_cast<std::size_t>(kFields[i].type)) {
        fail("has the field " + name + " of another type than " + kTypes[static_cast<std::size_t>(kFields[i].type)]);
      }
    }
  }

  std::int32_t integer(std::string_view name, std::int32_t least, std::int32_t most) const {
    const auto value = std::get<std::int64_t>(found_[index_of(name)]->value);
    if (value < least || value > most) {
      fail("has " + std::string(name) + " " + std::to_string(value) + ", expected " + std::to_string(least) + " to " +
           std::to_string(most));
    }
    return static_cast<std::int32_t>(value);
  }

  float real(std::string_view name) const {
    const auto value = std::get<double>(found_[index_of(name)]->value);
    if (!std::isfinite(value) || value < 0.0) {
      fail("has " + std::string(name) + " " + std::to_string(value) + ", expected a finite number of 0 or more");
    }
    return static_cast<float>(value);
  }

  std::span<const std::byte> bytes(std::string_view name) const {
    return std::get<std::span<const std::byte>>(found_[index_of(name)]->value);
  }

 private:
  static constexpr std::array<const char*, 3> kTypes{"int32", "float32", "bytes"};

  static std::size_t index_of(std::string_view name) {
    for (std::size_t i = 0; i < kFields.size(); ++i) {
      if (name == kFields[i].name) return i;
    }
    fail("has the field " + std::string(name) + ", which this version does not know");
  }

  std::array<const FieldValue*, kFields.size()> found_{};
};

}  // namespace

AttentionFields read_fields(std::span<const FieldValue> values) {
  const Values found(values);
  AttentionFields fields;
  fields.layer = found.integer("layer", 0, kMost);
  fields.num_heads = found.integer("num_heads", 1, 1 << 14);
  fields.num_kv_heads = found.integer("num_kv_heads", 1, fields.num_heads);
  fields.head_dim = found.integer("head_dim", 1, 1 << 10);
  fields.rotary_dim = found.integer("rotary_dim", 0, fields.head_dim);
  fields.window = found.integer("window", 0, kMost);
  fields.block_size = found.integer("block_size", 1, 1 << 10);
  fields.compute_dtype = static_cast<ComputeDtype>(found.integer("compute_dtype", 0, 1));
  fields.cache_dtype = static_cast<CacheDtype>(found.integer("cache_dtype", 0, 1));
  fields.sm = found.integer("sm", 10, 999);
  fields.workspace_rows = found.integer("workspace_rows", 0, kMost);
  fields.scale = found.real("scale");
  fields.softcap = found.real("softcap");
  if (fields.num_heads % fields.num_kv_heads != 0) {
    fail("has " + std::to_string(fields.num_heads) + " query heads for " + std::to_string(fields.num_kv_heads) +
         " KV heads, expected a multiple");
  }
  if (fields.rotary_dim % 2 != 0) fail("has an odd rotary_dim " + std::to_string(fields.rotary_dim));
  const auto kernels = found.bytes("kernels");
  fields.kernels = std::make_shared<const std::vector<std::byte>>(kernels.begin(), kernels.end());
  return fields;
}

bool same_kernels(const AttentionFields& a, const AttentionFields& b) {
  const auto numbers = [](const AttentionFields& f) {
    return std::tuple(f.num_heads, f.num_kv_heads, f.head_dim, f.rotary_dim, f.window, f.block_size, f.compute_dtype,
                      f.cache_dtype, f.sm, f.workspace_rows, f.scale, f.softcap);
  };
  return numbers(a) == numbers(b) && (a.kernels == b.kernels || *a.kernels == *b.kernels);
}

const void* field_address(const AttentionFields& fields, std::string_view name) {
  const std::array<const void*, kFields.size()> addresses{&fields.layer,          &fields.num_heads,
                                                          &fields.num_kv_heads,   &fields.head_dim,
                                                          &fields.rotary_dim,     &fields.window,
                                                          &fields.block_size,     &fields.compute_dtype,
                                                          &fields.cache_dtype,    &fields.sm,
                                                          &fields.workspace_rows, &fields.scale,
                                                          &fields.softcap,        nullptr};
  for (std::size_t i = 0; i < kFields.size(); ++i) {
    if (name == kFields[i].name) return addresses[i];
  }
  return nullptr;
}

}  // namespace trtc::plugins
