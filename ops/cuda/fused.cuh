// The fused form on the GPU (ops/forms/fused.h). One kernel is for contiguous tensors with scale
// and bias along one dimension: a thread takes packets that share the same scale and bias. The
// other kernel is for any shape and strides. It moves packets along the innermost dimension if the
// layout allows it, else single elements.
#pragma once

#include <cstdint>
#include <numeric>

#include "ops/cuda/engine.h"
#include "ops/cuda/fused_vectors.cuh"
#include "ops/cuda/packet.cuh"
#include "ops/cuda/strided.cuh"
#include "ops/cuda/tuning.h"
#include "ops/forms/fused.h"

namespace fastact::cuda {

// Stands for a set of inputs that is known only at the launch. Other kernels are compiled for one
// set.
inline constexpr uint32_t kAnyInputs = ~uint32_t{0};

// Self alone, and the most frequent sets of other inputs.
inline constexpr uint32_t kFusedSelf = FusedSet::of(FusedInput::kSelf).bits;
inline constexpr uint32_t kFusedVectors =
    FusedSet::of(FusedInput::kScale).bits | FusedSet::of(FusedInput::kBias).bits;
inline constexpr uint32_t kFusedResidual = FusedSet::of(FusedInput::kResidual).bits;
inline constexpr uint32_t kFusedGate = FusedSet::of(FusedInput::kGate).bits;

struct FusedLaunchData {
  char* data[kFusedOperands];
  FusedSet inputs;
  // `float32`: the inputs that are float while the elements have a 16-bit type. `repeated`: the
  // inputs with one element along the innermost dimension.
  FusedSet float32;
  FusedSet repeated;
  int dimensions;
  FastDivisor divisors[kMaxDimensions];
  int32_t strides[kMaxDimensions][kFusedOperands];
};

__device__ __forceinline__ bool contains(const FusedSet& set, FusedInput input) {
  return (set.bits >> static_cast<int>(input) & 1) != 0;
}

template <uint32_t kInputs>
__device__ __forceinline__ bool has(const FusedLaunchData& launch, FusedInput input) {
  if constexpr (kInputs == kAnyInputs) {
    return contains(launch.inputs, input);
  } else {
    return (kInputs >> static_cast<int>(input) & 1) != 0;
  }
}

// Returns the byte offset of packet `index` in the output and in each input of the set.
template <uint32_t kInputs>
__device__ __forceinline__ void fused_offsets(const FusedLaunchData& launch, uint32_t index,
                                              int32_t (&result)[kFusedOperands]) {
  constexpr uint32_t kWithSelf = kInputs | kFusedSelf;
#pragma unroll
  for (int j = 0; j < kFusedOperands; ++j) result[j] = 0;
  const auto add = [&](int d, uint32_t coordinate) {
#pragma unroll
    for (int j = 0; j < kFusedOperands; ++j) {
      if (j == 0 || (kWithSelf >> (j - 1) & 1) != 0)
        result[j] += static_cast<int32_t>(coordinate) * launch.strides[d][j];
    }
  };
#pragma unroll 1
  for (int d = 0; d < launch.dimensions - 1; ++d) {
    const uint32_t quotient = launch.divisors[d].divide(index);
    add(d, index - quotient * launch.divisors[d].divisor);
    index = quotient;
  }
  add(launch.dimensions - 1, index);
}

// Replaces z by act(z) * gate in a packet. Ignores an absent gate.
template <class Element, int Count, class F>
__device__ __forceinline__ void evaluate_fused(const F& form, const OpMath<Element> (&scale)[Count],
                                               const OpMath<Element> (&bias)[Count],
                                               const OpMath<Element> (&residual)[Count],
                                               const OpMath<Element> (&gate)[Count], bool gated,
                                               OpMath<Element> (&z)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    const OpMath<Element> preactivation = fused_preactivation(z[i], scale[i], bias[i], residual[i]);
    const OpMath<Element> value = fused_value<Element>(form.act, preactivation);
    z[i] = gated ? fused_product<typename F::Activation, Element>(preactivation, value, gate[i])
                 : value;
  }
}

// The kernel for any shape and strides. F is the activation's D_0.
template <class F, class Element, int Count, int PacketsPerThread, uint32_t kInputs>
__global__ void __launch_bounds__(kThreads)
    fused(const F form, const uint32_t packets, const __grid_constant__ FusedLaunchData launch) {
  using T = OpMath<Element>;
  using P = Packet<Element, Count>;
  share_table<F>();
  for_each_packet<PacketsPerThread>(packets, [&](auto count, int64_t first) {
    P selves[count.value];
    P residuals[count.value];
    P gates[count.value];
    int32_t offsets[count.value][kFusedOperands];
    // Loads these first: they come from memory, whereas scale and bias are usually cached.
#pragma unroll
    for (int p = 0; p < count.value; ++p) {
      fused_offsets<kInputs>(launch, static_cast<uint32_t>(first) + p * kThreads, offsets[p]);
      const auto load = [&](FusedInput input, P& to) {
        const int j = 1 + static_cast<int>(input);
        load_elements(launch.data[j] + offsets[p][j], contains(launch.repeated, input), to);
      };
      load(FusedInput::kSelf, selves[p]);
      if (has<kInputs>(launch, FusedInput::kResidual)) load(FusedInput::kResidual, residuals[p]);
      if (has<kInputs>(launch, FusedInput::kGate)) load(FusedInput::kGate, gates[p]);
    }
#pragma unroll
    for (int p = 0; p < count.value; ++p) {
      T z[Count];
      T scale[Count];
      T bias[Count];
      T residual[Count];
      T gate[Count];
#pragma unroll
      for (int i = 0; i < Count; ++i) {
        scale[i] = T{1};
        bias[i] = T{-0.0};
        residual[i] = T{-0.0};
        gate[i] = T{1};
      }
      const auto load = [&](FusedInput input, T(&to)[Count]) {
        const int j = 1 + static_cast<int>(input);
        load_numbers<Element>(launch.data[j] + offsets[p][j], contains(launch.float32, input),
                              contains(launch.repeated, input), to);
      };
      if (has<kInputs>(launch, FusedInput::kScale)) load(FusedInput::kScale, scale);
      if (has<kInputs>(launch, FusedInput::kBias)) load(FusedInput::kBias, bias);
      if (has<kInputs>(launch, FusedInput::kResidual)) widen_packet(residuals[p], residual);
      if (has<kInputs>(launch, FusedInput::kGate)) widen_packet(gates[p], gate);
      widen_packet(selves[p], z);
      evaluate_fused<Element>(form, scale, bias, residual, gate,
                              has<kInputs>(launch, FusedInput::kGate), z);
      P result;
      round_packet(z, result);
      *reinterpret_cast<P*>(launch.data[0] + offsets[p][0]) = result;
    }
  });
}

struct FusedRunLaunchData {
  char* data[kFusedOperands];  // except scale and bias
  FusedVectors vectors;
  uint32_t size;
  // `threads` threads share `packets` packets. The packets of a thread are `threads` apart.
  FastDivisor threads;
  uint32_t packets;
};

// The kernel for contiguous tensors. All packets of a thread share the same scale and bias, which
// the thread loads once.
template <class F, class Element, int Count, int PacketsPerThread, bool kVectorsAlone>
__global__ void __launch_bounds__(kThreads)
    fused_run(const F form, const __grid_constant__ FusedRunLaunchData launch) {
  using T = OpMath<Element>;
  using P = Packet<Element, Count>;
  constexpr int kSelf = 1 + static_cast<int>(FusedInput::kSelf);
  constexpr int kResidual = 1 + static_cast<int>(FusedInput::kResidual);
  constexpr int kGate = 1 + static_cast<int>(FusedInput::kGate);
  const bool adds = !kVectorsAlone && launch.data[kResidual] != nullptr;
  const bool gated = !kVectorsAlone && launch.data[kGate] != nullptr;
  const uint32_t packets = launch.size / Count;
  const uint32_t apart = launch.threads.divisor;
  const uint32_t thread = blockIdx.x * kThreads + threadIdx.x;
  const uint32_t group = launch.threads.divide(thread);
  const uint32_t place = thread - group * apart;
  const uint32_t first = group * launch.packets + place;
  const auto is_there = [&](int p) {
    return place + p * apart < launch.packets && first + p * apart < packets;
  };
  P selves[PacketsPerThread];
  P residuals[PacketsPerThread];
  P gates[PacketsPerThread];
  const auto load = [&](int operand, P(&to)[PacketsPerThread]) {
#pragma unroll
    for (int p = 0; p < PacketsPerThread; ++p)
      if (is_there(p)) to[p] = reinterpret_cast<const P*>(launch.data[operand])[first + p * apart];
  };
  load(kSelf, selves);
  if (adds) load(kResidual, residuals);
  if (gated) load(kGate, gates);
  T scale[Count];
  T bias[Count];
  if (is_there(0)) load_vectors<Element>(launch.vectors, first * Count, scale, bias);
  share_table<F>();  // while the loads are in flight
#pragma unroll
  for (int p = 0; p < PacketsPerThread; ++p) {
    if (!is_there(p)) break;
    T z[Count];
    T residual[Count];
    T gate[Count];
#pragma unroll
    for (int i = 0; i < Count; ++i) {
      residual[i] = T{-0.0};
      gate[i] = T{1};
    }
    if (adds) widen_packet(residuals[p], residual);
    if (gated) widen_packet(gates[p], gate);
    widen_packet(selves[p], z);
    evaluate_fused<Element>(form, scale, bias, residual, gate, gated, z);
    P result;
    round_packet(z, result);
    reinterpret_cast<P*>(launch.data[0])[first + p * apart] = result;
  }
  // The elements after the last packet.
  if (blockIdx.x == 0 && threadIdx.x < launch.size % Count) {
    const uint32_t element = packets * Count + threadIdx.x;
    const auto number = [&](int operand, T absent, T(&to)[1]) {
      to[0] = absent;
      if (launch.data[operand] == nullptr) return;
      widen_packet(reinterpret_cast<const Packet<Element, 1>*>(launch.data[operand])[element], to);
    };
    T z[1];
    T one_scale[1];
    T one_bias[1];
    T residual[1];
    T gate[1];
    number(kSelf, T{0}, z);
    number(kResidual, T{-0.0}, residual);
    number(kGate, T{1}, gate);
    load_vectors<Element>(launch.vectors, element, one_scale, one_bias);
    evaluate_fused<Element>(form, one_scale, one_bias, residual, gate, gated, z);
    Packet<Element, 1> result;
    round_packet(z, result);
    reinterpret_cast<Packet<Element, 1>*>(launch.data[0])[element] = result;
  }
}

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
    const uint32_t beside_self = operands.inputs.bits & ~kFusedSelf;
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

  // Returns true if scale and bias vary along one dimension or are single elements, and all other
  // operands are contiguous and aligned. Then sets the launch's data, except how its threads share
  // the packets.
  static bool is_contiguous(const FusedOperands& operands, FusedRunLaunchData& run) {
    constexpr int kVectors[] = {1 + static_cast<int>(FusedInput::kScale),
                                1 + static_cast<int>(FusedInput::kBias)};
    run = {};
    for (int i = 0; i < kFusedOperands; ++i) {
      if (operands.data[i] == nullptr || i == kVectors[0] || i == kVectors[1]) continue;
      if (reinterpret_cast<uintptr_t>(operands.data[i]) % kPacketBytes != 0) return false;
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
    if (operands.shape[0] % kCount != 0) return false;
    for (int i = 0; i < kFusedOperands; ++i) {
      if (operands.data[i] == nullptr) continue;
      if (i > 1 && operands.strides[i][0] == 0) continue;
      if (operands.strides[i][0] != size_of(operands, i)) return false;
      if (reinterpret_cast<uintptr_t>(operands.data[i]) % kPacketBytes != 0) return false;
      for (int d = 1; d < operands.dimensions; ++d) {
        if (operands.strides[i][d] % kPacketBytes != 0) return false;
      }
    }
    return true;
  }

  template <int Count, int PacketsPerThread, uint32_t kInputs>
  static void launch(const F& form, const FusedOperands& operands, cudaStream_t stream) {
    FusedLaunchData launch = {};
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
