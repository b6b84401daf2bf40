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

// Returns false for "off", and true for "auto", "" and null. Throws std::invalid_argument for any
// other value of FASTACT_CUDA_CLUSTERS.
bool parse_clusters(const char* name);

// Returns true if FASTACT_CUDA_CLUSTERS allows clusters of blocks, the current device has them, and
// this kernel, which needs them, was compiled for a compute capability that has them.
bool has_clusters(const void* kernel);

}  // namespace fastact::cuda
