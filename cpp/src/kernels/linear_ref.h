// Scalar reference of linear.h: one output at a time, the formula and the order of summation as stated there.
#pragma once

#include <cstdint>

#include "common/float_bits.h"
#include "kernels/linear.h"

namespace trtc::kernels::reference {

// One panel of a packed weight. `scales` is null for float formats.
struct Panel {
  WeightFormat format;
  const std::byte* data;
  const std::uint16_t* scales;  // [groups][16]
  const std::uint16_t* zeros;   // [groups][16], kI4 only
};

static inline Panel panel_at(const PackedWeight& weight, const PackedLayout& layout, std::int64_t index) {
  const std::int64_t group_at = index * layout.groups * kPanelCols;
  const auto* scales = reinterpret_cast<const std::uint16_t*>(weight.blob + layout.scales_offset) + group_at;
  const auto* zeros = reinterpret_cast<const std::uint16_t*>(weight.blob + layout.zeros_offset) + group_at;
  return {weight.format, weight.blob + layout.data_offset + index * layout.panel_bytes,
          layout.groups > 0 ? scales : nullptr, weight.format == WeightFormat::kI4 ? zeros : nullptr};
}

// Element (k, column) of a kI8 or kI4 panel: the integer q.
static inline int panel_int(const Panel& panel, std::int64_t k, int column) {
  if (panel.format == WeightFormat::kI8) {
    return reinterpret_cast<const std::int8_t*>(panel.data)[(k / 4 * kPanelCols + column) * 4 + k % 4];
  }
  const int byte = reinterpret_cast<const std::uint8_t*>(panel.data)[(k / 8 * kPanelCols + column) * 4 + k % 4];
  return k % 8 < 4 ? byte & 0x0f : byte >> 4;
}

static inline float panel_scale(const Panel& panel, std::int64_t group, int column) {
  return f16_to_f32(panel.scales[group * kPanelCols + column]);
}

static inline float panel_zero(const Panel& panel, std::int64_t group, int column) {
  return f16_to_f32(panel.zeros[group * kPanelCols + column]);
}

// Element (k, column) of a panel as a number: exact for all but kI4.
static inline float panel_value(const Panel& panel, int group, std::int64_t k, int column) {
  switch (panel.format) {
    case WeightFormat::kF32:
      return reinterpret_cast<const float*>(panel.data)[k * kPanelCols + column];
    case WeightFormat::kBf16:
      return bf16_to_f32(reinterpret_cast<const std::uint16_t*>(panel.data)[(k / 2 * kPanelCols + column) * 2 + k % 2]);
    case WeightFormat::kI8:
      return static_cast<float>(panel_int(panel, k, column)) * panel_scale(panel, k / group, column);
    case WeightFormat::kI4:
      break;
  }
  const float scale = panel_scale(panel, k / group, column);
  const float offset = -(panel_zero(panel, k / group, column) * scale);
  return __builtin_fmaf(static_cast<float>(panel_int(panel, k, column)), scale, offset);
}

// sum over k of x[k] * W[column][k], float activations.
static inline float dot_float(const Panel& panel, int group, std::int64_t k, int column, const float* x) {
  float acc = 0.0f;
  for (std::int64_t i = 0; i < k; ++i) acc = __builtin_fmaf(x[i], panel_value(panel, group, i, column), acc);
  return acc;
}

// The same for int8 activations: exact inside a group, groups added in order.
static inline float dot_int8(const Panel& panel, int group, std::int64_t k, int column, const std::int8_t* x,
                             const float* x_scales) {
  float acc = 0.0f;
  for (std::int64_t begin = 0; begin < k; begin += group) {
    const std::int64_t end = begin + group < k ? begin + group : k;
    std::int32_t sum = 0, x_sum = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      sum += x[i] * panel_int(panel, i, column);
      x_sum += x[i];
    }
    const std::int64_t g = begin / group;
    float total = static_cast<float>(sum);
    if (panel.zeros != nullptr) total = __builtin_fmaf(-panel_zero(panel, g, column), static_cast<float>(x_sum), total);
    acc = __builtin_fmaf(total, x_scales[g] * panel_scale(panel, g, column), acc);
  }
  return acc;
}

static inline void linear(const LinearArgs& args, std::int64_t panel_begin, std::int64_t panel_end) {
  const PackedWeight& weight = args.weight;
  const PackedLayout layout = packed_layout(weight.format, weight.n, weight.k, weight.group);
  for (std::int64_t index = panel_begin; index < panel_end; ++index) {
    const Panel panel = panel_at(weight, layout, index);
    for (std::int64_t row = 0; row < args.rows; ++row) {
      for (int column = 0; column < kPanelCols; ++column) {
        const std::int64_t n = index * kPanelCols + column;
        if (n >= weight.n) break;
        const QuantizedRows& quantized = args.quantized;
        float y = quantized.data != nullptr
                      ? dot_int8(panel, weight.group, weight.k, column, quantized.data + row * quantized.stride,
                                 quantized.scales + row * quantized.scale_stride)
                      : dot_float(panel, weight.group, weight.k, column, args.x + row * args.x_stride);
        if (args.bias != nullptr) y += args.bias[n];
        args.y[row * args.y_stride + n] = y;
      }
    }
  }
}

struct RowScale {
  float scale;
  float inverse;
};

// For a group whose largest magnitude is given. Below the smallest normal scale the group counts as zero, so that the
// inverse is finite; infinity and NaN stay visible in the scale.
static inline RowScale row_scale(float largest) {
  const float scale = largest / 127.0f;
  if (scale < 0x1p-126f) return {0.0f, 0.0f};
  return {scale, 1.0f / scale};
}

// NaN gives -127, as the vector instructions do.
static inline std::int8_t round_activation(float scaled) {
  if (!(scaled >= -127.0f)) return -127;
  return static_cast<std::int8_t>(__builtin_nearbyintf(scaled > 127.0f ? 127.0f : scaled));
}

// scale = max|x| / 127 by groups, q = round_half_even(x * (1 / scale)); groups [begin, end) of rows * groups.
static inline void quantize_rows(const QuantizeRowsArgs& args, std::int64_t begin, std::int64_t end) {
  const std::int64_t groups = (args.k + args.group - 1) / args.group;
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t row = item / groups, index = item % groups, first = index * args.group;
    const float* x = args.x + row * args.x_stride;
    const std::int64_t last = first + args.group < args.k ? first + args.group : args.k;
    std::uint32_t largest = 0;  // magnitude as bits: these order like the values, infinity and NaN last
    for (std::int64_t i = first; i < last; ++i) {
      const std::uint32_t magnitude = float_bits(x[i]) & 0x7fffffffu;
      largest = magnitude > largest ? magnitude : largest;
    }
    const RowScale scale = row_scale(bits_float(largest));
    for (std::int64_t i = first; i < first + args.group; ++i) {
      args.data[row * args.stride + i] = round_activation((i < last ? x[i] : 0.0f) * scale.inverse);
    }
    args.scales[row * args.scale_stride + index] = scale.scale;
  }
}

// One column of a panel: y [k].
static inline void panel_column(const Panel& panel, int group, std::int64_t k, int column, float* y) {
  if (panel.format != WeightFormat::kI8) {
    for (std::int64_t i = 0; i < k; ++i) y[i] = panel_value(panel, group, i, column);
    return;
  }
  for (std::int64_t begin = 0; begin < k; begin += group) {  // the usual table: a scale is widened once per group
    const std::int64_t end = begin + group < k ? begin + group : k;
    const float scale = panel_scale(panel, begin / group, column);
    for (std::int64_t i = begin; i < end; ++i) y[i] = static_cast<float>(panel_int(panel, i, column)) * scale;
  }
}

static inline void embedding(const EmbeddingArgs& args, std::int64_t row_begin, std::int64_t row_end) {
  const PackedWeight& table = args.weight;
  const PackedLayout layout = packed_layout(table.format, table.n, table.k, table.group);
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    const Panel panel = panel_at(table, layout, args.ids[row] / kPanelCols);
    const int column = static_cast<int>(args.ids[row] % kPanelCols);
    panel_column(panel, table.group, table.k, column, args.y + row * args.y_stride);
  }
}

}  // namespace trtc::kernels::reference
