// Any processor; uses SSE2 on x86-64. See vector.h.
#pragma once

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <cstdint>
#include <cstring>

#include "ops/math/segments.h"

namespace fastact::cpu::inline FASTACT_TARGET {

inline constexpr int kHalves = 8;

FASTACT_INLINE void widen_halves(const Float16* from, float* to) {
  for (int i = 0; i < kHalves; ++i) to[i] = widen(from[i]);
}

FASTACT_INLINE void narrow_halves(const float* from, Float16* to) {
  for (int i = 0; i < kHalves; ++i) to[i] = round_to<Float16>(from[i]);
}

FASTACT_INLINE void stream(const char* from, char* to, int64_t bytes) {
  int64_t i = 0;
#if defined(__SSE2__)
  for (; i + 16 <= bytes; i += 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm_load_si128(reinterpret_cast<const __m128i*>(from + i)));
  }
#endif
  std::memcpy(to + i, from + i, static_cast<size_t>(bytes - i));
}

FASTACT_INLINE void finish_stream() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

}  // namespace fastact::cpu::inline FASTACT_TARGET
