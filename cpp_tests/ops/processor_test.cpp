// The choice of an instruction set requires every feature that its code may use. Otherwise, a
// feature that a virtual machine masks would cause a SIGILL.
#include "ops/cpu/processor.h"

#include <gtest/gtest.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <string>
#include <vector>

namespace fastact::testing {
namespace {

#if defined(__x86_64__)

using cpu::InstructionSet;
using cpu::ProcessorFeatures;

constexpr ProcessorFeatures kEverything = {.leaf1_ecx = ~0u,
                                           .leaf7_ebx = ~0u,
                                           .extended1_ecx = ~0u,
                                           .has_avx_state = true,
                                           .has_avx512_state = true};

struct Feature {
  std::string name;
  ProcessorFeatures masked;  // all features except this one
};

template <class Member>
Feature without(const std::string& name, Member member, uint32_t bit) {
  Feature feature = {name, kEverything};
  feature.masked.*member &= ~bit;
  return feature;
}

// The features in the psABI's list.
std::vector<Feature> level3() {
  const auto leaf1 = &ProcessorFeatures::leaf1_ecx;
  const auto leaf7 = &ProcessorFeatures::leaf7_ebx;
  Feature state = {"AVX state", kEverything};
  state.masked.has_avx_state = false;
  return {without("AVX", leaf1, 1u << 28),
          without("AVX2", leaf7, 1u << 5),
          without("BMI1", leaf7, 1u << 3),
          without("BMI2", leaf7, 1u << 8),
          without("F16C", leaf1, 1u << 29),
          without("FMA", leaf1, 1u << 12),
          without("LZCNT", &ProcessorFeatures::extended1_ecx, 1u << 5),
          without("MOVBE", leaf1, 1u << 22),
          without("OSXSAVE", leaf1, 1u << 27),
          state};
}

std::vector<Feature> level4() {
  const auto leaf7 = &ProcessorFeatures::leaf7_ebx;
  Feature state = {"AVX-512 state", kEverything};
  state.masked.has_avx512_state = false;
  return {without("AVX512F", leaf7, 1u << 16),  without("AVX512BW", leaf7, 1u << 30),
          without("AVX512CD", leaf7, 1u << 28), without("AVX512DQ", leaf7, 1u << 17),
          without("AVX512VL", leaf7, 1u << 31), state};
}

TEST(ProcessorTest, NeedsEveryFeatureOfItsLevel) {
  EXPECT_TRUE(runs(InstructionSet::kAvx2, kEverything));
  EXPECT_TRUE(runs(InstructionSet::kAvx512, kEverything));
  EXPECT_TRUE(runs(InstructionSet::kBaseline, ProcessorFeatures{}));
  for (const Feature& feature : level3()) {
    EXPECT_FALSE(runs(InstructionSet::kAvx2, feature.masked)) << feature.name;
    EXPECT_FALSE(runs(InstructionSet::kAvx512, feature.masked)) << feature.name;
    EXPECT_TRUE(runs(InstructionSet::kBaseline, feature.masked)) << feature.name;
  }
  for (const Feature& feature : level4()) {
    EXPECT_TRUE(runs(InstructionSet::kAvx2, feature.masked)) << feature.name;
    EXPECT_FALSE(runs(InstructionSet::kAvx512, feature.masked)) << feature.name;
  }
}

// The compiler's own detection, which knows fewer features.
TEST(ProcessorTest, ReadsWhatTheProcessorSays) {
  const ProcessorFeatures features = cpu::processor_features();
  if (runs(InstructionSet::kAvx2, features)) {
    EXPECT_TRUE(__builtin_cpu_supports("avx2"));
    EXPECT_TRUE(__builtin_cpu_supports("fma"));
  }
  EXPECT_EQ((features.leaf7_ebx & bit_AVX2) != 0 && features.has_avx_state,
            __builtin_cpu_supports("avx2") != 0);
  EXPECT_EQ((features.leaf7_ebx & bit_AVX512F) != 0 && features.has_avx512_state,
            __builtin_cpu_supports("avx512f") != 0);
}

#endif

}  // namespace
}  // namespace fastact::testing
