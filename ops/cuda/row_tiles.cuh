// Shared by the GPU kernels for rows of several tiles. Each warp has a tile.
#pragma once

#include <cstdint>

#include "ops/cuda/row_share.cuh"

namespace fastact::cuda {

inline constexpr int kTileCount = kRowTile / kWarp;
inline constexpr int kMaxWarps = 16;

template <class F, RowAccess Access>
using TileShare = RowShare<F, Access, kWarp, kTileCount>;

// Returns the sum of a part's tiles, by the tree, or their maximum. Every warp computes it.
template <class F, int R, int Part>
__device__ __forceinline__ auto total_of_tiles(const typename F::Sum* tiles, int count,
                                               unsigned thread) {
  using T = OpMath<RowElement<F>>;
  using Sum = typename F::Sum;
  constexpr bool kIsMaximum = F::kReductions[R] == Reduction::kMaximum;
  constexpr int kEach = Part < kWarp ? 1 : Part / kWarp;
  Sum sums[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int tile = static_cast<int>(thread) * kEach + i;
    sums[i] = tile < count ? tiles[tile] : Sum(kIsMaximum ? kMinusInfinity<T> : T{0});
  }
  if constexpr (kIsMaximum) {
    T maximum = kMinusInfinity<T>;
#pragma unroll
    for (int i = 0; i < kEach; ++i) maximum = larger(value_of(sums[i]), maximum);
    return Sum(maximum_of_threads<kWarp>(maximum));
  } else {
    return sum_of_threads<1, kEach, kWarp>(sums, thread);
  }
}

// Two blocks share a multiprocessor, so that one moves elements while the other computes. With more
// inputs or doubles, a thread has too many registers for that.
template <class F>
inline constexpr int kBlocksPerMultiprocessor =
    F::Inputs::kCount == 1 && sizeof(OpMath<RowElement<F>>) == 4 ? 2 : 1;

}  // namespace fastact::cuda
