// CRC-32 as zlib computes it (polynomial 0xEDB88320, reflected).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace trtc::engine {

class Crc32 {
 public:
  void update(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) {
      state_ = kTable[(state_ ^ static_cast<std::uint32_t>(byte)) & 0xffu] ^ (state_ >> 8);
    }
  }

  std::uint32_t value() const { return ~state_; }

 private:
  static constexpr std::array<std::uint32_t, 256> kTable = [] {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t index = 0; index < 256; ++index) {
      std::uint32_t value = index;
      for (int bit = 0; bit < 8; ++bit) value = (value & 1u) != 0 ? 0xEDB88320u ^ (value >> 1) : value >> 1;
      table[index] = value;
    }
    return table;
  }();

  std::uint32_t state_ = ~0u;
};

}  // namespace trtc::engine
