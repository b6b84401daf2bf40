// The fused form on the GPU (ops/forms/fused.h): one kernel for any shape and strides, which moves
// packets along the innermost dimension where that allows it, else single elements.
#pragma once

#include <cstdint>

#include "ops/cuda/engine.h"
#include "ops/cuda/packet.cuh"
#include "ops/cuda/strided.cuh"
#include "ops/cuda/tuning.h"
#include "ops/forms/fused.h"

namespace fastact::cuda {

// Which inputs a kernel has, where that is known when it is compiled; else the launch says it.
inline constexpr uint32_t kAnyInputs = ~uint32_t{0};

// Self alone, and the most frequent sets beside it.
inline constexpr uint32_t kFusedSelf = FusedSet::of(FusedInput::kSelf).bits;
inline constexpr uint32_t kFusedBias = FusedSet::of(FusedInput::kBias).bits;
inline constexpr uint32_t kFusedScaleAndBias = FusedSet::of(FusedInput::kScale).bits | kFusedBias;
inline constexpr uint32_t kFusedResidual = FusedSet::of(FusedInput::kResidual).bits;
inline constexpr uint32_t kFusedGate = FusedSet::of(FusedInput::kGate).bits;

struct FusedLaunchData {
  char* data[kFusedOperands];
  FusedSet inputs;
  // Which inputs are float beside 16-bit elements, and which have one element along the innermost
  // dimension.
  FusedSet wide;
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

// The byte offset of packet `index` in the output and in each input of the set.
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

// Count elements, or one for all of them.
template <class Element, int Count>
__device__ __forceinline__ void load_elements(const char* from, bool repeated,
                                              Packet<Element, Count>& to) {
  if (Count > 1 && repeated) {
    const Element element = *reinterpret_cast<const Element*>(from);
#pragma unroll
    for (int i = 0; i < Count; ++i) to.elements[i] = element;
  } else {
    to = *reinterpret_cast<const Packet<Element, Count>*>(from);
  }
}

// The same as numbers, for scale and bias.
template <class Element, int Count>
__device__ __forceinline__ void load_numbers(const char* from, bool wide, bool repeated,
                                             OpMath<Element> (&to)[Count]) {
  if constexpr (kIs16Bit<Element>) {
    if (wide) {
      // Two accesses of 16 bytes for a packet of 8.
      constexpr int kPart = Count > 4 ? 4 : Count;
      if (Count > 1 && repeated) {
        const float number = *reinterpret_cast<const float*>(from);
#pragma unroll
        for (int i = 0; i < Count; ++i) to[i] = number;
      } else {
#pragma unroll
        for (int i = 0; i < Count; i += kPart) {
          const auto part =
              *reinterpret_cast<const Packet<float, kPart>*>(from + i * sizeof(float));
#pragma unroll
          for (int j = 0; j < kPart; ++j) to[i + j] = part.elements[j];
        }
      }
      return;
    }
  }
  Packet<Element, Count> packet;
  load_elements(from, repeated, packet);
  widen_packet(packet, to);
}

// F is the activation's D_0.
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
    // These first, as they come from memory, where scale and bias mostly come from a cache.
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
        load_numbers<Element>(launch.data[j] + offsets[p][j], contains(launch.wide, input),
                              contains(launch.repeated, input), to);
      };
      if (has<kInputs>(launch, FusedInput::kScale)) load(FusedInput::kScale, scale);
      if (has<kInputs>(launch, FusedInput::kBias)) load(FusedInput::kBias, bias);
      if (has<kInputs>(launch, FusedInput::kResidual)) widen_packet(residuals[p], residual);
      if (has<kInputs>(launch, FusedInput::kGate)) widen_packet(gates[p], gate);
      widen_packet(selves[p], z);
#pragma unroll
      for (int i = 0; i < Count; ++i) {
        const T argument = fused_argument(z[i], scale[i], bias[i], residual[i]);
        const T value = fused_value<Element>(form.act, argument);
        z[i] = has<kInputs>(launch, FusedInput::kGate)
                   ? fused_product<Element>(argument, value, gate[i])
                   : value;
      }
      P result;
      round_packet(z, result);
      *reinterpret_cast<P*>(launch.data[0] + offsets[p][0]) = result;
    }
  });
}

// F is the activation's D_0 in the type.
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
    if (moves_in_packets(operands)) {
      const uint32_t without_self = operands.inputs.bits & ~kFusedSelf;
      switch (without_self) {
        case kFusedBias:
          launch<kCount, 2, kFusedBias>(form, operands, stream);
          break;
        case kFusedScaleAndBias:
          launch<kCount, 2, kFusedScaleAndBias>(form, operands, stream);
          break;
        case kFusedResidual:
          launch<kCount, 1, kFusedResidual>(form, operands, stream);
          break;
        case kFusedGate:
          launch<kCount, 1, kFusedGate>(form, operands, stream);
          break;
        default:
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
    return i > 0 && operands.wide.has(static_cast<FusedInput>(i - 1)) ? int64_t{sizeof(float)}
                                                                      : kSize;
  }

  // Whether rows are whole packets that are aligned in every operand, or one element is the same
  // all along a row of an input other than self.
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
    launch.wide = operands.wide;
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

// The kernels of an activation by type.
template <class A>
constexpr FusedTable make_fused_table() {
  FusedTable table;
  const auto fill = [&]<class Element>(DType dtype) {
    table.kernels[static_cast<int>(dtype)] =
        &FusedLaunch<Derivative<A, Element, 0, false>, Element>::run;
  };
  fill.template operator()<float>(DType::kFloat32);
  fill.template operator()<double>(DType::kFloat64);
  fill.template operator()<BFloat16>(DType::kBFloat16);
  fill.template operator()<Float16>(DType::kFloat16);
  return table;
}

}  // namespace fastact::cuda
