// The loops: how elements reach a formula. Compiled once for each instruction set, and vectorised
// by the compiler: formulas are branch-free, so a scalar loop is all there is to write.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "ops/cpu/engine.h"
#include "ops/formulas/formula.h"

// In an in-place call output and input are the same elements, so pointers cannot be restrict; but
// an element depends on nothing at another index, which is what these tell the vectoriser.
#if defined(__clang__)
#define FASTACT_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#define FASTACT_ONE_VECTOR _Pragma("clang loop vectorize(enable)")
#else
#define FASTACT_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
// Unrolled before it is vectorised, a short loop becomes scalar code.
#define FASTACT_ONE_VECTOR _Pragma("GCC unroll 1")
#endif

namespace fastact::cpu::inline FASTACT_TARGET {

// Elements that are gathered at a time. All operands' blocks stay in the L1 cache.
inline constexpr int64_t kBlock = 512;

// Where there is more than one input and the output is as large as one that is streamed
// (kStreamedBytes), these bytes are fetched into the caches so long before they are read, in steps
// of so many: the hardware's own prefetch does not keep up with two streams in and one out. On a
// Zen 5 core, 2^24 elements, SELU's backward took 0.75 ns an element in float32 and 0.44 in Float16
// without and takes 0.34 and 0.25; ReLU's 0.45 and 0.31, now 0.35 and 0.18. Steps of 0.5 to 4 KiB
// and 1 to 4 KiB ahead differ little; fetching the output, too, costs up to 10 %, and a single
// input gains nothing. Smaller ones may be in a cache: on a Zen 4 core ReLU's backward took 0.087
// ns an element of 2^17 in bfloat16, 0.156 in float32 and 0.310 in float64 with fetching, 0.065,
// 0.137 and 0.277 without; and up to 2^21 it is as fast or faster without.
inline constexpr int64_t kFetchAhead = 2048;
inline constexpr int64_t kStep = 1024;
inline constexpr int64_t kCacheLine = 64;

// Writes a block; `to` is aligned to a cache line. finish_stream() makes the stores visible in
// order with what the thread stores next.
FASTACT_INLINE void stream(const char* from, char* to, int64_t bytes) {
  int64_t i = 0;
#if defined(__AVX512F__)
  for (; i + 64 <= bytes; i += 64)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i), _mm512_load_si512(from + i));
#elif defined(__AVX__)
  for (; i + 32 <= bytes; i += 32) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i),
                        _mm256_load_si256(reinterpret_cast<const __m256i*>(from + i)));
  }
#elif defined(__SSE2__)
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

// As many Float16 as one instruction of F16C converts. GCC 12 vectorises the bit arithmetic of
// widen() and round_to(), but the instruction is correctly rounded and quiets NaNs, too.
#if defined(__AVX512F__)
inline constexpr int kHalves = 16;
#else
inline constexpr int kHalves = 8;
#endif

FASTACT_INLINE void widen_halves(const Float16* from, float* to) {
#if defined(__AVX512F__)
  _mm512_store_ps(to, _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))));
#elif defined(__F16C__)
  _mm256_store_ps(to, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
#else
  for (int i = 0; i < kHalves; ++i) to[i] = widen(from[i]);
#endif
}

FASTACT_INLINE void narrow_halves(const float* from, Float16* to) {
#if defined(__AVX512F__)
  const __m256i half =
      _mm512_cvtps_ph(_mm512_load_ps(from), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), half);
#elif defined(__F16C__)
  const __m128i half =
      _mm256_cvtps_ph(_mm256_load_ps(from), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), half);
#else
  for (int i = 0; i < kHalves; ++i) to[i] = round_to<Float16>(from[i]);
#endif
}

// Here and below the formula is a copy: its parameters are then in registers, where GCC 12 would
// else load them in one branch of a selection, which it does not vectorise (ELU took 6 instead of
// 0.7 ns).
template <class Element, int Order, bool FromResult, class Formula, class... Gradients>
void dense_elements(const Formula formula, Element* out, int64_t n, const Element* x,
                    const Gradients*... gradients) {
  FASTACT_INDEPENDENT_ITERATIONS
  for (int64_t i = 0; i < n; ++i) {
    out[i] = round_to<Element>(
        evaluate<Element, Order, FromResult>(formula, widen(x[i]), widen(gradients[i])...));
  }
}

// For float in segments (segments.h): a vector at a time. Its loops of fixed length become straight
// code in registers, and a coefficient for each of its elements is a permutation of the table's 16.
#if defined(__AVX512F__)
inline constexpr int kFloats = 16;
#elif defined(__AVX2__)
inline constexpr int kFloats = 8;
#endif

#if defined(__AVX2__)
template <int Size>
FASTACT_INLINE void permute(const float (&table)[Size], const uint32_t* index, float* to) {
#if defined(__AVX512F__)
  const __m512i indices = _mm512_load_si512(index);
  const __m512 low = _mm512_loadu_ps(table);
  if constexpr (Size == kSegments) {
    _mm512_store_ps(to, _mm512_permutexvar_ps(indices, low));
  } else {
    const __m512 high = _mm512_loadu_ps(table + kSegments);
    _mm512_store_ps(to, _mm512_permutex2var_ps(low, indices, high));
  }
#else
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
#endif
}

template <int Order, class Formula, class... Gradients>
int64_t dense_segments(const Formula formula, float* out, int64_t n, const float* x,
                       const Gradients*... gradients) {
  constexpr const auto& kTable = *Formula::template kSegmentTable<Order>;
  int64_t start = 0;
  for (; start + kFloats <= n; start += kFloats) {
    alignas(64) uint32_t index[kFloats];
    FASTACT_ONE_VECTOR
    for (int i = 0; i < kFloats; ++i) index[i] = formula.template segment<Order>(x[start + i]);
    alignas(64) float center[kFloats];
    permute(kTable.centers, index, center);
    alignas(64) float c[kSegmentCoefficients][kFloats];
    for (int k = 0; k < kSegmentCoefficients; ++k) permute(kTable.coefficients[k], index, c[k]);
    alignas(64) float result[kFloats];
    FASTACT_ONE_VECTOR
    for (int i = 0; i < kFloats; ++i) {
      const Segment segment = {center[i],
                               {c[0][i], c[1][i], c[2][i], c[3][i], c[4][i], c[5][i], c[6][i]}};
      result[i] = round_to<float>(product<float>(
          formula.template derivative_in<Order>(segment, x[start + i]), gradients[start + i]...));
    }
    std::memcpy(out + start, result, sizeof(result));
  }
  return start;
}
#endif

// For BFloat16: two neighbours in one 32-bit lane, of which either half is a float as it stands. It
// saves the moves between 16- and 32-bit lanes: on a Zen 5 core SELU takes 0.18 instead of 0.19 ns
// an element with AVX-512, 0.35 instead of 0.40 with AVX2; ReLU 0.07 instead of 0.10 and 0.13
// instead of 0.22.
using BFloat16Pair [[gnu::may_alias, gnu::aligned(2)]] = uint32_t;

FASTACT_INLINE float low_half(uint32_t pair) { return from_bits(pair << 16); }
FASTACT_INLINE float high_half(uint32_t pair) { return from_bits(pair & 0xffff0000u); }

// round_to<BFloat16>() in the upper half, where one of the two stays; the lower half is anything.
FASTACT_INLINE uint32_t rounded_upper_half(float y) {
  const uint32_t bits = to_bits(y);
  const uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  return is_nan(y) ? to_bits(canonical_nan<float>()) : rounded;
}
FASTACT_INLINE uint32_t rounded_upper_half(Finished<float> y) { return to_bits(y.value); }

template <int Order, bool FromResult, class Formula, class... Gradients>
void dense_pairs(const Formula formula, BFloat16* out, int64_t n, const BFloat16* x,
                 const Gradients*... gradients) {
  const auto load = [](const BFloat16* from, int64_t i) -> uint32_t {
    return reinterpret_cast<const BFloat16Pair*>(from)[i];
  };
  FASTACT_INDEPENDENT_ITERATIONS
  for (int64_t i = 0; i < n / 2; ++i) {
    const uint32_t low = rounded_upper_half(evaluate<BFloat16, Order, FromResult>(
        formula, low_half(load(x, i)), low_half(load(gradients, i))...));
    const uint32_t high = rounded_upper_half(evaluate<BFloat16, Order, FromResult>(
        formula, high_half(load(x, i)), high_half(load(gradients, i))...));
    reinterpret_cast<BFloat16Pair*>(out)[i] = low >> 16 | (high & 0xffff0000u);
  }
  if (n % 2 != 0) {
    dense_elements<BFloat16, Order, FromResult>(formula, out + n - 1, 1, x + n - 1,
                                                (gradients + n - 1)...);
  }
}

// For Float16: a vector of floats at a time, whose loop of fixed length the compiler turns into
// straight code in registers. round_to<float> gives the one NaN, which converts to Float16's.
template <int Order, bool FromResult, class Formula, class... Gradients>
void dense_halves(const Formula formula, Float16* out, int64_t n, const Float16* x,
                  const Gradients*... gradients) {
  int64_t start = 0;
  for (; start + kHalves <= n; start += kHalves) {
    alignas(64) float wide[Order + 1][kHalves];
    int operand = 0;
    widen_halves(x + start, wide[operand++]);
    (widen_halves(gradients + start, wide[operand++]), ...);
    alignas(64) float result[kHalves];
    [&]<size_t... I>(std::index_sequence<I...>) {
      FASTACT_ONE_VECTOR
      for (int i = 0; i < kHalves; ++i) {
        result[i] = round_to<float>(
            evaluate<Float16, Order, FromResult>(formula, wide[0][i], wide[1 + I][i]...));
      }
    }(std::make_index_sequence<Order>{});
    narrow_halves(result, out + start);
  }
  dense_elements<Float16, Order, FromResult>(formula, out + start, n - start, x + start,
                                             (gradients + start)...);
}

template <class Formula, class Element, int Order, bool FromResult>
struct Loop {
  static constexpr int kOperands = Order + 2;
  static constexpr int64_t kSize = sizeof(Element);

  static void run(const Parameters& parameters, char* const* data, const int64_t* strides,
                  int64_t size0, int64_t size1) {
    if constexpr (has_default<Formula, Element, Order, FromResult>()) {
      using Default = Loop<typename Formula::Default, Element, Order, FromResult>;
      if (Formula::is_default(parameters.values))
        return Default::run(parameters, data, strides, size0, size1);
    }
    const Formula formula(parameters.values);
    bool dense_rows = true;
    for (int i = 0; i < kOperands; ++i)
      dense_rows &= strides[i] == static_cast<int64_t>(sizeof(Element));
    // A short row is not worth a call of its own: gathered rows share one.
    if (dense_rows && (size1 == 1 || size0 >= kBlock / 4)) {
      for (int64_t row = 0; row < size1; ++row) {
        char* pointers[kOperands];
        for (int i = 0; i < kOperands; ++i) pointers[i] = data[i] + row * strides[kOperands + i];
        // The hardware's prefetch does not see where the next row begins.
        if (row + 1 < size1) fetch_row(pointers, strides + kOperands, size0 * kSize);
        dense(formula, pointers, size0);
      }
    } else {
      gathered(formula, data, strides, size0, size1);
    }
  }

 private:
  // data: output, gradients, x.
  static void dense(const Formula& formula, char* const* data, int64_t n) {
    bool in_place = false;
    for (int i = 1; i < kOperands; ++i) in_place |= data[i] == data[0];
    const bool aligned = reinterpret_cast<intptr_t>(data[0]) % kSize == 0;
    const bool large = n * kSize >= kStreamedBytes;
    if (large && aligned && !in_place) {
      dense_streamed(formula, data, n);
    } else if (large && Order > 0) {
      for (int64_t start = 0; start < n * kSize; start += kStep) {
        const int64_t left = n * kSize - start;
        fetch_ahead(data, start, left);
        dense_step(formula, data, data[0] + start, start, left < kStep ? left : kStep);
      }
    } else {
      dense_block(formula, data, n);
    }
  }

  // Each block is computed in the L1 cache and written from there.
  static void dense_streamed(const Formula& formula, char* const* data, int64_t n) {
    alignas(kCacheLine) char buffer[kStep];
    const int64_t past_line = reinterpret_cast<intptr_t>(data[0]) % kCacheLine;
    int64_t start = (kCacheLine - past_line) % kCacheLine;
    dense_step(formula, data, data[0], 0, start);
    while (start < n * kSize) {
      const int64_t left = n * kSize - start;
      const int64_t bytes = left < kStep ? left : kStep;
      fetch_ahead(data, start, left);
      dense_step(formula, data, buffer, start, bytes);
      stream(buffer, data[0] + start, bytes);
      start += bytes;
    }
    finish_stream();
  }

  // The elements in `bytes` bytes from `start` on, to `out`.
  static FASTACT_INLINE void dense_step(const Formula& formula, char* const* data, char* out,
                                        int64_t start, int64_t bytes) {
    char* pointers[kOperands] = {out};
    for (int i = 1; i < kOperands; ++i) pointers[i] = data[i] + start;
    dense_block(formula, pointers, bytes / kSize);
  }

  static FASTACT_INLINE void fetch_row(char* const* data, const int64_t* strides, int64_t bytes) {
    for (int64_t line = 0; line < kStep && line < bytes; line += kCacheLine)
      for (int i = 1; i < kOperands; ++i) __builtin_prefetch(data[i] + strides[i] + line);
  }

  static FASTACT_INLINE void fetch_ahead(char* const* data, int64_t start, int64_t left) {
    if (Order == 0 || left < kFetchAhead + kStep) return;
    for (int64_t line = start + kFetchAhead; line < start + kFetchAhead + kStep; line += kCacheLine)
      for (int i = 1; i < kOperands; ++i) __builtin_prefetch(data[i] + line);
  }

  static void dense_block(const Formula& formula, char* const* data, int64_t n) {
    [&]<size_t... I>(std::index_sequence<I...>) {
      auto* out = reinterpret_cast<Element*>(data[0]);
      const auto* x = reinterpret_cast<const Element*>(data[Order + 1]);
      if constexpr (std::is_same_v<Element, Float16>) {
        dense_halves<Order, FromResult>(formula, out, n, x,
                                        reinterpret_cast<const Element*>(data[1 + I])...);
      } else if constexpr (std::is_same_v<Element, BFloat16>) {
        dense_pairs<Order, FromResult>(formula, out, n, x,
                                       reinterpret_cast<const Element*>(data[1 + I])...);
      } else {
        int64_t done = 0;
#if defined(__AVX2__)
        if constexpr (kInSegments<Formula, Element, Order, FromResult>) {
          done = dense_segments<Order>(formula, out, n, x,
                                       reinterpret_cast<const Element*>(data[1 + I])...);
        }
#endif
        dense_elements<Element, Order, FromResult>(
            formula, out + done, n - done, x + done,
            (reinterpret_cast<const Element*>(data[1 + I]) + done)...);
      }
    }(std::make_index_sequence<Order>{});
  }

  // Any strides: a block at a time through small buffers, so that the formula always runs on dense
  // elements and no tensor is copied. Of a long row a block has no more than the rest, and what is
  // dense in a block is read and written where it lies: on a Zen 5 core PReLU with a weight for
  // each channel of 32 x 32 float32 took 1.04 ns an element before, 0.21 now.
  static void gathered(const Formula& formula, char* const* data, const int64_t* strides,
                       int64_t size0, int64_t size1) {
    Element buffers[kOperands][kBlock];
    const bool long_rows = size1 == 1 || size0 >= kBlock / 4;
    bool dense_in_block[kOperands];
    for (int i = 0; i < kOperands; ++i) {
      const bool rows_touch = size1 == 1 || strides[kOperands + i] == size0 * kSize;
      dense_in_block[i] = strides[i] == kSize && (long_rows || rows_touch);
    }
    const int64_t total = size0 * size1;
    for (int64_t start = 0, count = 0; start < total; start += count) {
      const int64_t row = start / size0;
      const int64_t column = start - row * size0;
      const int64_t left = long_rows ? size0 - column : total - start;
      count = left < kBlock ? left : kBlock;
      char* pointers[kOperands];
      for (int i = 0; i < kOperands; ++i) {
        if (dense_in_block[i]) {
          pointers[i] = data[i] + row * strides[kOperands + i] + column * kSize;
        } else {
          pointers[i] = reinterpret_cast<char*>(buffers[i]);
          if (i > 0)
            gather(data[i], strides[i], strides[kOperands + i], size0, start, count, buffers[i]);
        }
      }
      dense_block(formula, pointers, count);
      if (!dense_in_block[0])
        scatter(buffers[0], data[0], strides[0], strides[kOperands], size0, start, count);
    }
  }

  static void gather(char* base, int64_t stride0, int64_t stride1, int64_t size0, int64_t start,
                     int64_t count, Element* to) {
    for_each_run(base, stride0, stride1, size0, start, count, [&](char* from, int64_t n) {
      if (stride0 == kSize) {
        std::memcpy(to, from, static_cast<size_t>(n * kSize));
      } else if (stride0 == 0) {
        const Element element = *reinterpret_cast<Element*>(from);
        for (int64_t i = 0; i < n; ++i) to[i] = element;
      } else if (stride0 == 2 * kSize) {  // every second one is a shuffle of vectors
        for (int64_t i = 0; i < n; ++i) to[i] = reinterpret_cast<Element*>(from)[2 * i];
      } else {
        for (int64_t i = 0; i < n; ++i) to[i] = *reinterpret_cast<Element*>(from + i * stride0);
      }
      to += n;
    });
  }

  static void scatter(const Element* from, char* base, int64_t stride0, int64_t stride1,
                      int64_t size0, int64_t start, int64_t count) {
    for_each_run(base, stride0, stride1, size0, start, count, [&](char* to, int64_t n) {
      if (stride0 == kSize) {
        std::memcpy(to, from, static_cast<size_t>(n * kSize));
      } else {
        for (int64_t i = 0; i < n; ++i) *reinterpret_cast<Element*>(to + i * stride0) = from[i];
      }
      from += n;
    });
  }

  // visit(address, n) for the runs along the first dimension of the elements start .. start + count
  // of a block of rows of size0 elements.
  template <class Visit>
  static FASTACT_INLINE void for_each_run(char* base, int64_t stride0, int64_t stride1,
                                          int64_t size0, int64_t start, int64_t count,
                                          const Visit& visit) {
    int64_t row = start / size0;
    int64_t column = start - row * size0;
    for (int64_t left = count; left > 0; ++row, column = 0) {
      const int64_t left_in_row = size0 - column;
      const int64_t n = left_in_row < left ? left_in_row : left;
      visit(base + row * stride1 + column * stride0, n);
      left -= n;
    }
  }
};

}  // namespace fastact::cpu::inline FASTACT_TARGET
