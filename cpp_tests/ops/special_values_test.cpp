// NaN, infinities, zeros and subnormal numbers follow the documented rules: to the bit, in every
// format, on every instruction set.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cpp_tests/ops/oracle.h"

namespace fastact::testing {
namespace {

int activation_named(std::string_view name) {
  for (int i = 0; i < static_cast<int>(activations().size()); ++i) {
    if (activations()[i].name == name) return i;
  }
  throw std::out_of_range("no activation " + std::string(name));
}

// Returns the results of one element alone, and of each of 67 elements: in vector code, and in the
// remainder loop.
std::vector<uint64_t> results_of(const KernelCase& kernel, cpu::InstructionSet set,
                                 std::span<const uint64_t> inputs) {
  constexpr size_t kCount = 67;
  std::vector<std::vector<uint64_t>> gradients(kernel.id.order);
  for (int k = 0; k < kernel.id.order; ++k) gradients[k].assign(kCount, inputs[k]);
  const std::vector<uint64_t> x(kCount, inputs[kernel.id.order]);
  std::vector<uint64_t> results = run_all(kernel, set, x, gradients);
  results.push_back(run_one(kernel, set, inputs));
  return results;
}

void expect_bits(const KernelCase& kernel, std::span<const uint64_t> inputs, uint64_t expected) {
  const Format& format = kernel.format();
  for (const cpu::InstructionSet set : cpu::available_instruction_sets()) {
    const std::vector<uint64_t> results = results_of(kernel, set, inputs);
    for (size_t i = 0; i < results.size(); ++i) {
      if (results[i] == expected) continue;
      std::string arguments;
      for (int k = 0; k <= kernel.id.order; ++k) arguments += hex(format, inputs[k]) + " ";
      ADD_FAILURE() << cpu::name_of(set) << ": " << kernel.name() << "(" << arguments
                    << ") at position " << i << ": expected " << hex(format, expected)
                    << ", but got " << hex(format, results[i]);
      break;
    }
  }
}

class SpecialValuesTest : public ::testing::TestWithParam<KernelCase> {
 protected:
  const KernelCase& kernel_ = GetParam();
  const Format& format_ = kernel_.format();
  const int order_ = kernel_.id.order;

  [[nodiscard]] std::vector<uint64_t> nans() const {
    std::vector<uint64_t> values = special_values(format_);
    std::erase_if(values, [&](uint64_t bits) { return !format_.is_nan(bits); });
    return values;
  }

  // Returns the exact derivative at an element, computed by the oracle.
  [[nodiscard]] long double exact(uint64_t x) const {
    const Oracle& oracle = oracle_of(kernel_);
    const long double value = decode(format_, x);
    return kernel_.id.from_result ? oracle.from_result(order_, value) : oracle.quick(order_, value);
  }
};

// For any sign and payload, signalling or quiet, and any gradients.
TEST_P(SpecialValuesTest, NanInputGivesTheCanonicalNan) {
  for (const uint64_t nan : nans()) {
    for (const uint64_t gradient : special_values(format_)) {
      std::vector<uint64_t> inputs(order_, gradient);
      inputs.push_back(nan);
      expect_bits(kernel_, inputs, format_.canonical_nan());
      if (order_ == 0) break;
    }
  }
}

class SpecialGradientsTest : public SpecialValuesTest {};

TEST_P(SpecialGradientsTest, NanGradientGivesTheCanonicalNanUnlessTheDerivativeIsZero) {
  for (const double value : {-2.0, -0.5, 0.0, 0.75, 3.0}) {
    const uint64_t x = encode_nearest(format_, value);
    for (int position = 0; position < order_; ++position) {
      for (const uint64_t nan : nans()) {
        std::vector<uint64_t> inputs(order_, format_.one());
        inputs[position] = nan;
        inputs.push_back(x);
        expect_bits(kernel_, inputs, exact(x) == 0 ? 0 : format_.canonical_nan());
      }
    }
  }
}

TEST_P(SpecialGradientsTest, ZeroDerivativeIsPositiveZeroWhateverTheGradients) {
  bool found = false;
  for (const uint64_t x : special_values(format_)) {
    if (exact(x) != 0) continue;
    found = true;
    for (const uint64_t gradient : special_values(format_)) {
      std::vector<uint64_t> inputs(order_, gradient);
      inputs.push_back(x);
      expect_bits(kernel_, inputs, 0);
    }
  }
  EXPECT_TRUE(found) << "every activation here is flat somewhere";
}

TEST_P(SpecialGradientsTest, InfiniteGradientTimesASlopeIsInfinite) {
  for (const double value : {-0.5, 0.75}) {
    const uint64_t x = encode_nearest(format_, value);
    if (exact(x) == 0) continue;
    std::vector<uint64_t> inputs(order_, format_.one());
    inputs.push_back(x);
    inputs[0] = format_.infinity();
    expect_bits(kernel_, inputs, format_.infinity());
    inputs[0] |= format_.sign();
    expect_bits(kernel_, inputs, format_.infinity() | format_.sign());
    // An infinite and a zero gradient give NaN, like any product of the two.
    if (order_ > 1) {
      inputs[1] = 0;
      expect_bits(kernel_, inputs, format_.canonical_nan());
    }
  }
}

// accuracy_test.cpp bounds the derivatives computed from the result.
class SpecialInputsTest : public SpecialValuesTest {};

TEST_P(SpecialInputsTest, AreAsExactAsOthers) {
  std::vector<uint64_t> inputs(order_ + 1, format_.one());
  for (const uint64_t x : special_values(format_)) {
    inputs[order_] = x;
    const uint64_t result = run_one(kernel_, cpu::InstructionSet::kBaseline, inputs);
    EXPECT_EQ(broken_promise(kernel_, x, result), "") << "at " << hex(format_, x);
    expect_bits(kernel_, inputs, result);
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, SpecialValuesTest,
                         ::testing::ValuesIn(with_oracle(all_kernels())), KernelCaseName());

INSTANTIATE_TEST_SUITE_P(Kernels, SpecialGradientsTest,
                         ::testing::ValuesIn(with_oracle(kernels_where([](const DerivativeId& id) {
                           return id.order > 0;
                         }))),
                         KernelCaseName());
INSTANTIATE_TEST_SUITE_P(Kernels, SpecialInputsTest,
                         ::testing::ValuesIn(with_oracle(kernels_where([](const DerivativeId& id) {
                           return !id.from_result;
                         }))),
                         KernelCaseName());

// The rules again as literal bits, so that an error in the oracle cannot hide a wrong result.
struct Bits {
  uint64_t nan, negative_infinity, infinity, one, negative_zero, subnormal;
  // selu(-inf) = -lambda alpha, selu'(0) = lambda alpha, selu'(1) = lambda.
  uint64_t selu_limit, selu_slope_at_zero, lambda;
};
constexpr Bits kBits[kNumDTypes] = {
    {0x7fffffff, 0xff800000, 0x7f800000, 0x3f800000, 0x80000000, 1, 0xbfe10966, 0x3fe10966,
     0x3f867d5f},
    {0x7fffffffffffffff, 0xfff0000000000000, 0x7ff0000000000000, 0x3ff0000000000000,
     0x8000000000000000, 1, 0xbffc212cc640f031, 0x3ffc212cc640f031, 0x3ff0cfabd6a91132},
    {0x7fff, 0xff80, 0x7f80, 0x3f80, 0x8000, 1, 0xbfe1, 0x3fe1, 0x3f86},
    {0x7fff, 0xfc00, 0x7c00, 0x3c00, 0x8000, 1, 0xbf08, 0x3f08, 0x3c34}};

class LiteralBitsTest : public ::testing::TestWithParam<DType> {
 protected:
  const Bits& bits_ = kBits[static_cast<int>(GetParam())];

  static void expect(const char* activation, int order, std::initializer_list<uint64_t> inputs,
                     uint64_t expected) {
    const KernelCase kernel = {activation_named(activation), {order, false, GetParam()}};
    expect_bits(kernel, std::vector<uint64_t>(inputs), expected);
  }
};

TEST_P(LiteralBitsTest, Selu) {
  expect("selu", 0, {0}, 0);
  expect("selu", 0, {bits_.negative_zero}, bits_.negative_zero);
  expect("selu", 0, {bits_.negative_infinity}, bits_.selu_limit);
  expect("selu", 0, {bits_.infinity}, bits_.infinity);
  expect("selu", 0, {bits_.nan}, bits_.nan);
  expect("selu", 0, {bits_.one}, bits_.lambda);
  // lambda * 1 unit rounds to 1 unit, and lambda alpha * 1 unit rounds to 2.
  expect("selu", 0, {bits_.subnormal}, bits_.subnormal);
  expect("selu", 0, {bits_.subnormal | bits_.negative_zero}, 2 | bits_.negative_zero);
  expect("selu", 1, {bits_.one, 0}, bits_.selu_slope_at_zero);
  expect("selu", 1, {bits_.one, bits_.negative_zero}, bits_.selu_slope_at_zero);
  expect("selu", 1, {bits_.one, bits_.one}, bits_.lambda);
  expect("selu", 1, {bits_.one, bits_.negative_infinity}, 0);
  expect("selu", 1, {bits_.infinity, bits_.negative_infinity}, 0);
  expect("selu", 1, {bits_.nan, bits_.nan}, bits_.nan);
  expect("selu", 2, {bits_.infinity, bits_.nan, bits_.one}, 0);
  expect("selu", 2, {bits_.one, bits_.one, 0}, bits_.selu_slope_at_zero);
  expect("selu", 3, {bits_.one, bits_.one, bits_.one, 0}, bits_.selu_slope_at_zero);
}

TEST_P(LiteralBitsTest, Relu) {
  expect("relu", 0, {0}, 0);
  expect("relu", 0, {bits_.negative_zero}, bits_.negative_zero);
  expect("relu", 0, {bits_.negative_infinity}, 0);
  expect("relu", 0, {bits_.infinity}, bits_.infinity);
  expect("relu", 0, {bits_.nan}, bits_.nan);
  expect("relu", 0, {bits_.nan | bits_.negative_zero}, bits_.nan);
  expect("relu", 0, {bits_.subnormal}, bits_.subnormal);
  expect("relu", 0, {bits_.subnormal | bits_.negative_zero}, 0);
  expect("relu", 1, {bits_.one, 0}, 0);
  expect("relu", 1, {bits_.one, bits_.subnormal}, bits_.one);
  expect("relu", 1, {bits_.infinity, 0}, 0);
  expect("relu", 1, {bits_.nan, bits_.negative_infinity}, 0);
  expect("relu", 1, {bits_.one, bits_.nan}, bits_.nan);
  expect("relu", 1, {bits_.negative_zero, bits_.one}, bits_.negative_zero);
  expect("relu", 2, {bits_.infinity, bits_.nan, bits_.one}, 0);
  expect("relu", 3, {bits_.one, bits_.one, bits_.one, bits_.nan}, bits_.nan);
}

INSTANTIATE_TEST_SUITE_P(Formats, LiteralBitsTest,
                         ::testing::Values(DType::kFloat32, DType::kFloat64, DType::kBFloat16,
                                           DType::kFloat16),
                         [](const auto& param) {
                           return std::string(format_of(param.param).name);
                         });

}  // namespace
}  // namespace fastact::testing
