// Random parameters: every instruction set gives the baseline's bits, for parameters of any size
// and sign, zeros, infinities and NaN. python_tests check the exact results.
//
// FASTACT_SETTINGS is the number of parameter sets for each kernel, FASTACT_SETTINGS_SEED the seed.
#include <gtest/gtest.h>

#include <vector>

#include "cpp_tests/ops/support.h"

namespace fastact::testing {
namespace {

TEST(ParametersTest, DefaultsAreTheSchemas) {
  static constexpr Parameter kParameters[] = {{"a", 1.0}, {"b"}, {"c", -2.5}};
  const Activation activation = {.name = "name",
                                 .parameters = kParameters,
                                 .traits = {},
                                 .requirements = {},
                                 .result_suffices = nullptr};
  const Parameters parameters = default_parameters(activation);
  EXPECT_EQ(parameters.values[0], 1.0);
  EXPECT_EQ(parameters.values[1], 0.25);
  EXPECT_EQ(parameters.values[2], -2.5);
}

TEST(ParametersTest, DrawnOnesGiveTheSameBitsOnEveryInstructionSet) {
  const auto settings = static_cast<int>(from_environment("FASTACT_SETTINGS", kSlowBuild ? 4 : 32));
  const uint64_t seed = from_environment("FASTACT_SETTINGS_SEED", 1);
  std::printf("FASTACT_SETTINGS=%d FASTACT_SETTINGS_SEED=%llu\n", settings,
              static_cast<unsigned long long>(seed));
  const size_t count = kSlowBuild ? 200 : 1000;
  for (const KernelCase& kernel : kernels_at_drawn_parameters(settings, seed)) {
    const std::vector<uint64_t> x = mixed_values(kernel.format(), count, 90);
    std::vector<std::vector<uint64_t>> gradients;
    gradients.reserve(kernel.id.order);
    for (int k = 0; k < kernel.id.order; ++k)
      gradients.push_back(mixed_values(kernel.format(), count, 91 + k));
    const std::vector<uint64_t> expected =
        run_all(kernel, cpu::InstructionSet::kBaseline, x, gradients);
    for (const cpu::InstructionSet set : cpu::available_instruction_sets()) {
      ASSERT_TRUE(run_all(kernel, set, x, gradients) == expected)
          << described(kernel) << " on " << cpu::name_of(set);
    }
  }
}

}  // namespace
}  // namespace fastact::testing
