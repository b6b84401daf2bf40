// RMSNorm of a row, and its gradient by the input, for a weight w of each element (Zhang and
// Sennrich, "Root mean square layer normalization", 2019):
//
//   value     y = x r w                   with r = 1 / sqrt(mean(x^2) + eps)
//   gradient  r (u - x r^2 mean(u x))     for the incoming g, with u = g w
//
// Numbers: 16-bit types compute in float, and every result is rounded once.
//
// Accuracy (documented, not proven; float32 and float64): 2 ULP.
//
// Special values: NaN and infinities become NaN. A row with NaN is NaN in every element. Finite
// elements beside an infinity are 0, as are rows whose squares overflow; both as in PyTorch.
#pragma once

#include <cstdint>
#include <tuple>

#include "ops/forms/norm.h"

namespace fastact::inline FASTACT_TARGET {

template <class Element>
struct RmsNormValue : NormBase<Element> {
  using T = OpMath<Element>;
  using Inputs = Elements<Element, Element>;
  using Sum = RowSum<T>;
  static constexpr Reduction kReductions[] = {Reduction::kSum};
  static constexpr int kShared = 1;

  using NormBase<Element>::NormBase;

  template <int R>
  FASTACT_INLINE T accumulate(T* sums, T x) const {
    sums[0] = fma(x, x, sums[0]);
    return x;
  }

  template <int R>
  FASTACT_INLINE void finish(const Sum* totals) {
    const Sum sum = totals[0];
    // The lower part of an infinite sum is NaN.
    const T mean = (is_nan(sum.low) ? sum.high : sum.high + sum.low) / this->count;
    r = inverse_root(mean, this->eps);
    // One step of Newton's method.
    const T square = mean + this->eps;
    const T root = square * r;
    const T distance = fma(-root, r, T{1}) - fma(square, r, -root) * r;
    const bool is_finite = (r > T{0}) & (r < -kMinusInfinity<T>);
    r_low = is_finite ? T{0.5} * r * distance : T{0};
  }

  FASTACT_INLINE T evaluate(T x, T w) const {
    const T y = x * r;
    const T low = fma(x, r_low, fma(x, r, -y));
    const T result = fma(y, w, low * w);
    // `low` is NaN if r is infinite, and low * w may cancel an infinity.
    return is_nan(result) ? y * w : result;
  }

  template <class Visit>
  FASTACT_INLINE void each_number(const Visit& visit) {
    visit(r);
    visit(r_low);
  }

  T r = T{0};
  T r_low = T{0};  // r + r_low is more accurate
};

template <class Element>
struct RmsNormGradient : NormBase<Element> {
  using T = OpMath<Element>;
  using Inputs = Elements<Element, Element, Element>;
  using Sum = T;
  static constexpr Reduction kReductions[] = {Reduction::kTwoSums};
  static constexpr int kShared = 1;
  static constexpr bool kAddsShared = true;

  using NormBase<Element>::NormBase;

  template <int R>
  FASTACT_INLINE T accumulate(T* sums, T x, T g, T w) const {
    sums[0] = fma(x, x, sums[0]);
    sums[1] = fma(g * w, x, sums[1]);
    return x;
  }

  template <int R>
  FASTACT_INLINE void finish(const Sum* totals) {
    r = inverse_root(totals[0] / this->count, this->eps);
    // The factor of x r.
    share = totals[1] / this->count * r * r;
  }

  FASTACT_INLINE T evaluate(T x, T g, T w) const { return r * fma(-x, share, g * w); }

  template <class Visit>
  FASTACT_INLINE void each_number(const Visit& visit) {
    visit(r);
    visit(share);
  }

  T r = T{0};
  T share = T{0};
};

struct RmsNormForms {
  static constexpr int kCount = 2;

  template <class Element, int Index>
  using Form =
      std::tuple_element_t<Index, std::tuple<RmsNormValue<Element>, RmsNormGradient<Element>>>;
};

}  // namespace fastact::inline FASTACT_TARGET
