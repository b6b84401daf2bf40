// A thread's share of a row, and sums over the threads of a row in the order of
// ops/math/row_order.h.
//
// `Threads` threads have a row, or a tile of one, in packets of kWidth elements: packet k of thread
// t starts at element (k * Threads + t) * kWidth. So the threads of a warp move neighbouring
// packets. A packet has several elements only if the rows are aligned.
#pragma once

#include <cstdint>

#include "ops/cuda/packet.cuh"
#include "ops/cuda/row_shift.cuh"
#include "ops/forms/row_form.h"

namespace fastact::cuda {

inline constexpr unsigned kWholeWarp = 0xffffffffu;
inline constexpr int kWarp = 32;

template <class F>
using RowElement = FirstOf<typename F::Inputs>;

enum class RowAccess : uint8_t {
  kAligned,  // contiguous; rows start and end at packet boundaries
  kShifted,  // contiguous; rows start and end anywhere
  kStrided,  // one element at a time
};

template <class F, RowAccess Access>
inline constexpr int kRowWidth = Access == RowAccess::kAligned ? kPacketElements<F> : 1;

// The operands of one row.
template <class F>
struct RowPointers {
  struct Pointer {
    char* data;
    int64_t element_stride;
  };

  Pointer operands[kOperandsOf<F>];
  char* numbers[kRowNumbers<F> > 0 ? kRowNumbers<F> : 1];
};

template <class F>
__device__ __forceinline__ RowPointers<F> pointers_of_row(const RowOperands& operands,
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
  RowPointers<F> pointers;
#pragma unroll
  for (int i = 0; i < kOperandsOf<F>; ++i) {
    const RowOperand& operand = operands.operands[i];
    pointers.operands[i] = {
        operand.data + outer * operand.outer_stride + inner * operand.inner_stride,
        operand.element_stride};
  }
#pragma unroll
  for (int k = 0; k < kRowNumbers<F>; ++k) {
    const RowOperand& number = operands.operands[kOperandsOf<F> + k];
    pointers.numbers[k] = number.data;
    if (number.data != nullptr)
      pointers.numbers[k] += outer * number.outer_stride + inner * number.inner_stride;
  }
  return pointers;
}

template <class F>
__device__ __forceinline__ void start_row_at(F& form, const RowPointers<F>& row) {
  start_row(form, [&](int k) { return row.numbers[kRowOutputs<F> + k]; });
}
template <class F>
__device__ __forceinline__ void store_row_results_at(const F& form, const RowPointers<F>& row) {
  store_row_results(form, [&](int k) { return row.numbers[k]; });
}

// Returns true if every row starts and ends at a packet boundary in every operand.
template <class F>
bool moves_in_packets(const RowOperands& operands) {
  if (operands.n % kPacketElements<F> != 0) return false;
  for (int i = 0; i < kOperandsOf<F>; ++i) {
    const RowOperand& operand = operands.operands[i];
    if (operand.element_stride != operands.element_size ||
        reinterpret_cast<uintptr_t>(operand.data) % kPacketBytes != 0 ||
        operand.outer_stride % kPacketBytes != 0 || operand.inner_stride % kPacketBytes != 0)
      return false;
  }
  return true;
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

// The bytes of shared memory for the rows of a block.
template <class F, RowAccess Access, int Threads, int Count>
constexpr size_t shared_bytes_of_rows(int threads) {
  if constexpr (Access == RowAccess::kShifted) {
    constexpr int kBytes = ShiftedTile<RowElement<F>, Threads, Count>::kSharedBytes;
    return static_cast<size_t>(threads / Threads) * kBytes;
  } else {
    return 0;
  }
}

template <class F, RowAccess Access, int Threads, int Count>
class RowShare {
  using Element = RowElement<F>;
  using T = OpMath<Element>;
  using Sum = typename F::Sum;
  using Pointer = typename RowPointers<F>::Pointer;
  static constexpr int kInputs = F::Inputs::kCount;
  static constexpr int kWidth = kRowWidth<F, Access>;
  static constexpr int kPackets = Count / kWidth;
  // How often a thread meets the same lane again, and how many lanes it has.
  static constexpr int kRounds = Count * Threads > kRowLanes ? Count* Threads / kRowLanes : 1;
  static constexpr int kLanes = Count / kRounds;
  // The distance between a thread's packets, and the elements of all threads.
  static constexpr int kApart = Threads * kWidth;
  static constexpr int kTile = Threads * Count;
  using Words = PacketWords<kWidth* static_cast<int>(sizeof(Element))>;
  using Shifted = ShiftedTile<Element, Threads, Count>;  // only for RowAccess::kShifted

 public:
  // The share of the tile that starts at element `tile`.
  __device__ __forceinline__ RowShare(const RowPointers<F>& row, int64_t tile, unsigned thread,
                                      int64_t n)
      : row_(row),
        tile_(tile),
        thread_(thread),
        left_(n - tile < kTile ? static_cast<int>(n - tile) : kTile) {}

  __device__ __forceinline__ void read() {
    Words packets[kInputs][kPackets];
    load(packets);
#pragma unroll
    for (int input = 0; input < kInputs; ++input) {
#pragma unroll
      for (int k = 0; k < kPackets; ++k) {
        T wide[kWidth];
        widen_words<Element>(packets[input][k], wide);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) values_[input][k * kWidth + j] = wide[j];
      }
    }
#pragma unroll
    for (int input = 0; input < kInputs; ++input) pad(input, input == 0 ? F::kBeyondEnd : T{0});
  }

  // Computes reduction R of the elements of all Threads threads.
  template <int R>
  __device__ __forceinline__ void reduce(const F& form, Sum* totals) {
    if constexpr (kPadsAgain<F, R>) pad(0, form.beyond_end());
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
      for_each_sum<F, R>([&](auto s) { totals[s] = Sum(sum_of<SumOf<F, R, s>>(lanes[s])); });
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

  __device__ __forceinline__ void write(const F& form) const
    requires kHasElements<F>
  {
    Words packets[kPackets];
#pragma unroll
    for (int k = 0; k < kPackets; ++k) {
      T results[kWidth];
#pragma unroll
      for (int j = 0; j < kWidth; ++j) results[j] = evaluate(form, k * kWidth + j);
      round_words<Element>(results, packets[k]);
      if constexpr (Access != RowAccess::kShifted) {
        const Pointer& output = row_.operands[0];
        if (is_in_row(k))
          *reinterpret_cast<Words*>(start_of(output) + first_of(k) * stride_of(output)) =
              packets[k];
      }
    }
    if constexpr (Access == RowAccess::kShifted)
      Shifted::store(start_of(row_.operands[0]), left_, thread_, packets);
  }

 private:
  __device__ __forceinline__ static int64_t stride_of(const Pointer& operand) {
    return Access == RowAccess::kStrided ? operand.element_stride : int64_t{sizeof(Element)};
  }

  __device__ __forceinline__ const Pointer& input(int i) const {
    return row_.operands[F::Outputs::kCount + i];
  }

  // The address of the tile.
  __device__ __forceinline__ char* start_of(const Pointer& operand) const {
    return operand.data + tile_ * stride_of(operand);
  }

  // The place of a packet's first element in the tile.
  __device__ __forceinline__ int first_of(int k) const {
    return k * kApart + static_cast<int>(thread_) * kWidth;
  }
  // No row ends within a packet.
  __device__ __forceinline__ bool is_in_row(int k) const { return first_of(k) < left_; }

  // Sets the values of an input beyond the end of the row.
  __device__ __forceinline__ void pad(int input, T value) {
    if (left_ >= kTile) return;
#pragma unroll
    for (int i = 0; i < Count; ++i)
      if (!is_in_row(i / kWidth)) values_[input][i] = value;
  }

  // Loads the packets of all inputs. Those beyond the end of the row are arbitrary.
  __device__ __forceinline__ void load(Words (&packets)[kInputs][kPackets]) const {
    if constexpr (Access == RowAccess::kShifted) {
      typename Shifted::Moved moved[kInputs];
#pragma unroll
      for (int i = 0; i < kInputs; ++i) Shifted::load(start_of(input(i)), left_, thread_, moved[i]);
#pragma unroll
      for (int i = 0; i < kInputs; ++i)
        Shifted::distribute(start_of(input(i)), left_, thread_, moved[i], packets[i]);
    } else {
      const bool is_whole = left_ >= kTile;
#pragma unroll
      for (int i = 0; i < kInputs; ++i) {
        const int64_t stride = stride_of(input(i));
        const char* const data = start_of(input(i)) + first_of(0) * stride;
#pragma unroll
        for (int k = 0; k < kPackets; ++k) {
          packets[i][k] = {};
          if (is_whole || is_in_row(k))
            packets[i][k] = *reinterpret_cast<const Words*>(data + k * (kApart * stride));
        }
      }
    }
  }

  template <class Number>
  __device__ __forceinline__ Number sum_of(const T (&lanes)[kLanes]) const {
    Number sums[kLanes];
#pragma unroll
    for (int i = 0; i < kLanes; ++i) sums[i] = Number(lanes[i]);
    if constexpr (Threads == 1) {
      add_neighbours<kLanes, kLanes>(sums);
      return sums[0];
    } else {
      return sum_of_threads<kLanes / kWidth, kWidth, Threads>(sums, thread_);
    }
  }

  template <int R>
  __device__ __forceinline__ void accumulate(const F& form, int i, T* sums) {
    const T first = OtherInputs<F>::template accumulate<R>(
        form, sums, values_[0][i], [&](int input) { return values_[input][i]; });
    if constexpr (F::kReplacedBy == R) values_[0][i] = first;
  }

  __device__ __forceinline__ auto evaluate(const F& form, int i) const {
    return OtherInputs<F>::evaluate(form, values_[0][i],
                                    [&](int input) { return values_[input][i]; });
  }

  RowPointers<F> row_;
  int64_t tile_;
  unsigned thread_;
  int left_;  // elements of the row in the tile
  T values_[kInputs][Count];
};

}  // namespace fastact::cuda
