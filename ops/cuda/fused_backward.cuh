// The gradients of the fused form on the GPU, with the bits of the CPU (ops/cpu/fused.h). A pass
// over memory recomputes z, writes the gradients of self, residual and gate, and writes partial
// sums for scale and bias in the order of kernel.h. fused_sums.cu adds the partial sums.
//
// There are two kernels. fused_backward_run is for tensors in packets, except float64; sums along
// rows must also be large. Its threads take packets that belong to the same sums and add them in
// registers. fused_backward is for all other tensors. A block takes a tile and writes the terms of
// its sums to shared memory, where threads add them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "ops/cuda/fused_backward_kernels.cuh"

namespace fastact::cuda {

template <class F>
struct DefaultForm {
  using type = F;
};
template <HasDefaultForm F>
struct DefaultForm<F> {
  using type = typename F::Default;
};
template <class F>
using DefaultFormOf = typename DefaultForm<F>::type;

// Value and Slope are the activation's D_0 and D_1 in the GradientElement.
template <class Value, class Slope, class Element>
struct FusedBackwardLaunch {
  static cudaError_t run(const Parameters& parameters, const FusedBackwardOperands& operands,
                         cudaStream_t stream) {
    if (operands.outer * operands.channels * operands.inner == 0) return cudaSuccess;
    if constexpr (HasDefaultForm<Value> || HasDefaultForm<Slope>) {
      // If both have a Default, they belong to the same activation and have the same parameters.
      if (is_default<Value>(parameters) || is_default<Slope>(parameters)) {
        return FusedBackwardLaunch<DefaultFormOf<Value>, DefaultFormOf<Slope>, Element>::run(
            parameters, operands, stream);
      }
    }
    if (!launch_run(parameters, operands, stream) &&
        !launch<kFusedBackwardCount<Element>>(parameters, operands, stream)) {
      launch<1>(parameters, operands, stream);
    }
    return cudaGetLastError();
  }

 private:
  using T = OpMath<Element>;
  static constexpr int64_t kSize = sizeof(Element);
  static constexpr int kSelf = kFusedInputOperand<FusedInput::kSelf>;
  static constexpr int kScale = kFusedInputOperand<FusedInput::kScale>;
  static constexpr int kBias = kFusedInputOperand<FusedInput::kBias>;
  static constexpr int kOfScale = kFusedGradientOperand<FusedInput::kScale>;
  static constexpr int kOfBias = kFusedGradientOperand<FusedInput::kBias>;
  static constexpr int kOtherOperands[] = {
      kFusedInputOperand<FusedInput::kResidual>, kFusedInputOperand<FusedInput::kGate>,
      kFusedGradientOperand<FusedInput::kResidual>, kFusedGradientOperand<FusedInput::kGate>};

  template <class F>
  static bool is_default(const Parameters& parameters) {
    if constexpr (HasDefaultForm<F>) {
      return F::is_default(parameters.values);
    } else {
      return false;
    }
  }

  // Returns true if an operand has the type and shape of the elements.
  static bool is_tensor(const FusedBackwardOperands& operands, int i) {
    return operands.data[i] != nullptr && i != kScale && i != kBias && i != kOfScale &&
           i != kOfBias;
  }

  // Returns false and does nothing if the elements do not move in packets of Count.
  template <int Count>
  static bool launch(const Parameters& parameters, const FusedBackwardOperands& operands,
                     cudaStream_t stream) {
    FusedBackwardLaunchData launch = {};
    launch.alike = lie_alike(operands);
    const int64_t blocks = lay_out<Count>(operands, launch);
    if (blocks == 0) return false;
    using G = FusedGradients<Value, Slope, Element, Count>;
    const G form = {Value(parameters.values), Slope(parameters.values)};
    const int sums =
        (operands.data[kOfScale] != nullptr ? 1 : 0) + (operands.data[kOfBias] != nullptr ? 1 : 0);
    fused_backward<G><<<static_cast<unsigned>(blocks), kThreads,
                        sums * kFusedTileInShared * sizeof(T), stream>>>(form, launch);
    return true;
  }

  static bool has_vectors(const FusedBackwardOperands& operands) {
    return operands.data[kScale] != nullptr || operands.data[kBias] != nullptr;
  }

  static bool lie_alike(const FusedBackwardOperands& operands) {
    for (int i = 0; i < kFusedBackwardOperands; ++i) {
      if (is_tensor(operands, i) &&
          (operands.outer_strides[i] != operands.outer_strides[kSelf] ||
           operands.channel_strides[i] != operands.channel_strides[kSelf])) {
        return false;
      }
    }
    return true;
  }

  // The common properties of a launch, and the layout of its tensors.
  struct Placement {
    bool sums;
    bool in_images;  // a row is one channel of one image
    int64_t rows;
    int64_t columns;
    bool is_contiguous;  // the rows are contiguous
    bool starts_aligned;
    bool rows_aligned;
  };
  template <int Count, class Launch>
  static Placement place(const FusedBackwardOperands& operands, Launch& launch) {
    const bool in_images = operands.inner > 1;
    Placement placement = {
        .sums = operands.data[kOfScale] != nullptr || operands.data[kOfBias] != nullptr,
        .in_images = in_images,
        .rows = in_images ? operands.outer * operands.channels : operands.outer,
        .columns = in_images ? operands.inner : operands.channels,
        .is_contiguous = true,
        .starts_aligned = true,
        .rows_aligned = true};
    const int64_t whole = operands.channels * operands.inner;
    for (int i = 0; i < kFusedBackwardOperands; ++i) {
      launch.data[i] = static_cast<char*>(operands.data[i]);
      if (!is_tensor(operands, i)) continue;
      const int64_t outer = operands.outer > 1 ? operands.outer_strides[i] : whole * kSize;
      const int64_t channel =
          in_images && operands.channels > 1 ? operands.channel_strides[i] : operands.inner * kSize;
      launch.outer_strides[i] = operands.outer_strides[i];
      launch.channel_strides[i] = in_images ? operands.channel_strides[i] : 0;
      placement.is_contiguous &=
          outer == whole * kSize && (!in_images || channel == operands.inner * kSize);
      placement.starts_aligned &=
          reinterpret_cast<uintptr_t>(operands.data[i]) % (Count * kSize) == 0;
      placement.rows_aligned &=
          (operands.outer == 1 || outer % (Count * kSize) == 0) &&
          (!in_images || operands.channels == 1 || channel % (Count * kSize) == 0);
    }
    const auto vector = [&](int i) {
      const bool is_float32 = operands.float32.has(static_cast<FusedInput>(i - 1));
      return FusedVector{.data = static_cast<const char*>(operands.data[i]),
                         .stride = static_cast<int32_t>(is_float32 ? sizeof(float) : kSize),
                         .is_float32 = is_float32};
    };
    launch.vectors = FusedVectors(vector(kScale), vector(kBias), operands.inner, operands.channels,
                                  Count, kSize);
    launch.channels = FastDivisor(in_images ? static_cast<uint32_t>(operands.channels) : 1);
    return placement;
  }

  static bool sums_aligned(const FusedBackwardOperands& operands) {
    return std::ranges::all_of(std::array{kOfScale, kOfBias}, [&](int i) {
      return reinterpret_cast<uintptr_t>(operands.data[i]) % kPacketBytes == 0;
    });
  }

  // Returns false and does nothing unless the tensors are in packets and their rows are long
  // enough.
  static bool launch_run(const Parameters& parameters, const FusedBackwardOperands& operands,
                         cudaStream_t stream) {
    if constexpr (kSize > 4) {
      return false;
    } else {
      // The gradient of gate alone is computed without gate.
      const bool has_others =
          std::ranges::any_of(kOtherOperands, [&](int i) { return operands.data[i] != nullptr; });
      if (!has_others && lie_alike(operands))
        return launch_run_of<FusedBackwardKind::kVectors>(parameters, operands, stream);
      if (!has_vectors(operands))
        return launch_run_of<FusedBackwardKind::kOthers>(parameters, operands, stream);
      return launch_run_of<FusedBackwardKind::kAny>(parameters, operands, stream);
    }
  }

  template <FusedBackwardKind kKind>
  static bool launch_run_of(const Parameters& parameters, const FusedBackwardOperands& operands,
                            cudaStream_t stream) {
    constexpr int kCount = kFusedBackwardCount<Element>;
    FusedBackwardRunLaunchData<kKind> launch = {};
    Placement placement = place<kCount>(operands, launch);
    launch.in_images = placement.in_images;
    launch.steps = placement.sums          ? kSumRows
                   : has_vectors(operands) ? kFusedBackwardRunRows
                                           : kFusedBackwardRun<Element, kKind>.packets;
    if (!has_vectors(operands) && placement.is_contiguous) {
      // Rows as wide as a block.
      launch.in_images = false;
      launch.channels = FastDivisor(1);
      const int64_t size = placement.rows * placement.columns;
      placement.columns = size % (kThreads * kCount) == 0 ? kThreads * kCount : size;
      placement.rows = size / placement.columns;
      for (int64_t& stride : launch.outer_strides) stride = placement.columns * kSize;
    }
    if (!placement.starts_aligned || placement.columns % kCount != 0 ||
        (placement.rows > 1 && !placement.rows_aligned)) {
      return false;
    }
    if (launch.in_images && placement.columns < kFusedBackwardRunImage) return false;
    if (placement.sums &&
        (placement.columns < kFusedBackwardRunColumns || !sums_aligned(operands))) {
      return false;
    }
    launch.rows = static_cast<uint32_t>(placement.rows);
    launch.columns = static_cast<uint32_t>(placement.columns);
    const int64_t across = launch.in_images ? (placement.columns + kSumBlock - 1) / kSumBlock
                                            : placement.columns / kCount;
    launch.across = FastDivisor(static_cast<uint32_t>(across));
    const int64_t threads = launch.in_images
                                ? placement.rows * across * kWarp
                                : (placement.rows + launch.steps - 1) / launch.steps * across;
    if (placement.sums && !launch.in_images && threads < kFusedBackwardRunThreads<Element>)
      return false;
    using G = FusedGradients<Value, Slope, Element, kCount>;
    const G form = {Value(parameters.values), Slope(parameters.values)};
    fused_backward_run<G>
        <<<static_cast<unsigned>((threads + kThreads - 1) / kThreads), kThreads, 0, stream>>>(
            form, launch);
    return true;
  }

  // Sets the launch's data and returns the number of blocks. Returns 0 if the rows of a tile are
  // not whole, aligned packets.
  template <int Count>
  static int64_t lay_out(const FusedBackwardOperands& operands, FusedBackwardLaunchData& launch) {
    const Placement placement = place<Count>(operands, launch);
    const auto& [sums, in_images, all_rows, all_columns, is_contiguous, starts_aligned,
                 rows_aligned] = placement;
    int64_t rows = all_rows;
    int64_t columns = all_columns;
    const auto up = [](int64_t size) { return (size + Count - 1) / Count * Count; };
    int64_t tile_rows = 1;
    int64_t tile_columns = kFusedTile;
    int64_t unit = kFusedTile;
    int64_t chains = 1;
    launch.in_lanes = in_images;
    bool joins = false;  // contiguous rows are joined into one
    if (!sums) {
      joins = is_contiguous;
      if (!joins) {
        tile_columns = std::min<int64_t>(up(columns), kFusedTile);
        tile_rows = std::min<int64_t>(kFusedTile / tile_columns, rows);
      }
    } else if (in_images) {
      unit = std::min<int64_t>(operands.inner, kSumBlock);
      joins = is_contiguous && operands.inner <= kSumBlock;
      int64_t units = kFusedTile / unit;
      // If possible, a number of units that begins at a packet boundary.
      if (joins && units > Count) units -= units % Count;
      if (joins || operands.inner > kSumBlock) {
        tile_columns = units * unit;
      } else {
        tile_columns = operands.inner;
      }
      const int64_t blocks = fused_partial_sums(operands.outer, operands.inner).blocks;
      launch.sums_down = static_cast<uint32_t>(blocks);
      launch.sums_across = static_cast<uint32_t>(units);
      launch.sums_of_unit = 1;
    } else {
      constexpr int64_t kTileWidth = kFusedTile / kSumRows;
      launch.sums_down = static_cast<uint32_t>(operands.channels);
      joins = is_contiguous && operands.channels <= kTileWidth && operands.outer > 1;
      if (joins) {
        const int64_t groups = kTileWidth / operands.channels;
        unit = kSumRows * operands.channels;
        chains = operands.channels;
        tile_columns = groups * unit;
        launch.sums_across = static_cast<uint32_t>(groups * operands.channels);
        launch.sums_of_unit = static_cast<uint32_t>(operands.channels);
      } else {
        tile_rows = std::min<int64_t>(kSumRows, operands.outer);
        tile_columns = std::min<int64_t>(up(columns), kFusedTile / tile_rows / 32 * 32);
        unit = tile_rows * tile_columns;
        chains = tile_columns;
        launch.sums_across = static_cast<uint32_t>(tile_columns);
      }
    }
    if (joins) {
      columns *= rows;
      rows = 1;
    }
    launch.rows = static_cast<uint32_t>(rows);
    launch.columns = static_cast<uint32_t>(columns);
    launch.tile_rows = static_cast<uint32_t>(tile_rows);
    launch.tile_columns = static_cast<uint32_t>(tile_columns);
    launch.unit = static_cast<uint32_t>(unit);
    launch.chains = FastDivisor(static_cast<uint32_t>(chains));
    launch.threads_of_unit = kWarp;
    while (launch.threads_of_unit > 1 && launch.threads_of_unit / 2 * kLanesOfThread >= unit)
      launch.threads_of_unit /= 2;
    const int64_t across = up(tile_columns) / Count;
    // True within one channel of an image, or if the packets of a thread are below each other.
    launch.same_vectors =
        !has_vectors(operands) || (!joins && (in_images ? tile_rows == 1 : kThreads % across == 0));
    launch.packets_across = FastDivisor(static_cast<uint32_t>(across));
    const int64_t tiles_across = (columns + tile_columns - 1) / tile_columns;
    launch.tiles_across = FastDivisor(static_cast<uint32_t>(tiles_across));
    const bool in_packets = starts_aligned && (joins || rows_aligned) && columns % Count == 0 &&
                            (tiles_across == 1 || tile_columns % Count == 0);
    if (!in_packets) return 0;
    return tiles_across * ((rows + tile_rows - 1) / tile_rows);
  }
};

}  // namespace fastact::cuda
