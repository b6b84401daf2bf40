// SELU and alpha dropout in one operator: y = a selu(x) + b for an element that is kept, and y = a
// (-lambda alpha) + b for one that is dropped, with probability p. The constants a and b preserve
// mean 0 and variance 1. Only a seed is saved for backward: word i % 4 of philox(seed, i / 4)
// decides whether element i is dropped. i is the index in row-major order, for any strides.
//
// Rounding: a, b and the result for dropped elements are rounded to the type in which the element
// computes (OpMath). selu(x) has its own error bound; for float32 and float64 it is rounded to the
// element. a selu(x) + b is one fma, which is then rounded to the element. A dropped element does
// not depend on x, and its gradient is 0, even if x is NaN or infinite. PyTorch multiplies by 0
// there.
//
// Source: Klambauer et al., "Self-Normalizing Neural Networks", 2017, "alpha dropout".
#pragma once

#include <cstdint>
#include <type_traits>

#include "ops/activations/selu.h"
#include "ops/forms/fused.h"
#include "ops/kernel.h"
#include "ops/math/philox.h"

namespace fastact::inline FASTACT_TARGET {

// Constants for 0 < p < 1.
template <class T>
struct AlphaDropout {
  explicit AlphaDropout(double p) {
    const double kept = 1.0 - p;
    const double variance = (Selu::kLambdaAlpha * Selu::kLambdaAlpha * p + 1.0) * kept;
    const double a = 1.0 / square_root(variance);
    const double words = p * 0x1p32;
    threshold = words < 0x1p32 - 1.0 ? static_cast<uint32_t>(words) : ~uint32_t{0};
    scale = static_cast<T>(a);
    shift = static_cast<T>(a * Selu::kLambdaAlpha * p);
    dropped = static_cast<T>(-a * Selu::kLambdaAlpha * kept);
  }

  [[nodiscard]] FASTACT_INLINE bool drops(uint32_t random) const { return random < threshold; }

  uint32_t threshold;
  T scale;
  T shift;
  T dropped;
};

// The forms below take the random bits of the element, then compute values.
template <class Element>
struct AlphaDropoutValue {
  using T = OpMath<Element>;
  using Outputs = Elements<Element>;
  using Inputs = Elements<uint32_t, Element>;
  static constexpr bool kTakesRandomBits = true;

  explicit AlphaDropoutValue(const double* parameters) : dropout(parameters[0]), selu(nullptr) {}

  FASTACT_INLINE T evaluate(uint32_t random, T x) const {
    const T y = fma(dropout.scale, fused_value<Element>(selu, x), dropout.shift);
    return dropout.drops(random) ? dropout.dropped : y;
  }

  AlphaDropout<T> dropout;
  Selu selu;
};

// The gradient, from the incoming gradient and x.
template <class Element>
struct AlphaDropoutGradient {
  using T = OpMath<Element>;
  using Outputs = Elements<Element>;
  using Inputs = Elements<uint32_t, Element, Element>;
  static constexpr bool kTakesRandomBits = true;

  explicit AlphaDropoutGradient(const double* parameters)
      : dropout(parameters[0]), slope(nullptr) {}

  FASTACT_INLINE T evaluate(uint32_t random, T g, T x) const {
    const T gradient = number_of<Element>(slope.evaluate(dropout.scale * g, x));
    return dropout.drops(random) ? T{0} : gradient;
  }

  AlphaDropout<T> dropout;
  Derivative<Selu, Element, 1, false> slope;
};

// a times the incoming gradient, or 0. Does not depend on x.
template <class Element>
struct AlphaDropoutMask {
  using T = OpMath<Element>;
  using Outputs = Elements<Element>;
  using Inputs = Elements<uint32_t, Element, Element>;
  static constexpr bool kTakesRandomBits = true;

  explicit AlphaDropoutMask(const double* parameters) : dropout(parameters[0]) {}

  FASTACT_INLINE T evaluate(uint32_t random, T g, T /*x*/) const {
    return dropout.drops(random) ? T{0} : dropout.scale * g;
  }

  AlphaDropout<T> dropout;
};

struct AlphaDropoutForms {
  static constexpr int kCount = 3;
  // Compilers call the operator instead of including the form (ops/codegen/given.h).
  static constexpr bool kIsCalled = true;

  template <class Element, int Index>
  using Form = std::conditional_t<
      Index == 0, AlphaDropoutValue<Element>,
      std::conditional_t<Index == 1, AlphaDropoutGradient<Element>, AlphaDropoutMask<Element>>>;
};

}  // namespace fastact::inline FASTACT_TARGET
