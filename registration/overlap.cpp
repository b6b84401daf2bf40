#include "registration/overlap.h"

#include <ATen/MemoryOverlap.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace fastact {
namespace {

// stride * i for 0 <= i <= last.
struct Term {
  int64_t stride;
  int64_t last;
};

void add_terms(const at::Tensor& tensor, int64_t sign, std::vector<Term>& terms) {
  const auto size = static_cast<int64_t>(tensor.element_size());
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (tensor.size(dim) > 1 && tensor.stride(dim) != 0)
      terms.push_back({sign * tensor.stride(dim) * size, tensor.size(dim) - 1});
  }
  if (size > 1) terms.push_back({sign, size - 1});  // the bytes of an element
}

// Whether sums of one multiple of each term, from `term` on, reach `target`. Terms are in order of
// falling size, so that the later ones leave few multiples of a term open.
bool reaches(const std::vector<Term>& terms, size_t term, int64_t target, int64_t& steps_left) {
  if (term == terms.size()) return target == 0;
  int64_t lowest = 0;
  int64_t highest = 0;
  for (size_t i = term + 1; i < terms.size(); ++i)
    (terms[i].stride < 0 ? lowest : highest) += terms[i].stride * terms[i].last;
  // The multiples of the stride between target - highest and target - lowest.
  const int64_t size = std::abs(terms[term].stride);
  const int64_t sign = terms[term].stride < 0 ? -1 : 1;
  const int64_t from = sign > 0 ? target - highest : lowest - target;
  const int64_t to = sign > 0 ? target - lowest : highest - target;
  const int64_t first = from <= 0 ? 0 : (from + size - 1) / size;
  const int64_t last = to < 0 ? -1 : std::min(to / size, terms[term].last);
  for (int64_t i = first; i <= last; ++i) {
    if (--steps_left < 0) return true;
    if (reaches(terms, term + 1, target - i * terms[term].stride, steps_left)) return true;
  }
  return false;
}

// In the tensor's storage, as a tensor on Meta has no address.
int64_t first_byte(const at::Tensor& tensor) {
  return tensor.storage_offset() * static_cast<int64_t>(tensor.element_size());
}

// Of tensors with the same storage.
bool shares_bytes(const at::Tensor& a, const at::Tensor& b) {
  std::vector<Term> terms;
  add_terms(a, 1, terms);
  add_terms(b, -1, terms);
  std::ranges::sort(
      terms, [](const Term& x, const Term& y) { return std::abs(x.stride) > std::abs(y.stride); });
  int64_t steps = 100'000;
  return reaches(terms, 0, first_byte(b) - first_byte(a), steps);
}

bool are_same_elements(const at::Tensor& a, const at::Tensor& b) {
  return a.storage_offset() == b.storage_offset() && a.scalar_type() == b.scalar_type() &&
         a.sizes() == b.sizes() && a.strides() == b.strides();
}

}  // namespace

bool overlaps_in_part(const at::Tensor& out, const at::Tensor& input) {
  if (input.is_same(out)) return false;
  switch (at::get_overlap_status(out, input)) {
    case at::MemOverlapStatus::Partial:
      return true;
    case at::MemOverlapStatus::TooHard:
      return out.is_alias_of(input) && !are_same_elements(out, input) && shares_bytes(out, input);
    default:
      return false;
  }
}

void check_overlap(const at::Tensor& out, const at::Tensor& input) {
  at::assert_no_internal_overlap(out);
  TORCH_CHECK(!overlaps_in_part(out, input),
              "unsupported operation: some elements of the input tensor and the written-to tensor "
              "refer to a single memory location. Please clone() the tensor before performing the "
              "operation.");
}

}  // namespace fastact
