// The arithmetic of formulas: conversions from 16-bit types for every element, and to 16-bit types
// for a dense sample of float32, compared with rounding in long double; and fma.
#include "ops/math/arithmetic.h"

#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "cpp_tests/ops/support.h"

namespace fastact::testing {
namespace {

template <class Element>
class SixteenBitTest : public ::testing::Test {
 protected:
  static const Format& format() {
    return format_of(std::is_same_v<Element, BFloat16> ? DType::kBFloat16 : DType::kFloat16);
  }

  // Checks round_to() for the float with these bits. Returns false after a failure.
  static bool rounds_right(uint32_t bits) {
    const auto x = std::bit_cast<float>(bits);
    const uint64_t expected = encode_nearest(format(), static_cast<long double>(x));
    const uint64_t got = round_to<Element>(x).bits;
    if (got == expected) return true;
    ADD_FAILURE() << "at " << hex(format_of(DType::kFloat32), bits) << " (" << x << ") expected "
                  << hex(format(), expected) << ", but got " << hex(format(), got);
    return false;
  }
};

struct ElementName {
  template <class Element>
  static std::string GetName(int) {
    return std::is_same_v<Element, BFloat16> ? "bfloat16" : "float16";
  }
};
using SixteenBitTypes = ::testing::Types<BFloat16, Float16>;
TYPED_TEST_SUITE(SixteenBitTest, SixteenBitTypes, ElementName);

TYPED_TEST(SixteenBitTest, WidenIsExact) {
  const Format& format = this->format();
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float wide = widen(TypeParam{static_cast<uint16_t>(bits)});
    if (format.is_nan(bits)) {
      ASSERT_TRUE(is_nan(wide)) << hex(format, bits);
      continue;
    }
    ASSERT_EQ(static_cast<long double>(wide), decode(format, bits)) << hex(format, bits);
    ASSERT_EQ(std::signbit(wide), (bits & format.sign()) != 0) << hex(format, bits);
  }
}

TYPED_TEST(SixteenBitTest, RoundTrip) {
  const Format& format = this->format();
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint64_t back = round_to<TypeParam>(widen(TypeParam{static_cast<uint16_t>(bits)})).bits;
    ASSERT_EQ(back, format.is_nan(bits) ? format.canonical_nan() : bits) << hex(format, bits);
  }
}

TYPED_TEST(SixteenBitTest, RoundsASampleOfAllFloats) {
  const uint64_t stride = kSlowBuild ? 9'973 : 977;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += stride) {
    if (!this->rounds_right(static_cast<uint32_t>(bits))) return;
  }
}

// Ties between neighbours, including the largest element and infinity, and one float on either side
// of each tie.
TYPED_TEST(SixteenBitTest, RoundsTiesToEven) {
  const Format& format = this->format();
  for (uint64_t bits = 0; bits < format.infinity(); ++bits) {
    const long double low = decode(format, bits);
    const long double spacing = std::ldexp(1.0L, last_place_exponent(format, low));
    const auto tie = std::bit_cast<uint32_t>(static_cast<float>(low + spacing / 2));
    for (const uint32_t sign : {0u, 0x80000000u}) {
      for (const uint32_t neighbour : {tie - 1, tie, tie + 1}) {
        if (!this->rounds_right(neighbour | sign)) return;
      }
    }
  }
}

TYPED_TEST(SixteenBitTest, EveryNanBecomesTheCanonicalOne) {
  for (const uint32_t bits : {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0xff800001u, 0xffc00000u}) {
    EXPECT_EQ(round_to<TypeParam>(std::bit_cast<float>(bits)).bits, 0x7fff);
  }
}

TEST(ArithmeticTest, RoundsDoubleToFloat) {
  Random random = seeded(5);
  for (int i = 0; i < 100'000; ++i) {
    const double x = std::bit_cast<double>(random());
    EXPECT_EQ(to_bits(round_to<float>(x)), encode_nearest(format_of(DType::kFloat32), x)) << x;
  }
}

TEST(ArithmeticTest, CanonicalNan) {
  EXPECT_EQ(to_bits(canonical_nan<float>()), 0x7fffffffu);
  EXPECT_EQ(to_bits(canonical_nan<double>()), 0x7fffffffffffffffu);
  EXPECT_EQ(to_bits(round_to<double>(std::bit_cast<double>(~uint64_t{0}))), 0x7fffffffffffffffu);
  EXPECT_EQ(to_bits(round_to<float>(std::bit_cast<double>(~uint64_t{0}))), 0x7fffffffu);
}

TEST(ArithmeticTest, FmaRoundsOnce) {
  // The exact results are -2^-104 and -2^-46. Rounding the product first would give 0.
  EXPECT_EQ(fma(1 + 0x1p-52, 1 - 0x1p-52, -1.0), -0x1p-104);
  EXPECT_EQ(fma(1 + 0x1p-23F, 1 - 0x1p-23F, -1.0F), -0x1p-46F);
  // With these exponents, long double represents the product and the sum exactly.
  Random random = seeded(6);
  const auto draw = [&] {
    return std::ldexp(static_cast<float>(random_between(random, -0xffffff, 0xffffff)), -22);
  };
  for (int i = 0; i < 100'000; ++i) {
    const float a = draw();
    const float b = draw();
    const float c = draw();
    const long double exact = static_cast<long double>(a) * b + c;
    EXPECT_EQ(fma(a, b, c), static_cast<float>(exact)) << a << " " << b << " " << c;
  }
}

// a * b + c as written must round twice. Only fma() may round once.
TEST(ArithmeticTest, TheCompilerDoesNotContract) {
  volatile double a = 1 + 0x1p-52;
  volatile double b = 1 - 0x1p-52;
  volatile double c = -1.0;
  const double x = a;
  const double y = b;
  const double z = c;
  EXPECT_EQ(x * y + z, 0.0);
}

TEST(ArithmeticTest, PolynomialIsHorners) {
  EXPECT_EQ(polynomial(2.0, 1.0, 10.0, 100.0), 421.0);
  EXPECT_EQ(polynomial(3.0F, 7.0F), 7.0F);
}

TEST(ArithmeticTest, ClampBelow) {
  EXPECT_EQ(clamp_below(-3.0, -2.0), -2.0);
  EXPECT_EQ(clamp_below(5.0, -2.0), 5.0);
  EXPECT_TRUE(is_nan(clamp_below(canonical_nan<double>(), -2.0)));
}

}  // namespace
}  // namespace fastact::testing
