// NEON, which every 64-bit Arm processor has. See vector.h.
#pragma once

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

#include "ops/math/segments.h"

namespace fastact::cpu::inline FASTACT_TARGET {

inline constexpr int kHalves = 8;

FASTACT_INLINE void widen_halves(const Float16* from, float* to) {
  const float16x8_t halves = vreinterpretq_f16_u16(vld1q_u16(&from->bits));
  vst1q_f32(to, vcvt_f32_f16(vget_low_f16(halves)));
  vst1q_f32(to + 4, vcvt_high_f32_f16(halves));
}

FASTACT_INLINE void narrow_halves(const float* from, Float16* to) {
  const float16x4_t low = vcvt_f16_f32(vld1q_f32(from));
  const float16x8_t halves = vcvt_high_f16_f32(low, vld1q_f32(from + 4));
  vst1q_u16(&to->bits, vreinterpretq_u16_f16(halves));
}

// Four vectors, which share one load of a table.
inline constexpr int kFloats = 16;
inline constexpr int kNearSegments = 16;
inline constexpr int kMaxRecomputed = 0;
template <const auto& kTable>
inline constexpr uint32_t kIndexUnit = 1;

// Looks up a number among the first Size numbers for each element, by the indices of its four
// bytes. One instruction looks them up in the 64 bytes of 16 numbers, and leaves lanes with other
// indices unchanged.
template <int Size>
FASTACT_INLINE void permute(const float* table, const uint8x16_t (&bytes)[kFloats / 4], float* to) {
  const auto entries = [&](int first) {
    return vld1q_u8_x4(reinterpret_cast<const uint8_t*>(table + first));
  };
  uint8x16_t result[kFloats / 4];
  for (int64_t i = 0; i < kFloats / 4; ++i) result[i] = vqtbl4q_u8(entries(0), bytes[i]);
  for (int first = 16; first < Size; first += 16) {
    for (int64_t i = 0; i < kFloats / 4; ++i) {
      const uint8x16_t index = vsubq_u8(bytes[i], vdupq_n_u8(static_cast<uint8_t>(4 * first)));
      result[i] = vqtbx4q_u8(result[i], entries(first), index);
    }
  }
  for (int64_t i = 0; i < kFloats / 4; ++i) vst1q_f32(to + 4 * i, vreinterpretq_f32_u8(result[i]));
}

template <const auto& kTable, int Size>
FASTACT_INLINE void permute_segments(const uint32_t* index, float (*to)[kFloats]) {
  const uint32x4_t first_bytes = vdupq_n_u32(0x03020100);
  uint8x16_t bytes[kFloats / 4];
  for (int64_t i = 0; i < kFloats / 4; ++i) {
    const uint32x4_t segment = vandq_u32(vld1q_u32(index + 4 * i), vdupq_n_u32(kIndexRange - 1));
    bytes[i] = vreinterpretq_u8_u32(vmlaq_u32(first_bytes, segment, vdupq_n_u32(0x04040404)));
  }
  permute<Size>(kTable.centers, bytes, to[0]);
  for (int64_t k = 0; k < ShapeOf<kTable>::kCoefficients; ++k)
    permute<Size>(kTable.coefficients[k], bytes, to[k + 1]);
}

template <const auto& kTable>
FASTACT_INLINE void find_segments(const uint32_t* index, float (*to)[kFloats]) {
  permute_segments<kTable, ShapeOf<kTable>::kSize>(index, to);
}

template <const auto& kTable>
FASTACT_INLINE void find_near_segments(const uint32_t* index, float (*to)[kFloats]) {
  permute_segments<kTable, kNearSegments>(index, to);
}

FASTACT_INLINE void store(const float* from, float* to) {
  for (int64_t i = 0; i < kFloats; i += 4) vst1q_f32(to + i, vld1q_f32(from + i));
}

// Non-temporal stores exist only for pairs of registers, and without an intrinsic.
FASTACT_INLINE void stream(const char* from, char* to, int64_t bytes) {
  int64_t i = 0;
  for (; i + 32 <= bytes; i += 32) {
    const uint8x16_t low = vld1q_u8(reinterpret_cast<const uint8_t*>(from + i));
    const uint8x16_t high = vld1q_u8(reinterpret_cast<const uint8_t*>(from + i + 16));
    asm volatile("stnp %q1, %q2, [%0]" : : "r"(to + i), "w"(low), "w"(high) : "memory");
  }
  std::memcpy(to + i, from + i, static_cast<size_t>(bytes - i));
}

// These stores are ordered like other stores.
FASTACT_INLINE void finish_stream() {}

}  // namespace fastact::cpu::inline FASTACT_TARGET
