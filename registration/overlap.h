// Memory overlap of strided tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include "fastact/export.h"

namespace fastact {

// Returns true if `out` and `input` share memory but are not the same elements. A kernel would then
// read elements that it has already overwritten. ATen's check decides this only for dense tensors,
// not, for example, for columns of one matrix. This function compares strides exactly. If the
// search takes too long, it returns true.
FASTACT_API bool overlaps_in_part(const at::Tensor& out, const at::Tensor& input);

// Throws ATen's error if `out` overlaps itself, or overlaps `input` in part.
void check_overlap(const at::Tensor& out, const at::Tensor& input);

}  // namespace fastact
