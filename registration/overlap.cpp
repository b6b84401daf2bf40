#include "registration/overlap.h"

#include <ATen/MemoryOverlap.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

namespace fastact {
namespace {

// The values stride * i for first <= i <= last.
struct Term {
  int64_t stride;  // positive
  int64_t first;
  int64_t last;
};

// Adds the offsets of the tensor's bytes, or their negatives if `sign` is -1.
void add_terms(const at::Tensor& tensor, int64_t sign, std::vector<Term>& terms) {
  const auto add = [&](int64_t stride, int64_t count) {
    const int64_t last = count - 1;
    if (last > 0 && stride > 0)
      terms.push_back({stride, sign < 0 ? -last : 0, sign < 0 ? 0 : last});
  };
  const auto size = static_cast<int64_t>(tensor.element_size());
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) add(tensor.stride(dim) * size, tensor.size(dim));
  add(1, size);
}

// Combines terms with the same stride, and orders the terms by decreasing stride.
void combine(std::vector<Term>& terms) {
  std::ranges::sort(terms, std::greater(), &Term::stride);
  std::vector<Term> combined;
  for (const Term& term : terms) {
    if (!combined.empty() && combined.back().stride == term.stride) {
      combined.back().first += term.first;
      combined.back().last += term.last;
    } else {
      combined.push_back(term);
    }
  }
  terms = std::move(combined);
}

int64_t floor_divided(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

// Returns true if `target` is a sum of one value from each term, starting at index `term`, or if
// the search needs more than `steps_left` steps. The terms are in order of decreasing stride, so
// only a few values of a term are within reach of the later terms.
bool reaches(const std::vector<Term>& terms, size_t term, int64_t target, int64_t& steps_left) {
  if (term == terms.size()) return target == 0;
  int64_t lowest = 0;
  int64_t highest = 0;
  for (size_t i = term + 1; i < terms.size(); ++i) {
    lowest += terms[i].stride * terms[i].first;
    highest += terms[i].stride * terms[i].last;
  }
  // The multiples of the stride from target - highest to target - lowest.
  const int64_t stride = terms[term].stride;
  const int64_t first = std::max(-floor_divided(highest - target, stride), terms[term].first);
  const int64_t last = std::min(floor_divided(target - lowest, stride), terms[term].last);
  for (int64_t i = first; i <= last; ++i) {
    if (--steps_left < 0) return true;
    if (reaches(terms, term + 1, target - i * stride, steps_left)) return true;
  }
  return false;
}

// Returns the offset in the tensor's storage, because a tensor on Meta has no address.
int64_t first_byte(const at::Tensor& tensor) {
  return tensor.storage_offset() * static_cast<int64_t>(tensor.element_size());
}

// Returns true if a byte belongs to both tensors, which must have the same storage.
bool shares_bytes(const at::Tensor& a, const at::Tensor& b) {
  std::vector<Term> terms;
  add_terms(a, 1, terms);
  add_terms(b, -1, terms);
  combine(terms);
  int64_t steps = 100'000;
  return reaches(terms, 0, first_byte(b) - first_byte(a), steps);
}

// Returns true if both tensors consist of the same elements. They must have the same storage.
bool are_same_elements(const at::Tensor& a, const at::Tensor& b) {
  if (a.storage_offset() != b.storage_offset() || a.scalar_type() != b.scalar_type() ||
      a.sizes() != b.sizes()) {
    return false;
  }
  for (int64_t dim = 0; dim < a.dim(); ++dim)
    if (a.size(dim) != 1 && a.stride(dim) != b.stride(dim)) return false;
  return true;
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
