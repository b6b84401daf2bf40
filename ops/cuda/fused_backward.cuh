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
