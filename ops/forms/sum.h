// The sum of a row.
//
// Numbers: 16-bit types compute in float, and the result is rounded once. RowSum adds the rounding
// errors of the tree's additions. The additions within a lane, three for each tile, are not
// corrected.
//
// Accuracy (documented, not proven; float32 and float64): 3 ULP of the sum of the magnitudes.
//
// Special values: as in IEEE 754. An infinite sum of finite elements has overflowed.
#pragma once

#include <cstdint>

#include "ops/forms/row_form.h"

namespace fastact::inline FASTACT_TARGET {

template <class Element>
struct SumOfRow {
  using T = OpMath<Element>;
  using Outputs = Elements<>;
  using Inputs = Elements<Element>;
  using RowOutputs = Elements<Element>;
  using Sum = RowSum<T>;
  static constexpr Reduction kReductions[] = {Reduction::kSum};
  static constexpr int kReplacedBy = -1;
  static constexpr T kBeyondEnd = T{0};

  FASTACT_INLINE SumOfRow(const double* /*parameters*/, int64_t /*n*/) {}

  template <int R>
  FASTACT_INLINE T accumulate(T* sums, T x) const {
    sums[0] += x;
    return x;
  }

  template <int R>
  FASTACT_INLINE void finish(const Sum* totals) {
    // The lower part of an infinite sum is NaN.
    sum = is_nan(totals[0].low) ? totals[0].high : totals[0].high + totals[0].low;
  }

  FASTACT_INLINE auto row_results() const { return tuple_of(sum); }

  template <class Visit>
  FASTACT_INLINE void each_number(const Visit& visit) {
    visit(sum);
  }

  T sum = T{0};
};

struct SumForms {
  static constexpr int kCount = 1;

  template <class Element, int Index>
  using Form = SumOfRow<Element>;
};

}  // namespace fastact::inline FASTACT_TARGET
