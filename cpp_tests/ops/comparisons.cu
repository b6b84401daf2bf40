#include "cpp_tests/ops/comparisons.h"
#include "ops/activations/relu.h"
#include "ops/cuda/compare.cuh"

namespace fastact::testing {
namespace {

template <class Claim>
cudaError_t compare(int number, cudaStream_t stream, cuda::Findings& findings) {
  std::array<unsigned, 1> differences = {};
  const cudaError_t error = cuda::count_differences(cuda::ClaimList<Claim>{}, stream, differences);
  findings.results = Claim::kResults;
  findings.differences = differences[0];
  if (differences[0] != 0) findings.differing = uint64_t{1} << number;
  return error;
}

struct UnrefinedReciprocal {
  static constexpr uint32_t kResults = 1u << 23;

  __device__ bool differs(uint32_t index) const {
    const float d = from_bits(0x3f800000u + index);
    return to_bits(approximate_reciprocal(d)) != to_bits(1.0f / d);
  }
};

struct OneWrongBit : Relu {
  FASTACT_INLINE static constexpr bool approximates() { return true; }

  template <class Element>
  __device__ static float approximate_value(float x) {
    const float y = x < 0.0f ? 0.0f : x;
    return x == 2.0f ? from_bits(to_bits(y) + 0x10000u) : y;
  }

  explicit constexpr OneWrongBit(const double* parameters) : Relu(parameters) {}
};

}  // namespace

cudaError_t compare_every_reciprocal(cudaStream_t stream, cuda::Findings& findings) {
  return compare<cuda::Reciprocal<0x3f000000, 0x5d800000>>(cuda::kReciprocalClaim, stream,
                                                           findings);
}

cudaError_t compare_unrefined_reciprocals(cudaStream_t stream, cuda::Findings& findings) {
  return compare<UnrefinedReciprocal>(cuda::kReciprocalClaim, stream, findings);
}

cudaError_t compare_with_one_wrong_bit(cudaStream_t stream, cuda::Findings& findings) {
  return compare<cuda::Approximation<OneWrongBit, BFloat16>>(
      cuda::approximation_claim(0, DType::kBFloat16), stream, findings);
}

}  // namespace fastact::testing
