// Softmax and log-softmax of a row, and their gradients:
//
//   softmax            y = e^(x - max) / sum(e^(x - max))
//   log_softmax        y = x - (max + log(sum(e^(x - max))))
//   softmax gradient      y (g - sum(g y)) for the result y
//   log_softmax gradient  g - e^y sum(g) for the result y
//
// Numbers: 16-bit types compute in float, and every result is rounded once. The rounding error of
// x - max is computed and enters the exponential. Softmax's divisor and the number that log-softmax
// subtracts have a second, lower part. log-softmax leaves the largest elements out of the sum and
// counts them, so log(count + rest) keeps its digits if one element dominates the row.
//
// Accuracy (max ULP against MPFR over the rows of python_tests/rows.py): float32 and float64
// softmax 2, log_softmax 1.01.
//
// Special values: an element of -infinity has softmax 0 and log-softmax -infinity, and changes no
// other result. A row of -infinity alone, a row with +infinity and a row with NaN are NaN in every
// element, as in PyTorch.
#pragma once

#include "ops/forms/row_form.h"
#include "ops/math/exponential.h"
#include "ops/math/logarithm.h"

namespace fastact::inline FASTACT_TARGET {

// Shared by both values: the maximum, and e^(x - max).
template <class Element>
struct SoftmaxExponential {
  using T = OpMath<Element>;
  using Outputs = Elements<Element>;
  using Inputs = Elements<Element>;
  using Sum = RowSum<T>;
  static constexpr T kBeyondEnd = kMinusInfinity<T>;

  // Adding +0 removes the sign of a zero, which the order of the elements would decide.
  FASTACT_INLINE void set_maximum(T maximum) { max = maximum + T{0}; }

  // Returns kExponentialScale<T> e^(x - max). `difference` is x - max, rounded. Its rounding error
  // is found by Knuth's two-sum.
  FASTACT_INLINE T exponential(T x, T difference) const {
    const T subtracted = difference - x;
    const T error = (x - (difference - subtracted)) - (max + subtracted);
    return exponential_times_scale(difference, error);
  }

  T max = T{0};
};

template <class Element>
struct SoftmaxValue : SoftmaxExponential<Element> {
  using T = OpMath<Element>;
  using Sum = RowSum<T>;
  static constexpr Reduction kReductions[] = {Reduction::kMaximum, Reduction::kSum};
  static constexpr int kReplacedBy = 1;  // by the exponential

  FASTACT_INLINE explicit SoftmaxValue(const double* /*parameters*/) {}

  template <int R>
  FASTACT_INLINE T accumulate(T* sums, T x) const {
    const T e = this->exponential(x, x - this->max);
    sums[0] += e;
    return e;
  }

  template <int R>
  FASTACT_INLINE void finish(const Sum* totals) {
    if constexpr (R == 0) {
      this->set_maximum(totals[0].high);
    } else {
      inverse = T{1} / totals[0].high;
      const T remainder = fma(-inverse, totals[0].high, T{1});
      inverse_low = fma(-inverse, totals[0].low, remainder) * inverse;
    }
  }

  FASTACT_INLINE T evaluate(T e) const { return fma(e, inverse, e * inverse_low); }

  T inverse = T{0};
  T inverse_low = T{0};
};

template <class Element>
struct LogSoftmaxValue : SoftmaxExponential<Element> {
  using T = OpMath<Element>;
  using Sum = RowSum<T>;
  static constexpr Reduction kReductions[] = {Reduction::kMaximum, Reduction::kTwoSums};
  static constexpr int kReplacedBy = -1;

  FASTACT_INLINE explicit LogSoftmaxValue(const double* /*parameters*/) {}

  template <int R>
  FASTACT_INLINE T accumulate(T* sums, T x) const {
    const T difference = x - this->max;
    const T e = this->exponential(x, difference);
    const bool is_largest = difference == T{0};
    sums[0] += is_largest ? T{0} : e;
    sums[1] += is_largest ? T{1} : T{0};
    return x;
  }

  template <int R>
  FASTACT_INLINE void finish(const Sum* totals) {
    if constexpr (R == 0) {
      this->set_maximum(totals[0].high);
    } else {
      constexpr T kUnscale = T{1} / kExponentialScale<T>;
      const Sum rest(totals[0].high * kUnscale, totals[0].low * kUnscale);
      const Sum sum = totals[1] + rest;
      const Logarithm<T> log = logarithm(sum.high, sum.low);
      offset = this->max + log.high;
      const T log_part = offset - this->max;
      offset_low = ((this->max - (offset - log_part)) + (log.high - log_part)) + log.low;
    }
  }

  FASTACT_INLINE T evaluate(T x) const { return (x - offset) - offset_low; }

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

  T sum = T{0};
};

template <class Element>
struct SoftmaxGradient : SoftmaxGradientSum<Element> {
  using T = OpMath<Element>;

  FASTACT_INLINE explicit SoftmaxGradient(const double* /*parameters*/) {}

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

  FASTACT_INLINE explicit LogSoftmaxGradient(const double* /*parameters*/) {}

  template <int R>
  FASTACT_INLINE T accumulate(T* sums, T g, T /*y*/) const {
    sums[0] += g;
    return g;
  }

  FASTACT_INLINE T evaluate(T g, T y) const {
    const T e = exponential_times_scale(y, T{0}) * (T{1} / kExponentialScale<T>);
    return fma(-e, this->sum, g);
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
