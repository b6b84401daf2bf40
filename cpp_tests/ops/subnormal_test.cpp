// For ordinary numbers, no kernel computes with a subnormal operand: an fma on an Intel processor
// then takes some 150 cycles. The processor's flag for subnormal operands detects it.
#if defined(__SSE2__)
#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <string>
#include <string_view>

#include "cpp_tests/ops/support.h"

namespace fastact::testing {
namespace {

constexpr unsigned kExceptionFlags = 0x3f;
constexpr unsigned kSubnormalOperand = 0x02;

// A sum with a subnormal operand is not slower. It breaks bfloat16's ties below float's normal
// range.
bool adds_one(const KernelCase& kernel) {
  return kernel.id.order == 0 && kernel.id.dtype == DType::kBFloat16 &&
         (kernel.info().name == "hardswish" || kernel.info().name == "leaky_relu");
}

// Inputs from 1/8 to 8 with either sign, and gradients of 1.
bool meets_a_subnormal(const KernelCase& kernel, cpu::InstructionSet set) {
  constexpr int kCount = 256;
  const Format& format = kernel.format();
  std::vector<uint64_t> x(kCount);
  for (int i = 0; i < kCount; ++i) {
    const int sixteenths = 1 + i / 2;
    const double size = sixteenths / 16.0;
    x[i] = encode_nearest(format, i % 2 == 0 ? size : -size);
  }
  std::vector<std::vector<char>> memory;
  memory.emplace_back(x.size() * format.bytes);
  for (int i = 0; i < kernel.id.order; ++i)
    memory.push_back(pack(format, std::vector<uint64_t>(kCount, format.one())));
  memory.push_back(pack(format, x));
  std::vector<char*> operands;
  operands.reserve(memory.size());
  for (auto& block : memory) operands.push_back(block.data());
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before & ~kExceptionFlags);
  run_dense(kernel, set, operands, kCount);
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  return (after & kSubnormalOperand) != 0;
}

TEST(SubnormalTest, OrdinaryNumbersMeetNone) {
  int kernels = 0;
  for (const KernelCase& kernel : all_kernels()) {
    // The most common operators. float64's tails are beyond ordinary numbers.
    if (kernel.id.order > 1 || kernel.id.from_result) continue;
    ++kernels;
    for (const cpu::InstructionSet set : cpu::available_instruction_sets()) {
      EXPECT_EQ(meets_a_subnormal(kernel, set), adds_one(kernel))
          << kernel.name() << " on " << cpu::name_of(set);
    }
  }
  EXPECT_GT(kernels, 0);
}

}  // namespace
}  // namespace fastact::testing
#endif
