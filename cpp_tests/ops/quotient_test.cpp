// The quotient by a reciprocal, which GPUs compute where formulas divide: equal to the IEEE
// division at every float32 input.
#include <gtest/gtest.h>

#include <bit>

#include "cpp_tests/ops/support.h"
#include "ops/activations/gelu_tanh.h"
#include "ops/activations/quick_gelu.h"
#include "ops/activations/silu.h"
#include "ops/activations/softsign.h"

namespace fastact::testing {
namespace {

// Compares sizes from 2^-26 to `end`, where the formula clamps them. Below 2^-26, the denominator
// is 1 or 2 and both divisions are exact.
template <class Denominator>
void expect_ieee_quotients(float end, Denominator denominator) {
  constexpr uint32_t kStep = kSlowBuild ? 9'973 : 1;
  const uint32_t last = std::bit_cast<uint32_t>(end);
  uint64_t differing = 0;
  for (uint32_t bits = std::bit_cast<uint32_t>(0x1p-26f); bits <= last; bits += kStep) {
    const auto size = std::bit_cast<float>(bits);
    const float d = denominator(size);
    differing += refined_quotient(size, d) == size / d ? 0 : 1;
  }
  EXPECT_EQ(differing, 0);
  EXPECT_EQ(denominator(0x1p-26f), denominator(0.0f));
}

TEST(QuotientTest, Silu) {
  expect_ieee_quotients(kLogisticEnd<float>, [](float size) { return Silu::tail_of(size).d; });
}

TEST(QuotientTest, QuickGelu) {
  expect_ieee_quotients(66.0f, [](float size) { return QuickGelu::tail_of(size).d; });
}

TEST(QuotientTest, GeluTanh) {
  expect_ieee_quotients(11.0f, [](float size) { return GeluTanh::tail_of(size).d; });
}

TEST(QuotientTest, Softsign) {
  expect_ieee_quotients(0x1p30f, [](float size) { return 1.0f + size; });
}

}  // namespace
}  // namespace fastact::testing
