// The order in which the elements of a channel are added (ops/kernel.h).
#pragma once

#include <cstdint>

#include "ops/cpu/dense.h"
#include "ops/cpu/strided.h"
#include "ops/kernel.h"

namespace fastact::cpu::inline FASTACT_TARGET {

// Adds the second half of the lanes to the first half, repeatedly, until one lane is left.
template <int Width, class T>
FASTACT_INLINE void halve(T* lanes) {
  if constexpr (Width > 1) {
    FASTACT_INDEPENDENT_ITERATIONS
    for (int lane = 0; lane < Width / 2; ++lane) lanes[lane] += lanes[lane + Width / 2];
    halve<Width / 2>(lanes);
  }
}

// Returns the sum of term(0) to term(n - 1), for 0 < n <= kSumBlock: adds them in lanes, and halves
// the lanes repeatedly. The number of lanes is the smallest power of two that is at least n, but at
// most `Width`.
template <class T, int Width = kSumLanes, class Term>
FASTACT_INLINE T sum_in_lanes(int64_t n, const Term& term) {
  if constexpr (Width > 1) {
    if (Width / 2 >= n) return sum_in_lanes<T, Width / 2>(n, term);
  }
  alignas(kCacheLine) T lanes[Width] = {};
  for (int64_t i = 0; i < n; i += Width) {
    const int64_t in_lanes = n - i < Width ? n - i : Width;
    FASTACT_INDEPENDENT_ITERATIONS
    for (int64_t lane = 0; lane < in_lanes; ++lane) lanes[lane] += term(i + lane);
  }
  halve<Width>(lanes);
  return lanes[0];
}

}  // namespace fastact::cpu::inline FASTACT_TARGET
