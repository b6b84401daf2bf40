// The accuracy of results on every instruction set of this processor: the bounds that the formulas'
// headers promise. Gradients are 1 unless a test says otherwise.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "cpp_tests/ops/oracle.h"

namespace fastact::testing {
namespace {

// Returns all elements of a 16-bit type. For the other types, returns every 977th float32 (a prime,
// so that all low bits occur) or random float64 numbers, and the neighbourhoods of the branch
// points.
std::vector<uint64_t> inputs_of(const Format& format, const Oracle& oracle) {
  std::vector<uint64_t> inputs;
  if (format.bytes == 2) {
    for (uint64_t bits = 0; bits < 0x10000; ++bits) inputs.push_back(bits);
    return inputs;
  }
  if (format.bytes == 4) {
    const uint64_t stride = kSlowBuild ? 97'771 : 977;
    for (uint64_t bits = 0; bits <= format.all_bits(); bits += stride) inputs.push_back(bits);
  } else {
    Random random = seeded(3);
    std::uniform_real_distribution<double> ordinary(-50, 5);
    std::uniform_real_distribution<double> far(-760, 0);
    const int count = kSlowBuild ? 5'000 : 150'000;
    for (int i = 0; i < count; ++i) {
      inputs.push_back(random());
      inputs.push_back(encode_nearest(format, ordinary(random)));
      inputs.push_back(encode_nearest(format, far(random)));
    }
  }
  const uint64_t neighbours = kSlowBuild ? 100 : 3'000;
  for (const double point : oracle.branch_points) {
    const uint64_t center = encode_nearest(format, point) & (format.sign() - 1);
    const uint64_t first = center > neighbours ? center - neighbours : 0;
    for (uint64_t magnitude = first; magnitude < center + neighbours; ++magnitude) {
      inputs.push_back(magnitude);
      inputs.push_back(magnitude | format.sign());
    }
  }
  const std::vector<uint64_t> specials = special_values(format);
  inputs.insert(inputs.end(), specials.begin(), specials.end());
  return inputs;
}

class AccuracyTest : public ::testing::TestWithParam<KernelCase> {
 protected:
  static constexpr int kReported = 5;

  // Reports only the first few inputs that fail, instead of up to four million.
  void fail_at(uint64_t x, uint64_t got, const std::string& expected) {
    if (++failures_ > kReported) return;
    const Format& format = GetParam().format();
    ADD_FAILURE() << "at " << hex(format, x) << " (" << decode(format, x) << ") expected "
                  << expected << ", but got " << hex(format, got);
  }

  void expect_promises_held(const std::vector<uint64_t>& inputs) {
    const KernelCase& kernel = GetParam();
    std::vector<uint64_t> first;
    for (const cpu::InstructionSet set : cpu::available_instruction_sets()) {
      SCOPED_TRACE(cpu::name_of(set));
      const std::vector<uint64_t> results = run_all(kernel, set, inputs);
      // Results that equal the first set's need no further comparison with the oracle.
      if (results == first) continue;
      if (first.empty()) first = results;
      for (size_t i = 0; i < inputs.size(); ++i) {
        const std::string expected = broken_promise(kernel, inputs[i], results[i]);
        if (!expected.empty()) fail_at(inputs[i], results[i], expected);
      }
    }
  }

  void TearDown() override { EXPECT_EQ(failures_, 0) << "inputs in all"; }

 private:
  int failures_ = 0;
};

TEST_P(AccuracyTest, HoldsItsPromise) {
  expect_promises_held(inputs_of(GetParam().format(), oracle_of(GetParam())));
}

INSTANTIATE_TEST_SUITE_P(Kernels, AccuracyTest,
                         ::testing::ValuesIn(with_oracle(kernels_where([](const DerivativeId& id) {
                           return !id.from_result;
                         }))),
                         KernelCaseName());

class FromResultAccuracyTest : public AccuracyTest {};

TEST_P(FromResultAccuracyTest, HoldsItsPromise) {
  const Format& format = GetParam().format();
  const Oracle& oracle = oracle_of(GetParam());
  ASSERT_NE(oracle.from_result, nullptr);
  std::vector<uint64_t> inputs = inputs_of(format, oracle);
  // Around the limit, where the derivative vanishes.
  const uint64_t limit = encode_nearest(format, oracle.quick(0, -1000));
  for (uint64_t distance = 0; distance < 100; ++distance) {
    inputs.push_back(limit - distance);
    inputs.push_back(limit + distance);
  }
  expect_promises_held(inputs);
}

INSTANTIATE_TEST_SUITE_P(Kernels, FromResultAccuracyTest,
                         ::testing::ValuesIn(with_oracle(kernels_where([](const DerivativeId& id) {
                           return id.from_result;
                         }))),
                         KernelCaseName());

// g1 * ... * gk * f^(k)(x) with ordinary gradients: each adds one rounding, in the wider type.
class GradientAccuracyTest : public AccuracyTest {};

TEST_P(GradientAccuracyTest, MultipliesGradientsInTheWideType) {
  const KernelCase& kernel = GetParam();
  const Format& format = kernel.format();
  const Oracle& oracle = oracle_of(kernel);
  const int order = kernel.id.order;
  constexpr int kCount = 10'000;
  Random random = seeded(4);
  std::uniform_real_distribution<double> magnitude(0.25, 4);
  std::uniform_real_distribution<double> input(-5, 2);
  const auto draw = [&](auto& distribution, bool either_sign) {
    std::vector<uint64_t> values(kCount);
    for (uint64_t& value : values) {
      value = encode_nearest(format, distribution(random));
      if (either_sign && random() % 2 == 0) value |= format.sign();
    }
    return values;
  };
  const std::vector<uint64_t> x = draw(input, false);
  std::vector<std::vector<uint64_t>> gradients(order);
  for (auto& gradient : gradients) gradient = draw(magnitude, true);

  const long double bound = format.bytes == 8 ? oracle.promise.float64 + 0.5L * order
                            : format.bytes == 4 && order == 1 ? oracle.promise.float32_products
                                                              : 0.51L;
  for (const cpu::InstructionSet set : cpu::available_instruction_sets()) {
    SCOPED_TRACE(cpu::name_of(set));
    const std::vector<uint64_t> results = run_all(kernel, set, x, gradients);
    for (int i = 0; i < kCount; ++i) {
      long double exact = oracle.quick(order, decode(format, x[i]));
      if (exact != 0) {
        for (const auto& gradient : gradients) exact *= decode(format, gradient[i]);
      }
      if (!(ulp_error(format, results[i], exact) <= bound)) {
        fail_at(x[i], results[i], std::to_string(exact));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, GradientAccuracyTest,
                         ::testing::ValuesIn(with_oracle(kernels_where([](const DerivativeId& id) {
                           return id.order > 0 && !id.from_result;
                         }))),
                         KernelCaseName());

}  // namespace
}  // namespace fastact::testing
