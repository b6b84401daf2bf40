// How much each thread moves: constants for sizes and architectures, and choices measured for
// single activations. docs/dev/tuning.md records the experiments. Figures are for an H200 (sm_90)
// unless a comment names another GPU.
#pragma once

#include <cstdint>

#include "ops/forms/form.h"

namespace fastact::inline FASTACT_TARGET {

struct Celu;
struct Elu;
struct Gelu;
struct GeluTanh;
struct Hardshrink;
struct Hardsigmoid;
struct Hardswish;
struct Hardtanh;
struct LeakyRelu;
struct LogSigmoid;
struct Mish;
struct OrdinaryCelu;
struct OrdinaryElu;
struct OrdinaryLeakyRelu;
struct OrdinarySoftplus;
struct QuickGelu;
struct Relu;
struct Relu6;
struct Silu;
struct Softplus;
struct SoftplusOfOne;
struct Softshrink;
struct SquaredRelu;
struct Tanhshrink;

}  // namespace fastact::inline FASTACT_TARGET

namespace fastact::cuda {

// The widest access of a thread. One such load of a whole warp moves 512 bytes in one instruction.
inline constexpr int kPacketBytes = 16;

// Threads in a block. 256 threads are slower by 2 to 4 % forward, and equal backward (1.6e9
// elements).
inline constexpr int kThreads = 128;

// 16-byte packets of each input that a thread loads before it computes. SELU, bfloat16: 0.995 of
// copy speed with two, 0.902 with one.
template <int Inputs>
inline constexpr int kPacketsPerThread = Inputs == 1 ? 2 : 1;

// From this many elements on, an activation whose computation takes longer than the loads may use
// more packets per thread (kTuning). Work that a thread does once then serves more elements, and
// the thread has more to do while it waits. GELU's backward of 2^22 bfloat16 elements takes 11.9 us
// with more packets, 10.7 with one.
inline constexpr int64_t kManyPacketsElements = int64_t{1} << 23;

// Below this size, a thread takes one packet of a smooth function's input, so the multiprocessors
// have more threads to choose from. Activations with few operations gain nothing. SELU of 4 MiB of
// float32 takes 7.3 us with one packet, 7.9 with two.
inline constexpr int64_t kOnePacketBytes = int64_t{4} << 20;

// Packets of a smooth function's input that a thread moves along the rows of a large strided
// tensor. SELU of one half of a chunked tensor, 2^26 float32: 0.94 of copy speed with four, 0.88
// with one.
inline constexpr int kPacketsOfRows = 4;

// Elements per thread if operands cannot be moved in packets.
inline constexpr int kElementsPerThread = 4;

// Packets of each input that a thread of a fused launch takes if they share the same scale and
// bias: with these alone, and with a residual or a gate. SiLU of 2^26 bfloat16, H100, ms. Scale and
// bias along 2,048 channels of 7 x 7: 0.096 with four, 0.107 with two; along rows, both are equal.
// All four operands: 0.181 with one, 0.183 with two.
inline constexpr int kFusedRunPackets = 4;
inline constexpr int kFusedRunPacketsOfSeveral = 1;

// Elements per block for a fused launch's gradients. H100, SiLU of 2^26 bfloat16, ms, with scale
// and bias and a slope in 16-bit precision, along rows and along channels of 32 x 32: 0.228 and
// 0.252 with 2,048; 0.272 and 0.269 with 1,024; 0.237 and 0.250 with 4,096.
inline constexpr int kFusedTile = 2048;

// Elements that a thread takes at once. Along channels: 0.323 ms with eight, 0.366 with four.
template <class Element>
inline constexpr int kFusedBackwardCount = kPacketBytes / static_cast<int>(sizeof(Element));

// Blocks that share a multiprocessor and its registers. Along channels: 0.323 ms with seven, 0.498
// if the compiler chooses the number of registers. float32: 0.362 with eight, 0.378 with seven,
// 0.525 if the compiler chooses. float64 was not measured.
template <class Element>
inline constexpr int kFusedBackwardBlocks = sizeof(Element) == 2   ? 7
                                            : sizeof(Element) == 4 ? 8
                                                                   : 5;

// Kinds of the kernel that adds in registers, known at compile time: only scale and bias beside
// self, with all tensors laid out alike; only residual and gate; any.
enum class FusedBackwardKind : uint8_t { kVectors, kOthers, kAny };

struct FusedBackwardRunTuning {
  int blocks;   // that share a multiprocessor
  int packets;  // of 16 bytes, which a thread takes at once
};

// H100, SiLU of 2^26 elements, ms. 16-bit types, scale and bias along rows: 0.156 with six blocks
// and two packets, 0.163 with seven and two, 0.164 with six and one, 0.159 with five and two. A
// gate: 0.231 with five and two, 0.226 with six and two, 0.240 with eight and one; GELU with a gate
// needs more registers than six blocks leave. float32, scale and bias along rows and along channels
// of 32 x 32: 0.290 and 0.279 with four blocks and four packets, 0.301 and 0.285 with six and four,
// 0.294 and 0.303 with six and two. All four operands need more registers than five blocks leave.
template <class Element, FusedBackwardKind Kind>
inline constexpr FusedBackwardRunTuning kFusedBackwardRun =
    Kind == FusedBackwardKind::kAny
        ? FusedBackwardRunTuning{.blocks = 4, .packets = sizeof(Element) == 4 ? 2 : 1}
    : sizeof(Element) == 4                ? FusedBackwardRunTuning{.blocks = 4, .packets = 4}
    : Kind == FusedBackwardKind::kVectors ? FusedBackwardRunTuning{.blocks = 6, .packets = 2}
                                          : FusedBackwardRunTuning{.blocks = 5, .packets = 2};

// Rows per thread if they share the same scale and bias and nothing is summed. Not measured.
inline constexpr int kFusedBackwardRunRows = 4;
// Below these sizes, a block takes a tile: the number of elements of a channel in one image, and,
// for sums along rows, the number of columns. H100, us for 2^23 bfloat16 elements: images of 256
// elements 33.4, with tiles 38.8; images of 1,024 elements 22.8, with tiles 34.1. Smaller images,
// for which some threads of a warp have no packet, and fewer columns were not measured.
inline constexpr int64_t kFusedBackwardRunImage = 256;
inline constexpr int64_t kFusedBackwardRunColumns = 64;
// With fewer threads, which add 32 rows each, the GPU is partly idle. H100, SiLU with rows of
// 1,024, us with these threads and with tiles. 2^14 threads: 19.0 and 17.1 in bfloat16, 10.5 and
// 13.0 in float32. Half as many in float32: 10.3 and 8.1. Twice as many in bfloat16: 31.3 and 32.8.
template <class Element>
inline constexpr int64_t kFusedBackwardRunThreads = int64_t{1} << (sizeof(Element) == 4 ? 14 : 15);

// ---- By activation

struct Tuning {
  // Few operations per element. Loading the elements then determines the speed.
  bool few_operations = false;
  // Packets of each input that a thread takes at once for a large tensor: for the value of float32,
  // for the value of the 16-bit types, and for the first derivative. 0 stands for
  // kPacketsPerThread.
  int value_packets = 0;
  int value_packets_16 = 0;
  int slope_packets = 0;
};

template <class A>
inline constexpr Tuning kTuning = {};

template <>
inline constexpr Tuning kTuning<Celu> = {.slope_packets = 3};
template <>
inline constexpr Tuning kTuning<Elu> = {.slope_packets = 3};
template <>
inline constexpr Tuning kTuning<OrdinaryCelu> = {.slope_packets = 3};
template <>
inline constexpr Tuning kTuning<OrdinaryElu> = {.slope_packets = 3};
template <>
inline constexpr Tuning kTuning<Gelu> = {.value_packets = 5, .slope_packets = 5};
template <>
inline constexpr Tuning kTuning<GeluTanh> = {.value_packets = 3, .slope_packets = 4};
template <>
inline constexpr Tuning kTuning<LogSigmoid> = {.value_packets = 3, .slope_packets = 3};
template <>
inline constexpr Tuning kTuning<Mish> = {.value_packets = 3, .slope_packets = 6};
template <>
inline constexpr Tuning kTuning<OrdinarySoftplus> = {.value_packets = 3, .slope_packets = 3};
template <>
inline constexpr Tuning kTuning<QuickGelu> = {.slope_packets = 3};
template <>
inline constexpr Tuning kTuning<Silu> = {.slope_packets = 3};
template <>
inline constexpr Tuning kTuning<Softplus> = {.value_packets = 3, .slope_packets = 3};
template <>
inline constexpr Tuning kTuning<SoftplusOfOne> = {.value_packets = 3, .slope_packets = 3};
template <>
inline constexpr Tuning kTuning<Tanhshrink> = {
    .value_packets = 3, .value_packets_16 = 3, .slope_packets = 3};

template <>
inline constexpr Tuning kTuning<Hardshrink> = {.few_operations = true};
template <>
inline constexpr Tuning kTuning<Hardsigmoid> = {.few_operations = true};
template <>
inline constexpr Tuning kTuning<Hardswish> = {.few_operations = true};
template <>
inline constexpr Tuning kTuning<Hardtanh> = {.few_operations = true};
template <>
inline constexpr Tuning kTuning<LeakyRelu> = {.few_operations = true};
template <>
inline constexpr Tuning kTuning<OrdinaryLeakyRelu> = {.few_operations = true};
template <>
inline constexpr Tuning kTuning<Relu> = {.few_operations = true};
template <>
inline constexpr Tuning kTuning<Relu6> = {.few_operations = true};
template <>
inline constexpr Tuning kTuning<Softshrink> = {.few_operations = true};
template <>
inline constexpr Tuning kTuning<SquaredRelu> = {.few_operations = true};

// ---- By form

// A form of an activation (ops/forms/derivative.h). Other forms use the defaults.
template <class F>
concept IsOfActivation = requires { typename F::Activation; };

// Returns true for the value of a smooth function in a type of at most 32 bits.
template <class F>
constexpr bool is_smooth_value() {
  if constexpr (IsOfActivation<F>) {
    return F::kOrder == 0 && kLargestOf<F> <= 4 && !kTuning<typename F::Activation>.few_operations;
  } else {
    return false;
  }
}

// Returns the packets per thread for a large tensor, or 0 for kPacketsPerThread.
template <class F>
constexpr int packets_of_many() {
  if constexpr (IsOfActivation<F>) {
    constexpr Tuning kOfActivation = kTuning<typename F::Activation>;
    if (kLargestOf<F> > 4 || F::kFromResult || F::kOrder > 1) return 0;
    if (F::kOrder == 1) return kOfActivation.slope_packets;
    return kLargestOf<F> == 4 ? kOfActivation.value_packets : kOfActivation.value_packets_16;
  } else {
    return 0;
  }
}

}  // namespace fastact::cuda
