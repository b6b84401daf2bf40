// Packets: how a thread moves elements, and how a form is computed on them. A packet contains the
// same number of elements of every operand. The largest elements fill 16 bytes; smaller ones move
// in smaller packets.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "ops/cuda/tuning.h"
#include "ops/forms/form.h"
#include "ops/math/segments.h"

namespace fastact::cuda {

// Count elements that move as one access of at most 16 bytes.
template <class Element, int Count>
struct alignas(sizeof(Element) * Count) Packet {
  using Type = Element;
  Element elements[Count];
};

template <class F>
inline constexpr int kPacketElements = kPacketBytes / static_cast<int>(kLargestOf<F>);

__device__ __forceinline__ float unrounded(float y) { return y; }
__device__ __forceinline__ float unrounded(Canonical<float> y) { return y.value; }

// Converts two results to 16-bit elements in one instruction, which rounds to nearest even and
// converts every NaN to 0x7fff, the canonical NaN. `low` goes to the lower half.
template <class Element>
__device__ __forceinline__ uint32_t round_pair(float low, float high) {
  uint32_t pair;
  if constexpr (std::is_same_v<Element, BFloat16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
}

template <class Result, class Element, int Count>
__device__ __forceinline__ void round_packet(const Result (&results)[Count],
                                             Packet<Element, Count>& packet) {
  if constexpr (!kIs16Bit<Element>) {
#pragma unroll
    for (int i = 0; i < Count; ++i) packet.elements[i] = round_to<Element>(results[i]);
  } else if constexpr (Count == 1) {
    packet.elements[0].bits =
        static_cast<uint16_t>(round_pair<Element>(unrounded(results[0]), 0.0f));
  } else {
    // Copies whole words. Copied by element, each pair would be split and joined again.
    uint32_t pairs[Count / 2];
#pragma unroll
    for (int i = 0; i < Count; i += 2)
      pairs[i / 2] = round_pair<Element>(unrounded(results[i]), unrounded(results[i + 1]));
    memcpy(&packet, pairs, sizeof(packet));
  }
}

template <class Element, int Count>
__device__ __forceinline__ void widen_packet(const Packet<Element, Count>& packet,
                                             OpMath<Element> (&wide)[Count]) {
  if constexpr (std::is_same_v<Element, BFloat16> && Count > 1) {
    // Either half of a word is a float once the bits below it are cleared.
    uint32_t pairs[Count / 2];
    memcpy(pairs, &packet, sizeof(packet));
#pragma unroll
    for (int i = 0; i < Count; i += 2) {
      wide[i] = from_bits(pairs[i / 2] << 16);
      wide[i + 1] = from_bits(pairs[i / 2] & 0xffff0000u);
    }
  } else {
#pragma unroll
    for (int i = 0; i < Count; ++i) {
      if constexpr (std::is_same_v<Element, Float16>) {
        wide[i] = __half2float(__ushort_as_half(packet.elements[i].bits));
      } else {
        wide[i] = widen(packet.elements[i]);
      }
    }
  }
}

// The bytes of a packet. Copied by element, the words of 16-bit elements would be split and joined
// again.
template <int Bytes>
struct alignas(Bytes) PacketWords {
  uint32_t words[Bytes / 4];
};
template <>
struct alignas(2) PacketWords<2> {
  uint16_t word;
};

template <class Element, int Bytes, int Count>
__device__ __forceinline__ void widen_words(const PacketWords<Bytes>& words,
                                            OpMath<Element> (&wide)[Count]) {
  Packet<Element, Count> packet;
  memcpy(&packet, &words, sizeof(packet));
  widen_packet(packet, wide);
}
template <class Element, class Result, int Bytes, int Count>
__device__ __forceinline__ void round_words(const Result (&results)[Count],
                                            PacketWords<Bytes>& words) {
  Packet<Element, Count> packet;
  round_packet(results, packet);
  memcpy(&words, &packet, sizeof(words));
}

// ---- A form on one packet of every operand

template <class List, int Count>
struct PacketsOf;
template <class... E, int Count>
struct PacketsOf<Elements<E...>, Count> {
  using type = Tuple<Packet<E, Count>...>;
};
template <class F, int Count>
using InputPackets = typename PacketsOf<typename F::Inputs, Count>::type;
template <class F, int Count>
using OutputPackets = typename PacketsOf<typename F::Outputs, Count>::type;

// The addresses of the outputs, then of the inputs.
template <class F>
struct Pointers {
  void* data[kOperandsOf<F>];
};

// Calls visit(j) for each j below Count, where j is an integral constant.
template <int Count, class Visit>
__device__ __forceinline__ void for_each_below(const Visit& visit) {
  [&]<int... J>(std::integer_sequence<int, J...>) {
    (visit(std::integral_constant<int, J>{}), ...);
  }(std::make_integer_sequence<int, Count>{});
}

// `place.template of<P>(i)` points to the packet of operand i, whose type is P.
template <class F, int Count, class Place>
__device__ __forceinline__ void load_packets(const Place& place, InputPackets<F, Count>& packets) {
  for_each_below<F::Inputs::kCount>([&](auto j) {
    auto& packet = at<j.value>(packets);
    using P = std::remove_reference_t<decltype(packet)>;
    packet = *place.template of<const P>(F::Outputs::kCount + j.value);
  });
}

template <class F, int Count, class Place>
__device__ __forceinline__ void store_packets(const Place& place,
                                              const OutputPackets<F, Count>& packets) {
  for_each_below<F::Outputs::kCount>([&](auto j) {
    const auto& packet = at<j.value>(packets);
    using P = std::remove_cvref_t<decltype(packet)>;
    *place.template of<P>(j.value) = packet;
  });
}

template <class Element, int Count>
struct Widened {
  OpMath<Element> elements[Count];
};

template <class T>
__device__ __forceinline__ Tuple<T> as_tuple(T result) {
  return {result};
}
template <class... T>
__device__ __forceinline__ Tuple<T...> as_tuple(const Tuple<T...>& results) {
  return results;
}

template <class F, int Count>
__device__ __forceinline__ OutputPackets<F, Count> evaluate_packets(
    const F& form, const InputPackets<F, Count>& inputs) {
  return [&]<class... In, size_t... I>(Elements<In...>, std::index_sequence<I...>) {
    Tuple<Widened<In, Count>...> wide;
    (widen_packet(at<I>(inputs), at<I>(wide).elements), ...);
    const auto one = [&](int i) { return as_tuple(form.evaluate(at<I>(wide).elements[i]...)); };
    decltype(one(0)) results[Count];
#pragma unroll
    for (int i = 0; i < Count; ++i) results[i] = one(i);
    OutputPackets<F, Count> packets;
    for_each_below<F::Outputs::kCount>([&](auto j) {
      std::remove_cvref_t<decltype(at<j.value>(results[0]))> column[Count];
#pragma unroll
      for (int i = 0; i < Count; ++i) column[i] = at<j.value>(results[i]);
      round_packet(column, at<j.value>(packets));
    });
    return packets;
  }(typename F::Inputs{}, std::make_index_sequence<F::Inputs::kCount>{});
}

// ---- Shared by the kernels

// Calls run(count, packet) for the packets of a thread: packet, packet + kThreads, ... A block with
// all of its packets takes them at once, so every load is in flight before the first result. The
// last block takes them one by one.
template <int PacketsPerThread, class Run>
__device__ __forceinline__ void for_each_packet(int64_t packets, const Run& run) {
  const int64_t block = int64_t{blockIdx.x} * (kThreads * PacketsPerThread);
  const int64_t first = block + threadIdx.x;
  if (PacketsPerThread > 1 && block + kThreads * PacketsPerThread <= packets) {
    run(std::integral_constant<int, PacketsPerThread>{}, first);
  } else {
#pragma unroll 1
    for (int p = 0; p < PacketsPerThread; ++p) {
      const int64_t packet = first + p * kThreads;
      if (packet < packets) run(std::integral_constant<int, 1>{}, packet);
    }
  }
}

// If the form is in segments, all threads of the block copy its table to shared memory.
template <class F>
__device__ __forceinline__ void share_table() {
  if constexpr (HasSegments<F>) {
    auto& to = shared_segments<*F::kTable>();
    static_assert(alignof(std::remove_cvref_t<decltype(to)>) >= alignof(float4));
    constexpr int kParts = sizeof(to) / sizeof(float4);
#pragma unroll
    for (int first = 0; first < kParts; first += kThreads) {
      const int part = first + static_cast<int>(threadIdx.x);
      if (part < kParts) {
        reinterpret_cast<float4*>(&to)[part] =
            reinterpret_cast<const float4*>(&kPackedSegments<*F::kTable>)[part];
      }
    }
    __syncthreads();
  }
}

}  // namespace fastact::cuda
