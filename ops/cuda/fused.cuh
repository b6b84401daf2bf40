// The fused form on the GPU (ops/forms/fused.h). One kernel is for contiguous tensors with scale
// and bias along one dimension: a thread takes packets that share the same scale and bias. The
// other kernel is for any shape and strides. It moves packets along the innermost dimension if the
// layout allows it, else single elements.
#pragma once

#include <cstdint>
#include <numeric>

#include "ops/cuda/engine.h"
#include "ops/cuda/fused_kernels.cuh"

namespace fastact::cuda {

// F is the activation's D_0 in this type.
template <class F, class Element>
struct FusedLaunch {
  static cudaError_t run(const Parameters& parameters, const FusedOperands& operands,
                         cudaStream_t stream) {
    if (operands.size == 0) return cudaSuccess;
    if constexpr (HasDefaultForm<F>) {
      if (F::is_default(parameters.values))
        return FusedLaunch<typename F::Default, Element>::run(parameters, operands, stream);
    }
    const F form(parameters.values);
    // Counts as any set if z is wanted: the kernels for one set of inputs do not write z.
    const uint32_t beside_self =
        operands.preactivation == nullptr ? operands.inputs.bits & ~kFusedSelf : kAnyInputs;
    // A residual or a gate alone is as fast with the kernel for any shape.
    FusedRunLaunchData run;
    if (beside_self != kFusedResidual && beside_self != kFusedGate &&
        is_contiguous(operands, run)) {
      if ((beside_self & ~kFusedVectors) == 0) {
        launch_run<kFusedRunPackets, true>(form, run, stream);
      } else {
        launch_run<kFusedRunPacketsOfSeveral, false>(form, run, stream);
      }
    } else if (moves_in_packets(operands)) {
      if (beside_self == kFusedResidual) {
        launch<kCount, 1, kFusedResidual>(form, operands, stream);
      } else if (beside_self == kFusedGate) {
        launch<kCount, 1, kFusedGate>(form, operands, stream);
      } else {
        launch<kCount, 1, kAnyInputs>(form, operands, stream);
      }
    } else {
      launch<1, kElementsPerThread, kAnyInputs>(form, operands, stream);
    }
    return cudaGetLastError();
  }

 private:
  static constexpr int kCount = kPacketElements<F>;
  static constexpr int64_t kSize = sizeof(Element);

  static int64_t size_of(const FusedOperands& operands, int i) {
    return i > 0 && operands.float32.has(static_cast<FusedInput>(i - 1)) ? int64_t{sizeof(float)}
                                                                         : kSize;
  }

  static bool is_aligned(const void* data) {
    return reinterpret_cast<uintptr_t>(data) % kPacketBytes == 0;
  }

  // Returns true if scale and bias vary along one dimension or are single elements, and all other
  // operands are contiguous and aligned. Then sets the launch's data, except how its threads share
  // the packets.
  static bool is_contiguous(const FusedOperands& operands, FusedRunLaunchData& run) {
    constexpr int kVectors[] = {1 + static_cast<int>(FusedInput::kScale),
                                1 + static_cast<int>(FusedInput::kBias)};
    run = {};
    if (!is_aligned(operands.preactivation)) return false;
    run.preactivation = static_cast<char*>(operands.preactivation);
    for (int i = 0; i < kFusedOperands; ++i) {
      if (operands.data[i] == nullptr || i == kVectors[0] || i == kVectors[1]) continue;
      if (!is_aligned(operands.data[i])) return false;
      int64_t dense = kSize;
      for (int d = 0; d < operands.dimensions; ++d) {
        if (operands.shape[d] != 1 && operands.strides[i][d] != dense) return false;
        dense *= operands.shape[d];
      }
      run.data[i] = static_cast<char*>(operands.data[i]);
    }
    int along = -1;
    FusedVector vectors[2];
    for (int v = 0; v < 2; ++v) {
      const int i = kVectors[v];
      if (operands.data[i] == nullptr) continue;
      vectors[v].data = static_cast<const char*>(operands.data[i]);
      vectors[v].is_float32 = size_of(operands, i) != kSize;
      for (int d = 0; d < operands.dimensions; ++d) {
        if (operands.shape[d] == 1 || operands.strides[i][d] == 0) continue;
        if (along >= 0 && along != d) return false;
        along = d;
        vectors[v].stride = static_cast<int32_t>(operands.strides[i][d]);
      }
    }
    int64_t inner = along < 0 ? kCount : 1;
    for (int d = 0; d < along; ++d) inner *= operands.shape[d];
    const int64_t channels = along < 0 ? 1 : operands.shape[along];
    // No scale or bias is used twice.
    if (inner == 1 && channels == operands.size && operands.size > 1) return false;
    run.vectors = FusedVectors(vectors[0], vectors[1], inner, channels, kCount, kSize);
    run.size = static_cast<uint32_t>(operands.size);
    return true;
  }

  template <int PacketsPerThread, bool kVectorsAlone>
  static void launch_run(const F& form, FusedRunLaunchData& run, cudaStream_t stream) {
    const uint32_t inner = run.vectors.inner.divisor;
    const uint32_t channels = run.vectors.channels.divisor;
    const uint32_t packets = run.size / kCount;
    const auto parts = [](uint32_t size, uint32_t part) { return (size + part - 1) / part; };
    const uint32_t in_channel = inner / kCount;
    if (channels > 1 && inner % kCount == 0 && in_channel >= kThreads) {
      // The packets of a thread are in one channel of an image.
      run.threads = FastDivisor(parts(in_channel, PacketsPerThread));
      run.packets = in_channel;
    } else {
      // Or the packets are in different rows or images, at a distance that is a whole number of
      // rows or images.
      const uint64_t repeats_after = channels == 1 ? 1 : uint64_t{inner} * channels;
      const uint64_t whole = repeats_after / std::gcd(repeats_after, uint64_t{kCount});
      const uint32_t period =
          packets != 0 && whole > packets ? packets : static_cast<uint32_t>(whole);
      run.threads = FastDivisor(period * parts(kThreads, period));
      run.packets = run.threads.divisor * PacketsPerThread;
    }
    const uint32_t groups = parts(packets, run.packets);
    const uint32_t blocks = parts(groups * run.threads.divisor, kThreads);
    // At least one block: a short tensor may have no packet.
    fused_run<F, Element, kCount, PacketsPerThread, kVectorsAlone>
        <<<blocks == 0 ? 1 : blocks, kThreads, 0, stream>>>(form, run);
  }

  // Returns true if the rows of every operand are whole, aligned packets. An input other than self
  // may instead have one element along the row.
  static bool moves_in_packets(const FusedOperands& operands) {
    if (operands.shape[0] % kCount != 0 || !is_aligned(operands.preactivation)) return false;
    for (int i = 0; i < kFusedOperands; ++i) {
      if (operands.data[i] == nullptr) continue;
      if (i > 1 && operands.strides[i][0] == 0) continue;
      if (operands.strides[i][0] != size_of(operands, i)) return false;
      if (!is_aligned(operands.data[i])) return false;
      for (int d = 1; d < operands.dimensions; ++d) {
        if (operands.strides[i][d] % kPacketBytes != 0) return false;
      }
    }
    return true;
  }

  template <int Count, int PacketsPerThread, uint32_t kInputs>
  static void launch(const F& form, const FusedOperands& operands, cudaStream_t stream) {
    FusedLaunchData launch = {};
    launch.preactivation = static_cast<char*>(operands.preactivation);
    launch.inputs = operands.inputs;
    launch.float32 = operands.float32;
    launch.dimensions = operands.dimensions;
    for (int i = 0; i < kFusedOperands; ++i) {
      launch.data[i] = static_cast<char*>(operands.data[i]);
      if (i > 1 && operands.strides[i][0] == 0) launch.repeated.add(static_cast<FusedInput>(i - 1));
    }
    for (int d = 0; d < operands.dimensions; ++d) {
      const int64_t count = d == 0 ? Count : 1;
      launch.divisors[d] = FastDivisor(static_cast<uint32_t>(operands.shape[d] / count));
      for (int i = 0; i < kFusedOperands; ++i)
        launch.strides[d][i] = static_cast<int32_t>(operands.strides[i][d] * count);
    }
    const auto packets = static_cast<uint32_t>(operands.size / Count);
    const auto per_block = static_cast<uint32_t>(kThreads * PacketsPerThread);
    const uint32_t blocks = (packets - 1) / per_block + 1;
    fused<F, Element, Count, PacketsPerThread, kInputs>
        <<<blocks, kThreads, 0, stream>>>(form, packets, launch);
  }
};

}  // namespace fastact::cuda
