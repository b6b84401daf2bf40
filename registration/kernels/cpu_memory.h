// Allocates results on the CPU (ops/cpu/memory.h).
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>

namespace fastact {

// Returns the allocator for a result of this tensor's size: torch's, except for large results.
c10::Allocator* allocator_for(const at::Tensor& like);

// Returns an uninitialized tensor that is contiguous in `format`.
inline at::Tensor empty_on_cpu(const at::Tensor& like, c10::MemoryFormat format) {
  return at::detail::empty_generic(like.sizes(), allocator_for(like),
                                   c10::DispatchKeySet(c10::DispatchKey::CPU), like.scalar_type(),
                                   format);
}

// Returns an uninitialized tensor with the strides of `like`, which must be dense.
inline at::Tensor empty_strided_on_cpu(const at::Tensor& like) {
  return at::detail::empty_strided_generic(like.sizes(), like.strides(), allocator_for(like),
                                           c10::DispatchKeySet(c10::DispatchKey::CPU),
                                           like.scalar_type());
}

// Returns an uninitialized tensor with the strides of at::empty_like().
inline at::Tensor empty_like_on_cpu(const at::Tensor& like) {
  return like.is_non_overlapping_and_dense() ? empty_strided_on_cpu(like) : at::empty_like(like);
}

}  // namespace fastact
