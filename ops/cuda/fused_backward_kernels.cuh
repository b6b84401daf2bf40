// The kernels of fused_backward.cuh.
#pragma once

#include <cstdint>

#include "ops/cuda/fused_gradients.cuh"

namespace fastact::cuda {

// The kernel for tiles whose rows are whole packets.
template <class G>
__global__ void __launch_bounds__(kThreads, kFusedBackwardBlocks<typename G::Element>)
    fused_backward(const G form, const __grid_constant__ FusedBackwardLaunchData launch) {
  using T = typename G::T;
  using Element = typename G::Element;
  constexpr int kCount = G::kCount;
  extern __shared__ __align__(kPacketBytes) unsigned char fused_shared[];
  const bool of_scale = G::has(launch, G::kOfScale);
  const bool of_bias = G::has(launch, G::kOfBias);
  const bool sums = of_scale || of_bias;
  const bool needs_slope = sums || G::has(launch, G::kOfSelf) || G::has(launch, G::kOfResidual);
  auto* const scale_numbers = reinterpret_cast<T*>(fused_shared);
  T* const bias_numbers = scale_numbers + (of_scale ? kFusedTileInShared : 0);
  share_table<typename G::Value>();
  share_table<typename G::Slope>();

  const uint32_t down = launch.tiles_across.divide(blockIdx.x);
  const uint32_t across = blockIdx.x - down * launch.tiles_across.divisor;
  const uint32_t first_row = down * launch.tile_rows;
  const uint32_t first_column = across * launch.tile_columns;
  const uint32_t rows = min(launch.tile_rows, launch.rows - first_row);
  const uint32_t columns = min(launch.tile_columns, launch.columns - first_column);
  const uint32_t packets = rows * launch.packets_across.divisor;
  T scale[kCount];
  T bias[kCount];
#pragma unroll 1
  for (uint32_t packet = threadIdx.x; packet < packets; packet += kThreads) {
    const uint32_t tile_row = launch.packets_across.divide(packet);
    const uint32_t column = (packet - tile_row * launch.packets_across.divisor) * kCount;
    if (column >= columns) continue;
    const uint32_t row = first_row + tile_row;
    const uint32_t outer = launch.channels.divide(row);
    const uint32_t channel = row - outer * launch.channels.divisor;
    const auto offset = [&](int operand) {
      return int64_t{outer} * launch.outer_strides[operand] +
             int64_t{channel} * launch.channel_strides[operand];
    };
    const int64_t in_row = int64_t{first_column + column} * static_cast<int64_t>(sizeof(Element));
    const int64_t of_self = offset(G::kSelf) + in_row;
    const auto address = [&](int operand) {
      return launch.data[operand] + (launch.alike ? of_self : offset(operand) + in_row);
    };
    typename G::Operands operands;
    G::load(launch, address, operands);
    if (!launch.same_vectors || packet == threadIdx.x) {
      load_vectors<Element>(launch.vectors, row * launch.columns + first_column + column, scale,
                            bias);
    }
    const uint32_t place = tile_row * launch.tile_columns + column;
    form.write(launch, needs_slope, address, operands, scale, bias,
               [&](int first, const auto& of_part, const auto& times_self) {
                 const uint32_t there = place_in_shared(place + first);
                 if (of_bias) put_numbers(of_part, bias_numbers + there);
                 if (of_scale) put_numbers(times_self, scale_numbers + there);
               });
  }
  if (!sums) return;
  __syncthreads();
  const uint32_t numbers = (rows - 1) * launch.tile_columns + columns;
  const int64_t place = int64_t{down} * launch.sums_down + int64_t{across} * launch.sums_across;
  auto* const scale_sums = reinterpret_cast<T*>(launch.data[G::kOfScale]);
  auto* const bias_sums = reinterpret_cast<T*>(launch.data[G::kOfBias]);
  if (launch.in_lanes) {
    add_lanes<T>(launch, place, numbers, scale_numbers, scale_sums, bias_numbers, bias_sums);
  } else {
    add_columns<T>(launch, place, numbers, columns, scale_numbers, scale_sums, bias_numbers,
                   bias_sums);
  }
}

template <FusedBackwardKind kOfKind>
struct FusedBackwardRunLaunchData {
  static constexpr auto kKind = kOfKind;

  char* data[kFusedBackwardOperands];
  int64_t outer_strides[kFusedBackwardOperands];
  int64_t channel_strides[kFusedBackwardOperands];
  FastDivisor channels;
  FusedVectors vectors;
  // In images, each channel is a row. A warp takes a block of kSumBlock elements of a row, and each
  // thread of it takes packets that are one warp apart. Otherwise a thread takes the packets in one
  // column of `steps` rows.
  bool in_images;
  uint32_t steps;
  uint32_t rows;
  uint32_t columns;
  FastDivisor across;  // blocks or packets in a row
};

// The kernel for tensors in packets. The packets of a thread share the same scale and bias and
// belong to the same sums.
template <class G, class Launch>
__global__ void __launch_bounds__(kThreads,
                                  kFusedBackwardRun<typename G::Element, Launch::kKind>.blocks)
    fused_backward_run(const G form, const __grid_constant__ Launch launch) {
  using T = typename G::T;
  using Element = typename G::Element;
  constexpr bool kAlike = Launch::kKind == FusedBackwardKind::kVectors;
  constexpr bool kHasVectors = Launch::kKind != FusedBackwardKind::kOthers;
  constexpr int kPackets = kFusedBackwardRun<Element, Launch::kKind>.packets;
  constexpr int kCount = G::kCount;
  // The packets that cover all lanes of a thread.
  constexpr int kParts = kSumLanes / kWarp / kCount;
  static_assert(kPackets % kParts == 0);
  constexpr int64_t kSize = sizeof(Element);
  const bool of_scale = G::has(launch, G::kOfScale);
  const bool of_bias = G::has(launch, G::kOfBias);
  const bool needs_slope =
      of_scale || of_bias || G::has(launch, G::kOfSelf) || G::has(launch, G::kOfResidual);
  share_table<typename G::Value>();
  share_table<typename G::Slope>();

  const uint32_t thread = blockIdx.x * kThreads + threadIdx.x;
  const uint32_t unit = launch.in_images ? thread / kWarp : thread;
  const uint32_t group = launch.across.divide(unit);
  const uint32_t place = unit - group * launch.across.divisor;
  uint32_t row;
  uint32_t column;
  uint32_t packets;
  if (launch.in_images) {
    row = group;
    column = place * kSumBlock + thread % kWarp * kCount;
    const uint32_t end = min((place + 1) * kSumBlock, launch.columns);
    packets = column < end ? (end - column + kWarp * kCount - 1) / (kWarp * kCount) : 0;
  } else {
    row = group * launch.steps;
    column = place * kCount;
    packets = row < launch.rows ? min(launch.steps, launch.rows - row) : 0;
  }
  if (row >= launch.rows) return;  // for images, a whole warp returns

  T scale[kCount];
  T bias[kCount];
  T scale_lanes[kParts][kCount] = {};
  T bias_lanes[kParts][kCount] = {};
  if (kHasVectors && packets > 0) {
    load_vectors<Element>(launch.vectors, row * launch.columns + column, scale, bias);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      scale[i] = T{1};
      bias[i] = T{-0.0};
    }
  }
  const uint32_t outer = launch.channels.divide(row);
  const uint32_t channel = row - outer * launch.channels.divisor;
  const auto offset = [&](int operand) {
    return int64_t{outer} * launch.outer_strides[operand] +
           int64_t{channel} * launch.channel_strides[operand] + column * kSize;
  };
  const auto step = [&](int operand) {
    return launch.in_images ? kWarp * kCount * kSize : launch.outer_strides[operand];
  };
  const int64_t of_self = offset(G::kSelf);
#pragma unroll 1
  for (uint32_t first = 0; first < packets; first += kPackets) {
    const auto address_in = [&](uint32_t packet) {
      return [&launch, &offset, &step, of_self, packet](int operand) {
        if (kAlike) return launch.data[operand] + (of_self + packet * step(G::kSelf));
        return launch.data[operand] + (offset(operand) + packet * step(operand));
      };
    };
    typename G::Operands operands[kPackets];
#pragma unroll
    for (int p = 0; p < kPackets; ++p)
      G::load(launch, address_in(min(first + p, packets - 1)), operands[p]);
#pragma unroll
    for (int p = 0; p < kPackets; ++p) {
      if (p > 0 && first + p >= packets) break;
      form.write(launch, needs_slope, address_in(first + p), operands[p], scale, bias,
                 [&](int part, const auto& slope, const auto& times_self) {
#pragma unroll
                   for (int i = 0; i < G::kPart; ++i) {
                     // A column has a single sum.
                     if (p % kParts == 0 || !launch.in_images) {
                       bias_lanes[0][part + i] += slope[i];
                       scale_lanes[0][part + i] += times_self[i];
                     } else {
                       bias_lanes[p % kParts][part + i] += slope[i];
                       scale_lanes[p % kParts][part + i] += times_self[i];
                     }
                   }
                 });
    }
  }
  const auto put = [&](int operand, T(&lanes)[kParts][kCount]) {
    T* const to = reinterpret_cast<T*>(launch.data[operand]);
    if (launch.in_images) {
#pragma unroll
      for (int half = kParts / 2; half > 0; half /= 2) {
#pragma unroll
        for (int i = 0; i < half * kCount; ++i)
          lanes[i / kCount][i % kCount] += lanes[half + i / kCount][i % kCount];
      }
      const T sum = sum_of_lanes(lanes[0]);
      if (thread % kWarp == 0) to[int64_t{row} * launch.across.divisor + place] = sum;
    } else {
      put_numbers(lanes[0], to + int64_t{group} * launch.columns + column);
    }
  };
  if (of_scale) put(G::kOfScale, scale_lanes);
  if (of_bias) put(G::kOfBias, bias_lanes);
}

}  // namespace fastact::cuda
