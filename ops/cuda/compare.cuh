// Compares two ways of computing the same results on the GPU, result by result and in one launch.
//
//   struct Claim {
//     static constexpr uint32_t kResults = ...;
//     __device__ bool differs(uint32_t index) const;
//   };
#pragma once

#include <array>
#include <cstdint>

#include "ops/cuda/packet.cuh"
#include "ops/cuda/tuning.h"
#include "ops/forms/derivative.h"

namespace fastact::cuda {

// Claims that refined_reciprocal() is 1 / d for every d in [First, Last).
template <uint32_t First, uint32_t Last>
struct Reciprocal {
  static constexpr uint32_t kResults = Last - First;

  __device__ __forceinline__ bool differs(uint32_t index) const {
    const float d = from_bits(First + index);
    return to_bits(refined_reciprocal(d)) != to_bits(1.0f / d);
  }
};

template <class Element, class Result>
__device__ __forceinline__ uint16_t rounded_bits(Result result) {
  const Result results[1] = {result};
  Packet<Element, 1> packet;
  round_packet(results, packet);
  return packet.elements[0].bits;
}

// Claims that approximate_value() is f for every element of a 16-bit type, with parameters for
// which approximates() returns true.
template <class A, class Element>
struct Approximation {
  static constexpr uint32_t kResults = 0x10000;

  __device__ __forceinline__ bool differs(uint32_t index) const {
    static_assert(!kApproximate, "else f would not be in IEEE arithmetic");
    const float x = widen(Element{static_cast<uint16_t>(index)});
    return !act.approximates() ||
           rounded_bits<Element>(act.template approximate_value<Element>(x)) !=
               rounded_bits<Element>(value_at<Element>(act, x));
  }

  static constexpr const double* parameters() {
    if constexpr (requires { A::kApproximated; }) {
      return A::kApproximated;
    } else {
      return nullptr;
    }
  }

  A act{parameters()};
};

template <class... Claims>
struct ClaimList : Claims... {};

template <class... Claims>
__device__ unsigned kDifferences[sizeof...(Claims)];

template <class... Claims>
__global__ void __launch_bounds__(kThreads)
    compare(const __grid_constant__ ClaimList<Claims...> claims) {
  const uint32_t first = blockIdx.x * kThreads + threadIdx.x;
  const uint32_t step = gridDim.x * kThreads;
  unsigned place = 0;
  const auto count = [&]<class Claim>(const Claim& claim) {
    if (blockIdx.y == place) {
      unsigned differences = 0;
      for (uint32_t i = first; i < Claim::kResults; i += step)
        differences += claim.differs(i) ? 1 : 0;
      if (differences != 0) atomicAdd(&kDifferences<Claims...>[place], differences);
    }
    ++place;
  };
  (count(static_cast<const Claims&>(claims)), ...);
}

// Counts the differing results of each claim and waits for the counts.
template <class... Claims>
cudaError_t count_differences(const ClaimList<Claims...>& claims, cudaStream_t stream,
                              std::array<unsigned, sizeof...(Claims)>& differences) {
  // Enough threads to fill a GPU, but few enough that each compares many results.
  constexpr unsigned kBlocks = 2048;
  void* counters = nullptr;
  cudaError_t error = cudaGetSymbolAddress(&counters, kDifferences<Claims...>);
  if (error != cudaSuccess) return error;
  error = cudaMemsetAsync(counters, 0, sizeof(differences), stream);
  if (error != cudaSuccess) return error;
  compare<<<dim3(kBlocks, sizeof...(Claims)), kThreads, 0, stream>>>(claims);
  error = cudaGetLastError();
  if (error != cudaSuccess) return error;
  error = cudaMemcpyAsync(differences.data(), counters, sizeof(differences), cudaMemcpyDeviceToHost,
                          stream);
  if (error != cudaSuccess) return error;
  return cudaStreamSynchronize(stream);
}

}  // namespace fastact::cuda
