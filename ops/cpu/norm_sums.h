// The sums over the rows of a norm that are the gradients of its weight and bias.
#pragma once

#include <cstdint>

#include "ops/cpu/engine.h"
#include "ops/kernel.h"

namespace fastact::cpu {

// A row of x and of the incoming gradient g, and the numbers that normalize x:
// z = ((x - mean) - correction) r (ops/forms/layer_norm.h). All have the type in which the row is
// computed.
struct NormRow {
  const void* x = nullptr;
  const void* g = nullptr;
  const void* mean = nullptr;
  const void* correction = nullptr;
  const void* r = nullptr;
};

// Functions that sum g z for the weight and g for the bias. A null pointer means that a sum is not
// wanted.
struct NormSums {
  // Adds each of the row's n elements to the sums of its column, which have the type of x.
  InDefaultFloatingPoint<void (*)(const NormRow& row, int64_t n, void* weight_sums,
                                  void* bias_sums)>
      add_to_columns = nullptr;
  // Converts n sums of columns to double.
  InDefaultFloatingPoint<void (*)(const void* sums, int64_t n, double* to)> store_columns = nullptr;
  // Writes the sums of `channels` channels, in the order of ops/kernel.h. A channel has
  // n <= kTileColumns elements, and the next one starts `stride` elements after it.
  InDefaultFloatingPoint<void (*)(const NormRow& row, int64_t n, int64_t channels, int64_t stride,
                                  double* weight_sums, double* bias_sums)>
      add_channels = nullptr;
  // Converts n elements to the type in which they compute.
  InDefaultFloatingPoint<void (*)(const void* elements, void* numbers, int64_t n)> widen = nullptr;
};

// Returns the functions for elements of this type. Those of a 16-bit type contain `widen` alone.
FASTACT_OPS_API NormSums find_norm_sums(DType dtype, InstructionSet set);

}  // namespace fastact::cpu
