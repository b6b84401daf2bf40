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
// An element is near if its segment is one of the first kNearSegments of the table, and far
// otherwise.

// The number of elements that are computed together.
inline constexpr int kSegmentBlock = 64;

// The number of arrays that find_segments() fills: one of the elements' centers, and one of each
// coefficient, rounded up to a multiple of 4. The arrays beyond these are not read.
template <const auto& kTable>
inline constexpr int kSegmentColumns = (ShapeOf<kTable>::kCoefficients + 4) / 4 * 4;

// Returns the segment of lane i from the output of find_segments().
template <int Columns, int... K>
FASTACT_INLINE auto lane_segment(const float (&c)[Columns][kFloats], int i,
                                 std::integer_sequence<int, K...>) {
  return SegmentOf<sizeof...(K)>{c[0][i], {c[K + 1][i]...}};
}
template <const auto& kTable, int Columns>
FASTACT_INLINE auto segment_of(const float (&c)[Columns][kFloats], int i) {
  return lane_segment(c, i, std::make_integer_sequence<int, ShapeOf<kTable>::kCoefficients>{});
}

// True if the table has more than kNearSegments segments. find_near_segments() looks up only the
// first kNearSegments, and is faster than find_segments().
template <class F>
inline constexpr bool kHasNearSegments = [] {
  if constexpr (ShapeOf<*F::kTable>::kIsFull) {
    return kUsedSegments<*F::kTable> > kNearSegments;
  } else {
    return false;
  }
}();

// Returns true if all elements are in segments that find_near_segments() looks up.
template <class F, class... Inputs>
FASTACT_INLINE bool are_near(int n, const Inputs&... inputs) {
  uint32_t largest = 0;
  for (int i = 0; i < n; ++i) {
    const uint32_t size = to_bits(magnitude(F::preactivation(inputs[i]...)));
    largest = size > largest ? size : largest;
  }
  return largest < near_end<*F::kTable>(kNearSegments);
}

// Computes one vector whose elements are near. The loops of fixed length, here and below, become
// straight-line code in registers.
template <class F, class... Inputs>
FASTACT_INLINE void near_vector(const F form, float* out, const Inputs&... inputs) {
  alignas(64) uint32_t index[kFloats];
  FASTACT_ONE_VECTOR
  for (int i = 0; i < kFloats; ++i)
    index[i] = full_table_index_bits<*F::kTable>(magnitude(F::preactivation(inputs[i]...)));
  alignas(64) float c[kSegmentColumns<*F::kTable>][kFloats];
  find_near_segments<*F::kTable>(index, c);
  alignas(64) float result[kFloats];
  FASTACT_ONE_VECTOR
  for (int i = 0; i < kFloats; ++i)
    result[i] = form.evaluate_near(segment_of<*F::kTable>(c, i), inputs[i]...);
  store(result, out);
}

// Writes the indices that any_vector() takes.
template <class F, class... Inputs>
FASTACT_INLINE void segment_indices(const F form, uint32_t* index, const Inputs&... inputs) {
  FASTACT_ONE_VECTOR
  for (int i = 0; i < kFloats; ++i) index[i] = form.segment(inputs[i]...) * kIndexUnit<*F::kTable>;
}

// Computes one vector of any elements from the coefficients of their segments.
template <class F, int Columns, class... Inputs>
FASTACT_INLINE void vector_in_segments(const F form, float* out, const float (&c)[Columns][kFloats],
                                       const Inputs&... inputs) {
  alignas(64) float result[kFloats];
  FASTACT_ONE_VECTOR
  for (int i = 0; i < kFloats; ++i)
    result[i] = round_to<float>(form.evaluate_in(segment_of<*F::kTable>(c, i), inputs[i]...));
  store(result, out);
}

// The same from indices of segment_indices().
template <class F, class... Inputs>
FASTACT_INLINE void any_vector(const F form, float* out, const uint32_t* index,
                               const Inputs&... inputs) {
  alignas(64) float c[kSegmentColumns<*F::kTable>][kFloats];
  find_segments<*F::kTable>(index, c);
  vector_in_segments(form, out, c, inputs...);
}

// Computes whole vectors of any elements.
template <class F, class... Inputs>
FASTACT_INLINE void any_vectors(const F form, float* out, int64_t n, const Inputs*... inputs) {
  // Finds the segments of all elements first. In a single pass, one element's operations form
  // one dependency chain, and a processor cannot keep enough of these chains in flight. GELU, AVX2:
  // 1.47 instead of 1.95 ns an element (Sapphire Rapids).
  alignas(64) uint32_t index[kSegmentBlock];
  for (int64_t at = 0; at < n; at += kFloats) segment_indices(form, index + at, (inputs + at)...);
  for (int64_t at = 0; at < n; at += kFloats)
    any_vector(form, out + at, index + at, (inputs + at)...);
}

// Computes a block that contains near and far elements: all elements as if they were near, and then
// the far elements again. With more than kMaxRecomputed far elements, computes all like far ones
// (docs/dev/tuning.md).
template <class F, class... Inputs>
FASTACT_INLINE void mixed_block(const F form, float* out, const Inputs*... inputs) {
  uint64_t beyond = 0;
  for (int at = 0; at < kSegmentBlock; at += kFloats) {
    alignas(64) uint32_t sizes[kFloats];
    FASTACT_ONE_VECTOR
    for (int i = 0; i < kFloats; ++i)
      sizes[i] = to_bits(magnitude(F::preactivation(inputs[at + i]...)));
    const uint64_t lanes = lanes_beyond(sizes, near_end<*F::kTable>(kNearSegments));
    beyond |= lanes << at;
  }
  const int count = __builtin_popcountll(beyond);
  if (count > kMaxRecomputed) return any_vectors(form, out, kSegmentBlock, inputs...);
  // The far inputs are copied first, because an in-place call overwrites them. Copies of the last
  // one fill the last vector.
  constexpr int kListSize = (kMaxRecomputed + kFloats - 1) / kFloats * kFloats;
  alignas(64) float listed[sizeof...(Inputs)][kListSize];
  uint8_t places[kListSize];
  int listed_count = 0;
  const auto list = [&](int place) {
    int input = 0;
    ((listed[input++][listed_count] = inputs[place]), ...);
    places[listed_count++] = static_cast<uint8_t>(place);
  };
  for (uint64_t rest = beyond; rest != 0; rest &= rest - 1) list(__builtin_ctzll(rest));
  while (listed_count % kFloats != 0) list(places[listed_count - 1]);
  for (int at = 0; at < kSegmentBlock; at += kFloats) near_vector(form, out + at, (inputs + at)...);
  alignas(64) float results[kListSize];
  [&]<size_t... I>(std::index_sequence<I...>) {
    any_vectors(form, results, listed_count, listed[I]...);
  }(std::index_sequence_for<Inputs...>{});
  for (int i = 0; i < listed_count; ++i) out[places[i]] = results[i];
}

// Computes whole vectors and returns the number of elements computed.
template <class F, class... Inputs>
FASTACT_INLINE int64_t dense_segments(const F form, float* out, int64_t n,
                                      const Inputs*... inputs) {
  const int64_t end = n - n % kFloats;
  for (int64_t start = 0; start < end; start += kSegmentBlock) {
    const int64_t count = end - start < kSegmentBlock ? end - start : kSegmentBlock;
    if constexpr (kHasNearSegments<F>) {
      if (count == kSegmentBlock && are_near<F>(kSegmentBlock, (inputs + start)...)) {
        for (int64_t at = start; at < start + kSegmentBlock; at += kFloats)
          near_vector(form, out + at, (inputs + at)...);
        continue;
      }
      if constexpr (kMaxRecomputed > 0) {
        if (count == kSegmentBlock) {
          mixed_block(form, out + start, (inputs + start)...);
          continue;
        }
      }
    }
    any_vectors(form, out + start, count, (inputs + start)...);
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

// Returns round_to<BFloat16>() in the upper 16 bits. The lower 16 bits are unspecified.
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
