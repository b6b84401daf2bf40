// The tail of the normal distribution, from which the error function follows: Phi(-a) = erfc(a /
// sqrt(2)) / 2.
//
// Phi(-a) = e^(-a^2/2) / R(a) with R(a) = 2 + slope a + a Q(u), u = (a - 4) / (a + 4). R is smooth
// and nearly linear, from R(0) = 2 to a sqrt(2 pi), so only a small correction is inexact.
#pragma once

#include "ops/math/exponential.h"

namespace fastact::inline FASTACT_TARGET {

// The slope for which Q(0) is 0 and Q is small.
inline constexpr double kNormalSlope = 0x1.12f1e13c3adc5p1;

// Q for a <= 39, to 2^-57.2 of R. Interpolated at the Chebyshev nodes
// (scripts/coefficients/fit_polynomials.py).
inline constexpr Coefficients kNormalCorrection{
    -0x1.4f88d725faabbp-55, 0x1.eedbd4b9d1af7p-2,   -0x1.0061f30b83badp-3,  -0x1.9b42171e36d0bp-6,
    0x1.20368f8927609p-5,   -0x1.6ee7a70320d02p-8,  -0x1.071aeb3bc3adcp-7,  0x1.0b6d7846aa7b7p-8,
    0x1.5668d935b0076p-10,  -0x1.a5b5d39730928p-10, -0x1.4614d1f61cbbbp-16, 0x1.09c0814bd96bep-11,
    -0x1.a3eb1f2148d67p-14, -0x1.1c85ac970a41ep-13, 0x1.d05b586ee9b44p-15,  0x1.fd1e097db606bp-16,
    -0x1.64bfa6ec11bc6p-16, -0x1.5020e46bafb78p-18, 0x1.c6c437a52ae6ap-18,  0x1.cee4929724c2ap-23,
    -0x1.fac3343df17afp-20, 0x1.ff4d35e1163c9p-23,  0x1.f9d1cb465f27ap-22,  -0x1.9ed72d9b6a877p-24,
    -0x1.b20ebca365e07p-24, 0x1.bcc6d8fd36d61p-27,  0x1.d90313a4bd720p-27,  0x1.2f0e2174fc377p-30};

// R(a) in two parts. `inverse` is 1 / (a + 4).
struct NormalRatio {
  double high;
  double low;
};

FASTACT_INLINE NormalRatio normal_ratio(double a, double inverse) {
  const double u = (a - 4.0) * inverse;
  const double linear = fma(a, kNormalSlope, 2.0);
  const double rest = fma(a, polynomial<kNormalCorrection>(u), fma(a, kNormalSlope, 2.0 - linear));
  const double high = linear + rest;
  return {high, rest - (high - linear)};
}

// Returns a Phi(-a), scaled by 2^guard.
FASTACT_INLINE double guarded_normal_tail_moment(double a) {
  const double square = a * a;
  const double half_rest = 0.5 * fma(a, a, -square);
  const Pieces<double> x = reduce_in_pieces(0.5 * square);
  // e^r in two parts.
  const double r = x.r + half_rest;
  const double one = 1.0 + x.high;
  const double lost = x.high - (one - 1.0);
  const double lost_of_r = ((x.high - r) + x.low) + half_rest;
  const double linear = fma(r, lost_of_r, (lost + x.low) + half_rest);
  const double rest = fma(r * r, exponential_tail(r), linear);
  const double e = one + rest;
  const double e_rest = rest - (e - one);
  // R e^r = d + d_rest.
  const auto [ratio, ratio_rest] = normal_ratio(a, reciprocal(a + 4.0));
  const double d = ratio * e;
  const double d_rest = fma(ratio, e, -d) + fma(ratio, e_rest, ratio_rest * e);
  const double inverse = reciprocal(d);
  const double q = a * inverse;
  return fma(inverse, fma(-d_rest, q, fma(-d, q, a)), q) * x.scale;
}

}  // namespace fastact::inline FASTACT_TARGET
