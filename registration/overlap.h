// Memory overlap of strided tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include "fastact/export.h"

namespace fastact {

// True if `out` and `input` share memory other than element for element, so that a kernel would
// read elements that it has written. ATen's own check decides this for dense tensors alone, not,
// for example, for columns of one matrix; this one compares the strides exactly. Tensors for which
// that takes too long count as overlapping.
FASTACT_API bool overlaps_in_part(const at::Tensor& out, const at::Tensor& input);

// Throws ATen's error if `out` overlaps itself, or overlaps `input` in part.
void check_overlap(const at::Tensor& out, const at::Tensor& input);

}  // namespace fastact
