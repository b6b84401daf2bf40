// The GPU kernel for rows of at most a tile. A row is in the registers of a warp, or of a part of
// one.
#pragma once

#include <cstdint>

#include "ops/cuda/row_share.cuh"

namespace fastact::cuda {

inline constexpr int kShortThreads = 128;

template <int R = 0, class F, RowAccess Access, int Threads, int Count>
__device__ __forceinline__ void reduce_short(F& form, RowShare<F, Access, Threads, Count>& share) {
  if constexpr (R < kNumReductions<F>) {
    typename F::Sum totals[kMaxSums];
    share.template reduce<R>(form, totals);
    form.template finish<R>(totals);
    reduce_short<R + 1>(form, share);
  }
}

// Each group of Threads threads computes a row of at most Threads * Count elements.
template <class F, RowAccess Access, int Threads, int Count>
__global__ void __launch_bounds__(kShortThreads)
    short_rows(F form, const __grid_constant__ RowOperands operands) {
  const unsigned thread = threadIdx.x % Threads;
  const int64_t group = (int64_t{blockIdx.x} * kShortThreads + threadIdx.x) / Threads;
  const int64_t count = operands.outer * operands.inner;
  // A warp shuffles together: beyond the last row, its threads read the last row again.
  const int64_t row = group < count ? group : count - 1;
  const RowPointers<F> pointers = pointers_of_row<F>(operands, row);
  start_row_at(form, pointers);
  RowShare<F, Access, Threads, Count> share(pointers, 0, thread, operands.n);
  share.read();
  reduce_short(form, share);
  if (group >= count) return;
  if constexpr (kHasElements<F>) share.write(form);
  if (thread == 0) store_row_results_at(form, pointers);
}

}  // namespace fastact::cuda
