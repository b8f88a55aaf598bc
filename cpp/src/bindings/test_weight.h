// A packed weight that owns its memory, for the test modules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>

#include "kernels/linear.h"

namespace trtc::bindings {

class TestWeight {
 public:
  TestWeight(const std::string& format, std::int64_t n, std::int64_t k, int group, const void* blob, std::size_t size)
      : weight_{format_named(format), n, k, group, nullptr}, size_(size) {
    if (size != kernels::packed_layout(weight_.format, n, k, group).total_bytes) {
      throw std::invalid_argument("blob has another size than the layout");
    }
    copy_from(blob);
  }
  TestWeight(const TestWeight& other) : weight_(other.weight_), size_(other.size_) { copy_from(other.weight_.blob); }
  TestWeight(TestWeight&&) = default;
  TestWeight& operator=(const TestWeight&) = delete;

  const kernels::PackedWeight& view() const { return weight_; }

 private:
  static kernels::WeightFormat format_named(const std::string& name) {
    if (name == "f32") return kernels::WeightFormat::kF32;
    if (name == "bf16") return kernels::WeightFormat::kBf16;
    if (name == "i8") return kernels::WeightFormat::kI8;
    if (name == "i4") return kernels::WeightFormat::kI4;
    throw std::invalid_argument("unknown format " + name);
  }

  struct Line {
    alignas(64) std::byte bytes[64];
  };

  void copy_from(const void* blob) {
    lines_ = std::make_unique<Line[]>((size_ + sizeof(Line) - 1) / sizeof(Line));
    std::memcpy(lines_.get(), blob, size_);
    weight_.blob = lines_[0].bytes;
  }

  kernels::PackedWeight weight_;
  std::size_t size_;
  std::unique_ptr<Line[]> lines_;
};

}  // namespace trtc::bindings
