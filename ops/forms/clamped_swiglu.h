// Clamped SwiGLU: f(x, l) = c s(alpha c) (m + 1), where c = min(x, limit), m is l clamped to
// [-limit, limit] and s(w) = 1 / (1 + e^-w). x is the gate, the operand of the activation.
//
// Range: every input; alpha from 0.5 to 1024; a limit above 0, or infinity for no limit. The limit
// is rounded to the compute type. f(-0.0, l) = -0.0 for l > -1. f(-inf, l) is a zero. The result is
// NaN if x or l is NaN.
//
// Accuracy (ULP), for f and each derivative times a gradient, if c s(alpha c) is not subnormal:
//   bfloat16  0.51
//   float16   0.51
//   float32   2.5, derivatives 0.51
//   float64   3, derivatives 10
// Derivatives are computed in double. Next to the zero of df/dx, at c = -1.28 / alpha, terms
// cancel. There the bound of float64 is absolute: it is in ULP of 1/16, times g (m + 1).
//
// df/dx = s(w) (1 + w (1 - s(w))) (m + 1) at w = alpha c, and 0 for x >= limit. df/dl = c s(w), and
// 0 for |l| >= limit. An infinite limit zeroes no derivative. A NaN x makes both derivatives NaN. A
// NaN l makes df/dl NaN, and also df/dx if x < limit.
//
// Source: OpenAI's gpt-oss, gpt_oss/torch/model.py, 2025.
#pragma once

#include <tuple>

#include "ops/forms/form.h"
#include "ops/math/logistic.h"

namespace fastact::inline FASTACT_TARGET {

// The constants that the forms derive from the operators' parameters, limit and alpha.
template <class Element>
struct SwigluClamp {
  using T = OpMath<Element>;

  FASTACT_INLINE explicit constexpr SwigluClamp(const double* parameters)
      : limit(static_cast<T>(parameters[0])), alpha(parameters[1]) {}

  FASTACT_INLINE T gate(T x) const { return x > limit ? limit : x; }
  FASTACT_INLINE T linear(T l) const {
    const T above = l < -limit ? -limit : l;
    return above > limit ? limit : above;
  }

  T limit;
  double alpha;
};

// f(x, l).
template <class Element>
struct ClampedSwiglu {
  using T = OpMath<Element>;
  using Outputs = Elements<Element>;
  using Inputs = Elements<Element, Element>;

  FASTACT_INLINE explicit constexpr ClampedSwiglu(const double* parameters)
      : clamp(parameters),
        alpha(static_cast<T>(clamp.alpha)),
        alpha_rest(static_cast<T>(clamp.alpha - static_cast<double>(alpha))),
        end(static_cast<T>(static_cast<double>(kLogisticEnd<T>) / clamp.alpha)) {}

  FASTACT_INLINE T evaluate(T x, T l) const {
    const T c = clamp.gate(x);
    const T size = clamp_magnitude(c, end);
    // |w| in two parts, because an exponential amplifies the error of its argument.
    const T w = size * alpha;
    const T rest = fma(size, alpha_rest, fma(size, alpha, -w));
    return gate(c, size, w, rest) * (clamp.linear(l) + T{1});
  }

  SwigluClamp<Element> clamp;
  T alpha;
  T alpha_rest;
  T end;
};

// g df/dx and g df/dl.
template <class Element>
struct ClampedSwigluBackward {
  using T = OpMath<Element>;
  using Outputs = Elements<Element, Element>;
  using Inputs = Elements<Element, Element, Element>;

  FASTACT_INLINE explicit constexpr ClampedSwigluBackward(const double* parameters)
      : clamp(parameters),
        // NaN for an infinite limit: no comparison with it is true.
        reached(clamp.limit - clamp.limit + clamp.limit),
        end(kDerivativeEnd<Element> / clamp.alpha) {}

  FASTACT_INLINE auto evaluate(T g, T x, T l) const {
    const auto c = static_cast<double>(clamp.gate(x));
    const double size = clamp_magnitude(c, end);
    const double w = size * clamp.alpha;
    const Exponential e = exponential<Element>(-w, -fma(size, clamp.alpha, -w));
    const double inverse = reciprocal_for<Element>(1.0 + e.value);
    constexpr double kUnguarded = kDerivativeUnguard<Element>;
    const double logistic = (c < 0.0 ? e.guarded : 1.0 / kUnguarded) * inverse;
    const double complement = (c < 0.0 ? 1.0 : e.value) * inverse;
    const double slope = logistic * fma(c < 0.0 ? -w : w, complement, 1.0) * kUnguarded;
    // Uses -size if c < 0, because c may be infinite while the logistic function is 0.
    const double value = (c < 0.0 ? -size : c) * logistic * kUnguarded;
    const double m = static_cast<double>(clamp.linear(l)) + 1.0;
    const double by_gate = x >= reached ? 0.0 : slope * m;
    const double by_linear = magnitude(l) >= reached ? 0.0 : value;
    return tuple_of(rounded(by_gate, g),
                    rounded(is_nan(l) ? static_cast<double>(l) : by_linear, g));
  }

  SwigluClamp<Element> clamp;
  T reached;
  double end;

 private:
  FASTACT_INLINE static auto rounded(double derivative, T g) {
    return narrowed<Element>(product<double>(derivative, static_cast<double>(g)));
  }
};

struct ClampedSwigluForms {
  static constexpr int kCount = 2;
  // Its parameters are those of the operators (ops/codegen/given.h).
  static constexpr bool kIsCalled = true;

  template <class Element, int Index>
  using Form =
      std::tuple_element_t<Index,
                           std::tuple<ClampedSwiglu<Element>, ClampedSwigluBackward<Element>>>;
};

}  // namespace fastact::inline FASTACT_TARGET
