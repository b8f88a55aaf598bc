// Philox 4x32-10, a counter-based generator (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
// A draw is a function of key and counter alone, so it cannot depend on what else runs.
#pragma once

#include <array>
#include <cstdint>

namespace trtc::sampling {

inline std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = 0xD2511F53ULL * counter[0];
    const std::uint64_t b = 0xCD9E8D57ULL * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9U;
    key[1] += 0xBB67AE85U;
  }
  return counter;
}

// Uniform in [0, 1) with 53 bits, for the token at `position` of a request's sequence_index-th sequence.
inline double uniform_draw(std::uint64_t seed, std::uint32_t sequence_index, std::uint32_t position) {
  const auto words = philox4x32({position, sequence_index, 0, 0},
                                {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  const std::uint64_t bits = (static_cast<std::uint64_t>(words[0]) << 21) ^ (words[1] >> 11);
  return static_cast<double>(bits) * 0x1.0p-53;
}

}  // namespace trtc::sampling
