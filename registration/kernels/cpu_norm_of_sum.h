// A norm of a sum on the CPU, in one pass over memory.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/cpu/engine.h"
#include "registration/operators/operator.h"

namespace fastact {

// Computes the norm of the rows of self + residual, and the sum. The inputs have been checked.
// Returns false if the results should be composed: the rows are not contiguous along the last
// dimension, several threads should share a row, or a vector differs from row to row.
bool compute_norm_of_sum_on_cpu(const Operator& op, TensorPointers tensors,
                                const CallParameters& parameters, cpu::InstructionSet set,
                                at::Tensor* results);

}  // namespace fastact
