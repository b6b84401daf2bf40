// A thread's share of a row, and sums over the threads of a row in the order of
// ops/math/row_order.h.
//
// `Threads` threads read a row, or a tile of one, in packets of `Width` elements: packet k of
// thread t starts at element (k * Threads + t) * Width. So the threads of a warp read neighbouring
// packets.
#pragma once

#include <cstdint>

#include "ops/cuda/packet.cuh"
#include "ops/forms/row_form.h"

namespace fastact::cuda {

inline constexpr unsigned kWholeWarp = 0xffffffffu;
inline constexpr int kWarp = 32;

template <class Inputs>
struct FirstElement;
template <class Element, class... Rest>
struct FirstElement<Elements<Element, Rest...>> {
  using type = Element;
};
template <class F>
using RowElement = typename FirstElement<typename F::Inputs>::type;

// An operand of one row. Packets of more than one element are contiguous and aligned.
template <class Element, int Width>
struct RowPointer {
  __device__ __forceinline__ int64_t stride() const {
    return Width == 1 ? element_stride : int64_t{sizeof(Element)};
  }

  char* data;
  int64_t element_stride;
};

template <class F, int Width>
struct RowPointers {
  RowPointer<RowElement<F>, Width> operands[kOperandsOf<F>];
};

template <class F, int Width>
__device__ __forceinline__ RowPointers<F, Width> pointers_of_row(const RowOperands& operands,
                                                                 int64_t row) {
  int64_t outer = operands.inner > 1 ? 0 : row;
  int64_t inner = row - outer;
  if (operands.outer > 1 && operands.inner > 1) {
    // A division of 64 bits takes several times as long.
    const bool is_narrow = row <= 0xffffffff && operands.inner <= 0xffffffff;
    outer = is_narrow ? static_cast<uint32_t>(row) / static_cast<uint32_t>(operands.inner)
                      : row / operands.inner;
    inner = row - outer * operands.inner;
  }
  RowPointers<F, Width> pointers;
#pragma unroll
  for (int i = 0; i < kOperandsOf<F>; ++i) {
    const RowOperand& operand = operands.operands[i];
    pointers.operands[i] = {
        operand.data + outer * operand.outer_stride + inner * operand.inner_stride,
        operand.element_stride};
  }
  return pointers;
}

// ---- Sums and maxima over threads

template <class T>
__device__ __forceinline__ T of_thread(T number, int step) {
  return __shfl_xor_sync(kWholeWarp, number, step);
}
template <class T>
__device__ __forceinline__ RowSum<T> of_thread(const RowSum<T>& sum, int step) {
  return RowSum<T>(of_thread(sum.high, step), of_thread(sum.low, step));
}

// Adds neighbours within each group of Group numbers. The groups' sums are the first numbers then.
template <int Count, int Group, class Sum>
__device__ __forceinline__ void add_neighbours(Sum (&numbers)[Count]) {
  if constexpr (Group > 1) {
    Sum halves[Count / 2];
#pragma unroll
    for (int i = 0; i < Count / 2; ++i) halves[i] = numbers[2 * i] + numbers[2 * i + 1];
    add_neighbours<Count / 2, Group / 2>(halves);
#pragma unroll
    for (int i = 0; i < Count / 2; ++i) numbers[i] = halves[i];
  }
}

// Returns the sum of the lanes of all threads, by the tree. Lane (k * Threads + t) * Width + j is
// lanes[k * Width + j] of thread t. If a thread has several packets, each step first gives half of
// its numbers to its neighbour and takes the neighbour's numbers for the other half. So a step
// takes half as many additions as the step before.
template <int Packets, int Width, int Threads, class Sum>
__device__ __forceinline__ Sum sum_of_threads(Sum (&lanes)[Packets * Width], unsigned thread) {
  static_assert(Packets <= Threads);
  add_neighbours<Packets * Width, Width>(lanes);
  int count = Packets;
#pragma unroll
  for (int step = 1; step < Threads; step *= 2) {
    if (count > 1) {
      const bool is_upper = (thread & step) != 0;
      const int half = count / 2;
#pragma unroll
      for (int i = 0; i < Packets / 2; ++i) {
        if (i >= half) continue;
        const Sum given = is_upper ? lanes[i] : lanes[i + half];
        const Sum kept = is_upper ? lanes[i + half] : lanes[i];
        lanes[i] = kept + of_thread(given, step);
      }
      count = half;
    } else {
      lanes[0] = lanes[0] + of_thread(lanes[0], step);
    }
  }
  // The first step split the packets into halves, so these are added last.
#pragma unroll
  for (int step = Packets / 2; step >= 1; step /= 2)
    lanes[0] = lanes[0] + of_thread(lanes[0], step);
  return lanes[0];
}

template <int Threads, class T>
__device__ __forceinline__ T maximum_of_threads(T maximum) {
#pragma unroll
  for (int step = 1; step < Threads; step *= 2) maximum = larger(of_thread(maximum, step), maximum);
  return maximum;
}

// ---- A thread's share

template <class F, int Width, int Threads, int Count>
class RowShare {
  using Element = RowElement<F>;
  using T = OpMath<Element>;
  using Sum = typename F::Sum;
  static constexpr int kInputs = F::Inputs::kCount;
  static constexpr int kPackets = Count / Width;
  // How often a thread meets the same lane again, and how many lanes it has.
  static constexpr int kRounds = Count * Threads > kRowLanes ? Count* Threads / kRowLanes : 1;
  static constexpr int kLanes = Count / kRounds;
  // The distance between a thread's packets, in elements.
  static constexpr int kApart = Threads * Width;

 public:
  // Reads the packets from element `first` on, which is the thread's first one.
  __device__ __forceinline__ void read(const RowPointers<F, Width>& row, int64_t first, int64_t n) {
    const int left = elements_left(first, n);
#pragma unroll
    for (int input = 0; input < kInputs; ++input) {
      const auto& operand = row.operands[1 + input];
      const char* const data = operand.data + first * operand.stride();
#pragma unroll
      for (int k = 0; k < kPackets; ++k) {
        T wide[Width];
#pragma unroll
        for (int j = 0; j < Width; ++j) wide[j] = input == 0 ? F::kBeyondEnd : T{0};
        if (k * kApart < left) {
          const auto packet = *reinterpret_cast<const Packet<Element, Width>*>(
              data + k * (kApart * operand.stride()));
          widen_packet(packet, wide);
        }
#pragma unroll
        for (int j = 0; j < Width; ++j) values_[input][k * Width + j] = wide[j];
      }
    }
  }

  // Computes reduction R of the elements of all Threads threads.
  template <int R>
  __device__ __forceinline__ void reduce(const F& form, unsigned thread, Sum* totals) {
    if constexpr (F::kReductions[R] == Reduction::kMaximum) {
      T maximum = kMinusInfinity<T>;
#pragma unroll
      for (int i = 0; i < Count; ++i) maximum = larger(values_[0][i], maximum);
      totals[0] = Sum(maximum_of_threads<Threads>(maximum));
    } else {
      constexpr int kSums = kSumsOf<F, R>;
      T lanes[kSums][kLanes] = {};
#pragma unroll
      for (int i = 0; i < Count; ++i) {
        T sums[kSums];
#pragma unroll
        for (int s = 0; s < kSums; ++s) sums[s] = lanes[s][i % kLanes];
        accumulate<R>(form, i, sums);
#pragma unroll
        for (int s = 0; s < kSums; ++s) lanes[s][i % kLanes] = sums[s];
      }
#pragma unroll
      for (int s = 0; s < kSums; ++s) {
        Sum sums[kLanes];
#pragma unroll
        for (int i = 0; i < kLanes; ++i) sums[i] = Sum(lanes[s][i]);
        totals[s] = sum_of_threads<kLanes / Width, Width, Threads>(sums, thread);
      }
    }
  }

  // Replaces the first values as the reduction before did, after the elements were read again.
  __device__ __forceinline__ void replace(const F& form) {
    if constexpr (F::kReplacedBy >= 0) {
#pragma unroll
      for (int i = 0; i < Count; ++i) {
        T unused[kMaxSums] = {};
        accumulate<F::kReplacedBy>(form, i, unused);
      }
    }
  }

  __device__ __forceinline__ void write(const F& form, const RowPointers<F, Width>& row,
                                        int64_t first, int64_t n) const {
    const int left = elements_left(first, n);
    const auto& operand = row.operands[0];
    char* const data = operand.data + first * operand.stride();
#pragma unroll
    for (int k = 0; k < kPackets; ++k) {
      if (k * kApart >= left) continue;
      T results[Width];
#pragma unroll
      for (int j = 0; j < Width; ++j) {
        const int i = k * Width + j;
        if constexpr (kInputs == 1) {
          results[j] = form.evaluate(values_[0][i]);
        } else {
          results[j] = form.evaluate(values_[0][i], values_[1][i]);
        }
      }
      Packet<Element, Width> packet;
      round_packet(results, packet);
      *reinterpret_cast<Packet<Element, Width>*>(data + k * (kApart * operand.stride())) = packet;
    }
  }

 private:
  // Returns how many elements the row has from `first` on, or enough for all packets. 32 bits make
  // the comparison of each packet one instruction.
  __device__ __forceinline__ static int elements_left(int64_t first, int64_t n) {
    const int64_t left = n - first;
    return left < kPackets * kApart ? static_cast<int>(left) : kPackets * kApart;
  }

  template <int R>
  __device__ __forceinline__ void accumulate(const F& form, int i, T* sums) {
    T first;
    if constexpr (kInputs == 1) {
      first = form.template accumulate<R>(sums, values_[0][i]);
    } else {
      first = form.template accumulate<R>(sums, values_[0][i], values_[1][i]);
    }
    if constexpr (F::kReplacedBy == R) values_[0][i] = first;
  }

  T values_[kInputs][Count];
};

}  // namespace fastact::cuda
