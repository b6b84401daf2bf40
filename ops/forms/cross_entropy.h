// The cross-entropy of a row x for the target index t, and the gradient by x:
//
//   value     -log_softmax(x)[t]
//   gradient  g softmax(x) for the incoming g, and g (softmax(x)[t] - 1) at t
//
// A form does not know positions. So x[t] is a row input, and the gradient at t is a row output,
// which the caller stores at t.
//
// Numbers: those of softmax and log-softmax (ops/forms/softmax.h). The gradient's sum leaves out
// the elements that equal x[t] and counts them, so the gradient at t does not cancel if
// softmax(x)[t] is close to 1.
//
// Accuracy (documented, not proven; float32 and float64): the value 2.5 ULP, the gradient
// 5 ULP.
//
// Special values: a row with NaN or +infinity, or of -infinity alone, gives NaN. If g is 0, as in
// ignored rows, the gradient is 0 whatever the row contains.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ops/forms/softmax.h"

namespace fastact::inline FASTACT_TARGET {

template <class Element>
struct CrossEntropyValue : LogSoftmaxValue<Element> {
  using Base = LogSoftmaxValue<Element>;
  using T = OpMath<Element>;
  using Outputs = Elements<>;
  using RowInputs = Elements<T>;   // x[t]
  using RowOutputs = Elements<T>;  // the value

  using Base::Base;

  FASTACT_INLINE void start(T x) { target = x; }

  FASTACT_INLINE auto row_results() const { return tuple_of(T{0} - Base::evaluate(target)); }

  template <class Visit>
  FASTACT_INLINE void each_number(const Visit& visit) {
    Base::each_number(visit);
    visit(target);
  }

  T target = T{0};
};

template <class Element>
struct CrossEntropyGradient : SoftmaxSums<Element> {
  using T = OpMath<Element>;
  using Sum = RowSum<T>;
  using RowInputs = Elements<T, T>;      // x[t] and g
  using RowOutputs = Elements<Element>;  // the gradient at t
  static constexpr Reduction kReductions[] = {Reduction::kMaximum, Reduction::kSumAndCount};
  static constexpr int kReplacedBy = 1;  // by the exponential

  FASTACT_INLINE CrossEntropyGradient(const double* /*parameters*/, int64_t /*n*/) {}

  FASTACT_INLINE void start(T x, T incoming) {
    target = x;
    g = incoming;
  }

  // Adds the exponentials of the elements that differ from x[t], and counts the others. If x[t] is
  // -infinity, padding is counted too. This is harmless, because the count is multiplied by the
  // exponential of x[t], which is then 0.
  template <int R>
  FASTACT_INLINE T accumulate(T* sums, T x) const {
    const T e = this->exponential(x);
    const bool is_target = x == target;
    sums[0] += is_target ? T{0} : e;
    sums[1] += is_target ? T{1} : T{0};
    return e;
  }

  template <int R>
  FASTACT_INLINE void finish(const Sum* totals) {
    if constexpr (R == 0) {
      this->exponential = RowExponential<T>(totals[0].high);
    } else {
      const T e = this->exponential(target);
      const T count = totals[1].high;
      inverse = this->inverse_of(totals[0] + Sum(count * e));
      const Sum others = totals[0] + Sum((count - T{1}) * e);
      const T low = fma(others.high, inverse.low, others.low * inverse.high);
      at_target = has_zero_gradient() ? T{0} : T{0} - g * fma(others.high, inverse.high, low);
    }
  }

  FASTACT_INLINE T evaluate(T e) const {
    return has_zero_gradient() ? T{0} : g * fma(e, inverse.high, e * inverse.low);
  }

  FASTACT_INLINE auto row_results() const { return tuple_of(at_target); }

  template <class Visit>
  FASTACT_INLINE void each_number(const Visit& visit) {
    this->exponential.each_number(visit);
    visit(inverse.high);
    visit(inverse.low);
    visit(target);
    visit(g);
    visit(at_target);
  }

  T target = T{0};
  T g = T{0};
  Sum inverse = Sum(T{0});
  T at_target = T{0};

 private:
  FASTACT_INLINE bool has_zero_gradient() const { return g == T{0}; }
};

struct CrossEntropyForms {
  static constexpr int kCount = 2;

  template <class Element, int Index>
  using Form =
      std::conditional_t<Index == 0, CrossEntropyValue<Element>, CrossEntropyGradient<Element>>;
};

}  // namespace fastact::inline FASTACT_TARGET
