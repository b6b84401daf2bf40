// The logistic function 1 / (1 + e^-x) and functions built on it.
#pragma once

#include "ops/math/exponential.h"

namespace fastact::inline FASTACT_TARGET {

// Beyond it, 1 / (1 + e^a) is 0, even times the largest factor used.
template <class T>
inline constexpr T kLogisticEnd = sizeof(T) == 4 ? static_cast<T>(110) : static_cast<T>(760);

// 1 / (1 + e^a) for a >= 0, with slightly more precision than T. With s = 2^n and r from the
// reduction, it is s / D, where D = s + e^r = high + low. In this form D is close to 1 and the far
// tail is only a scale. The rounding error of D's sum is known and enters the remainder of the
// division.
template <class T>
struct LogisticTail {
  T high;
  T low;
  T inverse;  // 1 / D, rounded
  T scale;    // 2^(n + guard)

  // Returns numerator / (1 + e^a) before the multiplication by `scale`.
  FASTACT_INLINE T of(T numerator) const {
    const T q = numerator * inverse;
    return fma(inverse, remainder(numerator, q), q);
  }
  FASTACT_INLINE T of_one() const { return fma(inverse, remainder(T{1}, inverse), inverse); }
  // Returns numerator - D q.
  FASTACT_INLINE T remainder(T numerator, T q) const {
    return fma(-low, q, fma(-high, q, numerator));
  }
};

// Returns the tail for a, or for a + rest: s / (share s + e^r).
template <class T, class... Rest>
FASTACT_INLINE LogisticTail<T> logistic_tail_of_share(T share, T a, Rest... rest) {
  const Pieces<T> x = reduce_in_pieces(a);
  const T s = x.scale * (share * kUnguard<T>);
  const T r = (x.r + ... + rest);
  const T one = T{1} + s;
  const T high = one + x.high;
  T lost;
  if constexpr (std::is_same_v<T, double>) {
    // The full rounding error: it is a quarter of an ULP if s is the last place of 1.
    lost = (x.high - (high - one)) + (s - (one - T{1}));
  } else {
    lost = (s - (high - T{1})) + x.high;
  }
  T linear = ((lost + x.low) + ... + rest);
  if constexpr (std::is_same_v<T, double>) {
    // The effect of r's rounding error on r^2 / 2.
    linear = fma(r, (((x.high - r) + x.low) + ... + rest), linear);
  }
  const T low = fma(r * r, exponential_tail(r), linear);
  return {high, low, reciprocal(high + low), x.scale};
}

template <class T, class... Rest>
FASTACT_INLINE LogisticTail<T> logistic_tail(T a, Rest... rest) {
  return logistic_tail_of_share(T{1}, a, rest...);
}

// Returns 1 / (1 + e^-w) in double, where `size` is |w|, clamped. The error is below one ULP.
FASTACT_INLINE double logistic_of(double w, double size) {
  const auto tail = logistic_tail(size);
  const double near = tail.of_one() * tail.scale;
  return magnitude(fma(near, -kUnguard<double>, w < 0.0 ? 0.0 : 1.0));
}

// Returns x / (1 + e^-w), where w has the sign of x. |w| is `argument` or argument + rest, and |x|
// is `size`; both are clamped in the same way. For positive x, the result is x minus the result for
// the mirrored input.
template <class T, class... Rest>
FASTACT_INLINE T gate(T x, T size, T argument, Rest... rest) {
  const auto tail = logistic_tail(argument, rest...);
  const T mirrored = tail.of(size) * tail.scale;
  return fma(mirrored, -kUnguard<T>, positive_part(x));
}

// 1 / (1 + e^a) for a >= 0 in float: scale / D as above, where D is one number. Its sum is rounded
// once, which costs up to one ULP if D is just above 1.
struct ShortLogisticTail {
  float d;
  float scale;  // 2^(n + guard)

  // Returns numerator / (1 + e^a) before the multiplication by `scale`.
  FASTACT_INLINE float of(float numerator) const { return quotient(numerator, d); }
  FASTACT_INLINE float of_one() const { return reciprocal(d); }
};

// 1 + s = high + lost. The rounding error of the sum, which is all of s below 2^-23, may be added
// to r instead, because e^r is nearly linear.
struct OnePlusScale {
  float high;
  float lost;
};

FASTACT_INLINE OnePlusScale one_plus(float scale) {
  const float high = fma(scale, kUnguard<float>, 1.0f);
  return {high, fma(scale, kUnguard<float>, 1.0f - high)};
}

// Returns the tail for a, or for a + rest.
template <class... Rest>
FASTACT_INLINE ShortLogisticTail short_logistic_tail(float a, Rest... rest) {
  const auto [n, scale] = nearest_power(a, -kLog2E<float>);
  const OnePlusScale sum = one_plus(scale);
  const float low = (fma(n, kLn2Low<float>, sum.lost) + ... + rest);
  const float r = fma(n, kLn2High<float>, a) + low;
  return {fma(r, polynomial<kExponentialQuotientFloat>(r), sum.high), scale};
}

// Returns 1 / (1 + e^-w), where |w| is `size` or size + rest, clamped.
template <class... Rest>
FASTACT_INLINE float logistic_of(float w, float size, Rest... rest) {
  const auto tail = short_logistic_tail(size, rest...);
  const float near = tail.of_one() * tail.scale;
  return magnitude(fma(near, -kUnguard<float>, w < 0.0f ? 0.0f : 1.0f));
}

// Returns x / (1 + e^-w). `tail` belongs to |w|, and `size` is |x|, clamped.
FASTACT_INLINE float gate(float x, float size, ShortLogisticTail tail) {
  return fma(tail.of(size) * tail.scale, -kUnguard<float>, positive_part(x));
}

// Returns x q / (1 + q) in float, for q = s (1 + part) and half_s = s / 2; scale is 2^guard s. The
// error is about two roundings, also for subnormal results.
FASTACT_INLINE float times_logistic(float x, float part, float half_s, float scale) {
  const float high = 1.0f + part;
  const float low = part - (high - 1.0f);
  const float half_q = high * half_s;
  const float inverse = reciprocal(0.5f + half_q);
  // Twice q / (s + s q). The larger term of the denominator comes first in the remainder, because
  // its difference is almost exact.
  const float quotient = high * inverse;
  const float larger = clamp_below(half_q, 0.5f);
  const float smaller = clamp_above(half_q, 0.5f);
  const float remainder = fma(-smaller, quotient, fma(-larger, quotient, high));
  const float rest = inverse * (remainder + low);
  const float y = fma(x, quotient, x * rest) * scale * (0.5f * kUnguard<float>);
  return with_sign_of(y, x);
}

// w| in two parts, and its derivatives by |x|.
struct GateArgument {
  double value;
  double rest;
  double first;
  double second;
  double third;
};

// Returns f', f'' or f''' of f(x) = x / (1 + e^-w(x)) for an odd w. `size` is |x|, clamped.
template <class Element, int Order>
FASTACT_INLINE double gate_derivative(double x, double size, const GateArgument& w) {
  const Exponential e = exponential<Element>(-w.value, -w.rest);
  const double inverse = reciprocal_for<Element>(1.0 + e.value);
  if constexpr (Order == 1) {
    const double logistic = (x < 0.0 ? e.guarded : 1.0 / kDerivativeUnguard<Element>)*inverse;
    const double complement = (x < 0.0 ? 1.0 : e.value) * inverse;
    const double steepness = (x < 0.0 ? -size : size) * w.first;
    return logistic * fma(steepness, complement, 1.0) * kDerivativeUnguard<Element>;
  } else {
    // The logistic function has the derivatives p, p t and p (1 - 6p). f(x) - x / 2 is even, so |x|
    // serves both signs.
    const double guarded = e.guarded * inverse * inverse;
    const double t = e.minus_one * inverse;
    const double bend = fma(t * w.first, w.first, w.second);
    if constexpr (Order == 2) {
      return guarded * fma(size, bend, 2.0 * w.first) * kDerivativeUnguard<Element>;
    } else {
      const double p = e.value * inverse * inverse;
      const double cubed = w.first * w.first * w.first;
      const double inner = fma(fma(-6.0, p, 1.0), cubed, fma(3.0 * t * w.first, w.second, w.third));
      const double sign = x < 0.0 ? -1.0 : 1.0;
      return sign * guarded * fma(size, inner, 3.0 * bend) * kDerivativeUnguard<Element>;
    }
  }
}

// The derivatives p, p t, ... of the logistic function at w, with |w| = value + rest: `guarded` is
// p, scaled by 2^guard, and `t` is t at |w|.
struct LogisticSlope {
  double guarded;
  double t;
};

template <class Element>
FASTACT_INLINE LogisticSlope logistic_slope(double value, double rest = 0.0) {
  const Exponential e = exponential<Element>(-value, -rest);
  const double inverse = reciprocal_for<Element>(1.0 + e.value);
  return {e.guarded * inverse * inverse, e.minus_one * inverse};
}

// Returns the logistic function in double, without error compensation.
template <class Element>
FASTACT_INLINE double logistic(double x, double value, double rest = 0.0) {
  const Exponential e = exponential<Element>(-value, -rest);
  return (x < 0.0 ? e.guarded
                  : 1.0 / kDerivativeUnguard<Element>)*reciprocal_for<Element>(1.0 + e.value) *
         kDerivativeUnguard<Element>;
}

// Breaks a tie of a third derivative y at x that is almost c x for tiny x, where c is a power of
// two. A subnormal bfloat16 result may be a tie, and the exact value is closer to zero. The step is
// about the smallest positive float.
template <class Element>
FASTACT_INLINE double below_a_tie(double x, double y) {
  constexpr bool kBFloat16 = std::is_same_v<Element, BFloat16>;
  return kBFloat16 && magnitude(x) < 0x1p-100 ? y * (1.0 - 0x1p-15) : y;
}

// The correction to subtract from float16 results around 0.5 near x = 0. They are so close to ties,
// on the side of 0.5, that float cannot tell the difference.
FASTACT_INLINE float nudge_towards_half(float x) {
  return magnitude(x) < 0x1p-6f ? with_sign_of(0x1p-24f, x) : 0.0f;
}

// (e^r - 1) / r for |r| <= ln2 / 2, to 2^-24.6 of e^r (scripts/coefficients/fit_polynomials.py).
// Used by logistic_16() for float16.
inline constexpr Coefficients kLogisticExponentialFloat16{
    0x1.000002p0f, 0x1.000004p-1f, 0x1.55548p-3f, 0x1.55549p-5f, 0x1.12401p-7f, 0x1.6daa9ep-10f};

// Returns the logistic function, exact enough for 16-bit types if it is not rounded at once.
// Returns 0 for -inf.
template <class Element>
FASTACT_INLINE float unrounded_logistic_16(float x) {
  if constexpr (std::is_same_v<Element, BFloat16>) {
    const float e =
        exponential_16<Element, kExponentialBFloat16>(-clamp_magnitude(x, kEnd16<Element>));
    const float numerator = x < 0.0f ? e : 1.0f / kUnguard16<Element>;
    return numerator * reciprocal(fma(e, kUnguard16<Element>, 1.0f)) * kUnguard16<Element>;
  } else {
    const float e =
        exponential_16<Element, kLogisticExponentialFloat16>(-clamp_magnitude(x, kEnd16<Element>));
    const float numerator = x < 0.0f ? e : 1.0f;
    return numerator * reciprocal(1.0f + e);
  }
}

// Returns the logistic function for results that are rounded to 16 bits.
template <class Element>
FASTACT_INLINE float logistic_16(float x) {
  const float y = unrounded_logistic_16<Element>(x);
  if constexpr (std::is_same_v<Element, BFloat16>) {
    return y;
  } else {
    return y - nudge_towards_half(x);
  }
}

// Computes max(x, 0) - size * part for 16-bit results, where the second term is about x / 2 near
// zero. Half of a tiny odd x is a tie; the exact value is above it. The step is not a subnormal
// number, because an fma with one is slow on Intel processors (docs/dev/tuning.md).
template <class Element>
inline constexpr float kUp16 = std::is_same_v<Element, BFloat16> ? 0x1p-126f : 0x1p-40f;

template <class Element>
FASTACT_INLINE float mirrored_16(float x, float size, float part) {
  return with_sign_of(fma(-size, part, positive_or_zero(x)), x);  // whatever the sign of zero
}

// (e^r - 1) / r for |r| <= ln2 / 2, to 2^-19.7 of e^r (scripts/coefficients/fit_polynomials.py).
// For the e of silu and gelu_tanh in bfloat16.
inline constexpr Coefficients kGateExponentialBFloat16{
    0x1.ffffaep-1f, 0x1.fffe4ap-2f, 0x1.555418p-3f, 0x1.570eb6p-5f, 0x1.12737cp-7f};

// The value and the first derivative from e = 2^guard e^-|w|. `size` is |x|, clamped; `steepness`
// is x w'.
template <class Element>
FASTACT_INLINE float gate_16(float x, float size, float e) {
  const float inverse = reciprocal(fma(e, kUnguard16<Element>, 1.0f)) * kUnguard16<Element>;
  return mirrored_16<Element>(x, fma(size, e, -kUp16<Element>), inverse);
}

template <class Element>
FASTACT_INLINE float gate_derivative_16(float x, float steepness, float e) {
  const float value = e * kUnguard16<Element>;
  const float inverse = reciprocal(1.0f + value);
  const float logistic = (x < 0.0f ? e : 1.0f / kUnguard16<Element>)*inverse;
  const float complement = (x < 0.0f ? 1.0f : value) * inverse;
  return logistic * fma(steepness, complement, 1.0f) * kUnguard16<Element>;
}

}  // namespace fastact::inline FASTACT_TARGET
