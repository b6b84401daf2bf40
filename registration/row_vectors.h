// The inputs of InputKind::kBroadcast, such as the weight of a norm. They broadcast as PyTorch's
// tensors do. In addition, their size along the rows may divide the length of a row: each of their
// elements then applies to several neighbouring elements of the row. group_norm uses this to give
// each channel one weight.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace fastact {

// `dim` is the dimension of the rows of `self`; it may be negative.

// Returns true if the vector broadcasts to self, or does so once its elements are repeated.
bool broadcasts_to_rows(const at::Tensor& vector, const at::Tensor& self, int64_t dim);

// Returns true if each row of `rows` has the vector's number of elements; or if `rows` is [N,
// groups, elements of a group], and the vector [groups, channels of a group].
bool is_vector_of_rows(const at::Tensor& vector, const at::Tensor& rows);

// Returns a view with the shape of self, except that its size along the rows is that of the vector.
at::Tensor expanded_besides_rows(const at::Tensor& vector, const at::Tensor& self, int64_t dim);

// Repeats the elements of the vector in memory so that its size along the rows is self's. A vector
// without this dimension stays as it is.
at::Tensor repeated_along_rows(const at::Tensor& vector, const at::Tensor& self, int64_t dim);

// Returns the sums of the elements of `rows` that belong to each element of the vector.
at::Tensor sum_to_vector(const at::Tensor& rows, const at::Tensor& vector, int64_t dim);

}  // namespace fastact
