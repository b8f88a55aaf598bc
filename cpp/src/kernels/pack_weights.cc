// Packing of weights into the panel layout of linear.h. Zero-fills all padding.
#include <algorithm>
#include <cstring>
#include <string>

#include "common/parallel_rows.h"
#include "kernels/linear.h"
#include "trtc/errors.h"

namespace trtc::kernels {
namespace {

constexpr std::size_t kAlignment = 64;

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

std::size_t bits_per_value(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return 32;
    case WeightFormat::kBf16:
      return 16;
    case WeightFormat::kI8:
      return 8;
    case WeightFormat::kI4:
      return 4;
  }
  throw BuildError("weight format " + std::to_string(static_cast<std::uint32_t>(format)) + " is unknown");
}

}  // namespace

PackedLayout packed_layout(WeightFormat format, std::int64_t n, std::int64_t k, int group) {
  constexpr std::int64_t kMaxSize = std::int64_t{1} << 31;
  if (n <= 0 || k <= 0 || n >= kMaxSize || k >= kMaxSize) {
    throw BuildError("a weight of " + std::to_string(n) + " x " + std::to_string(k) +
                     " cannot be packed; both sizes must be between 1 and 2^31 - 1");
  }
  const std::size_t bits = bits_per_value(format);
  const bool quantized = format == WeightFormat::kI8 || format == WeightFormat::kI4;
  if (quantized && group != 32 && group != 64 && group != 128) {
    throw BuildError("group size " + std::to_string(group) + " is not supported; expected 32, 64 or 128");
  }
  PackedLayout layout{};
  layout.panels = round_up(n, kPanelCols) / kPanelCols;
  layout.k_padded = quantized ? round_up(k, group) : format == WeightFormat::kBf16 ? round_up(k, 2) : k;
  layout.groups = quantized ? layout.k_padded / group : 0;
  const std::size_t columns = static_cast<std::size_t>(layout.panels) * kPanelCols;
  const auto align = [](std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; };
  layout.data_offset = 0;
  layout.scales_offset = align(columns * static_cast<std::size_t>(layout.k_padded) * bits / 8);
  const std::size_t scale_count = columns * static_cast<std::size_t>(layout.groups);
  layout.sums_offset = layout.scales_offset + align(scale_count * sizeof(std::uint16_t));
  const std::size_t sums_bytes = format == WeightFormat::kI8 ? scale_count * sizeof(std::int32_t) : 0;
  layout.total_bytes = layout.sums_offset + align(sums_bytes);
  return layout;
}

void pack_f32(const float* w, std::int64_t n, std::int64_t k, std::byte* blob, int threads) {
  const PackedLayout layout = packed_layout(WeightFormat::kF32, n, k, 0);
  float* data = reinterpret_cast<float*>(blob + layout.data_offset);
  parallel_rows(layout.panels, threads, [&](std::int64_t panel) {
    float* out = data + panel * k * kPanelCols;
    const std::int64_t columns = std::min<std::int64_t>(kPanelCols, n - panel * kPanelCols);
    std::memset(out, 0, static_cast<std::size_t>(k * kPanelCols) * sizeof(float));
    for (std::int64_t column = 0; column < columns; ++column) {
      const float* row = w + (panel * kPanelCols + column) * k;
      for (std::int64_t i = 0; i < k; ++i) out[i * kPanelCols + column] = row[i];
    }
  });
}

void pack_bf16(const std::uint16_t* w, std::int64_t n, std::int64_t k, std::byte* blob, int threads) {
  const PackedLayout layout = packed_layout(WeightFormat::kBf16, n, k, 0);
  std::uint16_t* data = reinterpret_cast<std::uint16_t*>(blob + layout.data_offset);
  parallel_rows(layout.panels, threads, [&](std::int64_t panel) {
    std::uint16_t* out = data + panel * layout.k_padded * kPanelCols;
    const std::int64_t columns = std::min<std::int64_t>(kPanelCols, n - panel * kPanelCols);
    std::memset(out, 0, static_cast<std::size_t>(layout.k_padded * kPanelCols) * sizeof(std::uint16_t));
    for (std::int64_t column = 0; column < columns; ++column) {
      const std::uint16_t* row = w + (panel * kPanelCols + column) * k;
      for (std::int64_t i = 0; i < k; ++i) out[(i / 2 * kPanelCols + column) * 2 + i % 2] = row[i];
    }
  });
}

namespace {

// One column's int8 values into a kI8 panel.
void place_i8(const std::int8_t* row, std::int64_t k, std::int64_t column, std::int8_t* panel) {
  for (std::int64_t i = 0; i < k; ++i) panel[(i / 4 * kPanelCols + column) * 4 + i % 4] = row[i];
}

// One column's int4 values into a kI4 panel whose bytes hold q = 0 (0x88) already.
void place_i4(const std::int8_t* row, std::int64_t k, std::int64_t column, std::uint8_t* panel) {
  for (std::int64_t i = 0; i < k; ++i) {
    std::uint8_t& byte = panel[(i / 8 * kPanelCols + column) * 4 + i % 4];
    const std::uint8_t nibble = static_cast<std::uint8_t>(row[i] + 8) & 0x0f;
    byte = i % 8 < 4 ? static_cast<std::uint8_t>((byte & 0xf0) | nibble)
                     : static_cast<std::uint8_t>((byte & 0x0f) | (nibble << 4));
  }
}

}  // namespace

void pack_quantized(const std::int8_t* q, const std::uint16_t* scales, WeightFormat format, std::int64_t n,
                    std::int64_t k, int group, std::byte* blob, int threads) {
  if (format != WeightFormat::kI8 && format != WeightFormat::kI4) {
    throw BuildError("only i8 and i4 weights are packed from integers and scales");
  }
  const PackedLayout layout = packed_layout(format, n, k, group);
  const bool i4 = format == WeightFormat::kI4;
  const std::int64_t panel_bytes = layout.k_padded * kPanelCols / (i4 ? 2 : 1);
  std::byte* data = blob + layout.data_offset;
  std::uint16_t* packed_scales = reinterpret_cast<std::uint16_t*>(blob + layout.scales_offset);
  std::int32_t* sums = reinterpret_cast<std::int32_t*>(blob + layout.sums_offset);
  parallel_rows(layout.panels, threads, [&](std::int64_t panel) {
    std::byte* out = data + panel * panel_bytes;
    std::memset(out, i4 ? 0x88 : 0, static_cast<std::size_t>(panel_bytes));
    for (std::int64_t column = 0; column < kPanelCols; ++column) {
      const std::int64_t n_row = panel * kPanelCols + column;
      const bool real = n_row < n;
      const std::int8_t* row = real ? q + n_row * k : nullptr;
      if (real && i4) place_i4(row, k, column, reinterpret_cast<std::uint8_t*>(out));
      if (real && !i4) place_i8(row, k, column, reinterpret_cast<std::int8_t*>(out));
      for (std::int64_t g = 0; g < layout.groups; ++g) {
        const std::int64_t slot = (panel * layout.groups + g) * kPanelCols + column;
        packed_scales[slot] = real ? scales[n_row * layout.groups + g] : 0;
        if (i4) continue;
        std::int32_t sum = 0;
        for (std::int64_t i = g * group; real && i < std::min<std::int64_t>(k, (g + 1) * group); ++i) sum += row[i];
        sums[slot] = sum;
      }
    }
  });
}

}  // namespace trtc::kernels
