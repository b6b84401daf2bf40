// The quotient by a reciprocal, which GPUs compute where formulas divide: equal to the IEEE
// division at every float32 input.
#include <gtest/gtest.h>

#include <bit>

#include "cpp_tests/ops/support.h"
#include "ops/activations/gelu_tanh.h"
#include "ops/activations/quick_gelu.h"
#include "ops/activations/silu.h"
#include "ops/activations/softsign.h"

// A sweep takes 0.5 s with AVX2 and 13 s without (AMD EPYC, Zen 3), because the baseline's fma is a
// function.
#if defined(__x86_64__)
#define FASTACT_WITH_AVX2 __attribute__((target("avx2,fma")))
#else
#define FASTACT_WITH_AVX2
#endif

namespace fastact::testing {
namespace {

// Returns the number of sizes for which refined_quotient() differs from IEEE division.
template <class Denominator>
FASTACT_WITH_AVX2 uint64_t count_different(uint32_t first, uint32_t last, Denominator denominator) {
  constexpr uint32_t kStep = kSlowBuild ? 9'973 : 1;
  uint64_t different = 0;
  for (uint32_t bits = first; bits <= last; bits += kStep) {
    const auto size = std::bit_cast<float>(bits);
    const float d = denominator(size);
    different += refined_quotient(size, d) == size / d ? 0 : 1;
  }
  return different;
}

// Compares sizes from 2^-26 to `end`, where the formula clamps them. Below 2^-26, the denominator
// is 1 or 2 and both divisions are exact.
template <class Denominator>
void expect_ieee_quotients(float end, Denominator denominator) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") == 0 || __builtin_cpu_supports("fma") == 0)
    GTEST_SKIP() << "the processor has no AVX2";
#endif
  const auto first = std::bit_cast<uint32_t>(0x1p-26f);
  EXPECT_EQ(count_different(first, std::bit_cast<uint32_t>(end), denominator), 0);
  EXPECT_EQ(denominator(0x1p-26f), denominator(0.0f));
}

// A denominator that the compiler inlines into the loop.
#define FASTACT_DENOMINATOR [](float size) __attribute__((always_inline))

TEST(QuotientTest, Silu) {
  expect_ieee_quotients(kLogisticEnd<float>, FASTACT_DENOMINATOR { return Silu::tail_of(size).d; });
}

TEST(QuotientTest, QuickGelu) {
  expect_ieee_quotients(66.0f, FASTACT_DENOMINATOR { return QuickGelu::tail_of(size).d; });
}

TEST(QuotientTest, GeluTanh) {
  expect_ieee_quotients(11.0f, FASTACT_DENOMINATOR { return GeluTanh::tail_of(size).d; });
}

TEST(QuotientTest, Softsign) {
  expect_ieee_quotients(0x1p30f, FASTACT_DENOMINATOR { return 1.0f + size; });
}

}  // namespace
}  // namespace fastact::testing
