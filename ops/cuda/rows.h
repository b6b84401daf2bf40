// Launches the kernels of row forms (ops/forms/row_form.h) on the current device, like engine.h.
#pragma once

#include <cuda_runtime_api.h>

#include "ops/export.h"
#include "ops/kernel.h"

namespace fastact::cuda {

using RowKernel = cudaError_t (*)(const Parameters& parameters, const RowOperands& operands,
                                  cudaStream_t stream);

// Returns a kernel, or null if the family has no such form. `family` is an index into
// row_families().
FASTACT_OPS_API RowKernel find_row_kernel(int family, const KernelId& id);

}  // namespace fastact::cuda
