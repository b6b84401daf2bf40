// The GPU kernel for rows of any length. A block computes a row, and reads it for each reduction
// and for the results.
#pragma once

#include <cstdint>

#include "ops/cuda/row_tiles.cuh"

namespace fastact::cuda {

// A long row's sums of tiles are added in parts of this many.
inline constexpr int kPartTiles = 256;

// The warps of a block: as many as have registers.
template <class F>
inline constexpr int kLongWarps = kMaxWarps * kBlocksPerMultiprocessor<F>;

// Calls visit(tile, share) for each tile of a warp from `begin` to `end`, whose elements the share
// has read.
template <class F, RowAccess Access, class Visit>
__device__ __forceinline__ void for_each_tile(const RowPointers<F>& row, int64_t begin, int64_t end,
                                              int64_t n, const Visit& visit) {
  const unsigned thread = threadIdx.x % kWarp;
#pragma unroll 1
  for (int64_t tile = begin + threadIdx.x / kWarp; tile < end; tile += kLongWarps<F>) {
    TileShare<F, Access> share(row, tile * kRowTile, thread, n);
    share.read();
    visit(tile, share);
  }
}

template <class F, RowAccess Access, int R = 0>
__device__ __forceinline__ void reduce_long(F& form, const RowPointers<F>& row, int64_t n) {
  if constexpr (R < kNumReductions<F>) {
    using Sum = typename F::Sum;
    constexpr bool kIsMaximum = F::kReductions[R] == Reduction::kMaximum;
    constexpr int kSums = kSumsOf<F, R>;
    __shared__ Sum shared[kSums][kPartTiles];
    const unsigned thread = threadIdx.x % kWarp;
    const int64_t tiles = tiles_of_row(n);
    auto maximum = kMinusInfinity<OpMath<RowElement<F>>>;
    TileTree<Sum> trees[kSums];
    for (int64_t part = 0; part < tiles; part += kPartTiles) {
      const int64_t end = part + kPartTiles < tiles ? part + kPartTiles : tiles;
      for_each_tile<F, Access>(row, part, end, n, [&](int64_t tile, auto& share) {
        if constexpr (kIsReplacedBefore<F, R>) share.replace(form);
        Sum sums[kMaxSums];
        share.template reduce<R>(form, sums);
#pragma unroll
        for (int s = 0; s < kSums; ++s)
          if (thread == 0) shared[s][tile - part] = sums[s];
      });
      __syncthreads();
#pragma unroll
      for (int s = 0; s < kSums; ++s) {
        const Sum total =
            total_of_tiles<F, R, kPartTiles>(shared[s], static_cast<int>(end - part), thread);
        if constexpr (kIsMaximum) {
          maximum = larger(value_of(total), maximum);
        } else {
          trees[s].add(total);
        }
      }
      __syncthreads();
    }
    Sum totals[kMaxSums];
    if constexpr (kIsMaximum) {
      totals[0] = Sum(maximum);
    } else {
#pragma unroll
      for (int s = 0; s < kSums; ++s) totals[s] = trees[s].total();
    }
    form.template finish<R>(totals);
    reduce_long<F, Access, R + 1>(form, row, n);
  }
}

// Each block computes a row of any length.
template <class F, RowAccess Access>
__global__ void __launch_bounds__(kLongWarps<F>* kWarp)
    long_rows(F form, const __grid_constant__ RowOperands operands) {
  const auto row = pointers_of_row<F>(operands, blockIdx.x);
  start_row_at(form, row);
  reduce_long<F, Access>(form, row, operands.n);
  if constexpr (kHasElements<F>) {
    for_each_tile<F, Access>(row, 0, tiles_of_row(operands.n), operands.n,
                             [&](int64_t /*tile*/, auto& share) {
                               share.replace(form);
                               share.write(form);
                             });
  }
  if (threadIdx.x == 0) store_row_results_at(form, row);
}

}  // namespace fastact::cuda
