// The approximate instructions of GPUs, e^x in base 2 and 1 / x, and what formulas make of them.
//
// IEEE 754 does not define their last bits, and another GPU may have others. So kernels that use
// them are a second form beside the one in IEEE arithmetic, and each GPU compares the two before
// the second serves there (ops/cuda/self_check.h):
//   approximate_value() of a formula, f for 16-bit types: all of its 65,536 results
//   reciprocal() in float, in the other kernels that divide: every significand
// An approximate_unrounded() of a formula, whose last bits do not matter, serves where all of these
// agreed.
// GELU's kernel for bfloat16 has 440 instructions that way, else 936 (sm_90, docs/tuning.md).
#pragma once

#include "ops/math/arithmetic.h"
#include "ops/math/constants.h"

// Whether a translation unit compiles the second form.
#ifndef FASTACT_APPROXIMATE
#define FASTACT_APPROXIMATE 0
#endif

namespace fastact::inline FASTACT_TARGET {

inline constexpr bool kApproximate = FASTACT_APPROXIMATE != 0;

// 1 / d for d in [0.5, 2^60) by three instructions, where an IEEE division is ten and a branch. One
// Newton step makes a good approximation the correctly rounded reciprocal. It scales exactly with
// powers of two, as nothing here comes near the ends of float's range.
FASTACT_INLINE float refined_reciprocal(float d) {
  const float approximation = approximate_reciprocal(d);
  return fma(approximation, fma(-d, approximation, 1.0f), approximation);
}

// 1 / d, correctly rounded, for d in [0.5, 2^60).
FASTACT_INLINE float reciprocal(float d) {
  if constexpr (kApproximate) {
    return refined_reciprocal(d);
  } else {
    return 1.0f / d;
  }
}

FASTACT_INLINE double reciprocal(double d) { return 1.0 / d; }

// numerator / d, by the reciprocal and what its product leaves: that is the correctly rounded one
// for whatever the formulas divide, of which cpp_tests/ops/quotient_test.cpp compares every
// float32.
FASTACT_INLINE float refined_quotient(float numerator, float d) {
  const float inverse = refined_reciprocal(d);
  const float q = numerator * inverse;
  return fma(fma(-d, q, numerator), inverse, q);
}

FASTACT_INLINE float quotient(float numerator, float d) {
  if constexpr (kApproximate) {
    return refined_quotient(numerator, d);
  } else {
    return numerator / d;
  }
}

// One unit in the last place of y towards 0.5, for tiny |x|.
FASTACT_INLINE float moved_towards_half(float x, float y) {
  const uint32_t step = (to_bits(x) >> 31) * 2 - 1;
  return from_bits(to_bits(y) + (magnitude(x) < 0x1p-6f ? step : 0u));
}

// x / (1 + e^t) where t decreases with x: e^t is 2^`exponent`, bfloat16's 2^16 times too small,
// which keeps the far tail. Half of a tiny odd x is a tie, of which the exact value is on the upper
// side.
template <class Element>
FASTACT_INLINE float approximate_gate(float x, float exponent) {
  if constexpr (std::is_same_v<Element, BFloat16>) {
    const float scaled = approximate_exp2(clamp_above(exponent, 125.5f));
    return fma(x, approximate_reciprocal(0x1p-16f + scaled) * 0x1p-16f, 0x1p-149f);
  } else {
    return fma(x, approximate_reciprocal(1.0f + approximate_exp2(exponent)), 0x1p-40f);
  }
}

}  // namespace fastact::inline FASTACT_TARGET
