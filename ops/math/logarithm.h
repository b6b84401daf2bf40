// log(1 + e^z), from which softplus and log-sigmoid are built, and log(x).
//
// For z > 0 it is z + log(1 + e^-z), and log(1 + e) = 2 atanh(e / (2 + e)) for e = e^-|z| <= 1. The
// quotient, at most 1/3, is a logistic tail with half a share of e.
#pragma once

#include "ops/math/approximate.h"
#include "ops/math/logistic.h"
#include "ops/math/segments.h"

namespace fastact::inline FASTACT_TARGET {

// Polynomials, checked by scripts/coefficients/fit_polynomials.py.

// (atanh(t) / t - 1) / t^2 by t^2 for t <= 1/3, to 2^-58.7 of atanh(t) / t. Interpolated at the
// Chebyshev nodes.
inline constexpr Coefficients kAtanhTail{
    0x1.5555555555555p-2, 0x1.9999999999944p-3, 0x1.2492492499d46p-3, 0x1.c71c71bedea97p-4,
    0x1.745d19937b1fcp-4, 0x1.3b13515f6f9efp-4, 0x1.111abdc8abe16p-4, 0x1.e0a2d581ab68fp-5,
    0x1.bc37f0140c19ep-5, 0x1.32e0d25c9c761p-5, 0x1.401d3e65cdc48p-4};

// The same for t <= 3 - 2 sqrt(2), to 2^-28.5 of atanh(t) / t.
inline constexpr Coefficients kAtanhTailFloat{0x1.55555cp-2f, 0x1.997c3p-3f, 0x1.2ee61p-3f};

// 2^-20 log(1 + e) / e for 0 <= e <= 1, to 2^-22.0 of itself, for bfloat16 results.
inline constexpr Coefficients kLog1pBFloat16{0x1.fffffap-21f, -0x1.fff932p-22f, 0x1.54bda6p-22f,
                                             -0x1.f5aa8p-23f, 0x1.6b6b68p-23f,  -0x1.b90e38p-24f,
                                             0x1.692b6ap-25f, -0x1.17cc5ep-27f};

// log(1 + e) / e for 0 <= e <= 1, to 2^-23.1 of itself, for float16 results.
inline constexpr Coefficients kLog1pFloat16{0x1p0f,         -0x1.fffeaep-2f, 0x1.552ffep-2f,
                                            -0x1.fcc8bp-3f, 0x1.874a2p-3f,   -0x1.17d1f6p-3f,
                                            0x1.4068p-4f,   -0x1.e3654cp-6f, 0x1.56e95ap-8f};

// The same two for an e computed by an approximate GPU instruction. bfloat16: to 2^-20.9 of itself.
inline constexpr Coefficients kApproximateLog1pBFloat16{
    0x1.fffffep-21f, -0x1.fff92ep-22f, 0x1.54bda6p-22f, -0x1.f5aa8p-23f,
    0x1.6b6b68p-23f, -0x1.b90e34p-24f, 0x1.692b68p-25f, -0x1.17cc5ep-27f};

// float16: to 2^-23.3 of itself.
inline constexpr Coefficients kApproximateLog1pFloat16{
    0x1.fffffep-1f,  -0x1.fffeacp-2f, 0x1.55300ep-2f,  -0x1.fcc896p-3f, 0x1.874a2p-3f,
    -0x1.17d22cp-3f, 0x1.4067f6p-4f,  -0x1.e36534p-6f, 0x1.56e968p-8f};

// (e^r - 1) / r for |r| <= ln2 / 2, to 2^-23.0 of e^r. Computes the e that kLog1pFloat16 takes.
inline constexpr Coefficients kLog1pExponentialFloat16{
    0x1.fffffcp-1f, 0x1.ffffcp-2f, 0x1.555478p-3f, 0x1.55546p-5f, 0x1.12402ep-7f, 0x1.6daa6ep-10f};

// high + low, scaled by 2^guard.
struct GuardedSum {
  double high;
  double low;
};

// Returns log(1 + e^(z + rest)) for z up to 40. Results beyond 40 are not used. `rest` belongs to
// z, not |z|.
FASTACT_INLINE GuardedSum log_1p_exponential(double z, double rest = 0.0) {
  const double size_rest = z < 0.0 ? -rest : rest;
  const auto tail =
      logistic_tail_of_share(0.5, clamp_magnitude(z, kLogisticEnd<double>), size_rest);
  const double t = tail.inverse * (tail.scale * (0.5 * kUnguard<double>));
  const double square = t * t;
  const double correction =
      tail.inverse * fma(square, polynomial<kAtanhTail>(square), tail.remainder(1.0, tail.inverse));
  const double positive = z < 0.0 ? 0.0 : z * (1.0 / kUnguard<double>);
  const double positive_rest = z < 0.0 ? 0.0 : rest * (1.0 / kUnguard<double>);
  // The sum and its rounding error, whichever operand is larger.
  const double logarithm = tail.inverse * tail.scale;
  const double sum = positive + logarithm;
  const double added = sum - positive;
  const double error = (positive - (sum - added)) + (logarithm - added);
  return {sum, fma(correction, tail.scale, error + positive_rest)};
}

// Returns 2^guard e^-|z| for log_1p_exponential_16().
template <class Element>
FASTACT_INLINE float log_1p_power_16(float z) {
  const float size = clamp_magnitude(z, kEnd16<Element>);
  if constexpr (std::is_same_v<Element, BFloat16>) {
    return exponential_16<Element, kExponentialBFloat16>(-size);
  } else {
    return exponential_16<Element, kLog1pExponentialFloat16>(-size);
  }
}

// Returns log(1 + e^z) in float for 16-bit results, from e = 2^guard e^-|z|. The coefficients for
// bfloat16 include the factor 2^-guard.
template <class Element>
FASTACT_INLINE float log_1p_exponential_16(float z, float e) {
  const float value = e * kUnguard16<Element>;
  float p;
  if constexpr (std::is_same_v<Element, BFloat16>) {
    p = polynomial<kLog1pBFloat16>(value);
  } else {
    p = polynomial<kLog1pFloat16>(value);
  }
  return fma(e, p, z < 0.0f ? 0.0f : z);
}

// high + low, where `high` is the nearest number.
template <class T>
struct Logarithm {
  T high;
  T low;
};

// Returns log(x + rest) for finite x >= 1 and a `rest` of at most half a ULP of x, or NaN for NaN.
// The error of the sum is below 2^-3 ULP.
//
// x = 2^k (1 + f) with 1 + f between sqrt(1/2) and sqrt(2), and log(1 + f) = 2 atanh(s) for s = f /
// (2 + f). As in Sun's fdlibm, it is computed as f - (f^2 / 2 - s (f^2 / 2 + R)) with R = 2
// atanh(s) / s - 2, so that f, the largest term, is exact.
template <class T>
FASTACT_INLINE Logarithm<T> logarithm(T x, T rest) {
  constexpr bool kIsFloat = sizeof(T) == 4;
  constexpr int kDigits = kIsFloat ? 23 : 52;
  using Bits = decltype(to_bits(x));
  using Exponent = std::conditional_t<kIsFloat, int32_t, int64_t>;
  constexpr T kRootOfHalf = static_cast<T>(kIsFloat ? 0x1.6a09e6p-1 : 0x1.6a09e667f3bcdp-1);
  const Bits above = to_bits(x) - to_bits(kRootOfHalf);
  const Exponent k = static_cast<Exponent>(above) >> kDigits;
  const T f = from_bits(to_bits(x) - (static_cast<Bits>(k) << kDigits)) - T{1};
  const T s = f / (T{2} + f);
  const T square = s * s;
  T tail;
  if constexpr (kIsFloat) {
    tail = polynomial<kAtanhTailFloat>(square);
  } else {
    tail = polynomial<kAtanhTail>(square);
  }
  const T half_square = T{0.5} * f * f;
  const auto exponent = static_cast<T>(k);
  const T low = fma(exponent, kLn2Low<T>, rest / x);
  const T small = fma(s, fma(square + square, tail, half_square), low);
  const T large = exponent * kLn2High<T>;  // exact
  const T fraction = f - (half_square - small);
  const T high = large + fraction;
  return {high, fraction - (high - large)};
}

template <class Element>
FASTACT_INLINE float approximate_log_1p_exponential(float z) {
  constexpr bool kBFloat16 = std::is_same_v<Element, BFloat16>;
  const float e = approximate_exp2(fma(magnitude(z), -kLog2E<float>, kBFloat16 ? 20.0f : 0.0f));
  float p;
  if constexpr (kBFloat16) {
    p = polynomial<kApproximateLog1pBFloat16>(e * 0x1p-20f);
  } else {
    p = polynomial<kApproximateLog1pFloat16>(e);
  }
  return fma(e, p, clamp_below(z, 0.0f));
}

}  // namespace fastact::inline FASTACT_TARGET
