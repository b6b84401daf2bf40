// AVX-512, which is part of x86-64-v4. See vector.h.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "ops/math/segments.h"

namespace fastact::cpu::inline FASTACT_TARGET {

// GCC 12 would vectorise the bit arithmetic of widen() and round_to(). The conversion instruction
// gives the same results: it rounds correctly and quiets NaNs.
inline constexpr int kHalves = 16;

FASTACT_INLINE void widen_halves(const Float16* from, float* to) {
  _mm512_store_ps(to, _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))));
}

FASTACT_INLINE void narrow_halves(const float* from, Float16* to) {
  const __m256i half =
      _mm512_cvtps_ph(_mm512_load_ps(from), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), half);
}

inline constexpr int kFloats = 16;
inline constexpr int kNearSegments = 32;
inline constexpr int kMaxRecomputed = 0;

template <const auto& kTable>
inline constexpr uint32_t kIndexUnit = 1;

// Looks up a number for each element with permutations of the first Size entries.
template <int Size>
FASTACT_INLINE __m512 permuted(const float* table, __m512i index) {
  if constexpr (Size == 16) {
    return _mm512_permutexvar_ps(index, _mm512_loadu_ps(table));
  } else if constexpr (Size == 32) {
    return _mm512_permutex2var_ps(_mm512_loadu_ps(table), index, _mm512_loadu_ps(table + 16));
  } else {
    static_assert(Size == 48);
    const __mmask16 is_above = _mm512_test_epi32_mask(index, _mm512_set1_epi32(32));
    return _mm512_mask_permutexvar_ps(permuted<32>(table, index), is_above, index,
                                      _mm512_loadu_ps(table + 32));
  }
}

template <const auto& kTable, int Size = ShapeOf<kTable>::kSize>
FASTACT_INLINE void permute_segments(const uint32_t* index, float (*to)[kFloats]) {
  const __m512i indices = _mm512_load_si512(index);
  _mm512_store_ps(to[0], permuted<Size>(kTable.centers, indices));
  for (int k = 0; k < ShapeOf<kTable>::kCoefficients; ++k)
    _mm512_store_ps(to[k + 1], permuted<Size>(kTable.coefficients[k], indices));
}

template <const auto& kTable>
FASTACT_INLINE void find_segments(const uint32_t* index, float (*to)[kFloats]) {
  permute_segments<kTable>(index, to);
}

template <const auto& kTable>
FASTACT_INLINE void find_near_segments(const uint32_t* index, float (*to)[kFloats]) {
  permute_segments<kTable, (ShapeOf<kTable>::kSize < 32 ? 16 : 32)>(index, to);
}

FASTACT_INLINE void store(const float* from, float* to) {
  _mm512_storeu_ps(to, _mm512_load_ps(from));
}

FASTACT_INLINE void stream(const char* from, char* to, int64_t bytes) {
  int64_t i = 0;
  for (; i + 64 <= bytes; i += 64)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i), _mm512_load_si512(from + i));
  std::memcpy(to + i, from + i, static_cast<size_t>(bytes - i));
}

FASTACT_INLINE void finish_stream() { _mm_sfence(); }

}  // namespace fastact::cpu::inline FASTACT_TARGET
