// Reductions of a row of n elements x:
//
//   sum       sum(x)
//   mean      m = sum(x) / n
//   variance  sum((x - m)^2) / max(n - c, 0), and m, for the correction c
//
// Numbers: 16-bit types compute in float, and the result is rounded once. The variance takes m
// rounded. The sum of x - m, computed together with the squares, corrects their sum for that. So a
// row far from 0 has an accurate variance.
//
// Accuracy (float32 and float64): u is 2^-24 or 2^-53, and S the sum of the magnitudes. For t tiles
// of 1,024 elements, the sum has an error of at most (11 + ceil(log2(t))) u S. An element takes
// part in that many additions: three of a lane, eight of the tree over the lanes, and those of the
// tree over the tiles. Each has a relative error of at most u. The mean has at most one u more,
// relative to S / n, if n is exact in the type. If d is the error of m, the variance has an error
// of at most (16 + ceil(log2(t))) u (variance + d^2) (documented, not proven).
//
// Special values: infinities and NaN as in IEEE 754. A sum of zeros is +0. An infinite sum of
// finite elements has overflowed; the variance of such a row is NaN. If only the squares overflow,
// the variance is infinite.
#pragma once

#include <cstdint>
#include <tuple>

#include "ops/forms/row_form.h"

namespace fastact::inline FASTACT_TARGET {

template <class Element>
struct SumOfRow {
  using T = OpMath<Element>;
  using Outputs = Elements<>;
  using Inputs = Elements<Element>;
  using RowOutputs = Elements<Element>;
  using Sum = T;
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
    result = totals[0];
  }

  FASTACT_INLINE auto row_results() const { return tuple_of(result); }

  template <class Visit>
  FASTACT_INLINE void each_number(const Visit& visit) {
    visit(result);
  }

  T result = T{0};
};

template <class Element>
struct MeanOfRow : SumOfRow<Element> {
  using Base = SumOfRow<Element>;
  using T = OpMath<Element>;
  using Sum = T;

  FASTACT_INLINE MeanOfRow(const double* parameters, int64_t n)
      : Base(parameters, n), count(static_cast<T>(n)) {}

  template <int R>
  FASTACT_INLINE void finish(const Sum* totals) {
    this->result = totals[0] / count;
  }

  T count;
};

template <class Element>
struct VarianceOfRow : SumOfRow<Element> {
  using Base = SumOfRow<Element>;
  using T = OpMath<Element>;
  using Sum = T;
  using RowOutputs = Elements<Element, Element>;  // the variance and the mean
  static constexpr Reduction kReductions[] = {Reduction::kSum, Reduction::kTwoSums};

  FASTACT_INLINE VarianceOfRow(const double* parameters, int64_t n)
      : Base(parameters, n), count(static_cast<T>(n)) {
    const double freedom = static_cast<double>(n) - parameters[0];
    divisor = static_cast<T>(freedom < 0.0 ? 0.0 : freedom);
  }

  // Returns the mean, so that padding adds 0 to the sums of distances.
  FASTACT_INLINE T beyond_end() const { return mean; }

  template <int R>
  FASTACT_INLINE T accumulate(T* sums, T x) const {
    if constexpr (R == 0) {
      sums[0] += x;
    } else {
      const T distance = x - mean;
      sums[0] += distance;
      sums[1] = fma(distance, distance, sums[1]);
    }
    return x;
  }

  template <int R>
  FASTACT_INLINE void finish(const Sum* totals) {
    if constexpr (R == 0) {
      mean = totals[0] / count;
    } else {
      const T rest = totals[0];
      const T squares = fma(-rest, rest / count, totals[1]);
      // Rounding may have made `squares` negative.
      this->result = (squares < T{0} ? T{0} : squares) / divisor;
    }
  }

  FASTACT_INLINE auto row_results() const { return tuple_of(this->result, mean); }

  template <class Visit>
  FASTACT_INLINE void each_number(const Visit& visit) {
    Base::each_number(visit);
    visit(mean);
  }

  T count;  // n, rounded
  T divisor;
  T mean = T{0};
};

struct ReductionsForms {
  static constexpr int kCount = 3;

  template <class Element, int Index>
  using Form = std::tuple_element_t<
      Index, std::tuple<SumOfRow<Element>, MeanOfRow<Element>, VarianceOfRow<Element>>>;
};

}  // namespace fastact::inline FASTACT_TARGET
