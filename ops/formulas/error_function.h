// The normal distribution's tail, which is the error function's: Phi(-a) = erfc(a / sqrt(2)) / 2.
//
// Phi(-a) = e^(-a^2/2) / R(a) with R(a) = 2 + slope a + a Q(u), u = (a - 4) / (a + 4): R is smooth
// and nearly linear from R(0) = 2 to a sqrt(2 pi), so that all but a small correction is exact.
#pragma once

#include "ops/formulas/exponential.h"

namespace fastact::inline FASTACT_TARGET {

// In float Q is minimax for a <= 14.5, in double it interpolates at Chebyshev's points of a <= 39,
// to 2^-59 of R. The slope is sqrt(2 pi) plus Q's value at u = 0, which leaves Q small.
template <class T>
inline constexpr T kNormalSlope =
    sizeof(T) == 4 ? T{0x1.12f1e2p1f} : static_cast<T>(0x1.12f1e13c3adc5p1);

FASTACT_INLINE float normal_correction(float u) {
  return polynomial(u, -0x1.8p-24f, 0x1.eedbcep-2f, -0x1.006244p-3f, -0x1.9b338cp-6f,
                    0x1.2055f6p-5f, -0x1.70d4c6p-8f, -0x1.0b5294p-7f, 0x1.0f3ee2p-8f,
                    0x1.cfa5f4p-10f, -0x1.7c5deap-10f, -0x1.4d16p-11f);
}

FASTACT_INLINE double normal_correction(double u) {
  return polynomial(
      u, -0x1.4f88d725faabbp-55, 0x1.eedbd4b9d1af7p-2, -0x1.0061f30b83badp-3, -0x1.9b42171e36d0bp-6,
      0x1.20368f8927609p-5, -0x1.6ee7a70320d02p-8, -0x1.071aeb3bc3adcp-7, 0x1.0b6d7846aa7b7p-8,
      0x1.5668d935b0076p-10, -0x1.a5b5d39730928p-10, -0x1.4614d1f61cbbbp-16, 0x1.09c0814bd96bep-11,
      -0x1.a3eb1f2148d67p-14, -0x1.1c85ac970a41ep-13, 0x1.d05b586ee9b44p-15, 0x1.fd1e097db606bp-16,
      -0x1.64bfa6ec11bc6p-16, -0x1.5020e46bafb78p-18, 0x1.c6c437a52ae6ap-18, 0x1.cee4929724c2ap-23,
      -0x1.fac3343df17afp-20, 0x1.ff4d35e1163c9p-23, 0x1.f9d1cb465f27ap-22, -0x1.9ed72d9b6a877p-24,
      -0x1.b20ebca365e07p-24, 0x1.bcc6d8fd36d61p-27, 0x1.d90313a4bd720p-27, 0x1.2f0e2174fc377p-30);
}

// R(a) in two parts; `inverse` is 1 / (a + 4).
template <class T>
struct NormalRatio {
  T high;
  T low;
};

template <class T>
FASTACT_INLINE NormalRatio<T> normal_ratio(T a, T inverse) {
  const T u = (a - T{4}) * inverse;
  const T linear = fma(a, kNormalSlope<T>, T{2});
  const T rest = fma(a, normal_correction(u), fma(a, kNormalSlope<T>, T{2} - linear));
  const T high = linear + rest;
  return {high, rest - (high - linear)};
}

// a Phi(-a), 2^guard times too large.
template <class T>
FASTACT_INLINE T guarded_normal_tail_moment(T a) {
  const T square = a * a;
  const T half_rest = T{0.5} * fma(a, a, -square);
  const Pieces<T> x = reduce_in_pieces(T{0.5} * square);
  // e^r in two parts.
  const T r = x.r + half_rest;
  const T one = T{1} + x.high;
  const T lost = x.high - (one - T{1});
  const T rest = fma(r * r, exponential_tail(r), (lost + x.low) + half_rest);
  const T e = one + rest;
  const T e_rest = rest - (e - one);
  // R e^r = d + d_rest.
  const auto [ratio, ratio_rest] = normal_ratio(a, reciprocal(a + T{4}));
  const T d = ratio * e;
  const T d_rest = fma(ratio, e, -d) + fma(ratio, e_rest, ratio_rest * e);
  const T inverse = reciprocal(d);
  const T q = a * inverse;
  return fma(inverse, fma(-d_rest, q, fma(-d, q, a)), q) * x.scale;
}

}  // namespace fastact::inline FASTACT_TARGET
