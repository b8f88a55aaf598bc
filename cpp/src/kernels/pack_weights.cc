// Packs row-major weights into the panels of linear.h. Each packed word holds neighbouring k of one column: 1 float32,
// 2 bfloat16, 4 int8 or 8 int4, so that every format is the same transposition of 32-bit words.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "common/thread_team.h"
#include "kernels/linear.h"
#include "trtc/errors.h"

namespace trtc::kernels {
namespace {

constexpr std::int64_t kMaxSide = std::int64_t{1} << 31;
constexpr std::int64_t kMaxElements = std::int64_t{1} << 40;

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

std::size_t align64(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

bool is_quantized(WeightFormat format) { return format == WeightFormat::kI8 || format == WeightFormat::kI4; }

// k per 32-bit word.
std::int64_t word_elements(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return 1;
    case WeightFormat::kBf16:
      return 2;
    case WeightFormat::kI8:
      return 4;
    case WeightFormat::kI4:
      return 8;
  }
  throw BuildError("unknown weight format " + std::to_string(static_cast<std::uint32_t>(format)));
}

std::uint32_t load_word(const void* bytes) {
  std::uint32_t word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

struct F32Words {
  const float* w;
  std::uint32_t operator()(std::int64_t element, std::int64_t) const { return load_word(w + element); }
};

struct Bf16Words {
  const std::uint16_t* w;
  std::uint32_t operator()(std::int64_t element, std::int64_t left) const {
    return left >= 2 ? load_word(w + element) : w[element];
  }
};

std::uint32_t load_bytes(const std::int8_t* q, std::int64_t count) {
  if (count >= 4) return load_word(q);
  std::uint32_t word = 0;
  if (count > 0) std::memcpy(&word, q, static_cast<std::size_t>(count));
  return word;
}

struct I8Words {
  const std::int8_t* q;
  std::uint32_t operator()(std::int64_t element, std::int64_t left) const { return load_bytes(q + element, left); }
};

constexpr std::uint32_t kZeroNibbles = 0x88888888u;  // q = 0 stored as q + 8

struct I4Words {
  const std::int8_t* q;
  std::uint32_t operator()(std::int64_t element, std::int64_t left) const {
    const std::uint32_t low = load_bytes(q + element, left);
    const std::uint32_t high = left > 4 ? load_bytes(q + element + 4, left - 4) : 0;
    return ((low & 0x0f0f0f0fu) | ((high & 0x0f0f0f0fu) << 4)) ^ kZeroNibbles;
  }
};

// words(element, left): the word that begins at an element of the source and has `left` more elements in its row.
template <class Words>
void pack_panel(const Words& words, WeightFormat format, const PackedLayout& layout, std::int64_t n, std::int64_t k,
                std::int64_t panel, std::byte* blob) {
  const std::int64_t step = word_elements(format);
  const std::int64_t panel_words = layout.k_padded / step;
  const std::uint32_t zero = format == WeightFormat::kI4 ? kZeroNibbles : 0u;
  auto* out = reinterpret_cast<std::uint32_t*>(blob + layout.data_offset + panel * layout.panel_bytes);
  constexpr std::int64_t kTile = 16;  // words of a row at a time: whole cache lines of source and destination
  for (std::int64_t first = 0; first < panel_words; first += kTile) {
    const std::int64_t last = std::min(first + kTile, panel_words);
    for (std::int64_t column = 0; column < kPanelCols; ++column) {
      const std::int64_t row = panel * kPanelCols + column;
      for (std::int64_t word = first; word < last; ++word) {
        const std::int64_t left = row < n ? k - word * step : 0;
        out[word * kPanelCols + column] = left > 0 ? words(row * k + word * step, left) : zero;
      }
    }
  }
}

// Scales [groups][16] of a panel and, for kI8, column sums beside them.
void pack_panel_scales(const std::int8_t* q, const std::uint16_t* scales, WeightFormat format,
                       const PackedLayout& layout, std::int64_t n, std::int64_t k, int group, std::int64_t panel,
                       std::byte* blob) {
  const std::int64_t offset = panel * layout.groups * kPanelCols;
  auto* out = reinterpret_cast<std::uint16_t*>(blob + layout.scales_offset) + offset;
  auto* sums = reinterpret_cast<std::int32_t*>(blob + layout.sums_offset) + offset;
  for (std::int64_t index = 0; index < layout.groups; ++index) {
    for (std::int64_t column = 0; column < kPanelCols; ++column) {
      const std::int64_t row = panel * kPanelCols + column, at = index * kPanelCols + column;
      const bool padding = row >= n;
      out[at] = padding ? std::uint16_t{0} : scales[row * layout.groups + index];
      if (format != WeightFormat::kI8) continue;
      sums[at] = 0;
      if (padding) continue;
      for (std::int64_t i = index * group; i < std::min((index + 1) * group, k); ++i) sums[at] += q[row * k + i];
    }
  }
}

void require_int4(const std::int8_t* q, std::int64_t n, std::int64_t k, std::int64_t panel) {
  const std::int64_t begin = panel * kPanelCols * k, end = std::min(begin + kPanelCols * k, n * k);
  unsigned outside = 0;
  for (std::int64_t i = begin; i < end; ++i) outside |= static_cast<unsigned>(q[i] + 8);
  if (outside > 15) {
    throw BuildError("an int4 weight lies outside [-8, 7] in rows from " + std::to_string(panel * kPanelCols) +
                     "; quantize it again");
  }
}

// body(panel) for every panel, dealt to a team of threads.
template <class Body>
void for_panels(const PackedLayout& layout, int threads, const Body& body) {
  ThreadTeam team(threads);
  team.run([&](Slice slice) {
    const Slice::Range panels = slice.of(layout.panels);
    for (std::int64_t panel = panels.begin; panel < panels.end; ++panel) body(panel);
  });
}

void zero_gaps(WeightFormat format, const PackedLayout& layout, std::byte* blob) {
  const std::size_t data_end = layout.data_offset + static_cast<std::size_t>(layout.panels * layout.k_padded) *
                                                        kPanelCols * 4 /
                                                        static_cast<std::size_t>(word_elements(format));
  const auto entries = static_cast<std::size_t>(layout.panels * layout.groups * kPanelCols);
  const std::size_t scales_end = layout.scales_offset + entries * 2;
  const std::size_t sums_end = layout.sums_offset + (format == WeightFormat::kI8 ? entries * 4 : 0);
  std::memset(blob + data_end, 0, layout.scales_offset - data_end);
  std::memset(blob + scales_end, 0, layout.sums_offset - scales_end);
  std::memset(blob + sums_end, 0, layout.total_bytes - sums_end);
}

}  // namespace

PackedLayout packed_layout(WeightFormat format, std::int64_t n, std::int64_t k, int group) {
  const std::int64_t step = word_elements(format);
  if (n < 1 || k < 1 || n >= kMaxSide || k >= kMaxSide || n > kMaxElements / k) {
    throw BuildError("a weight of " + std::to_string(n) + " x " + std::to_string(k) +
                     " cannot be packed: both sides must be in [1, 2^31) and their product at most 2^40");
  }
  const bool quantized = is_quantized(format);
  if (quantized && group != 32 && group != 64 && group != 128) {
    throw BuildError("group size " + std::to_string(group) + " is not supported; choose 32, 64 or 128");
  }
  PackedLayout layout{};
  layout.panels = round_up(n, kPanelCols) / kPanelCols;
  layout.k_padded = round_up(k, quantized ? group : step);
  layout.groups = quantized ? layout.k_padded / group : 0;
  layout.panel_bytes = layout.k_padded / step * kPanelCols * 4;
  const auto columns = static_cast<std::size_t>(layout.panels * kPanelCols);
  const auto groups = static_cast<std::size_t>(layout.groups);
  layout.data_offset = 0;
  layout.scales_offset = align64(static_cast<std::size_t>(layout.panels * layout.panel_bytes));
  layout.sums_offset = align64(layout.scales_offset + columns * groups * 2);
  layout.total_bytes = align64(layout.sums_offset + (format == WeightFormat::kI8 ? columns * groups * 4 : 0));
  return layout;
}

void pack_f32(const float* w, std::int64_t n, std::int64_t k, std::byte* blob, int threads) {
  const PackedLayout layout = packed_layout(WeightFormat::kF32, n, k, 0);
  for_panels(layout, threads,
             [&](std::int64_t panel) { pack_panel(F32Words{w}, WeightFormat::kF32, layout, n, k, panel, blob); });
  zero_gaps(WeightFormat::kF32, layout, blob);
}

void pack_bf16(const std::uint16_t* w, std::int64_t n, std::int64_t k, std::byte* blob, int threads) {
  const PackedLayout layout = packed_layout(WeightFormat::kBf16, n, k, 0);
  for_panels(layout, threads,
             [&](std::int64_t panel) { pack_panel(Bf16Words{w}, WeightFormat::kBf16, layout, n, k, panel, blob); });
  zero_gaps(WeightFormat::kBf16, layout, blob);
}

void pack_quantized(const std::int8_t* q, const std::uint16_t* scales, WeightFormat format, std::int64_t n,
                    std::int64_t k, int group, std::byte* blob, int threads) {
  if (!is_quantized(format)) throw BuildError("only int8 and int4 weights carry scales");
  const PackedLayout layout = packed_layout(format, n, k, group);
  for_panels(layout, threads, [&](std::int64_t panel) {
    if (format == WeightFormat::kI8) {
      pack_panel(I8Words{q}, format, layout, n, k, panel, blob);
    } else {
      require_int4(q, n, k, panel);
      pack_panel(I4Words{q}, format, layout, n, k, panel, blob);
    }
    pack_panel_scales(q, scales, format, layout, n, k, group, panel, blob);
  });
  zero_gaps(format, layout, blob);
}

}  // namespace trtc::kernels
