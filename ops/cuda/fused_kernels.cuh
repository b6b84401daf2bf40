// The kernels of fused.cuh.
#pragma once

#include <cstdint>

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
  char* preactivation;  // z, with the strides of operand 0. Null: not wanted
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

// Replaces self by z in a packet.
template <int Count, class T>
__device__ __forceinline__ void make_preactivation(const T (&scale)[Count], const T (&bias)[Count],
                                                   const T (&residual)[Count], T (&z)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) z[i] = fused_preactivation(z[i], scale[i], bias[i], residual[i]);
}

// Replaces z by f(z) * gate in a packet. Ignores an absent gate.
template <class Element, int Count, class F>
__device__ __forceinline__ void evaluate_fused(const F& form, const OpMath<Element> (&gate)[Count],
                                               bool gated, OpMath<Element> (&z)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    const OpMath<Element> value = fused_value<Element>(form.act, z[i]);
    z[i] = gated ? fused_product<typename F::Activation, Element>(z[i], value, gate[i]) : value;
  }
}

// Rounds a packet of compute values and stores it.
template <class Element, int Count>
__device__ __forceinline__ void store_numbers(const OpMath<Element> (&numbers)[Count],
                                              Packet<Element, Count>* to) {
  Packet<Element, Count> packet;
  round_packet(numbers, packet);
  *to = packet;
}

// The kernel for any shape and strides. F is the activation's D_0. Writes z only if kInputs is
// kAnyInputs.
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
      make_preactivation(scale, bias, residual, z);
      if (kInputs == kAnyInputs && launch.preactivation != nullptr)
        store_numbers<Element>(z, reinterpret_cast<P*>(launch.preactivation + offsets[p][0]));
      evaluate_fused<Element>(form, gate, has<kInputs>(launch, FusedInput::kGate), z);
      store_numbers<Element>(z, reinterpret_cast<P*>(launch.data[0] + offsets[p][0]));
    }
  });
}

struct FusedRunLaunchData {
  char* data[kFusedOperands];  // except scale and bias
  char* preactivation;         // z. Null: not wanted
  FusedVectors vectors;
  uint32_t size;
  // `threads` threads share `packets` packets. The packets of a thread are `threads` apart.
  FastDivisor threads;
  uint32_t packets;
};

// The kernel for contiguous tensors. All packets of a thread share the same scale and bias, which
// the thread loads once. With kVectorsAlone, there is neither a residual nor a gate, and z is not
// written.
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
  const bool writes_preactivation = !kVectorsAlone && launch.preactivation != nullptr;
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
    make_preactivation(scale, bias, residual, z);
    const auto store = [&](char* operand) {
      store_numbers<Element>(z, &reinterpret_cast<P*>(operand)[first + p * apart]);
    };
    if (writes_preactivation) store(launch.preactivation);
    evaluate_fused<Element>(form, gate, gated, z);
    store(launch.data[0]);
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
    make_preactivation(one_scale, one_bias, residual, z);
    const auto store = [&](char* operand) {
      store_numbers<Element>(z, &reinterpret_cast<Packet<Element, 1>*>(operand)[element]);
    };
    if (writes_preactivation) store(launch.preactivation);
    evaluate_fused<Element>(form, gate, gated, z);
    store(launch.data[0]);
  }
}

}  // namespace fastact::cuda
