// The comparisons that a device makes before the fast forms are used on it.
#include "ops/catalogue.h"
#include "ops/cuda/compare.cuh"
#include "ops/cuda/self_check.h"
#include "ops/generated/families.h"

namespace fastact::cuda {
namespace {

// Every significand, with exponents from 0.5 to 2^11. The tests compare up to 2^60.
using Reciprocals = Reciprocal<0x3f000000, 0x45000000>;

#define FASTACT_INDEX(name, Type) kIndexOf_##name,
enum : int { FASTACT_FAMILIES(FASTACT_INDEX) };
#undef FASTACT_INDEX

#define FASTACT_CLAIMS(name, A) Approximation<A, BFloat16>, Approximation<A, Float16>,
using Claims = ClaimList<FASTACT_APPROXIMATED(FASTACT_CLAIMS) Reciprocals>;
#undef FASTACT_CLAIMS

#define FASTACT_NUMBERS(name, A)                          \
  approximation_claim(kIndexOf_##name, DType::kBFloat16), \
      approximation_claim(kIndexOf_##name, DType::kFloat16),
constexpr int kClaims[] = {FASTACT_APPROXIMATED(FASTACT_NUMBERS) kReciprocalClaim};
#undef FASTACT_NUMBERS

template <class... List>
constexpr uint64_t results_of(const ClaimList<List...>& /*claims*/) {
  return (uint64_t{List::kResults} + ...);
}

}  // namespace

cudaError_t compare_all(cudaStream_t stream, Findings& findings) {
  const Claims claims;
  std::array<unsigned, std::size(kClaims)> differences = {};
  const cudaError_t error = count_differences(claims, stream, differences);
  if (error != cudaSuccess) return error;
  findings.results = results_of(claims);
  for (size_t i = 0; i < differences.size(); ++i) {
    findings.differences += differences[i];
    if (differences[i] != 0) findings.differing |= uint64_t{1} << kClaims[i];
  }
  return cudaSuccess;
}

}  // namespace fastact::cuda
