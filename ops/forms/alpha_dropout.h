// SELU and alpha dropout at once: y = a selu(x) + b where an element is kept, and
// a (-lambda alpha) + b where it is dropped, with the probability p. a and b leave mean 0 and
// variance 1 as they are. Nothing is kept but a seed: word i % 4 of philox(seed, i / 4) decides
// whether element i is dropped. i is the index in row-major order, whatever the strides are.
//
// Numbers: a, b and what is dropped are rounded to the type in which the element computes (OpMath).
// selu(x) has its own bound, for float32 and float64 it is an element; a selu(x) + b is one fma,
// and becomes the element. A dropped element is that number, and its gradient 0, whatever x is: a
// NaN or an infinity, too, where PyTorch multiplies by 0.
//
// Source: Klambauer et al., "Self-Normalizing Neural Networks", 2017, "alpha dropout".
#pragma once

#include "ops/activations/selu.h"
#include "ops/forms/fused.h"
#include "ops/kernel.h"
#include "ops/math/philox.h"

namespace fastact::inline FASTACT_TARGET {

// For 0 < p < 1.
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

// Each of them takes the element's random bits, then numbers.
template <class Element>
struct AlphaDropoutValue {
  using T = OpMath<Element>;
  static constexpr int kInputs = 1;

  explicit AlphaDropoutValue(double p) : dropout(p), selu(nullptr) {}

  FASTACT_INLINE T evaluate(uint32_t random, T x) const {
    const T y = fma(dropout.scale, fused_value<Element>(selu, x), dropout.shift);
    return dropout.drops(random) ? dropout.dropped : y;
  }

  AlphaDropout<T> dropout;
  Selu selu;
};

// Of the incoming gradient and x.
template <class Element>
struct AlphaDropoutGradient {
  using T = OpMath<Element>;
  static constexpr int kInputs = 2;

  explicit AlphaDropoutGradient(double p) : dropout(p), slope(nullptr) {}

  FASTACT_INLINE T evaluate(uint32_t random, T g, T x) const {
    const T gradient = number_of<Element>(slope.evaluate(dropout.scale * g, x));
    return dropout.drops(random) ? T{0} : gradient;
  }

  AlphaDropout<T> dropout;
  Derivative<Selu, Element, 1, false> slope;
};

// a times a number, or 0.
template <class Element>
struct AlphaDropoutMask {
  using T = OpMath<Element>;
  static constexpr int kInputs = 1;

  explicit AlphaDropoutMask(double p) : dropout(p) {}

  FASTACT_INLINE T evaluate(uint32_t random, T x) const {
    return dropout.drops(random) ? T{0} : dropout.scale * x;
  }

  AlphaDropout<T> dropout;
};

}  // namespace fastact::inline FASTACT_TARGET
