// SELU with alpha dropout on the CPU (ops/forms/alpha_dropout.h).
#pragma once

#include <cstdint>

#include "ops/cpu/engine.h"
#include "ops/kernel.h"

namespace fastact::cpu {

// Computes elements [first, first + n) of contiguous operands. `first` is a multiple of
// kAlphaDropoutBlock. `data` points to the first elements of the output and of the inputs. Each
// input is the output itself or does not overlap it.
inline constexpr int64_t kAlphaDropoutBlock = 1024;
using AlphaDropoutKernel = InDefaultFloatingPoint<void (*)(
    double p, uint64_t seed, char* const* data, int64_t first, int64_t n)>;

FASTACT_OPS_API AlphaDropoutKernel find_alpha_dropout_kernel(AlphaDropoutForm form, DType dtype,
                                                             InstructionSet set);

}  // namespace fastact::cpu
