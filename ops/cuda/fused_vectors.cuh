// Scale and bias of a fused launch (ops/forms/fused.h): loads the values that belong to consecutive
// elements.
#pragma once

#include <cstdint>

#include "ops/cuda/packet.cuh"
#include "ops/cuda/strided.cuh"

namespace fastact::cuda {

// Loads Count elements, or one element for all of them.
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

// The same as compute values, for scale and bias.
template <class Element, int Count>
__device__ __forceinline__ void load_numbers(const char* from, bool is_float32, bool repeated,
                                             OpMath<Element> (&to)[Count]) {
  if constexpr (kIs16Bit<Element>) {
    if (is_float32) {
      // A packet of 8 takes two accesses of 16 bytes.
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

// How a packet reads a vector.
enum class VectorAccess : uint8_t {
  kOne,     // one element
  kPacket,  // a packet
  kSingly,  // single elements
};

struct FusedVector {
  const char* data = nullptr;  // null: absent
  int32_t stride = 0;          // bytes between channels
  bool is_float32 = false;     // float beside 16-bit elements
};

// Element e of a tensor belongs to channel e / inner % channels.
struct FusedVectors {
  FusedVectors() = default;
  FusedVectors(const FusedVector& scale, const FusedVector& bias, int64_t inner_size,
               int64_t channels_size, int count, int64_t element_size)
      : vectors{scale, bias},
        inner(static_cast<uint32_t>(inner_size)),
        channels(static_cast<uint32_t>(channels_size)) {
    const auto lies_in_packets = [&](const FusedVector& vector) {
      const int64_t size = vector.is_float32 ? int64_t{sizeof(float)} : element_size;
      return vector.data == nullptr ||
             (vector.stride == size &&
              reinterpret_cast<uintptr_t>(vector.data) % kPacketBytes == 0);
    };
    if (inner_size % count == 0) {
      access = VectorAccess::kOne;
    } else if (inner_size == 1 && channels_size % count == 0 && lies_in_packets(scale) &&
               lies_in_packets(bias)) {
      access = VectorAccess::kPacket;
    }
  }

  FusedVector vectors[2];  // scale, bias
  VectorAccess access = VectorAccess::kSingly;
  FastDivisor inner;
  FastDivisor channels;
};

// Loads the values for the elements from `place` on in `channel`, or `absent`.
template <class Element, int Count>
__device__ __forceinline__ void load_vector(const FusedVectors& from, int which, uint32_t place,
                                            uint32_t channel, OpMath<Element> absent,
                                            OpMath<Element> (&to)[Count]) {
  const FusedVector& vector = from.vectors[which];
#pragma unroll
  for (int i = 0; i < Count; ++i) to[i] = absent;
  if (vector.data == nullptr) return;
  const auto at = [&](uint32_t index) {
    return vector.data + int64_t{static_cast<int32_t>(index)} * vector.stride;
  };
  if constexpr (Count > 1) {
    if (from.access == VectorAccess::kSingly && from.inner.divisor >= Count) {
      // The packet continues in the next channel where this one ends.
      const uint32_t next = channel + 1 == from.channels.divisor ? 0 : channel + 1;
      OpMath<Element> one[1];
      OpMath<Element> other[1];
      load_numbers<Element>(at(channel), vector.is_float32, true, one);
      load_numbers<Element>(at(next), vector.is_float32, true, other);
#pragma unroll
      for (int i = 0; i < Count; ++i) to[i] = place + i < from.inner.divisor ? one[0] : other[0];
      return;
    }
    if (from.access == VectorAccess::kSingly) {
#pragma unroll
      for (int i = 0; i < Count; ++i) {
        OpMath<Element> one[1];
        load_numbers<Element>(at(channel), vector.is_float32, true, one);
        to[i] = one[0];
        if (++place == from.inner.divisor) {
          place = 0;
          if (++channel == from.channels.divisor) channel = 0;
        }
      }
      return;
    }
  }
  load_numbers<Element>(at(channel), vector.is_float32, from.access == VectorAccess::kOne, to);
}

// Loads the values for the elements from `element` on. `element` is below 2^31, and at most Count
// beyond the last one.
template <class Element, int Count>
__device__ __forceinline__ void load_vectors(const FusedVectors& from, uint32_t element,
                                             OpMath<Element> (&scale)[Count],
                                             OpMath<Element> (&bias)[Count]) {
  using T = OpMath<Element>;
  const uint32_t run = from.inner.divide(element);
  const uint32_t place = element - run * from.inner.divisor;
  const uint32_t channel = run - from.channels.divide(run) * from.channels.divisor;
  load_vector<Element>(from, 0, place, channel, T{1}, scale);
  load_vector<Element>(from, 1, place, channel, T{-0.0}, bias);
}

}  // namespace fastact::cuda
