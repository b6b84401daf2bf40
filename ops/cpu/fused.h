// The fused form on the CPU (ops/forms/fused.h), and its gradients. A block of z, in the L1 cache,
// is made from the operands, the activation's own kernel turns it into f(z), and a last loop
// multiplies it by gate and rounds it. So only the activation's kernels are compiled for each
// activation.
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

// The gradients: of self, residual and gate element by element, of scale and bias summed.
struct FusedBackwardCall {
  // `value` is D_0 of numbers as float's or double's own operator has it, of 16 bits too.
  FusedCall forward;
  // D_1 of them: of the incoming gradient and z, or, with slope_of_value, f(z).
  Kernel slope = nullptr;
  bool slope_of_value = false;
};

// A tile is at most so large, and the partial sums of a tile that has vectors along its columns
// are of at most so many rows.
inline constexpr int64_t kTileColumns = 4096;
inline constexpr int64_t kTileRows = 32;

// Rows of dense elements.
struct FusedRows {
  char* data = nullptr;  // null: not there, or not wanted
  int64_t stride = 0;    // bytes from row to row
};

struct FusedTile {
  int64_t rows = 0;
  int64_t columns = 0;
  // Whether scale and bias have an element for each column, else there is one row and one element.
  bool vectors_along_columns = true;
  FusedRows grad_output;
  FusedRows inputs[kFusedInputs];
  // Of self, residual and gate. Without a scale self's and residual's are the same: one of the two.
  FusedRows gradients[kFusedInputs];
  // What scale and bias get from this tile: a number for each column, or one.
  double* scale_sums = nullptr;
  double* bias_sums = nullptr;
};

// In a fixed order, which depends on the tile's size alone. Instruction sets give the same bits.
using FusedBackwardKernel = void (*)(const FusedBackwardCall& call, const FusedTile& tile);

struct FusedKernels {
  FusedKernel forward = nullptr;
  FusedBackwardKernel backward = nullptr;
};

FASTACT_OPS_API FusedKernels find_fused_kernels(DType dtype, InstructionSet set);

// D_order of numbers of an activation, for order 0 and 1.
FASTACT_OPS_API Kernel find_number_kernel(int activation, int order, DType dtype,
                                          InstructionSet set);

}  // namespace fastact::cpu
