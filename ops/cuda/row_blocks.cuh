// The GPU kernel for rows of several tiles. One warp per tile keeps the row in registers. The warps
// of a row are a block, or, on GPUs of compute capability 9.0 or higher, a cluster of blocks.
//
// In a cluster, every warp sends its tile's sums to all blocks by asynchronous stores, and each
// block waits at a barrier in its own shared memory until the sums of all tiles are there. The
// barrier of the whole cluster would also wait for the stores to global memory: bfloat16 softmax of
// 128,256 elements took 1.26 times as long with it (H100).
#pragma once

#include <cstdint>
#include <cstring>

#include "ops/cuda/row_tiles.cuh"

namespace fastact::cuda {

// Clusters of this size run on every GPU that has clusters.
inline constexpr int kClusterBlocks = 8;
inline constexpr int kMaxTiles = kClusterBlocks * kMaxWarps;

// PTX's address of an object in shared memory, and that of the same object of another block.
__device__ __forceinline__ uint32_t shared_address(const void* object) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(object));
}
__device__ __forceinline__ uint32_t address_in_block(uint32_t address, uint32_t block) {
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(block));
  return there;
}

// Stores a number in another block's shared memory, and reports its bytes to that block's barrier.
template <class Number>
__device__ __forceinline__ void send(const Number& number, uint32_t address, uint32_t barrier) {
  if constexpr (sizeof(Number) == 4) {
    uint32_t bits;
    memcpy(&bits, &number, sizeof(bits));
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(address),
        "r"(bits), "r"(barrier)
        : "memory");
  } else {
    uint64_t bits[sizeof(Number) / 8];
    memcpy(bits, &number, sizeof(bits));
#pragma unroll
    for (uint32_t i = 0; i < sizeof(Number) / 8; ++i) {
      asm volatile(
          "st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(
              address + 8 * i),
          "l"(bits[i]), "r"(barrier)
          : "memory");
    }
  }
}

// Gives all warps of a row the sums of all tiles, once for each reduction.
template <class F>
class RowSums {
  using Sum = typename F::Sum;

 public:
  // Makes the barriers ready. The cluster must meet before a block sends anything.
  __device__ __forceinline__ void start(unsigned blocks) {
    if (blocks == 1 || threadIdx.x != 0) return;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#pragma unroll
    for (int r = 0; r < kNumReductions<F>; ++r) {
      const uint32_t barrier = shared_address(&barriers_[r]);
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" : : "r"(barrier) : "memory");
    }
    asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
#endif
  }

  __device__ __forceinline__ static void arrive_at_cluster(unsigned blocks) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    if (blocks > 1) asm volatile("barrier.cluster.arrive.release.aligned;" : : : "memory");
#endif
  }
  __device__ __forceinline__ static void wait_for_cluster(unsigned blocks) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    if (blocks > 1) asm volatile("barrier.cluster.wait.acquire.aligned;" : : : "memory");
#endif
  }

  // Takes the sums of a warp's tile in reduction R, and returns when numbers<R>() are those of all
  // tiles.
  template <int R>
  __device__ __forceinline__ void exchange(const Sum (&sums)[kMaxSums], int tile, int tiles,
                                           unsigned blocks) {
    constexpr int kSums = kSumsOf<F, R>;
    const unsigned thread = threadIdx.x % kWarp;
    if (blocks == 1) {
#pragma unroll
      for (int s = 0; s < kSums; ++s)
        if (thread == 0) numbers_[R][s][tile] = sums[s];
      __syncthreads();
      return;
    }
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    const uint32_t barrier = shared_address(&barriers_[R]);
    if (threadIdx.x == 0) {
      const int bytes = tiles * kSums * static_cast<int>(sizeof(Sum));
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                   :
                   : "r"(barrier), "r"(bytes)
                   : "memory");
    }
    if (thread < blocks) {
#pragma unroll
      for (int s = 0; s < kSums; ++s)
        send(sums[s], address_in_block(shared_address(&numbers_[R][s][tile]), thread),
             address_in_block(barrier, thread));
    }
    uint32_t is_complete = 0;
    while (is_complete == 0) {
      asm volatile(
          "{\n"
          ".reg .pred p;\n"
          "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], 0;\n"
          "selp.u32 %0, 1, 0, p;\n"
          "}"
          : "=r"(is_complete)
          : "r"(barrier)
          : "memory");
    }
    __syncwarp();
#endif
  }

  template <int R>
  __device__ __forceinline__ const Sum* numbers(int sum) const {
    return numbers_[R][sum];
  }

 private:
  Sum numbers_[kNumReductions<F>][kMostSums<F>][kMaxTiles];
  uint64_t barriers_[kNumReductions<F>];
};

template <class F, RowAccess Access, int R = 0>
__device__ __forceinline__ void reduce_blocks(F& form, TileShare<F, Access>& share, RowSums<F>& all,
                                              int tile, int tiles, unsigned blocks) {
  if constexpr (R < kNumReductions<F>) {
    const unsigned thread = threadIdx.x % kWarp;
    typename F::Sum sums[kMaxSums];
    share.template reduce<R>(form, sums);
    all.template exchange<R>(sums, tile, tiles, blocks);
#pragma unroll
    for (int s = 0; s < kSumsOf<F, R>; ++s) {
      const auto* const numbers = all.template numbers<R>(s);
      sums[s] = blocks == 1 ? total_of_tiles<F, R, kMaxWarps>(numbers, tiles, thread)
                            : total_of_tiles<F, R, kMaxTiles>(numbers, tiles, thread);
    }
    form.template finish<R>(sums);
    reduce_blocks<F, Access, R + 1>(form, share, all, tile, tiles, blocks);
  }
}

// `blocks` blocks compute each row. If there are several, they are a cluster. The last one may have
// warps without a tile.
template <class F, RowAccess Access>
__global__ void __launch_bounds__(kMaxWarps* kWarp, kBlocksPerMultiprocessor<F>)
    block_rows(F form, const __grid_constant__ RowOperands operands, unsigned blocks) {
  __shared__ RowSums<F> sums;
  const auto tile =
      static_cast<int>(blockIdx.x % blocks * (blockDim.x / kWarp) + threadIdx.x / kWarp);
  const auto tiles = static_cast<int>(tiles_of_row(operands.n));
  const int64_t row = blockIdx.x / blocks;
  sums.start(blocks);
  sums.arrive_at_cluster(blocks);
  const RowPointers<F> pointers = pointers_of_row<F>(operands, row);
  start_row_at(form, pointers);
  const unsigned thread = threadIdx.x % kWarp;
  TileShare<F, Access> share(pointers, int64_t{tile} * kRowTile, thread, operands.n);
  if (tile < tiles) share.read();
  sums.wait_for_cluster(blocks);
  if (tile >= tiles) return;
  reduce_blocks<F, Access>(form, share, sums, tile, tiles, blocks);
  if constexpr (kHasElements<F>) share.write(form);
  if (tile == 0 && thread == 0) store_row_results_at(form, pointers);
}

}  // namespace fastact::cuda
