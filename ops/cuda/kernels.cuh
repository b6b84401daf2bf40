// The kernels: how elements reach a formula on the GPU. Two of them serve every activation, order
// and type:
//   dense    every operand contiguous: packets of 16 bytes, peeled to alignment
//   strided  any shape and strides: packets along the innermost dimension where it allows, else
//   single elements
#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <limits>
#include <utility>

#include "ops/cuda/engine.h"
#include "ops/cuda/policy.h"
#include "ops/formulas/formula.h"

namespace fastact::cuda {

// Count elements that move as one access of at most 16 bytes.
template <class Element, int Count>
struct alignas(sizeof(Element) * Count) Packet {
  Element elements[Count];
};

template <class Element>
inline constexpr int kPacketElements = kPacketBytes / static_cast<int>(sizeof(Element));

__device__ __forceinline__ float unrounded(float y) { return y; }
__device__ __forceinline__ float unrounded(Finished<float> y) { return y.value; }

// Two results to 16-bit elements in one instruction, which rounds to nearest even and turns every
// NaN into 0x7fff, the one NaN. `low` goes to the lower half.
template <class Element>
__device__ __forceinline__ uint32_t round_pair(float low, float high) {
  uint32_t pair;
  if constexpr (std::is_same_v<Element, BFloat16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
}

template <class Result, class Element, int Count>
__device__ __forceinline__ void round_packet(const Result (&results)[Count],
                                             Packet<Element, Count>& packet) {
  if constexpr (!kIs16Bit<Element>) {
#pragma unroll
    for (int i = 0; i < Count; ++i) packet.elements[i] = round_to<Element>(results[i]);
  } else if constexpr (Count == 1) {
    packet.elements[0].bits =
        static_cast<uint16_t>(round_pair<Element>(unrounded(results[0]), 0.0f));
  } else {
    // Whole words: element by element, each pair would be taken apart and put together again.
    uint32_t pairs[Count / 2];
#pragma unroll
    for (int i = 0; i < Count; i += 2)
      pairs[i / 2] = round_pair<Element>(unrounded(results[i]), unrounded(results[i + 1]));
    memcpy(&packet, pairs, sizeof(packet));
  }
}

template <class Element, int Count>
__device__ __forceinline__ void widen_packet(const Packet<Element, Count>& packet,
                                             Wide<Element> (&wide)[Count]) {
  if constexpr (std::is_same_v<Element, BFloat16> && Count > 1) {
    // Either half of a word is a float as it stands, but for what is below it.
    uint32_t pairs[Count / 2];
    memcpy(pairs, &packet, sizeof(packet));
#pragma unroll
    for (int i = 0; i < Count; i += 2) {
      wide[i] = from_bits(pairs[i / 2] << 16);
      wide[i + 1] = from_bits(pairs[i / 2] & 0xffff0000u);
    }
  } else {
#pragma unroll
    for (int i = 0; i < Count; ++i) {
      if constexpr (std::is_same_v<Element, Float16>) {
        wide[i] = __half2float(__ushort_as_half(packet.elements[i].bits));
      } else {
        wide[i] = widen(packet.elements[i]);
      }
    }
  }
}

// The formula on Count elements of every operand: inputs[0..Order-1] are the gradients,
// inputs[Order] is x.
template <class Formula, class Element, int Order, bool FromResult, int Count>
__device__ __forceinline__ Packet<Element, Count> evaluate_packet(
    const Formula& formula, const Packet<Element, Count> (&inputs)[Order + 1]) {
  Wide<Element> wide[Order + 1][Count];
#pragma unroll
  for (int j = 0; j <= Order; ++j) widen_packet(inputs[j], wide[j]);
  return [&]<size_t... I>(std::index_sequence<I...>) {
    const auto one = [&](int i) {
      return evaluate<Element, Order, FromResult>(formula, wide[Order][i], wide[I][i]...);
    };
    decltype(one(0)) results[Count];
#pragma unroll
    for (int i = 0; i < Count; ++i) results[i] = one(i);
    Packet<Element, Count> packet;
    round_packet(results, packet);
    return packet;
  }(std::make_index_sequence<Order>{});
}

template <int Order>
struct Pointers {
  void* data[Order + 2];
};

// One element at a time, for the few before and after the packets.
template <class Formula, class Element, int Order, bool FromResult>
__device__ __forceinline__ void evaluate_at(const Formula& formula, const Pointers<Order>& pointers,
                                            int64_t index) {
  Packet<Element, 1> inputs[Order + 1];
#pragma unroll
  for (int j = 0; j <= Order; ++j)
    inputs[j].elements[0] = static_cast<const Element*>(pointers.data[j + 1])[index];
  const auto result = evaluate_packet<Formula, Element, Order, FromResult, 1>(formula, inputs);
  static_cast<Element*>(pointers.data[0])[index] = result.elements[0];
}

// run(count, packet) for the packets of a thread: packet, packet + kThreads, ... A block that has
// all of its packets takes them at once, with every load under way before the first result; the
// last block one by one.
template <int PacketsPerThread, class Run>
__device__ __forceinline__ void for_each_packet(int64_t packets, const Run& run) {
  const int64_t block = int64_t{blockIdx.x} * (kThreads * PacketsPerThread);
  const int64_t first = block + threadIdx.x;
  if (PacketsPerThread > 1 && block + kThreads * PacketsPerThread <= packets) {
    run(std::integral_constant<int, PacketsPerThread>{}, first);
  } else {
#pragma unroll 1
    for (int p = 0; p < PacketsPerThread; ++p) {
      const int64_t packet = first + p * kThreads;
      if (packet < packets) run(std::integral_constant<int, 1>{}, packet);
    }
  }
}

// Where the formula is in segments: their table to shared memory, by all of the block's threads.
template <class Formula, class Element, int Order, bool FromResult>
__device__ __forceinline__ void share_segments() {
  if constexpr (kInSegments<Formula, Element, Order, FromResult>) {
    auto& to = shared_segments<Formula, Order>();
    static_assert(alignof(std::remove_cvref_t<decltype(to)>) >= alignof(float4));
    constexpr int kParts = sizeof(to) / sizeof(float4);
    static_assert(kParts <= kThreads);
    if (threadIdx.x < kParts) {
      reinterpret_cast<float4*>(&to)[threadIdx.x] =
          reinterpret_cast<const float4*>(&kPackedSegments<Formula, Order>)[threadIdx.x];
    }
    __syncthreads();
  }
}

// `head` elements, then packets of Count elements that are aligned in every operand, then the rest.
// A block's threads take neighbouring packets, its first threads also the head and the tail (block
// 0 only: fewer than 2 * Count).
template <class Formula, class Element, int Order, bool FromResult, int Count, int PacketsPerThread>
__global__ void __launch_bounds__(kThreads)
    dense(const Formula formula, const Pointers<Order> pointers, const int64_t size,
          const int head) {
  using Vector = Packet<Element, Count>;
  const int64_t packets = (size - head) / Count;
  const auto load = [&](int64_t packet, Vector(&inputs)[Order + 1]) {
#pragma unroll
    for (int j = 0; j <= Order; ++j) {
      const auto* base = static_cast<const Element*>(pointers.data[j + 1]) + head;
      inputs[j] = reinterpret_cast<const Vector*>(base)[packet];
    }
  };
  const auto store = [&](int64_t packet, const Vector(&inputs)[Order + 1]) {
    auto* base = static_cast<Element*>(pointers.data[0]) + head;
    reinterpret_cast<Vector*>(base)[packet] =
        evaluate_packet<Formula, Element, Order, FromResult, Count>(formula, inputs);
  };
  constexpr bool kSegmented = kInSegments<Formula, Element, Order, FromResult>;
  if constexpr (Count == 1 || (PacketsPerThread == 1 && !kSegmented)) {
    share_segments<Formula, Element, Order, FromResult>();
    // bfloat16's backward: 0.998 of copy speed, 0.989 in the loops below (H200, docs/tuning.md).
    for_each_packet<PacketsPerThread>(packets, [&](auto count, int64_t packet) {
      Vector inputs[count.value][Order + 1];
#pragma unroll
      for (int p = 0; p < count.value; ++p) load(packet + p * kThreads, inputs[p]);
#pragma unroll
      for (int p = 0; p < count.value; ++p) store(packet + p * kThreads, inputs[p]);
    });
  } else {
    const int64_t first = int64_t{blockIdx.x} * (kThreads * PacketsPerThread) + threadIdx.x;
    Vector inputs[PacketsPerThread][Order + 1];
#pragma unroll
    for (int p = 0; p < PacketsPerThread; ++p) {
      const int64_t packet = first + p * kThreads;
      if (packet < packets) load(packet, inputs[p]);
    }
    share_segments<Formula, Element, Order, FromResult>();  // while these are under way
#pragma unroll
    for (int p = 0; p < PacketsPerThread; ++p) {
      const int64_t packet = first + p * kThreads;
      if (packet < packets) store(packet, inputs[p]);
    }
  }
  if constexpr (Count > 1) {
    if (blockIdx.x == 0) {
      const int64_t tail = head + packets * Count;
      const int64_t thread = threadIdx.x;
      if (thread < head)
        evaluate_at<Formula, Element, Order, FromResult>(formula, pointers, thread);
      if (thread < size - tail)
        evaluate_at<Formula, Element, Order, FromResult>(formula, pointers, tail + thread);
    }
  }
}

// Division by a constant of the launch as a multiplication (Granlund and Montgomery, "Division by
// Invariant Integers using Multiplication", 1994), for dividends below 2^31.
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
// the strides have 32 bits, too: a product is then one instruction.
template <int Order, class Index>
struct Layout {
  static constexpr bool kNarrow = sizeof(Index) == 4;
  using Stride = std::conditional_t<kNarrow, int32_t, int64_t>;

  int dimensions = 0;
  FastDivisor fast[kMaxDimensions];  // for 32-bit indices
  int64_t shape[kMaxDimensions];     // for 64-bit indices
  Stride strides[kMaxDimensions][Order + 2];

  // The byte offset of packet `index` in every operand.
  __device__ __forceinline__ void offsets(Index index, int64_t (&result)[Order + 2]) const {
#pragma unroll
    for (int j = 0; j < Order + 2; ++j) result[j] = 0;
    const auto add = [&](int d, Index coordinate) {
#pragma unroll
      for (int j = 0; j < Order + 2; ++j)
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

template <class Formula, class Element, int Order, bool FromResult, int Count, int PacketsPerThread,
          class Index>
__global__ void __launch_bounds__(kThreads)
    strided(const Formula formula, const Pointers<Order> pointers, const Index packets,
            const __grid_constant__ Layout<Order, Index> layout) {
  using Vector = Packet<Element, Count>;
  share_segments<Formula, Element, Order, FromResult>();
  for_each_packet<PacketsPerThread>(packets, [&](auto count, int64_t packet) {
    Vector inputs[count.value][Order + 1];
    Vector* outputs[count.value];
#pragma unroll
    for (int p = 0; p < count.value; ++p) {
      int64_t offsets[Order + 2];
      layout.offsets(static_cast<Index>(packet + p * kThreads), offsets);
      outputs[p] = reinterpret_cast<Vector*>(static_cast<char*>(pointers.data[0]) + offsets[0]);
#pragma unroll
      for (int j = 0; j <= Order; ++j) {
        inputs[p][j] = *reinterpret_cast<const Vector*>(
            static_cast<const char*>(pointers.data[j + 1]) + offsets[j + 1]);
      }
    }
#pragma unroll
    for (int p = 0; p < count.value; ++p)
      *outputs[p] = evaluate_packet<Formula, Element, Order, FromResult, Count>(formula, inputs[p]);
  });
}

inline unsigned blocks_for(int64_t items, int64_t items_per_block) {
  return static_cast<unsigned>((items + items_per_block - 1) / items_per_block);
}

template <class Formula, class Element, int Order, bool FromResult>
struct Launch {
  static constexpr int kOperands = Order + 2;
  static constexpr int64_t kElementBytes = sizeof(Element);

  static cudaError_t run(const Parameters& parameters, const Operands& operands,
                         cudaStream_t stream) {
    if (operands.size == 0) return cudaSuccess;
    if constexpr (has_default<Formula, Element, Order, FromResult>()) {
      using Default = Launch<typename Formula::Default, Element, Order, FromResult>;
      if (Formula::is_default(parameters.values)) return Default::run(parameters, operands, stream);
    }
    const Formula formula(parameters.values);
    Pointers<Order> pointers;
    for (int i = 0; i < kOperands; ++i) pointers.data[i] = operands.data[i];
    if (operands.dimensions == 0) {
      launch_dense(formula, pointers, operands.size, stream);
    } else if (rows_move_in_packets(operands)) {
      launch_strided<kPacketElements<Element>>(formula, pointers, operands, stream);
    } else {
      launch_strided<1>(formula, pointers, operands, stream);
    }
    return cudaGetLastError();
  }

 private:
  static void launch_dense(const Formula& formula, const Pointers<Order>& pointers, int64_t size,
                           cudaStream_t stream) {
    const auto misalignment = [&](int i) {
      return reinterpret_cast<uintptr_t>(pointers.data[i]) % kPacketBytes;
    };
    bool equally_aligned = true;
    for (int i = 1; i < kOperands; ++i) equally_aligned &= misalignment(i) == misalignment(0);
    if (equally_aligned) {
      const int64_t to_boundary = (kPacketBytes - misalignment(0)) % kPacketBytes / kElementBytes;
      const int head = static_cast<int>(to_boundary < size ? to_boundary : size);
      constexpr int kFew = kPacketsPerThread<Order + 1>;
      constexpr int kMany = many_packets();
      if constexpr (kSmoothValue && !kInSegments<Formula, Element, Order, FromResult>) {
        if (size * kElementBytes <= kOnePacketBytes) {
          launch_packets<1>(formula, pointers, size, head, stream);
          return;
        }
      }
      if (kMany > kFew && size >= kManyPacketsElements) {
        launch_packets<kMany>(formula, pointers, size, head, stream);
      } else {
        launch_packets<kFew>(formula, pointers, size, head, stream);
      }
    } else {
      dense<Formula, Element, Order, FromResult, 1, kElementsPerThread>
          <<<blocks_for(size, kThreads * kElementsPerThread), kThreads, 0, stream>>>(
              formula, pointers, size, 0);
    }
  }

  template <int Packets>
  static void launch_packets(const Formula& formula, const Pointers<Order>& pointers, int64_t size,
                             int head, cudaStream_t stream) {
    constexpr int kCount = kPacketElements<Element>;
    // At least one block: a short tensor may have no packet, only a head and a tail.
    const unsigned blocks = blocks_for((size - head) / kCount, kThreads * Packets);
    dense<Formula, Element, Order, FromResult, kCount, Packets>
        <<<blocks == 0 ? 1 : blocks, kThreads, 0, stream>>>(formula, pointers, size, head);
  }

  static constexpr bool kSmoothValue =
      Order == 0 && sizeof(Element) <= 4 && !Formula::kTraits.piecewise_polynomial;

  // Packets of a thread where the tensor is large, as the formula says.
  static constexpr int many_packets() {
    constexpr Traits kTraits = Formula::kTraits;
    int packets = 0;
    if (Order == 0 && std::is_same_v<Element, float>) packets = kTraits.value_packets;
    if (Order == 0 && kIs16Bit<Element>) packets = kTraits.value_packets_16;
    if (Order == 1 && sizeof(Element) <= 4 && !FromResult) packets = kTraits.slope_packets;
    return packets > kPacketsPerThread<Order + 1> ? packets : kPacketsPerThread<Order + 1>;
  }

  // Whether the innermost dimension is dense in every operand, and every row starts and ends at a
  // packet's boundary.
  static bool rows_move_in_packets(const Operands& operands) {
    if (operands.shape[0] % kPacketElements<Element> != 0) return false;
    for (int i = 0; i < kOperands; ++i) {
      if (operands.strides[i][0] != kElementBytes) return false;
      if (reinterpret_cast<uintptr_t>(operands.data[i]) % kPacketBytes != 0) return false;
      for (int d = 1; d < operands.dimensions; ++d) {
        if (operands.strides[i][d] % kPacketBytes != 0) return false;
      }
    }
    return true;
  }

  template <int Count>
  static void launch_strided(const Formula& formula, const Pointers<Order>& pointers,
                             const Operands& operands, cudaStream_t stream) {
    const int64_t packets = operands.size / Count;
    bool narrow = packets <= std::numeric_limits<int32_t>::max();
    for (int i = 0; i < kOperands; ++i) {
      for (int d = 0; d < operands.dimensions; ++d) {
        const int64_t stride = operands.strides[i][d] * (d == 0 ? Count : 1);
        narrow &= stride == static_cast<int32_t>(stride);
      }
    }
    if (narrow) {
      launch_strided_with<Count>(formula, pointers, operands, static_cast<uint32_t>(packets),
                                 stream);
    } else {
      launch_strided_with<Count>(formula, pointers, operands, packets, stream);
    }
  }

  template <int Count, class Index>
  static void launch_strided_with(const Formula& formula, const Pointers<Order>& pointers,
                                  const Operands& operands, Index packets, cudaStream_t stream) {
    Layout<Order, Index> layout;
    layout.dimensions = operands.dimensions;
    for (int d = 0; d < operands.dimensions; ++d) {
      layout.shape[d] = d == 0 ? operands.shape[0] / Count : operands.shape[d];
      if constexpr (sizeof(Index) == 4)
        layout.fast[d] = FastDivisor(static_cast<uint32_t>(layout.shape[d]));
      for (int i = 0; i < kOperands; ++i) {
        layout.strides[d][i] = static_cast<typename Layout<Order, Index>::Stride>(
            operands.strides[i][d] * (d == 0 ? Count : 1));
      }
    }
    const auto launch = [&](auto packets_per_thread) {
      constexpr int kPackets = packets_per_thread.value;
      strided<Formula, Element, Order, FromResult, Count, kPackets>
          <<<blocks_for(packets, kThreads * kPackets), kThreads, 0, stream>>>(formula, pointers,
                                                                              packets, layout);
    };
    if constexpr (kSmoothValue && Count > 1 && sizeof(Index) == 4) {
      if (operands.size >= kManyPacketsElements) {
        launch(std::integral_constant<int, kPacketsOfRows>{});
        return;
      }
    }
    launch(std::integral_constant<int, Count == 1 ? kElementsPerThread : 1>{});
  }
};

template <class Formula, class Element, int Order, bool FromResult>
constexpr Kernel fast_kernel() {
  if constexpr (has_fast_form<Formula, Element, Order, FromResult>()) {
    return &Launch<Formula, Element, Order, FromResult>::run;
  } else {
    return nullptr;
  }
}

// For a table of the fast forms alone.
template <class Formula, class Element, int Order, bool FromResult>
struct FastLaunch {
  static constexpr Kernel run = fast_kernel<Formula, Element, Order, FromResult>();
};

}  // namespace fastact::cuda
