// The GPU kernels of a row form. A row of up to 1,024 elements is in the registers of a warp or of
// a part of one, a row of up to 16,384 elements in those of a block. A block reads a longer row
// again for every reduction. Which thread has which elements changes no bit
// (ops/math/row_order.h).
#pragma once

#include <cstdint>

#include "ops/cuda/engine.h"
#include "ops/cuda/row_share.cuh"
#include "ops/cuda/rows.h"

namespace fastact::cuda {

// ---- Rows of at most a tile

inline constexpr int kShortThreads = 128;

// A row with a form of its own, which keeps the row's results.
template <class F, int Width, int Threads, int Count>
struct ShortRow {
  __device__ __forceinline__ ShortRow(const F& its_form, int /*index*/) : form(its_form) {}

  F form;
  RowShare<F, Width, Threads, Count> share;
};

// The reductions of several rows alternate, so that the threads wait for fewer shuffles.
template <int R = 0, class F, int Width, int Threads, int Count, size_t Rows>
__device__ __forceinline__ void reduce_short(ShortRow<F, Width, Threads, Count> (&rows)[Rows],
                                             unsigned thread) {
  if constexpr (R < kNumReductions<F>) {
    typename F::Sum totals[Rows][kMaxSums];
#pragma unroll
    for (int r = 0; r < Rows; ++r)
      rows[r].share.template reduce<R>(rows[r].form, thread, totals[r]);
#pragma unroll
    for (int r = 0; r < Rows; ++r) rows[r].form.template finish<R>(totals[r]);
    reduce_short<R + 1>(rows, thread);
  }
}

// Each group of Threads threads computes `Rows` rows of at most Threads * Count elements.
template <class F, int Width, int Threads, int Count, int Rows>
__global__ void __launch_bounds__(kShortThreads)
    short_rows(const F form, const __grid_constant__ RowOperands operands) {
  const unsigned thread = threadIdx.x % Threads;
  const int64_t group = (int64_t{blockIdx.x} * kShortThreads + threadIdx.x) / Threads;
  const int64_t count = operands.outer * operands.inner;
  const int64_t first = thread * Width;
  [&]<int... R>(std::integer_sequence<int, R...>) {
    ShortRow<F, Width, Threads, Count> rows[] = {ShortRow<F, Width, Threads, Count>(form, R)...};
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      // A warp shuffles together: beyond the last row, its threads read the last row again.
      const int64_t row = group * Rows + r < count ? group * Rows + r : count - 1;
      rows[r].share.read(pointers_of_row<F, Width>(operands, row), first, operands.n);
    }
    reduce_short(rows, thread);
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      const int64_t row = group * Rows + r;
      if (row >= count) continue;
      rows[r].share.write(rows[r].form, pointers_of_row<F, Width>(operands, row), first,
                          operands.n);
    }
  }(std::make_integer_sequence<int, Rows>{});
}

// ---- Rows of several tiles

// Each warp has a tile.
inline constexpr int kTileCount = kRowTile / kWarp;
inline constexpr int kMaxWarps = 16;
inline constexpr int64_t kBlockElements = int64_t{kMaxWarps} * kRowTile;
// A long row's sums of tiles are added in parts of this many.
inline constexpr int kPartTiles = 256;

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

// Two blocks share a multiprocessor, so that one moves elements while the other computes. With two
// inputs or doubles, a thread has too many registers for that.
template <class F>
inline constexpr int kBlocksPerMultiprocessor =
    F::Inputs::kCount == 1 && sizeof(OpMath<RowElement<F>>) == 4 ? 2 : 1;

// The warps of a long row's block: as many as have registers.
template <class F>
inline constexpr int kLongWarps = kMaxWarps * kBlocksPerMultiprocessor<F>;

template <class F, int Width>
using TileShare = RowShare<F, Width, kWarp, kTileCount>;

template <class F, int Width, int R = 0>
__device__ __forceinline__ void reduce_block(F& form, TileShare<F, Width>& share, int tiles) {
  if constexpr (R < kNumReductions<F>) {
    using Sum = typename F::Sum;
    __shared__ Sum shared[kMaxSums][kMaxWarps];  // each reduction has its own
    const unsigned thread = threadIdx.x % kWarp;
    Sum totals[kMaxSums];
    share.template reduce<R>(form, thread, totals);
#pragma unroll
    for (int s = 0; s < kSumsOf<F, R>; ++s)
      if (thread == 0) shared[s][threadIdx.x / kWarp] = totals[s];
    __syncthreads();
#pragma unroll
    for (int s = 0; s < kSumsOf<F, R>; ++s)
      totals[s] = total_of_tiles<F, R, kMaxWarps>(shared[s], tiles, thread);
    form.template finish<R>(totals);
    reduce_block<F, Width, R + 1>(form, share, tiles);
  }
}

// Each block computes a row with one warp per tile.
template <class F, int Width>
__global__ void __launch_bounds__(kMaxWarps* kWarp, kBlocksPerMultiprocessor<F>)
    block_rows(F form, const __grid_constant__ RowOperands operands) {
  const unsigned thread = threadIdx.x % kWarp;
  const int64_t first = int64_t{threadIdx.x / kWarp} * kRowTile + thread * Width;
  const auto row = pointers_of_row<F, Width>(operands, blockIdx.x);
  TileShare<F, Width> share;
  share.read(row, first, operands.n);
  reduce_block<F, Width>(form, share, static_cast<int>(blockDim.x / kWarp));
  share.write(form, row, first, operands.n);
}

// Calls visit(tile, share) for each tile of a warp from `begin` to `end`, whose elements the share
// has read.
template <class F, int Width, class Visit>
__device__ __forceinline__ void for_each_tile(const RowPointers<F, Width>& row, int64_t begin,
                                              int64_t end, int64_t n, const Visit& visit) {
  const unsigned thread = threadIdx.x % kWarp;
#pragma unroll 1
  for (int64_t tile = begin + threadIdx.x / kWarp; tile < end; tile += kLongWarps<F>) {
    TileShare<F, Width> share;
    const int64_t first = tile * kRowTile + thread * Width;
    share.read(row, first, n);
    visit(tile, first, share);
  }
}

template <class F, int Width, int R = 0>
__device__ __forceinline__ void reduce_long(F& form, const RowPointers<F, Width>& row, int64_t n) {
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
      for_each_tile<F, Width>(row, part, end, n, [&](int64_t tile, int64_t, auto& share) {
        if constexpr (kIsReplacedBefore<F, R>) share.replace(form);
        Sum sums[kMaxSums];
        share.template reduce<R>(form, thread, sums);
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
    reduce_long<F, Width, R + 1>(form, row, n);
  }
}

// Each block computes a row of any length.
template <class F, int Width>
__global__ void __launch_bounds__(kLongWarps<F>* kWarp)
    long_rows(F form, const __grid_constant__ RowOperands operands) {
  const auto row = pointers_of_row<F, Width>(operands, blockIdx.x);
  reduce_long<F, Width>(form, row, operands.n);
  for_each_tile<F, Width>(row, 0, tiles_of_row(operands.n), operands.n,
                          [&](int64_t, int64_t first, auto& share) {
                            share.replace(form);
                            share.write(form, row, first, operands.n);
                          });
}

// ---- The launch

template <class F>
struct RowLaunch {
  static_assert(IsRowForm<F>);

  static cudaError_t run(const Parameters& parameters, const RowOperands& operands,
                         cudaStream_t stream) {
    if (operands.outer * operands.inner * operands.n == 0) return cudaSuccess;
    constexpr int kWide = kPacketElements<F>;
    const F form(parameters.values);
    if (moves_in_packets(operands)) {
      launch<kWide>(form, operands, stream);
    } else {
      launch<1>(form, operands, stream);
    }
    return cudaGetLastError();
  }

 private:
  // Returns true if every row starts and ends at a packet boundary in every operand.
  static bool moves_in_packets(const RowOperands& operands) {
    if (operands.n % kPacketElements<F> != 0) return false;
    for (int i = 0; i < operands.count; ++i) {
      const RowOperand& operand = operands.operands[i];
      if (operand.element_stride != operands.element_size ||
          reinterpret_cast<uintptr_t>(operand.data) % kPacketBytes != 0 ||
          operand.outer_stride % kPacketBytes != 0 || operand.inner_stride % kPacketBytes != 0)
        return false;
    }
    return true;
  }

  template <int Width>
  static void launch(const F& form, const RowOperands& operands, cudaStream_t stream) {
    const auto rows = static_cast<unsigned>(operands.outer * operands.inner);
    if (operands.n <= kRowTile) {
      launch_at_most<Width, 4 * kWarp>(form, operands, stream);
    } else if (operands.n <= kBlockElements) {
      const auto tiles = static_cast<unsigned>(tiles_of_row(operands.n));
      block_rows<F, Width><<<rows, tiles * kWarp, 0, stream>>>(form, operands);
    } else {
      long_rows<F, Width><<<rows, kLongWarps<F> * kWarp, 0, stream>>>(form, operands);
    }
  }

  // For rows of at most Size elements, or of a power of two times as many. A thread has four
  // packets, unless the row has too many elements: fewer threads take fewer shuffles. A thread with
  // few small packets computes several rows, so that more loads are in flight.
  template <int Width, int Size>
  static void launch_at_most(const F& form, const RowOperands& operands, cudaStream_t stream) {
    constexpr int kCount = Size / kWarp > 4 * Width ? Size / kWarp : 4 * Width;
    constexpr int kFew = F::Inputs::kCount == 1 ? 16 : 8;
    constexpr int kRows = Width == 1 && kCount < kFew ? kFew / kCount : 1;
    if constexpr (Size < kRowTile) {
      if (operands.n > Size) return launch_at_most<Width, 2 * Size>(form, operands, stream);
    }
    launch_short<Width, Size / kCount, kCount, kRows>(form, operands, stream);
  }

  template <int Width, int Threads, int Count, int Rows>
  static void launch_short(const F& form, const RowOperands& operands, cudaStream_t stream) {
    constexpr int64_t kRowsOfBlock = kShortThreads / Threads * Rows;
    const int64_t rows = operands.outer * operands.inner;
    const auto blocks = static_cast<unsigned>((rows + kRowsOfBlock - 1) / kRowsOfBlock);
    short_rows<F, Width, Threads, Count, Rows>
        <<<blocks, kShortThreads, 0, stream>>>(form, operands);
  }
};

}  // namespace fastact::cuda
