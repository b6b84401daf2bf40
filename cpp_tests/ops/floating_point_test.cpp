// The calling thread's floating-point environment changes no result, and calls do not change the
// environment.
#include "ops/floating_point.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfenv>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "cpp_tests/ops/support.h"
#include "ops/cpu/fused.h"
#include "ops/cpu/seeded.h"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace fastact::testing {
namespace {

struct Environment {
  std::string name;
  int rounding;
  bool flushes = false;  // subnormal operands and results
  bool traps = false;    // every exception
};

std::vector<Environment> environments() {
  std::vector<Environment> result = {{"to nearest", FE_TONEAREST},
                                     {"upward", FE_UPWARD},
                                     {"downward", FE_DOWNWARD},
                                     {"toward zero", FE_TOWARDZERO}};
#if defined(__SSE2__)
  result.push_back({"flushing subnormals", FE_TONEAREST, /*flushes=*/true});
  result.push_back({"upward, flushing and trapping", FE_UPWARD, /*flushes=*/true, /*traps=*/true});
#endif
  return result;
}

// Returns the calling thread's floating-point state.
uint32_t state() {
#if defined(__SSE2__)
  return _mm_getcsr();
#else
  return static_cast<uint32_t>(std::fegetround());
#endif
}

// Calls f() in the environment, and nothing else.
template <class Function>
void in(const Environment& environment, const Function& f) {
  std::fenv_t before;
  std::fegetenv(&before);
  std::fesetround(environment.rounding);
#if defined(__SSE2__)
  constexpr uint32_t kFlush = 0x8040;
  constexpr uint32_t kMasks = 0x1f80;
  if (environment.flushes) _mm_setcsr(_mm_getcsr() | kFlush);
  if (environment.traps) _mm_setcsr(_mm_getcsr() & ~kMasks);
#endif
  const uint32_t set = state();
  f();
  const uint32_t left = state();
  std::fesetenv(&before);
  // The flags of past exceptions are not part of the environment.
  constexpr uint32_t kFlags = 0x3f;
  EXPECT_EQ(left & ~kFlags, set & ~kFlags) << environment.name;
}

constexpr int kCount = 300;

// Returns elements that alternate between random bits and ordinary numbers.
std::vector<char> operand(const Format& format, Random& random) {
  std::vector<uint64_t> bits(kCount);
  for (int i = 0; i < kCount; ++i) {
    const int number = i - kCount / 2;
    bits[i] = i % 2 == 0 ? random() & format.all_bits() : encode_nearest(format, number / 9.0);
  }
  return pack(format, bits);
}

std::vector<std::vector<char>> operands(const Format& format, int count) {
  Random random = seeded(1);
  std::vector<std::vector<char>> result(count);
  for (std::vector<char>& each : result) each = operand(format, random);
  return result;
}

// Expects run(addresses of the operands) to write the same bits to the first operand in every
// environment.
template <class Run>
void expect_same(const std::string& name, const std::vector<std::vector<char>>& operands,
                 const Run& run) {
  std::vector<char> expected;
  for (const Environment& environment : environments()) {
    std::vector<std::vector<char>> copies = operands;
    std::vector<char*> data(copies.size());
    std::ranges::transform(copies, data.begin(),
                           [](std::vector<char>& copy) { return copy.data(); });
    in(environment, [&] { run(data.data()); });
    if (expected.empty()) expected = copies[0];
    EXPECT_TRUE(copies[0] == expected) << name << ", rounding " << environment.name;
  }
}

TEST(FloatingPointTest, ChangesNoBitOfAnActivation) {
  std::vector<KernelCase> kernels = all_kernels();
  std::ranges::copy(kernels_at_drawn_parameters(kSlowBuild ? 1 : 4, 5),
                    std::back_inserter(kernels));
  for (const cpu::InstructionSet set : cpu::available_instruction_sets()) {
    for (const KernelCase& kernel : kernels) {
      expect_same(described(kernel) + " on " + std::string(cpu::name_of(set)),
                  operands(kernel.format(), kernel.operands()), [&](char* const* data) {
                    run_dense(kernel, set, {data, static_cast<size_t>(kernel.operands())}, kCount);
                  });
    }
  }
}

TEST(FloatingPointTest, ChangesNoBitOfAnotherForm) {
  for (int family = static_cast<int>(activations().size());
       family < static_cast<int>(families().size()); ++family) {
    for (int form = 0; form < kMaxForms; ++form) {
      const FormInfo& info = families()[family].forms[form];
      if (info.outputs == 0 || info.takes_random_bits) continue;
      for (const Format& format : kFormats) {
        for (const cpu::InstructionSet set : cpu::available_instruction_sets()) {
          const int count = info.outputs + info.inputs;
          const Parameters parameters = {{7.0, 1.702, 0.0}};
          expect_same(std::string(families()[family].name) + " " + std::to_string(form) + " " +
                          format.name + " on " + std::string(cpu::name_of(set)),
                      operands(format, count), [&](char* const* data) {
                        int64_t strides[2 * kMaxOperands] = {};
                        std::fill_n(strides, count, format.bytes);
                        cpu::find_kernel(family, {form, format.dtype}, set)(parameters, data,
                                                                            strides, kCount, 1);
                      });
        }
      }
    }
  }
}

// python_tests/test_floating_point.py tests the gradients of fused forms.
TEST(FloatingPointTest, ChangesNoBitOfAFusedForm) {
  for (int activation = 0; activation < static_cast<int>(activations().size()); ++activation) {
    for (const Format& format : kFormats) {
      for (const cpu::InstructionSet set : cpu::available_instruction_sets()) {
        cpu::FusedCall call;
        call.activation = cpu::find_fused_activation(activation, format.dtype, set);
        call.parameters = default_parameters(activations()[activation]);
        for (int i = 0; i < kFusedInputs; ++i) call.inputs.add(static_cast<FusedInput>(i));
        const cpu::FusedKernel kernel = cpu::find_fused_kernels(format.dtype, set).forward;
        expect_same("fused " + std::string(activations()[activation].name) + " " + format.name +
                        " on " + std::string(cpu::name_of(set)),
                    operands(format, kFusedOperands), [&](char* const* data) {
                      int64_t strides[2 * kFusedOperands] = {};
                      std::fill_n(strides, kFusedOperands, format.bytes);
                      kernel(call, data, strides, kCount, 1);
                    });
      }
    }
  }
}

TEST(FloatingPointTest, ChangesNoBitOfAFormWithRandomBits) {
  struct Case {
    const char* name;
    int form;
    Parameters parameters;
  };
  std::vector<Case> cases;
  for (int form = 0; form < 3; ++form)
    for (const double p : {0.1, 1.0 / 3.0, 0.7}) cases.push_back({"alpha_dropout", form, {{p}}});
  for (int form = 0; form < 2; ++form) cases.push_back({"rrelu", form, {{0.125, 1.0 / 3.0}}});
  for (const Case& each : cases) {
    const int family = family_index(each.name);
    for (const Format& format : kFormats) {
      for (const cpu::InstructionSet set : cpu::available_instruction_sets()) {
        expect_same(std::string(each.name) + " " + std::to_string(each.form) + " " + format.name +
                        " on " + std::string(cpu::name_of(set)),
                    operands(format, 4), [&](char* const* data) {
                      cpu::SeededCall call = {
                          .kernel = cpu::find_kernel(family, {each.form, format.dtype}, set),
                          .parameters = each.parameters,
                          .seed = 7,
                          .element_size = format.bytes,
                          .operands = 1 + families()[family].forms[each.form].inputs};
                      std::copy_n(data, call.operands, call.data);
                      cpu::find_seeded_run(set)(call, 0, kCount);
                    });
      }
    }
  }
}

}  // namespace
}  // namespace fastact::testing
