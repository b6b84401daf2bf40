// AVX2, FMA and F16C, which are part of x86-64-v3. See vector.h.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "ops/math/segments.h"

namespace fastact::cpu::inline FASTACT_TARGET {

// GCC 12 would vectorise the bit arithmetic of widen() and round_to(). The conversion instruction
// gives the same results: it rounds correctly and quiets NaNs.
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
inline constexpr int kNearSegments = 8;
inline constexpr int kMaxRecomputed = 12;

// Returns the mask of the lanes whose value is `end` or more. Both are below 2^31.
FASTACT_INLINE uint32_t lanes_beyond(const uint32_t* sizes, uint32_t end) {
  const __m256i last = _mm256_set1_epi32(static_cast<int>(end) - 1);
  const __m256i size = _mm256_load_si256(reinterpret_cast<const __m256i*>(sizes));
  return static_cast<uint32_t>(
      _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(size, last))));
}

// The numbers of a segment in a row, which fills whole vectors: the center, then the coefficients.
template <const auto& kTable>
struct SegmentRows {
  static constexpr int kStride = (ShapeOf<kTable>::kCoefficients + 8) / 8 * 8;

  alignas(4 * kStride) float values[ShapeOf<kTable>::kSize][kStride];
};

template <const auto& kTable>
constexpr SegmentRows<kTable> in_rows() {
  SegmentRows<kTable> rows{};
  for (int i = 0; i < ShapeOf<kTable>::kSize; ++i) {
    rows.values[i][0] = kTable.centers[i];
    for (int k = 0; k < ShapeOf<kTable>::kCoefficients; ++k)
      rows.values[i][k + 1] = kTable.coefficients[k][i];
  }
  return rows;
}

// Looks up one of Size numbers for each element. Permutations of 8 are combined by the higher bits
// of the index.
template <int Size>
FASTACT_INLINE __m256 permuted(const float* table, __m256i index) {
  if constexpr (Size == kFloats) {
    return _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), index);
  } else {
    constexpr int kHalf = Size / 2;
    constexpr int kToSign = Size == 16 ? 28 : 27;
    static_assert(Size == 16 || Size == 32);
    return _mm256_blendv_ps(permuted<kHalf>(table, index), permuted<kHalf>(table + kHalf, index),
                            _mm256_castsi256_ps(_mm256_slli_epi32(index, kToSign)));
  }
}

// Looks up the numbers of the first Size segments.
template <const auto& kTable, int Size = ShapeOf<kTable>::kSize>
FASTACT_INLINE void permute_segments(const uint32_t* index, float (*to)[kFloats]) {
  const __m256i indices = _mm256_load_si256(reinterpret_cast<const __m256i*>(index));
  _mm256_store_ps(to[0], permuted<Size>(kTable.centers, indices));
  for (int k = 0; k < ShapeOf<kTable>::kCoefficients; ++k)
    _mm256_store_ps(to[k + 1], permuted<Size>(kTable.coefficients[k], indices));
}

template <const auto& kTable>
FASTACT_INLINE void find_near_segments(const uint32_t* index, float (*to)[kFloats]) {
  permute_segments<kTable, kNearSegments>(index, to);
}

// True if all segments are looked up with permutations.
template <const auto& kTable>
inline constexpr bool kArePermuted = [] {
  if constexpr (ShapeOf<kTable>::kIsFull) {
    return kUsedSegments<kTable> <= kNearSegments;
  } else {
    return false;
  }
}();

// The factor of the indices that find_segments() takes.
template <const auto& kTable>
inline constexpr uint32_t kIndexUnit = kArePermuted<kTable> ? 1 : SegmentRows<kTable>::kStride;

// Loads the row of each element and transposes the rows. Permuting a table of 16 would take two
// permutations of 8 and a selection for each coefficient.
template <const auto& kTable>
FASTACT_INLINE void find_segments(const uint32_t* index, float (*to)[kFloats]) {
  if constexpr (kArePermuted<kTable>) return find_near_segments<kTable>(index, to);
  static constexpr auto kRows = in_rows<kTable>();
  for (int k = 0; k < ShapeOf<kTable>::kCoefficients + 1; k += 4) {
    __m256 rows[4];
    for (int i = 0; i < 4; ++i) {
      rows[i] = _mm256_set_m128(_mm_load_ps(kRows.values[0] + index[i + 4] + k),
                                _mm_load_ps(kRows.values[0] + index[i] + k));
    }
    const __m256d low_01 = _mm256_castps_pd(_mm256_unpacklo_ps(rows[0], rows[1]));
    const __m256d low_23 = _mm256_castps_pd(_mm256_unpacklo_ps(rows[2], rows[3]));
    const __m256d high_01 = _mm256_castps_pd(_mm256_unpackhi_ps(rows[0], rows[1]));
    const __m256d high_23 = _mm256_castps_pd(_mm256_unpackhi_ps(rows[2], rows[3]));
    _mm256_store_ps(to[k], _mm256_castpd_ps(_mm256_unpacklo_pd(low_01, low_23)));
    _mm256_store_ps(to[k + 1], _mm256_castpd_ps(_mm256_unpackhi_pd(low_01, low_23)));
    _mm256_store_ps(to[k + 2], _mm256_castpd_ps(_mm256_unpacklo_pd(high_01, high_23)));
    _mm256_store_ps(to[k + 3], _mm256_castpd_ps(_mm256_unpackhi_pd(high_01, high_23)));
  }
}

FASTACT_INLINE void store(const float* from, float* to) {
  _mm256_storeu_ps(to, _mm256_load_ps(from));
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
