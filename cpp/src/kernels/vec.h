// What vec_avx2.h and vec_avx512.h have in common: the kernels are written once, as templates over their class Vec.
//
//   Vec::F          a vector of Vec::kLanes float32 with the operators + - * /; the machine has Vec::kRegisters of them
//   load, store     take All{} for whole vectors or First{n} for the first n lanes; the others load as zero, and memory
//                   beyond them is neither read nor written. *_bf16 convert, rounding to nearest even.
//   keep            x in the lanes of All or First, zero in the others
//   fma(a, b, c)    a * b + c in one rounding; fnma: c - a * b
//   max, min        the second operand where either is NaN
//   ramp            0, 1, 2, ...
//   scale_pow2      x * 2^n for integral n in [-126, 254], overflowing to infinity
//   first           lane 0
//   sum, largest    over the lanes, in a fixed tree
//   transpose       kLanes vectors of kLanes
//
// Vec lives in an anonymous namespace, so every template over it has internal linkage: code for one instruction set
// never replaces another's at link time. For the same reason nothing here uses the standard library.
#pragma once

#include <cstdint>

namespace trtc::kernels {

struct All {};
struct First {
  int n;
};

// Calls body(column, All or First) over [begin, end). Every element goes through the same vector instructions whatever
// its place, so results do not depend on where a range was cut.
template <class V, class Body>
inline void for_columns(std::int64_t begin, std::int64_t end, const Body& body) {
  std::int64_t column = begin;
  for (; column + V::kLanes <= end; column += V::kLanes) body(column, All{});
  if (column < end) body(column, First{static_cast<int>(end - column)});
}

}  // namespace trtc::kernels
