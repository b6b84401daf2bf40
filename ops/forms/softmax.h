// Softmax and log-softmax of a row, and their gradients:
//
//   softmax            y = e^(x - max) / sum(e^(x - max))
//   log_softmax        y = x - (max + log(sum(e^(x - max))))
//   softmax gradient      y (g - sum(g y)) for the result y
//   log_softmax gradient  g - e^y sum(g) for the result y
//
// Numbers: 16-bit types compute in float, and every result is rounded once. The exponentials are
// computed from x, not from x - max, which is rounded. Softmax's divisor and the number that
// log-softmax subtracts have a second, lower part. log-softmax leaves the largest elements out of
// the sum and counts them, so log(count + rest) keeps its digits if one element dominates the row.
//
// Accuracy (documented, not proven; float32 and float64): softmax 3.5 ULP, log_softmax 2.5. The
// largest errors found in 1.0 million float32 rows of 2 to 50,257 normal numbers with standard
// deviations of 1, 3 and 10: softmax 3.12 and log_softmax 2.12, or 1.49 for rows of 16 or more.
//
// Special values: an element of -infinity has softmax 0 and log-softmax -infinity, and changes no
// other result. A row of -infinity alone, a row with +infinity and a row with NaN are NaN in every
// element, as in PyTorch.
#pragma once

#include "ops/forms/row_form.h"
#include "ops/math/logarithm.h"
#include "ops/math/row_exponential.h"

namespace fastact::inline FASTACT_TARGET {

// Shared by both values.
template <class Element>
struct SoftmaxSums {
  using T = OpMath<Element>;
  using Outputs = Elements<Element>;
  using Inputs = Elements<Element>;
  using Sum = RowSum<T>;
  static constexpr T kBeyondEnd = kMinusInfinity<T>;

  // Returns 1 / sum.
  static FASTACT_INLINE Sum inverse_of(const Sum& sum) {
    const T inverse = T{1} / sum.high;
    const T remainder = fma(-inverse, sum.high, T{1});
    return Sum(inverse, fma(-inverse, sum.low, remainder) * inverse);
  }

  RowExponential<T> exponential;
};

template <class Element>
struct SoftmaxValue : SoftmaxSums<Element> {
  using T = OpMath<Element>;
  using Sum = RowSum<T>;
  static constexpr Reduction kReductions[] = {Reduction::kMaximum, Reduction::kSum};
  static constexpr int kReplacedBy = 1;  // by the exponential

  FASTACT_INLINE SoftmaxValue(const double* /*parameters*/, int64_t /*n*/) {}

  template <int R>
  FASTACT_INLINE T accumulate(T* sums, T x) const {
    const T e = this->exponential(x);
    sums[0] += e;
    return e;
  }

  template <int R>
  FASTACT_INLINE void finish(const Sum* totals) {
    if constexpr (R == 0) {
      this->exponential = RowExponential<T>(totals[0].high);
    } else {
      inverse = this->inverse_of(totals[0]);
    }
  }

  FASTACT_INLINE T evaluate(T e) const { return fma(e, inverse.high, e * inverse.low); }

  template <class Visit>
  FASTACT_INLINE void each_number(const Visit& visit) {
    this->exponential.each_number(visit);
    visit(inverse.high);
    visit(inverse.low);
  }

  Sum inverse = Sum(T{0});
};

template <class Element>
struct LogSoftmaxValue : SoftmaxSums<Element> {
  using T = OpMath<Element>;
  using Sum = RowSum<T>;
  static constexpr Reduction kReductions[] = {Reduction::kMaximum, Reduction::kSumAndCount};
  static constexpr int kReplacedBy = -1;

  FASTACT_INLINE LogSoftmaxValue(const double* /*parameters*/, int64_t /*n*/) {}

  template <int R>
  FASTACT_INLINE T accumulate(T* sums, T x) const {
    const T e = this->exponential(x);
    const bool is_largest = x == max;
    sums[0] += is_largest ? T{0} : e;
    sums[1] += is_largest ? T{1} : T{0};
    return x;
  }

  template <int R>
  FASTACT_INLINE void finish(const Sum* totals) {
    if constexpr (R == 0) {
      max = totals[0].high + T{0};  // removes the sign of a zero
      this->exponential = RowExponential<T>(max);
    } else {
      constexpr T kUnscale = T{1} / RowExponential<T>::kScale;
      const Sum inverse = this->inverse_of(this->exponential.at_largest(max));
      const T rest = totals[0].high * kUnscale;
      const T rest_low = totals[0].low * kUnscale;
      // In units of the largest element's exponential.
      const T high = rest * inverse.high;
      const T low = fma(rest, inverse.low, fma(rest, inverse.high, -high));
      const Sum sum = totals[1] + Sum(high, fma(rest_low, inverse.high, low));
      const Logarithm<T> log = logarithm(sum.high, sum.low);
      offset = max + log.high;
      const T log_part = offset - max;
      offset_low = ((max - (offset - log_part)) + (log.high - log_part)) + log.low;
    }
  }

  FASTACT_INLINE T evaluate(T x) const { return (x - offset) - offset_low; }

  template <class Visit>
  FASTACT_INLINE void each_number(const Visit& visit) {
    this->exponential.each_number(visit);
    visit(max);
    visit(offset);
    visit(offset_low);
  }

  T max = T{0};
  // max + log(sum)
  T offset = T{0};
  T offset_low = T{0};
};

// Shared by both gradients by the input, from the incoming gradient g and the result y: one sum.
template <class Element>
struct SoftmaxGradientSum {
  using T = OpMath<Element>;
  using Outputs = Elements<Element>;
  using Inputs = Elements<Element, Element>;
  using Sum = T;
  static constexpr Reduction kReductions[] = {Reduction::kSum};
  static constexpr int kReplacedBy = -1;
  static constexpr T kBeyondEnd = T{0};

  template <int R>
  FASTACT_INLINE void finish(const Sum* totals) {
    sum = totals[0];
  }

  template <class Visit>
  FASTACT_INLINE void each_number(const Visit& visit) {
    visit(sum);
  }

  T sum = T{0};
};

template <class Element>
struct SoftmaxGradient : SoftmaxGradientSum<Element> {
  using T = OpMath<Element>;

  FASTACT_INLINE SoftmaxGradient(const double* /*parameters*/, int64_t /*n*/) {}

  template <int R>
  FASTACT_INLINE T accumulate(T* sums, T g, T y) const {
    sums[0] = fma(g, y, sums[0]);
    return g;
  }

  FASTACT_INLINE T evaluate(T g, T y) const { return y * (g - this->sum); }
};

template <class Element>
struct LogSoftmaxGradient : SoftmaxGradientSum<Element> {
  using T = OpMath<Element>;

  FASTACT_INLINE LogSoftmaxGradient(const double* /*parameters*/, int64_t /*n*/) {}

  template <int R>
  FASTACT_INLINE T accumulate(T* sums, T g, T /*y*/) const {
    sums[0] += g;
    return g;
  }

  FASTACT_INLINE T evaluate(T g, T y) const {
    constexpr T kUnscale = T{1} / RowExponential<T>::kScale;
    return fma(-(RowExponential<T>()(y) * kUnscale), this->sum, g);
  }
};

struct SoftmaxForms {
  static constexpr int kCount = 4;

  template <class Element, int Index>
  using Form =
      std::conditional_t<Index == 0, SoftmaxValue<Element>,
                         std::conditional_t<Index == 1, LogSoftmaxValue<Element>,
                                            std::conditional_t<Index == 2, SoftmaxGradient<Element>,
                                                               LogSoftmaxGradient<Element>>>>;
};

}  // namespace fastact::inline FASTACT_TARGET
