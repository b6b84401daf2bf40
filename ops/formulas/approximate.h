// The GPU's approximate instructions, for values of 16-bit types.
//
// A formula's approximate_value() may use them: that all of its 65,536 results are the correctly
// rounded ones, and so the bits of every other backend, was found by trying them all on the
// architectures that are named here (`make digests` on such a GPU, and the tests). An instruction's
// last bits may differ on others, where IEEE arithmetic serves. With about half as many
// instructions the values of 16-bit types run at copy speed.
#pragma once

#include "ops/formulas/arithmetic.h"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
#define FASTACT_HAS_APPROXIMATIONS 1
#else
#define FASTACT_HAS_APPROXIMATIONS 0
#endif

#if FASTACT_HAS_APPROXIMATIONS
namespace fastact::inline FASTACT_TARGET {

inline constexpr float kLog2E = 0x1.715476p0f;

FASTACT_INLINE float approximate_exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

FASTACT_INLINE float approximate_reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
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
#endif
