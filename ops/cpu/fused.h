// The fused form on the CPU (ops/forms/fused.h), and its gradients. z is made from the operands in
// one loop, which knows no activation, a block at a time in the L1 cache; f(z) * gate, rounded, is
// a second one, which is compiled for each activation.
#pragma once

#include <cstdint>

#include "ops/cpu/engine.h"
#include "ops/kernel.h"

namespace fastact::cpu {

// What is called of an activation, see NumberForms in ops/forms/fused.h.
struct FusedActivation {
  DenseFunction value = nullptr;
  DenseFunction gated = nullptr;
  DenseFunction slope = nullptr;  // null for 16 bits
};

struct FusedCall {
  FusedActivation activation;
  Parameters parameters;
  // Which inputs there are, self among them, and which of them are float where self has 16 bits.
  FusedSet inputs;
  FusedSet wide;
  // Whether there is a second output, which is z, as elements. Neighbours along the first dimension
  // then are neighbours in memory, but for those of scale and bias.
  bool writes_argument = false;
};

// Runs it over a size0 x size1 block, as Kernel in engine.h does. `data` and `strides` are those of
// the outputs and the inputs that there are, in their order.
using FusedKernel =
    InDefaultFloatingPoint<void (*)(const FusedCall& call, char* const* data,
                                    const int64_t* strides, int64_t size0, int64_t size1)>;

// The gradients: of self, residual and gate element by element, of scale and bias summed.
struct FusedBackwardCall {
  FusedCall forward;
  // Whether the slope is a function of f(z), not z. Then the activation is float's where the
  // elements have 16 bits.
  bool slope_of_value = false;
};

// A tile is at most so large: its partial sums are in the order that kernel.h tells.
inline constexpr int64_t kTileColumns = int64_t{kSumBlocks} * kSumBlock;
inline constexpr int64_t kTileRows = kSumRows;

// Rows of dense elements.
struct FusedRows {
  char* data = nullptr;  // null: not there, or not wanted
  int64_t stride = 0;    // bytes from row to row
};

struct FusedTile {
  int64_t rows = 0;
  int64_t columns = 0;
  // Whether scale and bias have an element for each column, else they have one for each row.
  bool vectors_along_columns = true;
  FusedRows grad_output;
  FusedRows inputs[kFusedInputs];
  // Of self, residual and gate. Without a scale self's and residual's are the same: one of the two.
  FusedRows gradients[kFusedInputs];
  // What scale and bias get from this tile: a number for each column, or each row.
  double* scale_sums = nullptr;
  double* bias_sums = nullptr;
};

// In a fixed order, which depends on the tile's size alone. Instruction sets give the same bits.
using FusedBackwardKernel =
    InDefaultFloatingPoint<void (*)(const FusedBackwardCall& call, const FusedTile& tile)>;

// Sums to elements, by way of float to 16 bits, as a GPU's fused_sums.cu has it.
using FusedSumsKernel =
    InDefaultFloatingPoint<void (*)(const double* sums, int64_t n, void* elements)>;

struct FusedKernels {
  FusedKernel forward;
  FusedBackwardKernel backward;
  FusedSumsKernel round_sums;
};

FASTACT_OPS_API FusedKernels find_fused_kernels(DType dtype, InstructionSet set);

FASTACT_OPS_API FusedActivation find_fused_activation(int activation, DType dtype,
                                                      InstructionSet set);

}  // namespace fastact::cpu
