// Runs kernels of forms that take random bits (ops/forms/form.h).
#pragma once

#include <cstdint>

#include "ops/cpu/engine.h"
#include "ops/kernel.h"

namespace fastact::cpu {

inline constexpr int64_t kSeededBlock = 1024;

// A call over contiguous operands.
struct SeededCall {
  Kernel kernel;
  Parameters parameters;
  uint64_t seed = 0;
  int64_t element_size = 0;
  int operands = 0;
  // The first elements of the output and, from index 2 on, of the inputs behind the random bits. An
  // input is the output itself or does not overlap it.
  char* data[kMaxOperands] = {};
};

// Computes elements [first, first + n). `first` is a multiple of kSeededBlock.
using SeededRun = void (*)(const SeededCall& call, int64_t first, int64_t n);

FASTACT_OPS_API SeededRun find_seeded_run(InstructionSet set);

}  // namespace fastact::cpu
