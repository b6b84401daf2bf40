// Selects the GPU kernel of a row form by the length and the layout of the rows.
#pragma once

#include <cstdint>

#include "ops/cuda/engine.h"
#include "ops/cuda/row_blocks.cuh"
#include "ops/cuda/row_long.cuh"
#include "ops/cuda/row_short.cuh"
#include "ops/cuda/rows.h"

namespace fastact::cuda {

template <class F>
struct RowLaunch {
  static_assert(IsRowForm<F>);

  static cudaError_t run(const Parameters& parameters, const RowOperands& operands,
                         cudaStream_t stream) {
    if (operands.outer * operands.inner * operands.n == 0) return cudaSuccess;
    const F form(parameters.values, operands.n);
    // Single doubles are wide enough for the memory, so they need no packets.
    if constexpr (sizeof(RowElement<F>) == 8) {
      launch<RowAccess::kStrided>(form, operands, stream);
    } else if (moves_in_packets<F>(operands)) {
      launch<RowAccess::kAligned>(form, operands, stream);
    } else if (is_contiguous(operands)) {
      launch<RowAccess::kShifted>(form, operands, stream);
    } else {
      launch<RowAccess::kStrided>(form, operands, stream);
    }
    return cudaGetLastError();
  }

 private:
  static bool is_contiguous(const RowOperands& operands) {
    for (int i = 0; i < kOperandsOf<F>; ++i)
      if (operands.operands[i].element_stride != operands.element_size) return false;
    return true;
  }

  template <RowAccess Access>
  static void launch(const F& form, const RowOperands& operands, cudaStream_t stream) {
    if (operands.n > kRowTile) {
      launch_tiles<Access>(form, operands, stream);
    } else if constexpr (Access == RowAccess::kStrided) {
      // If the rows are columns of memory, threads with a row each read neighbouring elements.
      if (operands.n <= kWarp) {
        launch_short<Access, 1, kWarp>(form, operands, stream);
      } else {
        launch_short<Access, kWarp, kRowTile / kWarp>(form, operands, stream);
      }
    } else {
      launch_at_most<Access, kWarp>(form, operands, stream);
    }
  }

  // For rows of at most Size elements, or of more.
  template <RowAccess Access, int Size>
  static void launch_at_most(const F& form, const RowOperands& operands, cudaStream_t stream) {
    if constexpr (Size < kRowTile) {
      if (operands.n > Size) return launch_at_most<Access, 2 * Size>(form, operands, stream);
    }
    constexpr int kCount = Access == RowAccess::kAligned
                               ? elements_of_thread(kRowWidth<F, Access>, Size)
                               : elements_of_thread(Size);
    launch_short<Access, Size / kCount, kCount>(form, operands, stream);
  }

  // A thread has four packets, because fewer threads take fewer shuffles. It has more if a warp
  // could not hold the row otherwise, and fewer if there would be fewer threads than packets.
  static constexpr int elements_of_thread(int width, int size) {
    int packets = 4;
    while (packets * width * kWarp < size) packets *= 2;
    while (packets > size / (packets * width)) packets /= 2;
    return packets * width;
  }

  // The same for packets of one element. sum_of_threads() takes no more of them than threads.
  static constexpr int elements_of_thread(int size) {
    int count = 1;
    while (4 * count * count <= size) count *= 2;
    return count;
  }

  template <RowAccess Access, int Threads, int Count>
  static void launch_short(const F& form, const RowOperands& operands, cudaStream_t stream) {
    constexpr int64_t kRows = kShortThreads / Threads;
    const int64_t rows = operands.outer * operands.inner;
    const auto blocks = static_cast<unsigned>((rows + kRows - 1) / kRows);
    constexpr size_t kShared = shared_bytes_of_rows<F, Access, Threads, Count>(kShortThreads);
    short_rows<F, Access, Threads, Count>
        <<<blocks, kShortThreads, kShared, stream>>>(form, operands);
  }

  template <RowAccess Access>
  static void launch_tiles(const F& form, const RowOperands& operands, cudaStream_t stream) {
    const auto rows = static_cast<unsigned>(operands.outer * operands.inner);
    const int64_t tiles = tiles_of_row(operands.n);
    if (tiles <= kMaxWarps) {
      const auto threads = static_cast<unsigned>(tiles * kWarp);
      const size_t shared = shared_bytes_of_tiles<Access>(threads);
      block_rows<F, Access><<<rows, threads, shared, stream>>>(form, operands, 1);
    } else if (tiles <= kMaxTiles && Access != RowAccess::kStrided &&
               has_clusters(reinterpret_cast<const void*>(&block_rows<F, Access>))) {
      launch_clusters<Access>(form, operands, static_cast<unsigned>(tiles), stream);
    } else {
      constexpr auto kAccess =
          Access == RowAccess::kAligned ? RowAccess::kAligned : RowAccess::kStrided;
      long_rows<F, kAccess><<<rows, kLongWarps<F> * kWarp, 0, stream>>>(form, operands);
    }
  }

  // Returns the bytes of dynamic shared memory for a block of block_rows. If they are many, allows
  // the kernel those of the largest block: another thread may launch the same kernel.
  template <RowAccess Access>
  static size_t shared_bytes_of_tiles(unsigned threads) {
    constexpr size_t kAlwaysAllowed = size_t{32} << 10;  // beside the sums in static memory
    const auto bytes_of = [](unsigned count) {
      return shared_bytes_of_rows<F, Access, kWarp, kTileCount>(static_cast<int>(count));
    };
    const size_t bytes = bytes_of(threads);
    if (bytes > kAlwaysAllowed) {
      cudaFuncSetAttribute(&block_rows<F, Access>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(bytes_of(kMaxWarps * kWarp)));
    }
    return bytes;
  }

  template <RowAccess Access>
  static void launch_clusters(const F& form, const RowOperands& operands, unsigned tiles,
                              cudaStream_t stream) {
    const unsigned warps = (tiles + kClusterBlocks - 1) / kClusterBlocks;
    const unsigned blocks = (tiles + warps - 1) / warps;
    cudaLaunchAttribute cluster;
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = blocks;
    cluster.val.clusterDim.y = 1;
    cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(operands.outer * operands.inner) * blocks);
    config.blockDim = dim3(warps * kWarp);
    config.dynamicSmemBytes = shared_bytes_of_tiles<Access>(warps * kWarp);
    config.stream = stream;
    config.attrs = &cluster;
    config.numAttrs = 1;
    cudaLaunchKernelEx(&config, &block_rows<F, Access>, form, operands, blocks);
  }
};

}  // namespace fastact::cuda
