// The fused form on the CPU (ops/forms/fused.h). A block of z, in the L1 cache, is made from the
// operands, the activation's own kernel turns it into f(z), and a last loop multiplies it by gate
// and rounds it. So only the activation's kernel is compiled for each activation.
#pragma once

#include <cstdint>

#include "ops/cpu/engine.h"
#include "ops/kernel.h"

namespace fastact::cpu {

struct FusedCall {
  // The activation's D_0 of numbers, from float to float or from double to double.
  Kernel value = nullptr;
  Parameters parameters;
  // Which inputs there are, self among them, and which of them are float where self has 16 bits.
  FusedSet inputs;
  FusedSet wide;
};

// Runs it over a size0 x size1 block, as Kernel in engine.h does. `data` and `strides` are those of
// the output and the inputs that there are, in their order.
using FusedKernel = void (*)(const FusedCall& call, char* const* data, const int64_t* strides,
                             int64_t size0, int64_t size1);

FASTACT_OPS_API FusedKernel find_fused_kernel(DType dtype, InstructionSet set);

// D_order of numbers of an activation, for order 0 and 1.
FASTACT_OPS_API Kernel find_number_kernel(int activation, int order, DType dtype,
                                          InstructionSet set);

}  // namespace fastact::cpu
