// The kernel of a form that takes random bits. Operands are contiguous. The random bits are not in
// memory: operand 1 is the seed from which the kernel computes them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/cuda/engine.h"
#include "ops/cuda/packet.cuh"
#include "ops/cuda/tuning.h"
#include "ops/math/philox.h"

namespace fastact::cuda {

// Elements per thread and step: one for each word of a counter.
inline constexpr int kSeededCount = RandomBits::kWords;
// More blocks would not keep more elements in flight. Each thread loops from here on.
inline constexpr int64_t kMaxSeededBlocks = int64_t{1} << 20;

template <class Outputs>
struct OnlyElement;
template <class Element>
struct OnlyElement<Elements<Element>> {
  using type = Element;
};

// Computes `Count` elements from `first` on with the random bits `words`.
template <class F, int Count>
__device__ __forceinline__ void seeded_packet(const F& form, const Pointers<F>& pointers,
                                              int64_t first, const uint32_t* words) {
  using Element = typename OnlyElement<typename F::Outputs>::type;
  using T = OpMath<Element>;
  using P = Packet<Element, Count>;
  constexpr int kInputs = F::Inputs::kCount - 1;
  const auto at = [&](int operand) {
    return reinterpret_cast<P*>(static_cast<Element*>(pointers.data[operand]) + first);
  };
  T numbers[kInputs][Count];
#pragma unroll
  for (int j = 0; j < kInputs; ++j) widen_packet(static_cast<const P>(*at(2 + j)), numbers[j]);
  T results[Count];
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    if constexpr (kInputs == 1) {
      results[i] = form.evaluate(words[i], numbers[0][i]);
    } else {
      results[i] = form.evaluate(words[i], numbers[0][i], numbers[1][i]);
    }
  }
  P result;
  round_packet(results, result);
  *at(0) = result;
}

template <class F>
__global__ void __launch_bounds__(kThreads)
    seeded(const F form, const Pointers<F> pointers, const int64_t n, const bool in_packets) {
  const auto key = static_cast<uint64_t>(*static_cast<const int64_t*>(pointers.data[1]));
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t counter = int64_t{blockIdx.x} * kThreads + threadIdx.x; counter * kSeededCount < n;
       counter += step) {
    const RandomBits bits = philox(key, static_cast<uint64_t>(counter));
    const int64_t first = counter * kSeededCount;
    if (in_packets && first + kSeededCount <= n) {
      seeded_packet<F, kSeededCount>(form, pointers, first, bits.words);
    } else {
#pragma unroll
      for (int i = 0; i < kSeededCount; ++i)
        if (first + i < n) seeded_packet<F, 1>(form, pointers, first + i, bits.words + i);
    }
  }
}

template <class F>
cudaError_t launch_seeded(const Parameters& parameters, const Operands& operands,
                          cudaStream_t stream) {
  using Element = typename OnlyElement<typename F::Outputs>::type;
  if (operands.size == 0) return cudaSuccess;
  Pointers<F> pointers;
  bool in_packets = true;
  for (int i = 0; i < kOperandsOf<F>; ++i) {
    pointers.data[i] = operands.data[i];
    constexpr size_t kBytes = sizeof(Packet<Element, kSeededCount>);
    if (i != 1) in_packets &= reinterpret_cast<uintptr_t>(operands.data[i]) % kBytes == 0;
  }
  const int64_t threads = (operands.size + kSeededCount - 1) / kSeededCount;
  const int64_t blocks = std::min((threads + kThreads - 1) / kThreads, kMaxSeededBlocks);
  seeded<F><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(F(parameters.values), pointers,
                                                                    operands.size, in_packets);
  return cudaGetLastError();
}

}  // namespace fastact::cuda
