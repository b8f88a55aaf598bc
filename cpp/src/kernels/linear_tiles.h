// How a linear call is cut into tiles and dealt to threads, whatever computes a tile.
//
// A tile is R rows x P panels of outputs whose accumulators live in registers. An output's sum is a chain of its own,
// the same in every tile, so results depend neither on the tile that computed them nor on the number of threads.
#pragma once

#include <cstdint>

#include "kernels/linear.h"

namespace trtc::kernels {
namespace {

// Accumulators stay in registers only while every index into them is a constant from the start; so loops over a tile
// are unrolled by templates, and their bodies inlined.
#define TRTC_UNROLLED __attribute__((always_inline))

template <int i>
struct Index {
  constexpr operator int() const { return i; }
};

// Calls body(Index<0>{}), body(Index<1>{}), ... body(Index<N - 1>{}).
template <int N, int i = 0, class Body>
[[gnu::always_inline]] inline void unroll(const Body& body) {
  if constexpr (i < N) {
    body(Index<i>{});
    unroll<N, i + 1>(body);
  }
}

// Calls body(r, p) for every row and panel of a tile.
template <int R, int P, class Body>
[[gnu::always_inline]] inline void unroll_tile(const Body& body) {
  unroll<R>([&](auto r) TRTC_UNROLLED { unroll<P>([&](auto p) TRTC_UNROLLED { body(r, p); }); });
}

// A linear call with its offsets resolved.
struct LinearJob {
  std::int64_t k;
  std::int64_t group;
  std::int64_t groups;
  std::int64_t panel_bytes;
  const std::byte* data;
  const std::uint16_t* scales;
  const std::int32_t* sums;
  const std::uint16_t* zeros;
  const LinearArgs& args;

  const std::byte* panel(std::int64_t index) const { return data + index * panel_bytes; }
  std::int64_t group_at(std::int64_t panel, std::int64_t index) const { return (panel * groups + index) * kPanelCols; }
  float* y(std::int64_t panel, std::int64_t row) const { return args.y + row * args.y_stride + panel * kPanelCols; }
  int columns(std::int64_t panel) const {
    const std::int64_t left = args.weight.n - panel * kPanelCols;
    return left < kPanelCols ? static_cast<int>(left) : kPanelCols;
  }
};

inline LinearJob linear_job(const LinearArgs& args) {
  const PackedWeight& weight = args.weight;
  const PackedLayout layout = packed_layout(weight.format, weight.n, weight.k, weight.group);
  const std::byte* blob = weight.blob;
  return {weight.k,
          weight.group,
          layout.groups,
          layout.panel_bytes,
          blob + layout.data_offset,
          reinterpret_cast<const std::uint16_t*>(blob + layout.scales_offset),
          reinterpret_cast<const std::int32_t*>(blob + layout.sums_offset),
          reinterpret_cast<const std::uint16_t*>(blob + layout.zeros_offset),
          args};
}

constexpr std::int64_t kWordBytes = 4 * kPanelCols;  // one word of every column

template <class V, int R, int P>
[[gnu::always_inline]] inline void zero_tile(typename V::F (&acc)[R][P]) {
  unroll_tile<R, P>([&](auto r, auto p) TRTC_UNROLLED { acc[r][p] = V::zero(); });
}

template <class V, int R, int P>
[[gnu::always_inline]] inline void load_tile(const LinearJob& job, std::int64_t panel, std::int64_t row,
                                             typename V::F (&acc)[R][P]) {
  unroll_tile<R, P>([&](auto r, auto p)
                        TRTC_UNROLLED { acc[r][p] = V::load(job.y(panel + p, row + r), job.columns(panel + p)); });
}

template <class V, int R, int P>
[[gnu::always_inline]] inline void store_tile(const LinearJob& job, std::int64_t panel, std::int64_t row,
                                              const typename V::F (&acc)[R][P]) {
  unroll_tile<R, P>([&](auto r, auto p)
                        TRTC_UNROLLED { V::store(job.y(panel + p, row + r), acc[r][p], job.columns(panel + p)); });
}

template <class V, int R, int P>
[[gnu::always_inline]] inline void add_bias_and_store(const LinearJob& job, std::int64_t panel, std::int64_t row,
                                                      typename V::F (&acc)[R][P]) {
  if (job.args.bias != nullptr) {
    unroll<P>([&](auto p) TRTC_UNROLLED {
      const typename V::F bias = V::load(job.args.bias + (panel + p) * kPanelCols, job.columns(panel + p));
      unroll<R>([&](auto r) TRTC_UNROLLED { acc[r][p] = V::add(acc[r][p], bias); });
    });
  }
  store_tile<V, R, P>(job, panel, row, acc);
}

// P panels for a range of rows, in tiles of 8, 4, 2 and 1 rows.
template <class Kernel, int P, int R = 8, class... Extra>
inline void run_tiles(const LinearJob& job, std::int64_t panel, Slice::Range rows, const Extra&... extra) {
  if constexpr (R * P <= Kernel::kTile || R == 1) {
    for (; rows.end - rows.begin >= R; rows.begin += R) {
      Kernel::template tile<R, P>(job, panel, rows.begin, extra...);
    }
  }
  if constexpr (R > 1) {
    if (rows.begin < rows.end) run_tiles<Kernel, P, R / 2>(job, panel, rows, extra...);
  }
}

// Panels [begin, end): at most P side by side.
template <class Kernel, int P>
inline void run_panels(const LinearJob& job, std::int64_t begin, std::int64_t end, Slice::Range rows) {
  for (; end - begin >= P; begin += P) Kernel::template rows<P>(job, begin, rows);
  if constexpr (P > 1) {
    if (begin < end) run_panels<Kernel, P / 2>(job, begin, end, rows);
  }
}

// As many panels side by side as leave registers for the rows.
template <class Kernel, int P>
inline void run_widest(const LinearJob& job, std::int64_t begin, std::int64_t end, Slice::Range rows) {
  if constexpr (P > Kernel::kMinPanels) {
    if (P * (rows.end - rows.begin) > Kernel::kTile) return run_widest<Kernel, P / 2>(job, begin, end, rows);
  }
  run_panels<Kernel, P>(job, begin, end, rows);
}

// Deals panels to the threads; where there are too few of them, each is cut into runs of at least kMinRows rows.
template <class Kernel>
inline void run_linear(const LinearArgs& args, Slice slice) {
  constexpr std::int64_t kMinRows = 8;
  const LinearJob job = linear_job(args);
  const std::int64_t panels = (args.weight.n + kPanelCols - 1) / kPanelCols;
  std::int64_t parts = (2 * slice.threads + panels - 1) / panels;
  if (parts > args.rows / kMinRows) parts = args.rows / kMinRows;
  if (parts < 1) parts = 1;
  const Slice::Range items = slice.of(panels * parts);
  for (std::int64_t item = items.begin; item < items.end;) {
    const std::int64_t part = item / panels, first = item % panels;
    const std::int64_t last = items.end < (part + 1) * panels ? items.end - part * panels : panels;
    const Slice::Range rows = {part * args.rows / parts, (part + 1) * args.rows / parts};
    run_widest<Kernel, Kernel::kMaxPanels>(job, first, last, rows);
    item += last - first;
  }
}

}  // namespace
}  // namespace trtc::kernels
