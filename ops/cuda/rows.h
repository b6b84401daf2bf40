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

// Returns true if the current device has clusters of blocks, and this kernel, which needs them, was
// compiled for a compute capability that has them. FASTACT_CUDA_CLUSTERS=off makes it return false.
bool has_clusters(const void* kernel);

}  // namespace fastact::cuda
