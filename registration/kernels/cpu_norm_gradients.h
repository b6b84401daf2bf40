// The gradients of a norm on the CPU, in one pass over memory.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/cpu/engine.h"
#include "registration/operators/operator.h"

namespace fastact {

// Computes those results of `op` (norm_gradients.h) that the output mask selects. The inputs have
// been checked and are not empty. Returns false and does nothing if the operators that it calls
// should compute them one after the other.
bool compute_norm_gradients_on_cpu(const Operator& op, TensorPointers tensors,
                                   const CallParameters& parameters, cpu::InstructionSet set,
                                   at::Tensor* results);

}  // namespace fastact
