// The kernel for contiguous operands. It moves packets, after peeling elements up to an aligned
// address.
#pragma once

#include <cstdint>

#include "ops/cuda/packet.cuh"

namespace fastact::cuda {

// Packet `packet` of every operand, after the first `head` elements.
template <class F>
struct DensePlace {
  const Pointers<F>& pointers;
  int head;
  int64_t packet;

  template <class P>
  __device__ __forceinline__ P* base(int operand) const {
    return reinterpret_cast<P*>(static_cast<typename P::Type*>(pointers.data[operand]) + head);
  }
  template <class P>
  __device__ __forceinline__ P* of(int operand) const {
    return base<P>(operand) + packet;
  }
};

template <class F>
struct OutputPlace {
  void* bases[F::Outputs::kCount];
  int64_t packet;

  template <class P>
  __device__ __forceinline__ P* of(int output) const {
    return static_cast<P*>(bases[output]) + packet;
  }
};

// Computes one element, for the few before and after the packets.
template <class F>
__device__ __forceinline__ void evaluate_at(const F& form, const Pointers<F>& pointers,
                                            int64_t index) {
  const DensePlace<F> place = {pointers, 0, index};
  InputPackets<F, 1> inputs;
  load_packets<F, 1>(place, inputs);
  store_packets<F, 1>(place, evaluate_packets<F, 1>(form, inputs));
}

// Computes `head` elements, then packets of Count elements that are aligned in every operand, then
// the rest. The threads of a block take neighbouring packets. The first threads of block 0 also
// take the head and the tail, which are fewer than 2 * Count elements.
template <class F, int Count, int PacketsPerThread>
__global__ void __launch_bounds__(kThreads)
    dense(const F form, const Pointers<F> pointers, const int64_t size, const int head) {
  using Inputs = InputPackets<F, Count>;
  const int64_t packets = (size - head) / Count;
  const auto load = [&](int64_t packet, Inputs& inputs) {
    load_packets<F, Count>(DensePlace<F>{pointers, head, packet}, inputs);
  };
  const auto store = [&](int64_t packet, const Inputs& inputs) {
    // The addresses are computed before the form, which takes fewer registers.
    const DensePlace<F> place = {pointers, head, packet};
    OutputPlace<F> to = {{}, packet};
    for_each_below<F::Outputs::kCount>([&](auto j) {
      using P =
          std::remove_cvref_t<decltype(at<j.value>(std::declval<OutputPackets<F, Count>&>()))>;
      to.bases[j.value] = place.template base<P>(j.value);
    });
    store_packets<F, Count>(to, evaluate_packets<F, Count>(form, inputs));
  };
  if constexpr (Count == 1 || (PacketsPerThread == 1 && !HasSegments<F>)) {
    share_table<F>();
    // bfloat16's backward: 0.998 of copy speed, with the loops below 0.989 (H200,
    // docs/dev/tuning.md).
    for_each_packet<PacketsPerThread>(packets, [&](auto count, int64_t packet) {
      Inputs inputs[count.value];
#pragma unroll
      for (int p = 0; p < count.value; ++p) load(packet + p * kThreads, inputs[p]);
#pragma unroll
      for (int p = 0; p < count.value; ++p) store(packet + p * kThreads, inputs[p]);
    });
  } else {
    const int64_t first = int64_t{blockIdx.x} * (kThreads * PacketsPerThread) + threadIdx.x;
    Inputs inputs[PacketsPerThread];
#pragma unroll
    for (int p = 0; p < PacketsPerThread; ++p) {
      const int64_t packet = first + p * kThreads;
      if (packet < packets) load(packet, inputs[p]);
    }
    share_table<F>();  // while the loads are in flight
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
      if (thread < head) evaluate_at(form, pointers, thread);
      if (thread < size - tail) evaluate_at(form, pointers, tail + thread);
    }
  }
}

}  // namespace fastact::cuda
