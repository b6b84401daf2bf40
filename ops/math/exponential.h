// e^x, e^x - 1 and their parts: the elementary functions that formulas share.
//
// Each function splits x = n ln2 + r with an integer n and |r| <= ln2 / 2 (Cody-Waite reduction).
// Adding 1.5 * 2^(mantissa bits) leaves n in the low bits of the sum. The function then evaluates a
// polynomial in r and scales by 2^n. A formula that needs the function times a constant has its own
// polynomial, so the factor costs neither an operation nor a rounding.
#pragma once

#include "ops/math/approximate.h"

namespace fastact::inline FASTACT_TARGET {

// A result below 2^-1022 (2^-126 in float) is computed 2^kGuard times too large and scaled down at
// the end. It is rounded once, and is zero if the exact value is below the smallest subnormal
// number.
inline constexpr int kGuardFloat = 40;
inline constexpr int kGuardDouble = 200;
template <class T>
inline constexpr T kUnguard = sizeof(T) == 4 ? static_cast<T>(0x1p-40) : static_cast<T>(0x1p-200);

// x = n ln2 + r; scale = 2^(n + guard).
template <class T>
struct Reduced {
  T r;
  T scale;
};

// Adding it leaves n + Bias in the low bits of the sum, for an integer n. Shifted to the place of
// the exponent, these bits are 2^n times 2^(Bias - the type's bias), without a further addition.
template <class T, int Guard>
inline constexpr T kShifter =
    static_cast<T>(sizeof(T) == 8 ? 0x1.8p52 + 1023 + Guard : 0x1.8p23 + 127 + Guard);

// Reduces a double x >= -709.3 with ln2 in one piece, for results that are rounded to float. The
// error of r is below 2^-53 |x|.
FASTACT_INLINE Reduced<double> reduce_short(double x) {
  const double shifted = fma(x, kLog2E<double>, kShifter<double, 0>);
  const double n = shifted - kShifter<double, 0>;
  return {fma(n, -kLn2<double>, x), from_bits(to_bits(shifted) << 52)};
}

// Reduces a double with ln2 in two pieces. The error of r is below 2^-54.
template <int Guard = 0>
FASTACT_INLINE Reduced<double> reduce(double x) {
  const double shifted = fma(x, kLog2E<double>, kShifter<double, Guard>);
  const double n = shifted - kShifter<double, Guard>;
  const double r = fma(n, -kLn2Low<double>, fma(n, -kLn2High<double>, x));
  return {r, from_bits(to_bits(shifted) << 52)};
}

// A float reduction with r as the sum of two floats. The error is below 2^-45 |x|.
struct ReducedSplit {
  float r;
  float r_low;
  float scale;
};

FASTACT_INLINE ReducedSplit reduce_split(float x) {
  const float shifted = fma(x, kLog2E<float>, kShifter<float, 0>);
  const float n = shifted - kShifter<float, 0>;
  const float rough = fma(n, -kLn2High<float>, x);
  const float r = fma(n, -kLn2Low<float>, rough);
  return {r, fma(n, -kLn2Low<float>, rough - r), from_bits(to_bits(shifted) << 23)};
}

// Reduces a float with ln2 in one piece (bfloat16 results) or two.
template <class Element, int Guard = 0>
FASTACT_INLINE Reduced<float> reduce(float x) {
  const float shifted = fma(x, kLog2E<float>, kShifter<float, Guard>);
  const float n = shifted - kShifter<float, Guard>;
  const float scale = from_bits(to_bits(shifted) << 23);
  if constexpr (std::is_same_v<Element, BFloat16>) {
    return {fma(n, -kLn2<float>, x), scale};
  } else {
    return {fma(n, -kLn2Low<float>, fma(n, -kLn2High<float>, x)), scale};
  }
}

// Polynomials for |r| <= ln2 / 2, with the error that each causes in e^r
// (scripts/coefficients/fit_polynomials.py).

// (e^r - 1 - r) / r^2, to 2^-28.1 of e^r. Minimax.
inline constexpr Coefficients kExponentialTailFloat{0x1.fffffap-2f, 0x1.55549p-3f, 0x1.555a22p-5f,
                                                    0x1.123b04p-7f, 0x1.695414p-10f};

// (e^r - 1) / r with the polynomial above.
inline constexpr auto kExponentialQuotientFloat = [] {
  constexpr int kTailSize = decltype(kExponentialTailFloat)::kSize;
  Coefficients<float, 1 + kTailSize> quotient{1.0f};
  for (int k = 0; k < kTailSize; ++k) quotient.values[k + 1] = kExponentialTailFloat.values[k];
  return quotient;
}();

// (e^r - 1 - r) / r^2, to 2^-63.4 of e^r. After each rounded coefficient, the remaining ones are
// the least-squares fit at the Chebyshev nodes.
inline constexpr Coefficients kExponentialTailDouble{0.5,
                                                     0x1.555555555555cp-3,
                                                     0x1.5555555555541p-5,
                                                     0x1.111111110ea07p-7,
                                                     0x1.6c16c16c1fa91p-10,
                                                     0x1.a01a01b43d5a9p-13,
                                                     0x1.a01a0176eec87p-16,
                                                     0x1.71ddee88e4353p-19,
                                                     0x1.27e540b705d71p-22,
                                                     0x1.af6e560239c83p-26,
                                                     0x1.1ed9995fc8858p-29};

// (e^r - 1) / r, to 2^-49.1 of itself. Minimax; misrounds none of the 2^31 negative inputs to
// float.
inline constexpr Coefficients kExpm1Float{
    0x1.0000000000006p+0,  0x1.0000000000009p-1,  0x1.5555555550d78p-3,  0x1.55555555503f5p-5,
    0x1.11111123c20b9p-7,  0x1.6c16c185fc433p-10, 0x1.a01994bce84bap-13, 0x1.a01993c66457ep-16,
    0x1.72e1153cc9673p-19, 0x1.28b3fd13f7fe1p-22};

// (e^r - 1) / r, to 2^-20.8 of itself. The shortest minimax polynomial that misrounds none of the
// 65,536 inputs to bfloat16.
inline constexpr Coefficients kExpm1BFloat16{0x1p0f, 0x1.fffe5ap-2f, 0x1.55541cp-3f, 0x1.570bb8p-5f,
                                             0x1.126fc6p-7f};

// The same for float16, to 2^-25.3 of itself.
inline constexpr Coefficients kExpm1Float16{0x1p0f,         0x1p-1f,        0x1.55547cp-3f,
                                            0x1.555470p-5f, 0x1.123d96p-7f, 0x1.6da776p-10f};

// e^r, to 2^-40.2 of itself. Minimax.
inline constexpr Coefficients kExponentialFloat{
    0x1.ffffffffff7a2p-1,  0x1.ffffffffd55b9p-1,  0x1.00000000880a9p-1,
    0x1.555555a08c673p-3,  0x1.55555404eb8b3p-5,  0x1.111082a18c213p-7,
    0x1.6c18b35303637p-10, 0x1.a1a82f47548f3p-13, 0x1.9edaa0d959235p-16};

// (e^r - 1) / r for bfloat16 results, to 2^-22.3 of e^r. Most formulas misround no result with it.
inline constexpr Coefficients kExponentialBFloat16{0x1p0f, 0x1.fffe54p-2f, 0x1.555418p-3f,
                                                   0x1.570f42p-5f, 0x1.12727cp-7f};

// (e^r - 1) / r for float16 results, to 2^-21.4 of e^r. For a factor times e^x.
inline constexpr Coefficients kExponentialFloat16{0x1.000004p0f,  0x1.000064p-1f, 0x1.5554eap-3f,
                                                  0x1.5554aep-5f, 0x1.123ffap-7f, 0x1.6daafp-10f};

// Returns (e^r - 1 - r) / r^2 for |r| <= ln2 / 2.
FASTACT_INLINE float exponential_tail(float r) { return polynomial<kExponentialTailFloat>(r); }
FASTACT_INLINE double exponential_tail(double r) { return polynomial<kExponentialTailDouble>(r); }

// Returns e^z - 1 for z <= 0. The result for positive z is unspecified. In double, `rest` is the
// rounding error of z.
template <class Element>
FASTACT_INLINE Wider<Element> exponential_minus_one(Wider<Element> z, double rest) {
  if constexpr (std::is_same_v<Element, double>) {
    const double limited = clamp_below(z, -40.0);
    const auto [reduced, scale] = reduce(limited);
    const double r = reduced + (limited == z ? rest : 0.0);
    const double p = fma(r * r, exponential_tail(r), r);
    return fma(scale, p, scale - 1.0);
  } else if constexpr (std::is_same_v<Element, float>) {
    // Far beyond this bound, e^z - 1 is -1 in double either way.
    const auto [r, scale] = reduce_short(clamp_negative_roughly(z, -40.0));
    const double p = polynomial<kExpm1Float>(r);
    return fma(scale, r * p, scale - 1.0);
  } else {
    const auto [r, scale] = reduce<Element>(clamp_below(z, -20.0f));
    float p;
    if constexpr (std::is_same_v<Element, BFloat16>) {
      p = polynomial<kExpm1BFloat16>(r);
    } else {
      p = polynomial<kExpm1Float16>(r);
    }
    return fma(scale * r, p, scale - 1.0f);
  }
}

// Returns factor e^z for z <= 0. The result for positive z is unspecified. A subnormal result is
// rounded once; the result for z = -inf is zero. In double, `rest` is the rounding error of z.
template <class Element>
FASTACT_INLINE Wider<Element> times_exponential(Wider<Element> factor, Wider<Element> z,
                                                double rest) {
  if constexpr (std::is_same_v<Element, double>) {
    const double limited = clamp_below(z, -1100.0);
    const bool tiny = limited < -600.0;
    const auto [reduced, scale] = reduce(limited);
    const double r = reduced + (limited == z ? rest : 0.0);
    const double p = fma(r * r, exponential_tail(r), r);
    const double power = from_bits(to_bits(scale) + (tiny ? uint64_t{600} << 52 : uint64_t{0}));
    return fma(factor, p, factor) * power * (tiny ? 0x1p-600 : 1.0);
  } else if constexpr (std::is_same_v<Element, float>) {
    // At the lower bound, n is -1023 and the bits of the scale are those of 0, and so the result is
    // 0. float32 results are 0 far above this bound already.
    const auto [r, scale] = reduce_short(clamp_below(z, -709.125));
    const double p = polynomial<kExponentialFloat>(r);
    return factor * p * scale;
  } else {
    const float limited = clamp_below(z, -150.0f);
    const bool tiny = limited < -60.0f;
    const auto [r, scale] = reduce<Element>(limited);
    float p;
    if constexpr (std::is_same_v<Element, BFloat16>) {
      p = polynomial<kExponentialBFloat16>(r);
    } else {
      p = polynomial<kExponentialFloat16>(r);
    }
    const float power = from_bits(to_bits(scale) + (tiny ? uint32_t{100} << 23 : uint32_t{0}));
    return factor * fma(power * r, p, power) * (tiny ? 0x1p-100f : 1.0f);
  }
}

// (high + low) late, with low > 0. `late` is below 1 if the product would be too small for a float;
// the multiplication by `late` is delayed until the gradient is known.
struct SplitExponential {
  float high;
  float low;
  float late;

  FASTACT_INLINE float times(float g) const { return fma(g, high, g * low) * late; }
};

// Returns (factor + factor_low) e^x for -104 < x <= 0. kTail is factor (e^r - 1 - r) / r^2.
template <const auto& kTail>
FASTACT_INLINE SplitExponential split_exponential(float x, float factor, float factor_low) {
  const auto [r, r_low, scale] = reduce_split(x);
  // factor e^r = linear + tail, where linear is factor (1 + r), rounded.
  const float linear = fma(factor, r, factor);
  const float linear_low = fma(factor, r_low, fma(factor, r, (factor - linear) + factor_low));
  const float tail = fma(r * r, polynomial<kTail>(r), linear_low);
  // Decremented in the last place so that low is positive. The products of an infinite gradient
  // with high and low are then the same infinity.
  const float high = from_bits(to_bits(linear + tail) - 1);
  const float low = (linear - high) + tail;
  const bool deep = x < -45.0f;
  const float raised = from_bits(to_bits(scale) + (deep ? uint32_t{60} << 23 : 0u));
  return {high * raised, low * raised, deep ? 0x1p-60f : 1.0f};
}

// a = high + low - n ln2 for a >= 0, where high is exact; r = high + low, rounded; scale = 2^(n +
// guard) with n <= 0. So e^-a = 2^n / e^r.
template <class T>
struct Pieces {
  T high;
  T low;
  T r;
  T scale;
};

// The integer n closest to a times `inverse`; scale = 2^(n + guard).
struct Power {
  float n;
  float scale;
};

FASTACT_INLINE Power nearest_power(float a, float inverse) {
  const float shifted = fma(a, inverse, kShifter<float, kGuardFloat>);
  return {shifted - kShifter<float, kGuardFloat>, from_bits(to_bits(shifted) << 23)};
}

FASTACT_INLINE Pieces<float> reduce_in_pieces(float a) {
  const auto [n, scale] = nearest_power(a, -kLog2E<float>);
  const float high = fma(n, kLn2High<float>, a);
  return {high, n * kLn2Low<float>, fma(n, kLn2Low<float>, high), scale};
}

// The same for a + rest.
FASTACT_INLINE Pieces<float> reduce_in_pieces(float a, float rest) {
  const auto [n, scale] = nearest_power(a, -kLog2E<float>);
  const float high = fma(n, kLn2High<float>, a);
  const float low = fma(n, kLn2Low<float>, rest);
  return {high, low, high + low, scale};
}

// Reduces x = n ln2 + r for float results whose exponent only double can represent.
FASTACT_INLINE Reduced<float> reduce_to_float(double x) {
  constexpr double kShift = 0x1.8p52 + 127 + kGuardFloat;
  const double shifted = fma(x, kLog2E<double>, kShift);
  const auto r = static_cast<float>(fma(shifted - kShift, -kLn2<double>, x));
  return {r, from_bits(static_cast<uint32_t>(to_bits(shifted)) << 23)};
}

FASTACT_INLINE Pieces<double> reduce_in_pieces(double a) {
  const double shifted = fma(a, -kLog2E<double>, kShifter<double, kGuardDouble>);
  const double n = shifted - kShifter<double, kGuardDouble>;
  const double high = fma(n, kLn2High<double>, a);
  const double scale = from_bits(to_bits(shifted) << 52);
  return {high, n * kLn2Low<double>, fma(n, kLn2Low<double>, high), scale};
}

// Derivatives are computed in double for every element type. Only those of float64 can be subnormal
// doubles and need the guard. For the other types, the exponential ends where n is -1023 and the
// bits of the scale are those of 0, far below their range.
template <class Element>
inline constexpr int kDerivativeGuard = std::is_same_v<Element, double> ? kGuardDouble : 0;
template <class Element>
inline constexpr double kDerivativeUnguard =
    std::is_same_v<Element, double> ? kUnguard<double> : 1.0;
template <class Element>
inline constexpr double kDerivativeEnd = std::is_same_v<Element, double> ? 760.0 : 709.125;

// e^x for x = high + low <= 0, with high >= -kDerivativeEnd and |low| much smaller. guarded =
// 2^guard e^x.
struct Exponential {
  double guarded;
  double value;
  double minus_one;
};

template <class Element>
FASTACT_INLINE Exponential exponential(double high, double low = 0.0) {
  const auto [reduced, guarded] = reduce<kDerivativeGuard<Element>>(high);
  const double r = reduced + low;
  const double p = fma(r * r, exponential_tail(r), r);
  const double scale = guarded * kDerivativeUnguard<Element>;
  const double result = fma(guarded, p, guarded);
  return {result, result * kDerivativeUnguard<Element>, fma(scale, p, scale - 1.0)};
}

// Returns 1 / d in double. For float64 it is correctly rounded. For the other types the error is
// about 2^-52: one third-order step refines float's reciprocal, without a division.
template <class Element>
FASTACT_INLINE double reciprocal_for(double d) {
  if constexpr (std::is_same_v<Element, double>) {
    return reciprocal(d);
  } else {
    const double y = reciprocal(static_cast<float>(d));
    const double error = fma(-d, y, 1.0);
    return fma(y, fma(error, error, error), y);
  }
}

// Returns 2^guard e^x in float, for 16-bit results. At x = -102 in bfloat16 and -88 in float16, n
// is -127 - guard, the bits of the scale are those of 0, and so the result is 0.
template <class Element>
inline constexpr int kGuard16 = std::is_same_v<Element, BFloat16> ? 20 : 0;
template <class Element>
inline constexpr float kUnguard16 = std::is_same_v<Element, BFloat16> ? 0x1p-20f : 1.0f;
template <class Element>
inline constexpr float kEnd16 = std::is_same_v<Element, BFloat16> ? 102.0f : 88.0f;

// Returns y, corrected at the one input whose exact value is so close to a tie that float rounds to
// the wrong side with any coefficients.
FASTACT_INLINE float corrected_at(float x, float where, float y, float step) {
  return x == where ? y + step : y;
}

// `kQuotient` is (e^r - 1) / r.
template <class Element, const auto& kQuotient>
FASTACT_INLINE float exponential_16(float x) {
  const auto [r, scale] = reduce<Element, kGuard16<Element>>(x);
  return fma(scale * r, polynomial<kQuotient>(r), scale);
}

// Returns the coefficients of the polynomial in -y / 2 as coefficients in y, times -1/2.
template <int Size>
consteval Coefficients<float, Size> of_minus_half(Coefficients<float, Size> coefficients) {
  float factor = 1.0f;
  for (float& value : coefficients.values) value *= (factor *= -0.5f);
  return coefficients;
}
template <const auto& kCoefficients>
inline constexpr auto kOfMinusHalf = of_minus_half(kCoefficients);

// Returns the bits of exponential_16(-square / 2) with one multiplication fewer. It uses -2r
// instead of r, with coefficients that are scaled to match by powers of two.
template <class Element, const auto& kQuotient>
FASTACT_INLINE float gaussian_16(float square) {
  constexpr float kShift = kShifter<float, kGuard16<Element>>;
  const float shifted = fma(square, -0.5f * kLog2E<float>, kShift);
  const float n = shifted - kShift;
  const float scale = from_bits(to_bits(shifted) << 23);
  float r;
  if constexpr (std::is_same_v<Element, BFloat16>) {
    r = fma(n, 2.0f * kLn2<float>, square);
  } else {
    r = fma(n, 2.0f * kLn2Low<float>, fma(n, 2.0f * kLn2High<float>, square));
  }
  return fma(scale * r, polynomial<kOfMinusHalf<kQuotient>>(r), scale);
}

}  // namespace fastact::inline FASTACT_TARGET
