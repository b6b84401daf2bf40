// Leaky ReLU with a random slope: y = x for x > 0, and s x for x <= 0, where s is uniform between
// `lower` and `upper`. Only a seed is saved for backward: element i takes word i % 4 of
// philox(seed, i / 4), where i is the index in row-major order, for any strides.
//
// Rounding: s = lower + u (upper - lower), where u is a multiple of 2^-24 from 0 to 1 - 2^-24, is
// one fma in the type in which the element computes (OpMath), with upper - lower rounded. The
// product is then rounded once, to the element. For NaN, value and gradient are NaN.
//
// Source: Xu et al., "Empirical Evaluation of Rectified Activations in Convolution Network", 2015.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ops/forms/form.h"
#include "ops/forms/fused.h"
#include "ops/math/arithmetic.h"

namespace fastact::inline FASTACT_TARGET {

template <class T>
struct RandomSlope {
  explicit RandomSlope(const double* parameters)
      : lower(static_cast<T>(parameters[0])),
        step(static_cast<T>((parameters[1] - parameters[0]) * 0x1p-24)) {}

  FASTACT_INLINE T operator()(uint32_t random) const {
    return fma(static_cast<T>(static_cast<int32_t>(random >> 8)), step, lower);
  }

  T lower;
  T step;
};

// The forms below take the random bits of the element, then compute values.
template <class Element>
struct RreluValue {
  using T = OpMath<Element>;
  using Outputs = Elements<Element>;
  using Inputs = Elements<uint32_t, Element>;
  static constexpr bool kTakesRandomBits = true;

  explicit RreluValue(const double* parameters) : slope(parameters) {}

  FASTACT_INLINE T evaluate(uint32_t random, T x) const { return x > T{0} ? x : slope(random) * x; }

  RandomSlope<T> slope;
};

// The gradient, from the incoming gradient and x.
template <class Element>
struct RreluGradient {
  using T = OpMath<Element>;
  using Outputs = Elements<Element>;
  using Inputs = Elements<uint32_t, Element, Element>;
  static constexpr bool kTakesRandomBits = true;

  explicit RreluGradient(const double* parameters) : slope(parameters) {}

  FASTACT_INLINE T evaluate(uint32_t random, T g, T x) const {
    const T factor = is_nan(x) ? x : x > T{0} ? T{1} : slope(random);
    return number_of<Element>(product<Element>(factor, g));
  }

  RandomSlope<T> slope;
};

struct RreluForms {
  static constexpr int kCount = 2;
  // Compilers call the operator instead of including the form (ops/codegen/given.h).
  static constexpr bool kIsCalled = true;

  template <class Element, int Index>
  using Form = std::conditional_t<Index == 0, RreluValue<Element>, RreluGradient<Element>>;
};

}  // namespace fastact::inline FASTACT_TARGET
