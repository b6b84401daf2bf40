// log(sum(e^x)) of a row, and its gradient:
//
//   value     max + log(sum(e^(x - max)))
//   gradient  g e^(x - max) / sum(e^(x - max)) for the incoming g
//
// Numbers: those of log-softmax and softmax (ops/forms/softmax.h).
//
// Accuracy (documented, not proven; float32 and float64): the value has an error of at most 1 ULP
// of the larger of log n and the largest magnitude in the row.
//
// Special values: a row of -infinity alone is -infinity, a row with +infinity is +infinity, and a
// row with NaN is NaN, as in PyTorch. The gradient of such a row is NaN in every element.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "ops/forms/softmax.h"

namespace fastact::inline FASTACT_TARGET {

// A constant, because GPU code cannot call std::numeric_limits.
template <class T>
inline constexpr T kLargestFinite = std::numeric_limits<T>::max();

template <class Element>
struct LogSumExp : LogSoftmaxValue<Element> {
  using Base = LogSoftmaxValue<Element>;
  using T = OpMath<Element>;
  using Sum = RowSum<T>;
  using Outputs = Elements<>;
  using RowOutputs = Elements<Element>;

  using Base::Base;

  template <int R>
  FASTACT_INLINE void finish(const Sum* totals) {
    Base::template finish<R>(totals);
    if (magnitude(this->max) < -kMinusInfinity<T>) return;
    if constexpr (R == 0) {
      // Relative to this, no exponential of a finite element overflows, so the sum is NaN only if
      // the row contains NaN.
      this->exponential = RowExponential<T>(kLargestFinite<T>);
    } else {
      this->offset = is_nan(totals[0].high) ? totals[0].high : this->max;
      this->offset_low = T{0};
    }
  }

  FASTACT_INLINE auto row_results() const { return tuple_of(this->offset + this->offset_low); }
};

template <class Element>
struct LogSumExpGradient : SoftmaxValue<Element> {
  using Base = SoftmaxValue<Element>;
  using T = OpMath<Element>;
  using RowInputs = Elements<T>;

  using Base::Base;

  FASTACT_INLINE void start(T incoming) { g = incoming; }

  FASTACT_INLINE T evaluate(T e) const { return g * Base::evaluate(e); }

  template <class Visit>
  FASTACT_INLINE void each_number(const Visit& visit) {
    Base::each_number(visit);
    visit(g);
  }

  T g = T{0};
};

struct LogsumexpForms {
  static constexpr int kCount = 2;

  template <class Element, int Index>
  using Form = std::conditional_t<Index == 0, LogSumExp<Element>, LogSumExpGradient<Element>>;
};

}  // namespace fastact::inline FASTACT_TARGET
