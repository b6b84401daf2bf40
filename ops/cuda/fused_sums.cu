// Adds the partial sums of fused_backward.cuh to the gradients of a fused form's scale and bias.
// The order is that of ops/kernel.h, whatever the launch.
// clang-format off: must be first, because it makes the target's namespace an inline one.
#include "ops/math/arithmetic.h"
// clang-format on

#include <cstdint>

#include "ops/cuda/engine.h"
#include "ops/cuda/tuning.h"

namespace fastact::cuda {
namespace {

// One warp: if there are few threads, this spreads them over the multiprocessors.
constexpr int kSumsThreads = 32;

struct SumsLaunch {
  FusedSumsOperands operands;
  int64_t left;
  bool is_last;
};

// Converts a sum to a type like at::Tensor::to(): 16-bit types are rounded from float.
__device__ __forceinline__ void write_number(double sum, DType type, void* to, int64_t index) {
  switch (type) {
    case DType::kFloat32:
      static_cast<float*>(to)[index] = round_to<float>(sum);
      break;
    case DType::kFloat64:
      static_cast<double*>(to)[index] = round_to<double>(sum);
      break;
    case DType::kBFloat16:
      static_cast<BFloat16*>(to)[index] = round_to<BFloat16>(static_cast<float>(sum));
      break;
    case DType::kFloat16:
      static_cast<Float16*>(to)[index] = round_to<Float16>(static_cast<float>(sum));
      break;
  }
}

// For rows of several blocks: a thread writes one sum of a channel.
template <class From>
__global__ void __launch_bounds__(kSumsThreads) add_blocks(const SumsLaunch launch) {
  const FusedSumsOperands& operands = launch.operands;
  const int64_t channels = operands.channels;
  const int64_t blocks = operands.sums.blocks;
  const int64_t thread = int64_t{blockIdx.x} * kSumsThreads + threadIdx.x;
  const int64_t part = thread / channels;
  const int64_t channel = thread - part * channels;
  const int which = static_cast<int>(blockIdx.y);
  const auto* const from = static_cast<const From*>(operands.from[which]);
  if (from == nullptr || part >= launch.left) return;
  const int64_t parts_of_row = launch.left / operands.sums.rows;
  const int64_t row = part / parts_of_row;
  const int64_t first = (part - row * parts_of_row) * kSumBlocks;
  const From* const next = from + (row * channels + channel) * blocks;
  double sum = 0;
#pragma unroll
  for (int i = 0; i < kSumBlocks; ++i)
    if (first + i < blocks) sum += static_cast<double>(next[first + i]);
  write_number(sum, launch.is_last ? operands.types[which] : DType::kFloat64, operands.to[which],
               part * channels + channel);
}

// Numbers of a sum that are loaded at once, because there may be few threads. H100, 512 numbers for
// each of 4,096 channels, in two steps: 10.7 us; 11.4 with 32, 12.5 with 128; 14.7 when the
// compiler made 16 loads wait for each other.
constexpr int kSumsAtOnce = 64;

// For rows of one number: a thread writes one sum of a channel.
template <class From>
__global__ void __launch_bounds__(kSumsThreads) add_rows(const SumsLaunch launch) {
  const FusedSumsOperands& operands = launch.operands;
  const int64_t channels = operands.channels;
  const int64_t thread = int64_t{blockIdx.x} * kSumsThreads + threadIdx.x;
  const int64_t part = thread / channels;
  const int64_t channel = thread - part * channels;
  const int which = static_cast<int>(blockIdx.y);
  const auto* const from = static_cast<const From*>(operands.from[which]);
  if (from == nullptr || part >= launch.left) return;
  const int64_t first = part * kSumGroups;
  const int count = static_cast<int>(min(operands.sums.rows - first, int64_t{kSumGroups}));
  const From* const next = from + first * channels + channel;
  double sum = 0;
#pragma unroll 1
  for (int done = 0; done < count; done += kSumsAtOnce) {
    From numbers[kSumsAtOnce];
#pragma unroll
    for (int i = 0; i < kSumsAtOnce; ++i)
      numbers[i] = done + i < count ? next[(done + i) * channels] : From{-0.0};
#pragma unroll
    for (int i = 0; i < kSumsAtOnce; ++i) sum += static_cast<double>(numbers[i]);
  }
  write_number(sum, launch.is_last ? operands.types[which] : DType::kFloat64, operands.to[which],
               part * channels + channel);
}

template <class From>
void add(const SumsLaunch& launch, cudaStream_t stream) {
  const int64_t threads = launch.left * launch.operands.channels;
  const dim3 grid(static_cast<unsigned>((threads + kSumsThreads - 1) / kSumsThreads), 2);
  if (launch.operands.sums.blocks > 1) {
    add_blocks<From><<<grid, kSumsThreads, 0, stream>>>(launch);
  } else {
    add_rows<From><<<grid, kSumsThreads, 0, stream>>>(launch);
  }
}

}  // namespace

cudaError_t add_fused_sums(const FusedSumsOperands& operands, cudaStream_t stream) {
  const SumsLaunch launch = {operands, fused_sums_left(operands.sums),
                             is_last_of_fused_sums(operands.sums)};
  if (operands.from_doubles) {
    add<double>(launch, stream);
  } else {
    add<float>(launch, stream);
  }
  return cudaGetLastError();
}

}  // namespace fastact::cuda
