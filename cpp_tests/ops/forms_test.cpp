// The CPU engine with forms that have no operator: several outputs, and operands of several types,
// at every length, strided, broadcast and in place.
#include "cpp_tests/ops/forms.h"

#include <gtest/gtest.h>

#include <vector>

#include "ops/cpu/loop.h"
// The engine's own copies are compiled for instruction sets. This copy is for the tests' target.
#include "ops/cpu/strided.cpp"  // NOLINT(bugprone-suspicious-include)

namespace fastact::testing {
namespace {

// A form that does not define how its inputs broadcast.
static_assert(!HasBroadcasts<WideDifference>);
static_assert(IsForm<SumAndProduct> && IsForm<WideDifference>);
static_assert(kOperandsOf<SumAndProduct> == 4 && kLargestOf<SumAndProduct> == 4);
static_assert(!kSizesOf<SumAndProduct>.are_equal() && !kAllAre<WideDifference, double>);

// One operand of `count` elements. `apart` is the distance between neighbours in elements, 0 for
// one element that repeats.
template <class Element>
struct Operand {
  Operand(int64_t count, int64_t apart) : step(apart), elements(1 + (count + 1) * (step + 1)) {}

  Element& operator[](int64_t i) { return elements[1 + i * step]; }
  char* data() { return reinterpret_cast<char*>(&elements[1]); }
  [[nodiscard]] int64_t stride() const { return step * static_cast<int64_t>(sizeof(Element)); }

  int64_t step;
  std::vector<Element> elements;  // the first one precedes the operand
};

bool same_bits(float a, float b) { return to_bits(a) == to_bits(b); }
bool same_bits(double a, double b) { return to_bits(a) == to_bits(b); }
bool same_bits(BFloat16 a, BFloat16 b) { return a.bits == b.bits; }

struct Steps {
  int64_t out0, out1, in0, in1;
};
constexpr Steps kSteps[] = {{1, 1, 1, 1}, {1, 1, 0, 1}, {2, 1, 1, 3}, {1, 3, 2, 0}, {3, 2, 2, 2}};

TEST(FormsTest, SeveralOutputsOfSeveralTypes) {
  const Parameters parameters = {{0.5}};
  const SumAndProduct form(parameters.values);
  for (const Steps& steps : kSteps) {
    for (int64_t n = 0; n <= 70; ++n) {
      Operand<float> sum(n, steps.out0);
      Operand<BFloat16> product(n, steps.out1);
      Operand<BFloat16> a(n, steps.in0);
      Operand<float> b(n, steps.in1);
      for (int64_t i = 0; i < n; ++i) {
        a[i] = round_to<BFloat16>(0.37f * static_cast<float>(i % 11) - 1.5f);
        b[i] = 1.25f - 0.61f * static_cast<float>(i);
      }
      char* const data[] = {sum.data(), product.data(), a.data(), b.data()};
      const int64_t strides[] = {
          sum.stride(), product.stride(), a.stride(), b.stride(), 0, 0, 0, 0};
      cpu::Loop<SumAndProduct>::run(parameters, data, strides, n, 1);
      for (int64_t i = 0; i < n; ++i) {
        const auto expected = form.evaluate(widen(a[i]), b[i]);
        ASSERT_TRUE(same_bits(sum[i], expected.first)) << i << " of " << n;
        ASSERT_TRUE(same_bits(product[i], round_to<BFloat16>(expected.rest.first)))
            << i << " of " << n;
      }
      EXPECT_EQ(sum.elements[0], 0.0f) << "in front of the output";
      if (steps.out0 > 1 && n > 0) {
        EXPECT_EQ(sum.elements[2], 0.0f) << "between elements";
      }
    }
  }
}

TEST(FormsTest, AnOutputInThePlaceOfAnInput) {
  const Parameters parameters;
  for (const int64_t rows : {1, 3}) {
    for (int64_t n = 1; n <= 70; ++n) {
      std::vector<Float16> a(rows * n);
      std::vector<double> b(rows * n);
      std::vector<double> expected(rows * n);
      for (int64_t i = 0; i < rows * n; ++i) {
        a[i] = round_to<Float16>(0.25f * static_cast<float>(i));
        b[i] = 0.1 * static_cast<double>(i);
        expected[i] = widen(a[i]) - b[i];
      }
      char* const data[] = {reinterpret_cast<char*>(b.data()), reinterpret_cast<char*>(a.data()),
                            reinterpret_cast<char*>(b.data())};
      const int64_t strides[] = {8, 2, 8, 8 * n, 2 * n, 8 * n};
      cpu::Loop<WideDifference>::run(parameters, data, strides, n, rows);
      for (int64_t i = 0; i < rows * n; ++i) ASSERT_TRUE(same_bits(b[i], expected[i])) << i;
    }
  }
}

}  // namespace
}  // namespace fastact::testing
