// What the kernels of fused_backward.cuh share: the description of a launch, the sums of a tile or
// a warp, and the gradients of an element.
#pragma once

#include <cstdint>

#include "ops/cuda/engine.h"
#include "ops/cuda/fused_vectors.cuh"
#include "ops/cuda/packet.cuh"
#include "ops/cuda/tuning.h"
#include "ops/forms/fused.h"

namespace fastact::cuda {

struct FusedBackwardLaunchData {
  static constexpr auto kKind = FusedBackwardKind::kAny;

  char* data[kFusedBackwardOperands];
  // Row r begins at r / channels and r % channels times these strides.
  int64_t outer_strides[kFusedBackwardOperands];
  int64_t channel_strides[kFusedBackwardOperands];
  FastDivisor channels;
  bool alike;  // all strides are equal
  FusedVectors vectors;
  bool same_vectors;  // for all packets of a thread
  // Sizes of the tensors and of a tile.
  uint32_t rows;
  uint32_t columns;
  uint32_t tile_rows;
  uint32_t tile_columns;
  FastDivisor tiles_across;
  FastDivisor packets_across;  // of a tile
  // The terms in a tile are divided into units. In a unit of columns, every `chains`th term from
  // one of the first terms on belongs to one sum. Otherwise a unit is one sum in lanes.
  uint32_t unit;
  FastDivisor chains;
  bool in_lanes;
  uint32_t threads_of_unit;
  // Distances from a partial sum to that of the tile below, of the tile beside, and of the next
  // unit.
  uint32_t sums_down;
  uint32_t sums_across;
  uint32_t sums_of_unit;
};

inline constexpr int kWarp = 32;
inline constexpr unsigned kWholeWarp = 0xffffffffu;

// Returns the index in shared memory of term i of a tile. A few places are skipped after each 32,
// because chains may begin 32 apart. Their number keeps packets aligned.
inline constexpr int kFusedLeftOut = 4;
__device__ __forceinline__ uint32_t place_in_shared(uint32_t i) {
  return i + i / 32 * kFusedLeftOut;
}
// Includes the elements of a packet that extend beyond the tile.
inline constexpr int kFusedTileInShared = (kFusedTile + 32) / 32 * (32 + kFusedLeftOut);

// Writes compute values to an address that is aligned to 16 bytes.
template <class T, int Count>
__device__ __forceinline__ void put_numbers(const T (&numbers)[Count], T* to) {
  constexpr int kAtOnce = kPacketBytes / static_cast<int>(sizeof(T));
  constexpr int kPart = Count < kAtOnce ? Count : kAtOnce;
#pragma unroll
  for (int i = 0; i < Count; i += kPart) {
    Packet<T, kPart> part;
#pragma unroll
    for (int j = 0; j < kPart; ++j) part.elements[j] = numbers[i + j];
    *reinterpret_cast<Packet<T, kPart>*>(to + i) = part;
  }
}

// Adds the columns of a tile.
template <class T>
__device__ __forceinline__ void add_columns(const FusedBackwardLaunchData& launch, int64_t place,
                                            uint32_t numbers, uint32_t columns,
                                            const T* scale_numbers, T* scale_sums,
                                            const T* bias_numbers, T* bias_sums) {
  const uint32_t chains = launch.chains.divisor;
  const uint32_t of_one = (numbers + launch.unit - 1) / launch.unit * chains;
  const uint32_t of_scale = scale_sums != nullptr ? of_one : 0;
  const uint32_t all = of_scale + (bias_sums != nullptr ? of_one : 0);
  for (uint32_t thread = threadIdx.x; thread < all; thread += kThreads) {
    const bool is_scale = thread < of_scale;
    const uint32_t chain = is_scale ? thread : thread - of_scale;
    const uint32_t unit = launch.chains.divide(chain);
    const uint32_t own = chain - unit * chains;
    if (own >= columns) continue;
    const T* const from = is_scale ? scale_numbers : bias_numbers;
    const uint32_t begin = unit * launch.unit;
    const uint32_t end = min(begin + launch.unit, numbers);
    T sum = 0;
#pragma unroll 4
    for (uint32_t i = begin + own; i < end; i += chains) sum += from[place_in_shared(i)];
    (is_scale ? scale_sums : bias_sums)[place + int64_t{unit} * launch.sums_of_unit + own] = sum;
  }
}

// Adds the units of a tile in lanes. A thread adds kLanesOfThread of the lanes that have terms.
inline constexpr uint32_t kLanesOfThread = kSumLanes / kWarp;
template <class T>
__device__ __forceinline__ void add_lanes(const FusedBackwardLaunchData& launch, int64_t place,
                                          uint32_t numbers, const T* scale_numbers, T* scale_sums,
                                          const T* bias_numbers, T* bias_sums) {
  const uint32_t units = (numbers + launch.unit - 1) / launch.unit;
  const uint32_t of_scale = scale_sums != nullptr ? units : 0;
  const uint32_t all = of_scale + (bias_sums != nullptr ? units : 0);
  const uint32_t threads = launch.threads_of_unit;  // a power of two
  const uint32_t thread = threadIdx.x % threads;
  // Threads without a unit take part, because a whole warp adds together.
  for (uint32_t first = 0; first < all; first += kThreads / threads) {
    const uint32_t index = first + threadIdx.x / threads;
    const bool is_scale = index < of_scale;
    const uint32_t unit = is_scale ? index : index - of_scale;
    const T* const from = is_scale ? scale_numbers : bias_numbers;
    const uint32_t begin = unit * launch.unit;
    const uint32_t end = index < all ? min(begin + launch.unit, numbers) : begin;
    T lanes[kLanesOfThread] = {};
    for (uint32_t start = begin; start < end; start += threads * kLanesOfThread) {
#pragma unroll
      for (uint32_t i = 0; i < kLanesOfThread; ++i) {
        const uint32_t number = start + i * threads + thread;
        if (number < end) lanes[i] += from[place_in_shared(number)];
      }
    }
#pragma unroll
    for (uint32_t half = kLanesOfThread / 2; half > 0; half /= 2) {
#pragma unroll
      for (uint32_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    }
    for (uint32_t half = threads / 2; half > 0; half /= 2)
      lanes[0] += __shfl_xor_sync(kWholeWarp, lanes[0], static_cast<int>(half));
    if (thread == 0 && index < all) (is_scale ? scale_sums : bias_sums)[place + unit] = lanes[0];
  }
}

// Returns the sum of a warp's values in lanes. Value i of thread t is in lane t * Count + i.
template <class T, int Count>
__device__ __forceinline__ T sum_of_lanes(T (&lanes)[Count]) {
  const uint32_t thread = threadIdx.x % kWarp;
  int apart = kWarp / 2;
  // If the lanes of two threads have to be added, each thread adds half of them.
#pragma unroll
  for (int half = Count / 2; half > 0; half /= 2, apart /= 2) {
    const bool takes_upper = (thread & apart) != 0;
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const T given = takes_upper ? lanes[i] : lanes[i + half];
      const T kept = takes_upper ? lanes[i + half] : lanes[i];
      lanes[i] = kept + __shfl_xor_sync(kWholeWarp, given, apart);
    }
  }
  T sum = lanes[0];
#pragma unroll
  for (; apart > 0; apart /= 2) sum += __shfl_xor_sync(kWholeWarp, sum, apart);
  // The remaining lanes belong to one thread. They were distributed above.
#pragma unroll
  for (apart = kWarp / 2; apart > kWarp / 2 / Count; apart /= 2)
    sum += __shfl_xor_sync(kWholeWarp, sum, apart);
  return sum;
}

// Value and Slope are the activation's D_0 and D_1 in the GradientElement.
template <class ValueForm, class SlopeForm, class ElementType, int PacketElements>
struct FusedGradients {
  using Value = ValueForm;
  using Slope = SlopeForm;
  using Element = ElementType;
  using Activation = typename Value::Activation;
  using Precision = GradientElement<Activation, Element>;
  using T = OpMath<Element>;
  static constexpr int kCount = PacketElements;
  using P = Packet<Element, kCount>;
  // Elements computed one after the other, because registers are scarce.
  static constexpr int kPart = kCount < 4 ? kCount : 4;
  static constexpr int kSelf = kFusedInputOperand<FusedInput::kSelf>;
  static constexpr int kResidual = kFusedInputOperand<FusedInput::kResidual>;
  static constexpr int kGate = kFusedInputOperand<FusedInput::kGate>;
  static constexpr int kScale = kFusedInputOperand<FusedInput::kScale>;
  static constexpr int kBias = kFusedInputOperand<FusedInput::kBias>;
  static constexpr int kOfSelf = kFusedGradientOperand<FusedInput::kSelf>;
  static constexpr int kOfScale = kFusedGradientOperand<FusedInput::kScale>;
  static constexpr int kOfBias = kFusedGradientOperand<FusedInput::kBias>;
  static constexpr int kOfResidual = kFusedGradientOperand<FusedInput::kResidual>;
  static constexpr int kOfGate = kFusedGradientOperand<FusedInput::kGate>;

  // One packet of each operand.
  struct Operands {
    P incoming;
    P self;
    P residual;
    P gate;
  };

  Value value_form;
  Slope slope_form;

  template <class Launch>
  __device__ static bool has(const Launch& launch, int operand) {
    const bool is_of_vector =
        operand == kScale || operand == kBias || operand == kOfScale || operand == kOfBias;
    const bool is_other =
        operand == kResidual || operand == kGate || operand == kOfResidual || operand == kOfGate;
    if (Launch::kKind == FusedBackwardKind::kVectors && is_other) return false;
    if (Launch::kKind == FusedBackwardKind::kOthers && is_of_vector) return false;
    return launch.data[operand] != nullptr;
  }

  // address(operand) returns the address of the operand's packet.
  template <class Launch, class Address>
  __device__ __forceinline__ static void load(const Launch& launch, const Address& address,
                                              Operands& operands) {
    const auto at = [&](int operand) { return *reinterpret_cast<const P*>(address(operand)); };
    operands.incoming = at(0);
    operands.self = at(kSelf);
    if (has(launch, kResidual)) operands.residual = at(kResidual);
    if (has(launch, kGate)) operands.gate = at(kGate);
  }

  // Writes the gradients of self, residual and gate. Passes the terms of the sums for bias and
  // scale, `slope` and slope times self, to add(), kPart terms at a time, from element `first` of
  // the packet on.
  template <class Launch, class Address, class Add>
  __device__ __forceinline__ void write(const Launch& launch, bool needs_slope,
                                        const Address& address, const Operands& operands,
                                        const T (&scale)[kCount], const T (&bias)[kCount],
                                        const Add& add) const {
    P of_self;
    P of_residual;
    P of_gate;
#pragma unroll
    for (int first = 0; first < kCount; first += kPart) {
      T z[kPart];  // or f(z), if the slope is a function of it
      T g[kPart];
      T self[kPart];
      T numbers[kPart];
      widen_packet(part_of(operands.self, first), self);
#pragma unroll
      for (int i = 0; i < kPart; ++i) numbers[i] = T{-0.0};
      if (has(launch, kResidual)) widen_packet(part_of(operands.residual, first), numbers);
#pragma unroll
      for (int i = 0; i < kPart; ++i)
        z[i] = fused_preactivation(self[i], scale[first + i], bias[first + i], numbers[i]);
      widen_packet(part_of(operands.incoming, first), g);
      if (!kSlopeOfPreactivation<Activation> || has(launch, kOfGate)) {
#pragma unroll
        for (int i = 0; i < kPart; ++i) {
          const T value = fused_value<Precision>(value_form.act, z[i]);
          numbers[i] = fused_product<Activation, Precision>(z[i], value, g[i]);
          if constexpr (!kSlopeOfPreactivation<Activation>) z[i] = value;
        }
        if (has(launch, kOfGate)) put_part(numbers, first, of_gate);
      }
      if (!needs_slope) continue;
      if (has(launch, kGate)) {
        widen_packet(part_of(operands.gate, first), numbers);
#pragma unroll
        for (int i = 0; i < kPart; ++i) g[i] *= numbers[i];
      }
      T slope[kPart];
#pragma unroll
      for (int i = 0; i < kPart; ++i)
        slope[i] = number_of<Precision>(slope_form.evaluate(g[i], z[i]));
      if (has(launch, kOfResidual)) put_part(slope, first, of_residual);
#pragma unroll
      for (int i = 0; i < kPart; ++i) numbers[i] = slope[i] * scale[first + i];
      put_part(numbers, first, of_self);
#pragma unroll
      for (int i = 0; i < kPart; ++i) numbers[i] = slope[i] * self[i];
      add(first, slope, numbers);
    }
    const auto store = [&](int operand, const P& gradient) {
      if (has(launch, operand)) *reinterpret_cast<P*>(address(operand)) = gradient;
    };
    store(kOfGate, of_gate);
    if (!needs_slope) return;
    store(kOfResidual, of_residual);
    store(kOfSelf, of_self);
  }

 private:
  using Part = Packet<Element, kPart>;

  __device__ __forceinline__ static Part part_of(const P& packet, int first) {
    Part part;
#pragma unroll
    for (int i = 0; i < kPart; ++i) part.elements[i] = packet.elements[first + i];
    return part;
  }
  __device__ __forceinline__ static void put_part(const T (&numbers)[kPart], int first, P& packet) {
    Part part;
    round_packet(numbers, part);
#pragma unroll
    for (int i = 0; i < kPart; ++i) packet.elements[first + i] = part.elements[i];
  }
};

}  // namespace fastact::cuda
