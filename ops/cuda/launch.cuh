// The GPU kernel of a form: selects the contiguous or the strided kernel, and how much a thread
// moves.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "ops/cuda/dense.cuh"
#include "ops/cuda/engine.h"
#include "ops/cuda/seeded.cuh"
#include "ops/cuda/strided.cuh"
#include "ops/cuda/tuning.h"

namespace fastact::cuda {

inline unsigned blocks_for(int64_t items, int64_t items_per_block) {
  return static_cast<unsigned>((items + items_per_block - 1) / items_per_block);
}

template <class F>
struct Launch {
  static cudaError_t run(const Parameters& parameters, const Operands& operands,
                         cudaStream_t stream) {
    if constexpr (TakesRandomBits<F>) return launch_seeded<F>(parameters, operands, stream);
    if (operands.size == 0) return cudaSuccess;
    if constexpr (HasDefaultForm<F>) {
      if (F::is_default(parameters.values))
        return Launch<typename F::Default>::run(parameters, operands, stream);
    }
    const F form(parameters.values);
    Pointers<F> pointers;
    for (int i = 0; i < kOperands; ++i) pointers.data[i] = operands.data[i];
    if (operands.dimensions == 0) {
      launch_dense(form, pointers, operands.size, stream);
    } else if (rows_move_in_packets(operands)) {
      launch_strided<kCount>(form, pointers, operands, stream);
    } else {
      launch_strided<1>(form, pointers, operands, stream);
    }
    return cudaGetLastError();
  }

 private:
  static constexpr int kOperands = kOperandsOf<F>;
  static constexpr int kCount = kPacketElements<F>;
  static constexpr bool kIsSmoothValue = is_smooth_value<F>();

  // Returns the size in bytes of operand i's packet, which is also its alignment.
  static int64_t packet_bytes(int i) { return kCount * kSizesOf<F>.bytes[i]; }

  static int64_t past_boundary(const void* address, int i) {
    return static_cast<int64_t>(reinterpret_cast<uintptr_t>(address) % packet_bytes(i));
  }

  static void launch_dense(const F& form, const Pointers<F>& pointers, int64_t size,
                           cudaStream_t stream) {
    // Returns the number of elements up to the first packet boundary.
    const auto to_boundary = [&](int i) {
      return (packet_bytes(i) - past_boundary(pointers.data[i], i)) % packet_bytes(i) /
             kSizesOf<F>.bytes[i];
    };
    bool equally_aligned = true;
    for (int i = 1; i < kOperands; ++i) equally_aligned &= to_boundary(i) == to_boundary(0);
    if (equally_aligned) {
      const int head = static_cast<int>(to_boundary(0) < size ? to_boundary(0) : size);
      constexpr int kFew = kPacketsPerThread<F::Inputs::kCount>;
      constexpr int kMany = packets_of_many<F>() > kFew ? packets_of_many<F>() : kFew;
      if constexpr (kIsSmoothValue && !HasSegments<F>) {
        if (size * kLargestOf<F> <= kOnePacketBytes) {
          launch_packets<1>(form, pointers, size, head, stream);
          return;
        }
      }
      if (kMany > kFew && size >= kManyPacketsElements) {
        launch_packets<kMany>(form, pointers, size, head, stream);
      } else {
        launch_packets<kFew>(form, pointers, size, head, stream);
      }
    } else {
      dense<F, 1, kElementsPerThread>
          <<<blocks_for(size, kThreads * kElementsPerThread), kThreads, 0, stream>>>(form, pointers,
                                                                                     size, 0);
    }
  }

  template <int Packets>
  static void launch_packets(const F& form, const Pointers<F>& pointers, int64_t size, int head,
                             cudaStream_t stream) {
    // At least one block: a short tensor may have no packet, only a head and a tail.
    const unsigned blocks = blocks_for((size - head) / kCount, kThreads * Packets);
    dense<F, kCount, Packets>
        <<<blocks == 0 ? 1 : blocks, kThreads, 0, stream>>>(form, pointers, size, head);
  }

  // Returns true if the innermost dimension is contiguous in every operand, and every row starts
  // and ends at a packet boundary.
  static bool rows_move_in_packets(const Operands& operands) {
    if (operands.shape[0] % kCount != 0) return false;
    for (int i = 0; i < kOperands; ++i) {
      if (operands.strides[i][0] != kSizesOf<F>.bytes[i]) return false;
      if (past_boundary(operands.data[i], i) != 0) return false;
      for (int d = 1; d < operands.dimensions; ++d) {
        if (operands.strides[i][d] % packet_bytes(i) != 0) return false;
      }
    }
    return true;
  }

  template <int Count>
  static void launch_strided(const F& form, const Pointers<F>& pointers, const Operands& operands,
                             cudaStream_t stream) {
    const int64_t packets = operands.size / Count;
    bool narrow = packets <= std::numeric_limits<int32_t>::max();
    for (int i = 0; i < kOperands; ++i) {
      for (int d = 0; d < operands.dimensions; ++d) {
        const int64_t stride = operands.strides[i][d] * (d == 0 ? Count : 1);
        narrow &= stride == static_cast<int32_t>(stride);
      }
    }
    if (narrow) {
      launch_strided_with<Count>(form, pointers, operands, static_cast<uint32_t>(packets), stream);
    } else {
      launch_strided_with<Count>(form, pointers, operands, packets, stream);
    }
  }

  template <int Count, class Index>
  static void launch_strided_with(const F& form, const Pointers<F>& pointers,
                                  const Operands& operands, Index packets, cudaStream_t stream) {
    Layout<kOperands, Index> layout;
    layout.dimensions = operands.dimensions;
    for (int d = 0; d < operands.dimensions; ++d) {
      layout.shape[d] = d == 0 ? operands.shape[0] / Count : operands.shape[d];
      if constexpr (sizeof(Index) == 4)
        layout.fast[d] = FastDivisor(static_cast<uint32_t>(layout.shape[d]));
      for (int i = 0; i < kOperands; ++i) {
        layout.strides[d][i] = static_cast<typename Layout<kOperands, Index>::Stride>(
            operands.strides[i][d] * (d == 0 ? Count : 1));
      }
    }
    const auto launch = [&](auto packets_per_thread) {
      constexpr int kPackets = packets_per_thread.value;
      strided<F, Count, kPackets>
          <<<blocks_for(packets, kThreads * kPackets), kThreads, 0, stream>>>(form, pointers,
                                                                              packets, layout);
    };
    if constexpr (kIsSmoothValue && Count > 1 && sizeof(Index) == 4) {
      if (operands.size >= kManyPacketsElements) {
        launch(std::integral_constant<int, kPacketsOfRows>{});
        return;
      }
    }
    launch(std::integral_constant<int, Count == 1 ? kElementsPerThread : 1>{});
  }
};

template <class F>
constexpr Kernel fast_kernel() {
  if constexpr (HasFastForm<F>) {
    return &Launch<F>::run;
  } else {
    return nullptr;
  }
}

// For a table that contains only the fast forms.
template <class F>
struct FastLaunch {
  static constexpr Kernel run = fast_kernel<F>();
};

}  // namespace fastact::cuda
