// Parts of the loops over rows: sums and maxima of lanes, conversions, buffers. Compiled once for
// each instruction set.
#pragma once

#include <cstdint>
#include <memory>

#include "ops/cpu/dense.h"
#include "ops/cpu/pair_tree.h"
#include "ops/cpu/rows.h"
#include "ops/cpu/vector.h"
#include "ops/floating_point.h"
#include "ops/forms/row_form.h"

namespace fastact::cpu::inline FASTACT_TARGET {

template <class T>
FASTACT_INLINE void store_sum(T sum, T* to, T* /*to_low*/) {
  *to = sum;
}
template <class T>
FASTACT_INLINE void store_sum(RowSum<T> sum, T* to, T* to_low) {
  *to = sum.high;
  *to_low = sum.low;
}

// Returns what store_sum() stored.
template <class Sum, class T>
FASTACT_INLINE Sum stored_sum(T high, [[maybe_unused]] T low) {
  if constexpr (std::is_same_v<Sum, T>) {
    return high;
  } else {
    return Sum(high, low);
  }
}

// Adds the first `Count` lanes of each sum of reduction R by the tree, where all further lanes are
// +0. `Count` is a power of two. The lanes are aligned to 64 bytes.
template <class F, int R, int Count, class T, size_t Sums, size_t Lanes>
FASTACT_INLINE void add_lanes(const T (&lanes)[Sums][Lanes], typename F::Sum* totals) {
  using Sum = typename F::Sum;
  for_each_sum<F, R>([&](auto s) {
    totals[s] = Sum(PairTree<T, SumOf<F, R, s>>::template total<Count>(lanes[s]));
  });
}

// Leaves the maximum of lanes l, l + Count, ... in lane l, for l < Count.
template <int Count, class T>
FASTACT_INLINE void fold_maxima(T* lanes) {
  for (int i = 0; i < Count; ++i) lanes[i] = larger(lanes[i], lanes[i + Count]);
}

// Returns the maximum of 16 lanes.
template <class T>
FASTACT_INLINE T maximum_of_lanes(T* lanes) {
  fold_maxima<8>(lanes);
  fold_maxima<4>(lanes);
  fold_maxima<2>(lanes);
  return larger(lanes[0], lanes[1]);
}

// The row outputs and row inputs of a call.
template <class F>
class NumbersOfRows {
 public:
  NumbersOfRows(char* const* data, const int64_t* strides)
      : data_(data + kOperandsOf<F>), strides_(strides + kOperandsOf<F>) {}

  FASTACT_INLINE void start(F& form, int64_t row) const {
    start_row(form, [&](int k) { return address(kRowOutputs<F> + k, row); });
  }
  FASTACT_INLINE void store(const F& form, int64_t row) const {
    store_row_results(form, [&](int k) { return address(k, row); });
  }

 private:
  [[nodiscard]] FASTACT_INLINE char* address(int k, int64_t row) const {
    return data_[k] == nullptr ? nullptr : data_[k] + row * strides_[k];
  }

  char* const* data_;
  const int64_t* strides_;
};

// Convert a row with the processor's instructions. The array of float is aligned to 64 bytes.
inline void widen_row(const Float16* from, float* to, int64_t n) {
  const int64_t end = n / kHalves * kHalves;
  for (int64_t i = 0; i < end; i += kHalves) widen_halves(from + i, to + i);
  for (int i = 0; i < n % kHalves; ++i) to[end + i] = widen(from[end + i]);
}
inline void narrow_row(const float* from, Float16* to, int64_t n) {
  const int64_t end = n / kHalves * kHalves;
  for (int64_t i = 0; i < end; i += kHalves) narrow_halves(from + i, to + i);
  for (int i = 0; i < n % kHalves; ++i) to[end + i] = round_to<Float16>(from[end + i]);
}

// Several threads run task(i) for each i below `count`.
template <class Task>
void share(Parallel parallel, int64_t count, Task task) {
  const auto run_task = [](void* state, int64_t i) {
    const DefaultFloatingPoint scope;
    (*static_cast<Task*>(state))(i);
  };
  parallel(count, run_task, &task);
}

// `Count` arrays of n numbers: on the stack, or, for a long row, on the heap.
template <class T, int Count>
class RowBuffers {
 public:
  explicit RowBuffers(int64_t n) {
    if (n <= kOnStack) return;
    stride_ = (n + kAlignment - 1) / kAlignment * kAlignment;
    heap_ = std::make_unique_for_overwrite<T[]>(static_cast<size_t>(Count * stride_ + kAlignment));
    const auto past = reinterpret_cast<uintptr_t>(heap_.get()) % 64;
    first_ = heap_.get() + (past == 0 ? 0 : (64 - past) / sizeof(T));
  }

  T* operator[](int i) { return first_ + i * stride_; }

 private:
  static constexpr int64_t kAlignment = 64;
  static constexpr int64_t kOnStack = 2048;

  int64_t stride_ = kOnStack;
  alignas(64) T stack_[Count * kOnStack];
  std::unique_ptr<T[]> heap_;
  T* first_ = stack_;
};
template <class T>
class RowBuffers<T, 0> {
 public:
  explicit RowBuffers(int64_t /*n*/) {}
  T* operator[](int /*i*/) { return nullptr; }
};

}  // namespace fastact::cpu::inline FASTACT_TARGET
