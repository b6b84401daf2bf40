// Checks the oracle itself first: known digits, and 64 bits against 113.
#include "cpp_tests/ops/oracle.h"

#include <gtest/gtest.h>

namespace fastact::testing {
namespace {

TEST(OracleTest, EveryRowIsOfAnActivation) {
  for (const Oracle& oracle : oracles()) {
    EXPECT_TRUE(std::ranges::any_of(activations(), [&](const Activation& activation) {
      return activation.name == oracle.name;
    })) << oracle.name;
  }
}

TEST(OracleTest, FormatsAreThoseOfTheProcessor) {
  const Format& single = format_of(DType::kFloat32);
  const Format& wide = format_of(DType::kFloat64);
  EXPECT_EQ(single.canonical_nan(), 0x7fffffffu);
  EXPECT_EQ(format_of(DType::kBFloat16).infinity(), 0x7f80u);
  EXPECT_EQ(format_of(DType::kFloat16).one(), 0x3c00u);
  Random random = seeded(1);
  for (int i = 0; i < 100'000; ++i) {
    const uint64_t bits = random();
    float f;
    double d;
    std::memcpy(&d, &bits, sizeof(d));
    std::memcpy(&f, &bits, sizeof(f));
    if (std::isnan(d) || std::isnan(f)) continue;
    EXPECT_EQ(decode(wide, bits), static_cast<long double>(d));
    EXPECT_EQ(encode_nearest(wide, static_cast<long double>(d)), bits);
    EXPECT_EQ(encode_nearest(single, static_cast<long double>(f)), bits & 0xffffffffu);
    const auto rounded = static_cast<float>(d);
    EXPECT_EQ(encode_nearest(single, d), single.load(&rounded)) << d;
  }
}

// Computed by mpmath with 50 digits.
TEST(OracleTest, KnownDigits) {
  struct Known {
    double x;
    const char* minus_expm1;
    const char* exp;
  };
  for (const Known& known : {Known{-1, "0.632120558828557678404476229838539132",
                                   "0.367879441171442321595523770161460867"},
                             Known{-0.125, "0.117503097415404597135107856770949021",
                                   "0.882496902584595402864892143229050979"},
                             Known{-20, "0.999999997938846377561442172034059619",
                                   "0.000000002061153622438557827965940380155"}}) {
    const Quad expm1 = exponential_minus_one<Quad>(known.x) + decimal<Quad>(known.minus_expm1);
    const Quad exp = exponential<Quad>(known.x) / decimal<Quad>(known.exp) - 1;
    EXPECT_LT(std::fabs(static_cast<long double>(expm1)), 1e-32L) << known.x;
    EXPECT_LT(std::fabs(static_cast<long double>(exp)), 1e-29L) << known.x;
  }
}

TEST(OracleTest, QuickIsWithinItsMarginOfPrecise) {
  Random random = seeded(2);
  std::uniform_real_distribution<double> logarithm(-40, 10);
  const int samples = kSlowBuild ? 2'000 : 20'000;
  for (const Oracle& oracle : oracles()) {
    for (int order = 0; order <= kTopOrder; ++order) {
      for (int i = 0; i < samples; ++i) {
        const double x = std::ldexp(i % 4 == 0 ? 1.0 : -1.0, 0) * std::exp2(logarithm(random));
        if (x < -740) continue;
        const long double quick = oracle.quick(order, x);
        const Quad precise = oracle.precise(order, x);
        const auto difference = static_cast<long double>(quick - precise);
        EXPECT_LE(std::fabs(difference), std::fabs(quick) * kQuickError / 2) << oracle.name << x;
      }
    }
  }
}

}  // namespace
}  // namespace fastact::testing
