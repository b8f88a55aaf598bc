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

struct I4Words {
  const std::int8_t* q;
  std::uint32_t operator()(std::int64_t element, std::int64_t left) const {
    const std::uint32_t low = load_bytes(q + element, left);
    const std::uint32_t high = left > 4 ? load_bytes(q + element + 4, left - 4) : 0;
    return low | (high << 4);
  }
};

// words(element, left): the word that begins at an element of the source and has `left` more elements in its row.
template <class Words>
void pack_panel(const Words& words, WeightFormat format, const PackedLayout& layout, std::int64_t n, std::int64_t k,
                std::int64_t panel, std::byte* blob) {
  const std::int64_t step = word_elements(format);
  const std::int64_t panel_words = layout.k_padded / step;
  auto* out = reinterpret_cast<std::uint32_t*>(blob + layout.data_offset + panel * layout.panel_bytes);
  constexpr std::int64_t kTile = 16;  // words of a row at a time: whole cache lines of source and destination
  for (std::int64_t first = 0; first < panel_words; first += kTile) {
    const std::int64_t last = std::min(first + kTile, panel_words);
    for (std::int64_t column = 0; column < kPanelCols; ++column) {
      const std::int64_t row = panel * kPanelCols + column;
      for (std::int64_t word = first; word < last; ++word) {
        const std::int64_t left = row < n ? k - word * step : 0;
        out[word * kPanelCols + column] = left > 0 ? words(row * k + word * step, left) : 0u;
      }
    }
  }
}

// One float16 per row and group [n, groups], in the order of a panel [groups][16].
void pack_panel_halves(const std::uint16_t* values, const PackedLayout& layout, std::int64_t n, std::int64_t panel,
                       std::byte* out_panels) {
  auto* out = reinterpret_cast<std::uint16_t*>(out_panels) + panel * layout.groups * kPanelCols;
  for (std::int64_t index = 0; index < layout.groups; ++index) {
    for (std::int64_t column = 0; column < kPanelCols; ++column) {
      const std::int64_t row = panel * kPanelCols + column;
      out[index * kPanelCols + column] = row < n ? values[row * layout.groups + index] : std::uint16_t{0};
    }
  }
}

// Column sums [groups][16] of a kI8 panel.
void pack_panel_sums(const std::int8_t* q, const PackedLayout& layout, std::int64_t n, std::int64_t k, int group,
                     std::int64_t panel, std::byte* blob) {
  auto* out = reinterpret_cast<std::int32_t*>(blob + layout.sums_offset) + panel * layout.groups * kPanelCols;
  for (std::int64_t index = 0; index < layout.groups; ++index) {
    for (std::int64_t column = 0; column < kPanelCols; ++column) {
      const std::int64_t row = panel * kPanelCols + column;
      std::int32_t sum = 0;
      for (std::int64_t i = index * group; row < n && i < std::min((index + 1) * group, k); ++i) sum += q[row * k + i];
      out[index * kPanelCols + column] = sum;
    }
  }
}

void require_int4(const std::int8_t* q, std::int64_t n, std::int64_t k, std::int64_t panel) {
  const std::int64_t begin = panel * kPanelCols * k, end = std::min(begin + kPanelCols * k, n * k);
  unsigned outside = 0;
  for (std::int64_t i = begin; i < end; ++i) outside |= static_cast<unsigned>(q[i]);
  if (outside > 15) {
    throw BuildError("an int4 weight lies outside [0, 15] in rows from " + std::to_string(panel * kPanelCols) +
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

// Zeros between the parts and after the last.
void zero_gaps(WeightFormat format, const PackedLayout& layout, std::byte* blob) {
  const auto panels = static_cast<std::size_t>(layout.panels);
  const std::size_t entries = panels * static_cast<std::size_t>(layout.groups) * kPanelCols;
  const auto clear = [blob](std::size_t begin, std::size_t end) { std::memset(blob + begin, 0, end - begin); };
  clear(layout.data_offset + panels * static_cast<std::size_t>(layout.panel_bytes), layout.scales_offset);
  clear(layout.scales_offset + entries * 2, layout.sums_offset);
  clear(layout.sums_offset + (format == WeightFormat::kI8 ? entries * 4 : 0), layout.zeros_offset);
  clear(layout.zeros_offset + (format == WeightFormat::kI4 ? entries * 2 : 0), layout.total_bytes);
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
  layout.zeros_offset = align64(layout.sums_offset + (format == WeightFormat::kI8 ? columns * groups * 4 : 0));
  layout.total_bytes = align64(layout.zeros_offset + (format == WeightFormat::kI4 ? columns * groups * 2 : 0));
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

void pack_i8(const std::int8_t* q, const std::uint16_t* scales, std::int64_t n, std::int64_t k, int group,
             std::byte* blob, int threads) {
  const PackedLayout layout = packed_layout(WeightFormat::kI8, n, k, group);
  for_panels(layout, threads, [&](std::int64_t panel) {
    pack_panel(I8Words{q}, WeightFormat::kI8, layout, n, k, panel, blob);
    pack_panel_halves(scales, layout, n, panel, blob + layout.scales_offset);
    pack_panel_sums(q, layout, n, k, group, panel, blob);
  });
  zero_gaps(WeightFormat::kI8, layout, blob);
}

void pack_i4(const std::int8_t* q, const std::uint16_t* scales, const std::uint16_t* zeros, std::int64_t n,
             std::int64_t k, int group, std::byte* blob, int threads) {
  const PackedLayout layout = packed_layout(WeightFormat::kI4, n, k, group);
  for_panels(layout, threads, [&](std::int64_t panel) {
    require_int4(q, n, k, panel);
    pack_panel(I4Words{q}, WeightFormat::kI4, layout, n, k, panel, blob);
    pack_panel_halves(scales, layout, n, panel, blob + layout.scales_offset);
    pack_panel_halves(zeros, layout, n, panel, blob + layout.zeros_offset);
  });
  zero_gaps(WeightFormat::kI4, layout, blob);
}

}  // namespace trtc::kernels
