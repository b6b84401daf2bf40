// The approximate instructions of GPUs, 2^x and 1 / x, and functions built on them.
//
// IEEE 754 does not define their last bits, which may differ between GPUs. Kernels that use them
// are therefore a second version of the kernels in IEEE arithmetic. Each GPU compares the two
// versions before it uses the second one (ops/cuda/self_check.h):
//   approximate_value() of a formula, which is f for 16-bit types: all 65,536 results
//   reciprocal() in float, in the other kernels that divide: every significand
//
// If all of these agree, approximate_unrounded() of a formula is used as well; its last bits do not
// matter. GELU's kernel for bfloat16 has 440 instructions in the second version, else 936 (sm_90,
// docs/dev/tuning.md).
#pragma once

#include "ops/math/arithmetic.h"
#include "ops/math/constants.h"

// True in translation units that compile the second version.
#ifndef FASTACT_APPROXIMATE
#define FASTACT_APPROXIMATE 0
#endif

namespace fastact::inline FASTACT_TARGET {

inline constexpr bool kApproximate = FASTACT_APPROXIMATE != 0;

// Returns 1 / d for d in [0.5, 2^60) with three instructions; an IEEE division takes ten and a
// branch. One Newton step turns a good approximation into the correctly rounded reciprocal. The
// method scales exactly with powers of two, because no intermediate result is near the ends of
// float's range.
FASTACT_INLINE float refined_reciprocal(float d) {
  const float approximation = approximate_reciprocal(d);
  return fma(approximation, fma(-d, approximation, 1.0f), approximation);
}

// Returns 1 / d, correctly rounded, for d in [0.5, 2^60).
FASTACT_INLINE float reciprocal(float d) {
  if constexpr (kApproximate) {
    return refined_reciprocal(d);
  } else {
    return 1.0f / d;
  }
}

FASTACT_INLINE double reciprocal(double d) { return 1.0 / d; }

// Returns numerator / d from the reciprocal and the remainder of the product. The result is
// correctly rounded for all quotients of the formulas; cpp_tests/ops/quotient_test.cpp compares
// every float32.
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

// Returns y moved by one unit in the last place towards 0.5 if |x| is tiny.
FASTACT_INLINE float moved_towards_half(float x, float y) {
  const uint32_t step = (to_bits(x) >> 31) * 2 - 1;
  return from_bits(to_bits(y) + (magnitude(x) < 0x1p-6f ? step : 0u));
}

// Returns x / (1 + e^t), where t decreases with x. `exponent` is the base-2 exponent of e^t. For
// bfloat16, e^t is 2^16 times too small, which preserves the far tail. Half of a tiny odd x is a
// tie; the exact value is above it.
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
