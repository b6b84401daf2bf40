// Comparisons for the tests of a device's self-check. Some of them contain a planted difference.
#pragma once

#include "ops/cuda/self_check.h"

namespace fastact::testing {

// Compares refined_reciprocal() for every d of its contract, 0.5 to 2^60.
cudaError_t compare_every_reciprocal(cudaStream_t stream, cuda::Findings& findings);

// Compares rcp.approx without its Newton step instead of refined_reciprocal(), from 1 to 2.
cudaError_t compare_unrefined_reciprocals(cudaStream_t stream, cuda::Findings& findings);

// Compares ReLU with an approximate value whose last bit is wrong for one element. Reports it as
// the first activation's in bfloat16.
cudaError_t compare_with_one_wrong_bit(cudaStream_t stream, cuda::Findings& findings);

}  // namespace fastact::testing
