// The kernel for any shape and strides. It moves packets along the innermost dimension if the
// layout allows it, else single elements.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ops/cuda/engine.h"
#include "ops/cuda/packet.cuh"

namespace fastact::cuda {

// Division by a constant of the launch, computed as a multiplication (Granlund and Montgomery,
// "Division by Invariant Integers using Multiplication", 1994). Dividends must be below 2^31.
struct FastDivisor {
  uint32_t divisor = 1;
  uint32_t multiplier = 0;
  uint32_t shift = 0;

  FastDivisor() = default;
  explicit FastDivisor(uint32_t d) : divisor(d) {
    while ((uint64_t{1} << shift) < d) ++shift;
    multiplier =
        static_cast<uint32_t>(((uint64_t{1} << 32) * ((uint64_t{1} << shift) - d)) / d + 1);
  }
  __device__ __forceinline__ uint32_t divide(uint32_t n) const {
    return (__umulhi(n, multiplier) + n) >> shift;
  }
};

// Shape and strides of a strided launch, in packets along the first dimension. With 32-bit indices
// the strides have 32 bits as well, so a product is one instruction.
template <int Operands, class Index>
struct Layout {
  static constexpr bool kNarrow = sizeof(Index) == 4;
  using Stride = std::conditional_t<kNarrow, int32_t, int64_t>;

  int dimensions = 0;
  FastDivisor fast[kMaxDimensions];  // for 32-bit indices
  int64_t shape[kMaxDimensions];     // for 64-bit indices
  Stride strides[kMaxDimensions][Operands];

  // Returns the byte offset of packet `index` in every operand.
  __device__ __forceinline__ void offsets(Index index, int64_t (&result)[Operands]) const {
#pragma unroll
    for (int j = 0; j < Operands; ++j) result[j] = 0;
    const auto add = [&](int d, Index coordinate) {
#pragma unroll
      for (int j = 0; j < Operands; ++j)
        result[j] += int64_t{static_cast<std::make_signed_t<Index>>(coordinate)} * strides[d][j];
    };
#pragma unroll 1
    for (int d = 0; d < dimensions - 1; ++d) {
      Index quotient;
      if constexpr (kNarrow) {
        quotient = fast[d].divide(index);
        add(d, index - quotient * fast[d].divisor);
      } else {
        quotient = index / shape[d];
        add(d, index - quotient * shape[d]);
      }
      index = quotient;
    }
    add(dimensions - 1, index);
  }
};

// The packets at these addresses.
template <class F>
struct StridedPlace {
  char* addresses[kOperandsOf<F>];

  template <class P>
  __device__ __forceinline__ P* of(int operand) const {
    return reinterpret_cast<P*>(addresses[operand]);
  }
};

template <class F, int Count, int PacketsPerThread, class Index>
__global__ void __launch_bounds__(kThreads)
    strided(const F form, const Pointers<F> pointers, const Index packets,
            const __grid_constant__ Layout<kOperandsOf<F>, Index> layout) {
  share_table<F>();
  for_each_packet<PacketsPerThread>(packets, [&](auto count, int64_t packet) {
    InputPackets<F, Count> inputs[count.value];
    StridedPlace<F> places[count.value];
#pragma unroll
    for (int p = 0; p < count.value; ++p) {
      int64_t offsets[kOperandsOf<F>];
      layout.offsets(static_cast<Index>(packet + p * kThreads), offsets);
#pragma unroll
      for (int j = 0; j < kOperandsOf<F>; ++j)
        places[p].addresses[j] = static_cast<char*>(pointers.data[j]) + offsets[j];
      load_packets<F, Count>(places[p], inputs[p]);
    }
#pragma unroll
    for (int p = 0; p < count.value; ++p)
      store_packets<F, Count>(places[p], evaluate_packets<F, Count>(form, inputs[p]));
  });
}

}  // namespace fastact::cuda
