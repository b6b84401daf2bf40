// The fused form on the CPU (ops/forms/fused.h) and its gradients. One loop, which knows no
// activation, computes the pre-activation z a block at a time in the L1 cache. A second loop,
// compiled for each activation, computes and rounds f(z) * gate.
#pragma once

#include <cstdint>

#include "ops/cpu/engine.h"
#include "ops/kernel.h"

namespace fastact::cpu {

// The kernels of one activation, see NumberForms in ops/forms/fused.h.
struct FusedActivation {
  DenseFunction value = nullptr;
  DenseFunction gated = nullptr;
  DenseFunction slope = nullptr;  // null for 16-bit types
};

struct FusedCall {
  FusedActivation activation;
  Parameters parameters;
  // `inputs`: the present inputs, which always include self. `float32`: those that are float while
  // self has a 16-bit type.
  FusedSet inputs;
  FusedSet float32;
  // True if there is a second output, z, stored as elements. Then neighbours along the first
  // dimension are contiguous in memory for all operands except scale and bias.
  bool writes_preactivation = false;
};

// Computes a size0 x size1 block, like Kernel in engine.h. `data` and `strides` describe the
// outputs and the inputs that are present, in this order.
using FusedKernel =
    InDefaultFloatingPoint<void (*)(const FusedCall& call, char* const* data,
                                    const int64_t* strides, int64_t size0, int64_t size1)>;

// The gradients. Those of self, residual and gate are elementwise; those of scale and bias are
// sums.
struct FusedBackwardCall {
  FusedCall forward;
  // True if the slope is a function of f(z) instead of z. Then 16-bit types use the activation for
  // float.
  bool slope_of_value = false;
};

// The largest tile. The order of its partial sums is described in kernel.h.
inline constexpr int64_t kTileColumns = int64_t{kSumBlocks} * kSumBlock;
inline constexpr int64_t kTileRows = kSumRows;

// Rows of contiguous elements.
struct FusedRows {
  char* data = nullptr;  // null: absent, or not wanted
  int64_t stride = 0;    // bytes between rows
};

struct FusedTile {
  int64_t rows = 0;
  int64_t columns = 0;
  // True if scale and bias have one element for each column; false if they have one for each row.
  bool vectors_along_columns = true;
  FusedRows grad_output;
  FusedRows inputs[kFusedInputs];
  // The gradients of self, residual and gate. Without a scale, self and residual have the same
  // gradient, and at most one of the two is set.
  FusedRows gradients[kFusedInputs];
  // This tile's contributions to the gradients of scale and bias, one for each column or each row.
  double* scale_sums = nullptr;
  double* bias_sums = nullptr;
};

// Computes a tile in a fixed order that depends only on the tile's size. All instruction sets give
// the same bits.
using FusedBackwardKernel =
    InDefaultFloatingPoint<void (*)(const FusedBackwardCall& call, const FusedTile& tile)>;

// Adds the partial sums of each channel, sums[group][channel], in the order of kernel.h, and writes
// one element for each channel. Overwrites `sums`. 16-bit types are rounded from float, as in the
// GPU's fused_sums.cu.
using FusedSumsKernel = InDefaultFloatingPoint<void (*)(double* sums, int64_t groups,
                                                        int64_t channels, void* elements)>;

struct FusedKernels {
  FusedKernel forward;
  FusedBackwardKernel backward;
  FusedSumsKernel add_sums;
};

FASTACT_OPS_API FusedKernels find_fused_kernels(DType dtype, InstructionSet set);

FASTACT_OPS_API FusedActivation find_fused_activation(int activation, DType dtype,
                                                      InstructionSet set);

}  // namespace fastact::cpu
