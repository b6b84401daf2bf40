// AVX2, FMA and F16C, as x86-64-v3 has them. See simd.h.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "ops/formulas/segments.h"

namespace fastact::cpu::inline FASTACT_TARGET {

// GCC 12 vectorises the bit arithmetic of widen() and round_to(), but the instruction is correctly
// rounded and quiets NaNs, too.
inline constexpr int kHalves = 8;

FASTACT_INLINE void widen_halves(const Float16* from, float* to) {
  _mm256_store_ps(to, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
}

FASTACT_INLINE void narrow_halves(const float* from, Float16* to) {
  const __m128i half =
      _mm256_cvtps_ph(_mm256_load_ps(from), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), half);
}

inline constexpr int kFloats = 8;

// A number for each element is a permutation of the table's 16 or 32.
template <int Size>
FASTACT_INLINE void permute(const float (&table)[Size], const uint32_t* index, float* to) {
  const __m256i indices = _mm256_load_si256(reinterpret_cast<const __m256i*>(index));
  const auto one_of_16 = [&](const float* from) {
    const __m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(from), indices);
    const __m256 high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(from + 8), indices);
    return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(indices, 28)));
  };
  __m256 result = one_of_16(table);
  if constexpr (Size > kSegments) {
    const __m256 is_high = _mm256_castsi256_ps(_mm256_slli_epi32(indices, 27));
    result = _mm256_blendv_ps(result, one_of_16(table + kSegments), is_high);
  }
  _mm256_store_ps(to, result);
}

template <const auto& kTable, int Stride>
FASTACT_INLINE void find_segments(const uint32_t* index, float* to) {
  permute(kTable.centers, index, to);
  for (int64_t k = 0; k < kSegmentCoefficients; ++k)
    permute(kTable.coefficients[k], index, to + (k + 1) * Stride);
}

FASTACT_INLINE void stream(const char* from, char* to, int64_t bytes) {
  int64_t i = 0;
  for (; i + 32 <= bytes; i += 32) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i),
                        _mm256_load_si256(reinterpret_cast<const __m256i*>(from + i)));
  }
  std::memcpy(to + i, from + i, static_cast<size_t>(bytes - i));
}

FASTACT_INLINE void finish_stream() { _mm_sfence(); }

}  // namespace fastact::cpu::inline FASTACT_TARGET
