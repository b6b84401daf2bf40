// Loops over contiguous elements that process several at a time: pairs of BFloat16, vectors of
// Float16, and vectors of float for forms with a segment table.
#pragma once

#include <cstdint>
#include <utility>

#include "ops/cpu/dense.h"
#include "ops/cpu/vector.h"
#include "ops/math/segments.h"

namespace fastact::cpu::inline FASTACT_TARGET {

#if FASTACT_HAS_SEGMENT_VECTORS
// Returns the segment of lane i from the output of find_segments().
FASTACT_INLINE Segment segment_of(const float (&c)[kSegmentCoefficients + 1][kFloats], int i) {
  return {c[0][i], {c[1][i], c[2][i], c[3][i], c[4][i], c[5][i], c[6][i], c[7][i]}};
}

// Computes whole vectors and returns the number of elements computed. Its loops of fixed length
// become straight-line code in registers.
template <class F, class... Inputs>
FASTACT_INLINE int64_t dense_segments(const F form, float* out, int64_t n,
                                      const Inputs*... inputs) {
  // Finds the segments of kBlock elements first. In a single pass, one element's operations form
  // one dependency chain, and a processor cannot keep enough of these chains in flight. GELU, AVX2:
  // 1.47 instead of 1.95 ns an element (Sapphire Rapids).
  constexpr int kBlock = 64;
  alignas(64) uint32_t index[kBlock];
  const int64_t end = n - n % kFloats;
  for (int64_t start = 0; start < end; start += kBlock) {
    const int64_t count = end - start < kBlock ? end - start : kBlock;
    for (int64_t at = 0; at < count; at += kFloats) {
      FASTACT_ONE_VECTOR
      for (int i = 0; i < kFloats; ++i)
        index[at + i] = form.segment(inputs[start + at + i]...) * kIndexUnit;
    }
    for (int64_t at = 0; at < count; at += kFloats) {
      alignas(64) float c[kSegmentCoefficients + 1][kFloats];
      find_segments<*F::kTable>(index + at, c);
      alignas(64) float result[kFloats];
      FASTACT_ONE_VECTOR
      for (int i = 0; i < kFloats; ++i)
        result[i] = round_to<float>(form.evaluate_in(segment_of(c, i), inputs[start + at + i]...));
      store(result, out + start + at);
    }
  }
  return end;
}
#endif

// Two BFloat16 neighbours in one 32-bit lane. Either half, with zeros below it, is a float. This
// saves the moves between 16-bit and 32-bit lanes. SELU, AVX2: 0.35 instead of 0.40 ns an element
// (Zen 5, docs/dev/tuning.md).
using BFloat16Pair [[gnu::may_alias, gnu::aligned(2)]] = uint32_t;

FASTACT_INLINE float low_half(uint32_t pair) { return from_bits(pair << 16); }
FASTACT_INLINE float high_half(uint32_t pair) { return from_bits(pair & 0xffff0000u); }

// Returns round_to<BFloat16>() in the upper half. The lower half is undefined. The caller keeps the
// upper half.
FASTACT_INLINE uint32_t rounded_upper_half(float y) {
  const uint32_t bits = to_bits(y);
  const uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  return is_nan(y) ? to_bits(canonical_nan<float>()) : rounded;
}
FASTACT_INLINE uint32_t rounded_upper_half(Canonical<float> y) { return to_bits(y.value); }

template <class F, class... Inputs>
FASTACT_INLINE void dense_pairs(const F form, BFloat16* out, int64_t n, const Inputs*... inputs) {
  const auto load = [](const BFloat16* from, int64_t i) -> uint32_t {
    return reinterpret_cast<const BFloat16Pair*>(from)[i];
  };
  FASTACT_INDEPENDENT_ITERATIONS
  for (int64_t i = 0; i < n / 2; ++i) {
    const uint32_t low = rounded_upper_half(form.evaluate(low_half(load(inputs, i))...));
    const uint32_t high = rounded_upper_half(form.evaluate(high_half(load(inputs, i))...));
    reinterpret_cast<BFloat16Pair*>(out)[i] = low >> 16 | (high & 0xffff0000u);
  }
  if (n % 2 != 0) dense_elements(form, Tuple<BFloat16*>{out + n - 1}, 1, (inputs + n - 1)...);
}

// Returns a pointer to a vector of floats, converting Float16 elements into `buffer`.
FASTACT_INLINE const float* as_floats(const float* from, float* /*buffer*/) { return from; }
FASTACT_INLINE const float* as_floats(const Float16* from, float* buffer) {
  widen_halves(from, buffer);
  return buffer;
}

// round_to<float> gives the canonical NaN, which converts to that of Float16.
template <class F, class... Floats>
FASTACT_INLINE void evaluate_floats(const F& form, float* out, const Floats*... floats) {
  FASTACT_ONE_VECTOR
  for (int i = 0; i < kHalves; ++i) out[i] = round_to<float>(form.evaluate(floats[i]...));
}

// For Float16 operands, possibly mixed with float: computes a vector of floats at a time. The
// compiler turns the loop of fixed length into straight-line code in registers.
template <class F, class Output, class... Inputs>
FASTACT_INLINE void dense_halves(const F form, Output* out, int64_t n, const Inputs*... inputs) {
  int64_t start = 0;
  for (; start + kHalves <= n; start += kHalves) {
    alignas(64) float wide[sizeof...(Inputs)][kHalves];
    alignas(64) float result[kHalves];
    [&]<size_t... I>(std::index_sequence<I...>) {
      evaluate_floats(form, result, as_floats(inputs + start, wide[I])...);
    }(std::index_sequence_for<Inputs...>{});
    if constexpr (std::is_same_v<Output, Float16>) {
      narrow_halves(result, out + start);
    } else {
      FASTACT_ONE_VECTOR
      for (int i = 0; i < kHalves; ++i) out[start + i] = result[i];
    }
  }
  dense_elements(form, Tuple<Output*>{out + start}, n - start, (inputs + start)...);
}

}  // namespace fastact::cpu::inline FASTACT_TARGET
