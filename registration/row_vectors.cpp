#include "registration/row_vectors.h"

#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/repeat_interleave.h>

namespace fastact {
namespace {

// Returns the vector's dimension along the rows, or -1 if it has none.
int64_t row_dimension_of(const at::Tensor& vector, int64_t rank, int64_t dim) {
  const int64_t from_end = rank - at::maybe_wrap_dim(dim, rank);
  return vector.dim() < from_end ? -1 : vector.dim() - from_end;
}

// Returns the shape, except that its size along the rows is that of the vector.
c10::SymDimVector shape_with_rows_of(const at::Tensor& vector, c10::SymIntArrayRef shape,
                                     int64_t dim) {
  const auto rank = static_cast<int64_t>(shape.size());
  const int64_t at = row_dimension_of(vector, rank, dim);
  c10::SymDimVector result(shape);
  if (!result.empty()) {
    result[static_cast<size_t>(at::maybe_wrap_dim(dim, rank))] =
        at < 0 ? c10::SymInt(1) : vector.sym_size(at);
  }
  return result;
}

}  // namespace

bool broadcasts_to_rows(const at::Tensor& vector, const at::Tensor& self, int64_t dim) {
  if (at::is_expandable_to(vector.sym_sizes(), self.sym_sizes())) return true;
  const int64_t at = self.dim() == 0 ? -1 : row_dimension_of(vector, self.dim(), dim);
  if (at < 0) return false;
  const c10::SymInt size = vector.sym_size(at);
  return size > 0 && self.sym_size(dim) % size == 0 &&
         at::is_expandable_to(vector.sym_sizes(),
                              shape_with_rows_of(vector, self.sym_sizes(), dim));
}

bool is_vector_of_rows(const at::Tensor& vector, const at::Tensor& rows) {
  if (vector.dim() == 1 && rows.dim() >= 1) return vector.sym_size(0) == rows.sym_size(-1);
  return vector.dim() == 2 && rows.dim() == 3 && vector.sym_size(0) == rows.sym_size(1) &&
         vector.sym_size(1) > 0 && rows.sym_size(-1) % vector.sym_size(1) == 0;
}

at::Tensor expanded_besides_rows(const at::Tensor& vector, const at::Tensor& self, int64_t dim) {
  return vector.expand_symint(shape_with_rows_of(vector, self.sym_sizes(), dim));
}

at::Tensor repeated_along_rows(const at::Tensor& vector, const at::Tensor& self, int64_t dim) {
  const int64_t at = self.dim() == 0 ? -1 : row_dimension_of(vector, self.dim(), dim);
  if (at < 0 || vector.sym_size(at) == self.sym_size(dim)) return vector;
  return at::repeat_interleave_symint(vector, self.sym_size(dim) / vector.sym_size(at), at);
}

at::Tensor sum_to_vector(const at::Tensor& rows, const at::Tensor& vector, int64_t dim) {
  if (at::is_expandable_to(vector.sym_sizes(), rows.sym_sizes()))
    return at::sum_to(rows, vector.sym_sizes());
  const int64_t at = row_dimension_of(vector, rows.dim(), dim);
  const int64_t along = at::maybe_wrap_dim(dim, rows.dim());
  c10::SymDimVector shape(rows.sym_sizes());
  shape[static_cast<size_t>(along)] = vector.sym_size(at);
  shape.insert(shape.begin() + along + 1, rows.sym_size(along) / vector.sym_size(at));
  return at::sum_to(rows.reshape_symint(shape).sum(along + 1), vector.sym_sizes());
}

}  // namespace fastact
