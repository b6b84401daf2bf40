// The fused form's gradients on the GPU, with the CPU's bits (ops/cpu/fused.h): z is computed
// again, and a pass over memory writes the gradients of self, residual and gate, and partial sums
// for scale and bias. fused_sums.cu adds these.
//
// A block takes a tile. What a tile gives to sums goes to shared memory, from where a thread adds a
// chain of it, in the order of kernel.h.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/cuda/engine.h"
#include "ops/cuda/fused_vectors.cuh"
#include "ops/cuda/packet.cuh"
#include "ops/cuda/tuning.h"
#include "ops/forms/fused.h"

namespace fastact::cuda {

struct FusedBackwardLaunchData {
  char* data[kFusedBackwardOperands];
  // Row r begins at r / channels and r % channels of these.
  int64_t outer_strides[kFusedBackwardOperands];
  int64_t channel_strides[kFusedBackwardOperands];
  FastDivisor channels;
  bool alike;  // all strides
  FusedVectors vectors;
  bool same_vectors;  // for all packets of a thread
  // Of the tensors, and of a tile.
  uint32_t rows;
  uint32_t columns;
  uint32_t tile_rows;
  uint32_t tile_columns;
  FastDivisor tiles_across;
  FastDivisor packets_across;  // of a tile
  // A tile's numbers are in units; in each, every `chains`th one from one of its first ones on is a
  // chain. A unit's chains are sums, or lanes of one.
  uint32_t unit;
  FastDivisor chains;
  bool in_lanes;
  // From a partial sum to that of the tile below, of the tile beside, and of the next unit.
  uint32_t sums_down;
  uint32_t sums_across;
  uint32_t sums_of_unit;
};

// Where number i of a tile is in shared memory: a few are left out after each 32, as chains may
// begin so many apart, and as many as keep packets aligned.
inline constexpr int kFusedLeftOut = 4;
__device__ __forceinline__ uint32_t place_in_shared(uint32_t i) {
  return i + i / 32 * kFusedLeftOut;
}
// With a packet's elements that lie behind the tile.
inline constexpr int kFusedTileInShared = (kFusedTile + 32) / 32 * (32 + kFusedLeftOut);

// To where 16 bytes are aligned.
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

template <class Element, int Count>
__device__ __forceinline__ void store_numbers(const OpMath<Element> (&numbers)[Count], char* to) {
  Packet<Element, Count> packet;
  round_packet(numbers, packet);
  *reinterpret_cast<Packet<Element, Count>*>(to) = packet;
}

// The sums of a tile's chains. Of lanes a thread adds its own, and these are added by halves.
template <class T>
__device__ __forceinline__ void add_chains(const FusedBackwardLaunchData& launch, uint32_t down,
                                           uint32_t across, uint32_t numbers, uint32_t columns,
                                           const T* scale_numbers, T* scale_sums,
                                           const T* bias_numbers, T* bias_sums) {
  const uint32_t chains = launch.chains.divisor;
  const uint32_t of_one = (numbers + launch.unit - 1) / launch.unit * chains;
  const uint32_t of_scale = scale_sums != nullptr ? of_one : 0;
  const uint32_t all = of_scale + (bias_sums != nullptr ? of_one : 0);
  for (uint32_t start = 0; start < all; start += kThreads) {
    const uint32_t thread = start + threadIdx.x;
    const bool is_scale = thread < of_scale;
    const uint32_t chain = is_scale ? thread : thread - of_scale;
    const uint32_t unit = launch.chains.divide(chain);
    const uint32_t own = chain - unit * chains;
    T sum = 0;
    if (thread < all) {
      const T* const from = is_scale ? scale_numbers : bias_numbers;
      const uint32_t begin = unit * launch.unit;
      const uint32_t end = begin + launch.unit < numbers ? begin + launch.unit : numbers;
#pragma unroll 4
      for (uint32_t i = begin + own; i < end; i += chains) sum += from[place_in_shared(i)];
    }
    bool is_sum = thread < all;
    if (launch.in_lanes) {
#pragma unroll
      for (int half = kSumLanes / 2; half > 0; half /= 2)
        sum += __shfl_down_sync(0xffffffffu, sum, half, kSumLanes);
      is_sum &= own == 0;
    } else {
      is_sum &= own < columns;
    }
    if (!is_sum) continue;
    const int64_t place = int64_t{down} * launch.sums_down + int64_t{across} * launch.sums_across +
                          int64_t{unit} * launch.sums_of_unit + own;
    (is_scale ? scale_sums : bias_sums)[place] = sum;
  }
}

// Value and Slope are D_0 and D_1 of numbers.
template <class ValueForm, class SlopeForm, class ElementType, int PacketElements>
struct FusedGradients {
  using Value = ValueForm;
  using Slope = SlopeForm;
  using Element = ElementType;
  using T = OpMath<Element>;
  static constexpr int kCount = PacketElements;
  using P = Packet<Element, kCount>;
  static constexpr bool kSlopeOfValue = Slope::Activation::kTraits.saves == Saves::kOutput;
  static constexpr int kSelf = kFusedInputOperand<FusedInput::kSelf>;
  static constexpr int kResidual = kFusedInputOperand<FusedInput::kResidual>;
  static constexpr int kGate = kFusedInputOperand<FusedInput::kGate>;
  static constexpr int kOfSelf = kFusedGradientOperand<FusedInput::kSelf>;
  static constexpr int kOfScale = kFusedGradientOperand<FusedInput::kScale>;
  static constexpr int kOfBias = kFusedGradientOperand<FusedInput::kBias>;
  static constexpr int kOfResidual = kFusedGradientOperand<FusedInput::kResidual>;
  static constexpr int kOfGate = kFusedGradientOperand<FusedInput::kGate>;

  // A packet of each.
  struct Operands {
    P incoming;
    P self;
    P residual;
    P gate;
  };

  Value value_form;
  Slope slope_form;

  __device__ static bool has(const FusedBackwardLaunchData& launch, int operand) {
    return launch.data[operand] != nullptr;
  }

  // address(operand): where a packet of it lies.
  template <class Address>
  __device__ __forceinline__ static void load(const FusedBackwardLaunchData& launch,
                                              const Address& address, Operands& operands) {
    const auto at = [&](int operand) { return *reinterpret_cast<const P*>(address(operand)); };
    operands.incoming = at(0);
    operands.self = at(kSelf);
    if (has(launch, kResidual)) operands.residual = at(kResidual);
    if (has(launch, kGate)) operands.gate = at(kGate);
  }

  // Writes the gradients of self, residual and gate. `slope` and `self` are numbers, for sums.
  template <class Address>
  __device__ __forceinline__ void write(const FusedBackwardLaunchData& launch, bool needs_slope,
                                        const Address& address, const Operands& operands,
                                        const T (&scale)[kCount], const T (&bias)[kCount],
                                        T (&slope)[kCount], T (&self)[kCount]) const {
    T z[kCount];  // where kSlopeOfValue, f(z)
    T g[kCount];
    T numbers[kCount];
    widen_packet(operands.self, self);
#pragma unroll
    for (int i = 0; i < kCount; ++i) numbers[i] = T{-0.0};
    if (has(launch, kResidual)) widen_packet(operands.residual, numbers);
#pragma unroll
    for (int i = 0; i < kCount; ++i) z[i] = fused_argument(self[i], scale[i], bias[i], numbers[i]);
    widen_packet(operands.incoming, g);
    if (kSlopeOfValue || has(launch, kOfGate)) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const T value = number_of<T>(value_form.evaluate(z[i]));
        numbers[i] = g[i] * value;
        if constexpr (kSlopeOfValue) z[i] = value;
      }
      if (has(launch, kOfGate)) store_numbers<Element>(numbers, address(kOfGate));
    }
    if (!needs_slope) return;
    if (has(launch, kGate)) {
      widen_packet(operands.gate, numbers);
#pragma unroll
      for (int i = 0; i < kCount; ++i) g[i] *= numbers[i];
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) slope[i] = number_of<T>(slope_form.evaluate(g[i], z[i]));
    if (has(launch, kOfResidual)) store_numbers<Element>(slope, address(kOfResidual));
    if (!has(launch, kOfSelf)) return;
#pragma unroll
    for (int i = 0; i < kCount; ++i) numbers[i] = slope[i] * scale[i];
    store_numbers<Element>(numbers, address(kOfSelf));
  }
};

// A tile's rows are whole packets.
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
    T slope[kCount];
    T self[kCount];
    form.write(launch, needs_slope, address, operands, scale, bias, slope, self);
    const uint32_t place = place_in_shared(tile_row * launch.tile_columns + column);
    if (of_bias) put_numbers(slope, bias_numbers + place);
    if (of_scale) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) slope[i] *= self[i];
      put_numbers(slope, scale_numbers + place);
    }
  }
  if (!sums) return;
  __syncthreads();
  add_chains<T>(launch, down, across, (rows - 1) * launch.tile_columns + columns, columns,
                scale_numbers, reinterpret_cast<T*>(launch.data[G::kOfScale]), bias_numbers,
                reinterpret_cast<T*>(launch.data[G::kOfBias]));
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

// Value and Slope are D_0 and D_1 of numbers, of one activation.
template <class Value, class Slope, class Element>
struct FusedBackwardLaunch {
  static cudaError_t run(const Parameters& parameters, const FusedBackwardOperands& operands,
                         cudaStream_t stream) {
    if (operands.outer * operands.channels * operands.inner == 0) return cudaSuccess;
    if constexpr (HasDefaultForm<Value> || HasDefaultForm<Slope>) {
      // Where both have one they are of the same activation, and so of the same parameters.
      if (is_default<Value>(parameters) || is_default<Slope>(parameters)) {
        return FusedBackwardLaunch<DefaultFormOf<Value>, DefaultFormOf<Slope>, Element>::run(
            parameters, operands, stream);
      }
    }
    if (!launch<kFusedBackwardCount<Element>>(parameters, operands, stream))
      launch<1>(parameters, operands, stream);
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

  template <class F>
  static bool is_default(const Parameters& parameters) {
    if constexpr (HasDefaultForm<F>) {
      return F::is_default(parameters.values);
    } else {
      return false;
    }
  }

  // Whether an operand has the elements' type and shape.
  static bool is_tensor(const FusedBackwardOperands& operands, int i) {
    return operands.data[i] != nullptr && i != kScale && i != kBias && i != kOfScale &&
           i != kOfBias;
  }

  // Nothing, and false, where the elements do not move in packets of Count.
  template <int Count>
  static bool launch(const Parameters& parameters, const FusedBackwardOperands& operands,
                     cudaStream_t stream) {
    FusedBackwardLaunchData launch = {};
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

  // The launch's data, and of how many blocks it is: of none where a tile's rows are not whole
  // packets, aligned.
  template <int Count>
  static int64_t lay_out(const FusedBackwardOperands& operands, FusedBackwardLaunchData& launch) {
    for (int i = 0; i < kFusedBackwardOperands; ++i)
      launch.data[i] = static_cast<char*>(operands.data[i]);
    const bool in_images = operands.inner > 1;
    const bool sums = operands.data[kOfScale] != nullptr || operands.data[kOfBias] != nullptr;
    const int64_t whole = operands.channels * operands.inner;
    int64_t rows = in_images ? operands.outer * operands.channels : operands.outer;
    int64_t columns = in_images ? operands.inner : operands.channels;
    // Whether the rows are one run of memory, and all of it is aligned.
    bool is_a_run = true;
    bool starts_aligned = true;
    bool rows_aligned = true;
    launch.alike = true;
    for (int i = 0; i < kFusedBackwardOperands; ++i) {
      if (!is_tensor(operands, i)) continue;
      const int64_t outer = operands.outer > 1 ? operands.outer_strides[i] : whole * kSize;
      const int64_t channel =
          in_images && operands.channels > 1 ? operands.channel_strides[i] : operands.inner * kSize;
      launch.outer_strides[i] = operands.outer_strides[i];
      launch.channel_strides[i] = in_images ? operands.channel_strides[i] : 0;
      launch.alike &= operands.outer_strides[i] == operands.outer_strides[kSelf] &&
                      operands.channel_strides[i] == operands.channel_strides[kSelf];
      is_a_run &= outer == whole * kSize && (!in_images || channel == operands.inner * kSize);
      starts_aligned &= reinterpret_cast<uintptr_t>(operands.data[i]) % (Count * kSize) == 0;
      rows_aligned &= (operands.outer == 1 || outer % (Count * kSize) == 0) &&
                      (!in_images || operands.channels == 1 || channel % (Count * kSize) == 0);
    }
    const auto vector = [&](int i) {
      const bool wide = operands.wide.has(static_cast<FusedInput>(i - 1));
      return FusedVector{.data = static_cast<const char*>(operands.data[i]),
                         .stride = static_cast<int32_t>(wide ? sizeof(float) : kSize),
                         .wide = wide};
    };
    launch.vectors = FusedVectors(vector(kScale), vector(kBias), operands.inner, operands.channels,
                                  Count, kSize);
    launch.channels = FastDivisor(in_images ? static_cast<uint32_t>(operands.channels) : 1);

    const auto up = [](int64_t size) { return (size + Count - 1) / Count * Count; };
    int64_t tile_rows = 1;
    int64_t tile_columns = kFusedTile;
    int64_t unit = kFusedTile;
    int64_t chains = kSumLanes;
    launch.in_lanes = in_images;
    bool joins = false;  // rows of a run become one
    if (!sums) {
      joins = is_a_run;
      if (!joins) {
        tile_columns = std::min<int64_t>(up(columns), kFusedTile);
        tile_rows = std::min<int64_t>(kFusedTile / tile_columns, rows);
      }
    } else if (in_images) {
      unit = std::min<int64_t>(operands.inner, kSumBlock);
      joins = is_a_run && operands.inner <= kSumBlock;
      int64_t units = kFusedTile / unit;
      // As many as begin at a packet's boundary, if that goes.
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
      joins = is_a_run && operands.channels <= kTileWidth && operands.outer > 1;
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
    const int64_t across = up(tile_columns) / Count;
    const bool has_vectors = operands.data[kScale] != nullptr || operands.data[kBias] != nullptr;
    // In an image's channel, or where a thread's packets lie below each other.
    launch.same_vectors =
        !has_vectors || (!joins && (in_images ? tile_rows == 1 : kThreads % across == 0));
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
