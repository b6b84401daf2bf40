// Evaluates piecewise polynomials, whose coefficients are in a table. There are two kinds of
// tables.
//
// A FullTable approximates the activation itself. It has 16 or 48 segments, which reach to where
// the function is constant in float32, and needs no exponential.
//
// A SegmentTable has 16 segments of |x|, or 16 for each sign. It approximates a smooth function g.
// The activation is g, or e^-A g, where its formula computes A.
//
// On a GPU the table is in shared memory. A CPU kernel looks up coefficients by permuting vector
// registers, or loads a row of the table for each element and transposes the rows
// (ops/cpu/packed.h). Below, `size` is |x|.
//
// scripts/coefficients/fit_segments.py writes the tables. The center of a segment is chosen so that
// the function's value there is almost a float32 number, as in Gal's accurate tables (Gal and
// Bachelis, "An Accurate Elementary Mathematical Library for the IEEE Floating Point Standard",
// 1991).
#pragma once

#include <tuple>
#include <utility>

#include "ops/math/exponential.h"
#include "ops/math/segment_table.h"

namespace fastact {

// Returns the table of f^(Order) from the tables of f and f'. An absent table has the type
// nullptr_t: under UBSan, GCC does not accept a comparison of a table's address with nullptr as a
// constant expression.
template <int Order, class... Tables>
consteval auto table_of(Tables... tables) {
  if constexpr (Order < sizeof...(Tables)) {
    return std::get<Order>(std::tuple{tables...});
  } else {
    return nullptr;
  }
}

}  // namespace fastact

namespace fastact::inline FASTACT_TARGET {

// Returns the index of a segment in a SegmentTable: the two lowest bits of the exponent and the two
// highest stored bits of the significand of v = min(scale * size + 5/64, 1). This gives four
// segments from each power of two to the next. v = 1 has the same index as v in [4/64, 5/64), but
// v is at least 5/64.
template <const auto& kTable>
FASTACT_INLINE uint32_t segment_index(float size) {
  constexpr float kScale = kTable.scale;
  const uint32_t v = to_bits(saturated(fma(size, kScale, 0x1.4p-4f)));
  return (v >> 21) % kSegments;
}

// The same for a table of both signs.
template <const auto& kTable>
FASTACT_INLINE uint32_t signed_segment_index(float x, float size) {
  return segment_index<kTable>(size) + (~to_bits(x) >> 31) * kSegments;
}

// Returns a number whose low bits are the index of a segment in a FullTable: the addition of
// 1.5 * 2^23 rounds to an integer.
template <const auto& kTable>
FASTACT_INLINE uint32_t full_table_index_bits(float size) {
  constexpr float kLinear = kTable.index[0];
  constexpr float kQuadratic = kTable.index[1];
  constexpr float kCubic = kTable.index[2];
  float factor;
  if constexpr (kCubic == 0.0f) {
    factor = fma(size, kQuadratic, kLinear);
  } else {
    factor = fma(size, fma(size, kCubic, kQuadratic), kLinear);
  }
  return to_bits(fma(size, factor, 0x1.8p23f));
}

// Returns the index for any x.
template <const auto& kTable>
FASTACT_INLINE uint32_t full_table_index(float x) {
  constexpr float kEnd = kTable.end;
  return full_table_index_bits<kTable>(clamp_ordered_magnitude(x, kEnd)) % kIndexRange;
}

// Returns the index before it is rounded.
template <const auto& kTable>
consteval double full_position(double a) {
  return a * (kTable.index[0] + a * (kTable.index[1] + a * kTable.index[2]));
}

// The number of segments that are used. The others repeat the last one.
template <const auto& kTable>
inline constexpr int kUsedSegments = static_cast<int>(full_position<kTable>(kTable.end) + 1.5);

// Returns the bits of a limit: each |x| below it is in one of the first `segments` segments, and
// below the table's end.
template <const auto& kTable>
consteval uint32_t near_end(int segments) {
  // Binary search on the bits: positive floats have the order of their bits.
  uint32_t low = 0;
  uint32_t high = __builtin_bit_cast(uint32_t, kTable.end);
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    // 2^-10 is more than the error of the index.
    const double position = full_position<kTable>(__builtin_bit_cast(float, middle)) + 0x1p-10;
    (position < segments - 0.5 ? low : high) = middle;
  }
  return low;
}

// Returns f(x) = x + f(-x) from 2^guard |f(-|x|)|.
FASTACT_INLINE float mirrored_value(float x, float guarded) {
  return fma(guarded, -kUnguard<float>, positive_part(x));
}

// Returns f'(x) from 2^guard f'(x) for x < 0, and from 2^guard (1 - f'(x)) for x > 0.
FASTACT_INLINE float mirrored_slope(float x, float guarded) {
  const uint32_t sign = ~to_bits(x) & 0x80000000u;
  const float base = step_of_sign(x, sign);
  return fma(from_bits(to_bits(guarded) ^ sign), kUnguard<float>, base);
}

// Returns the segment's polynomial of t.
template <class S, int... K>
FASTACT_INLINE float polynomial_of(const S& segment, float t, std::integer_sequence<int, K...>) {
  return polynomial(t, segment.coefficients[K]...);
}

// Returns f(x) from its segment. `size` is at most the table's end.
template <const auto& kTable, class S>
FASTACT_INLINE float full_table_value_below_end(const S& segment, float x, float size) {
  const float y = polynomial_of(segment, size - segment.center,
                                std::make_integer_sequence<int, ShapeOf<kTable>::kCoefficients>{});
  if constexpr (kTable.reflection == Reflection::kSumIsOne) {
    return mirrored_slope(x, y);
  } else {
    return with_sign_of(y, x);
  }
}

// The same for any x.
template <const auto& kTable, class S>
FASTACT_INLINE float full_table_value(const S& segment, float x) {
  constexpr float kEnd = kTable.end;
  return full_table_value_below_end<kTable>(segment, x, clamp_magnitude(x, kEnd));
}

// p(t) = high + low.
struct SegmentValue {
  float high;
  float low;
};

// For a function without a zero, or with a zero only at a segment's center: the constant
// coefficient is the largest term.
FASTACT_INLINE SegmentValue segment_value(const Segment& segment, float argument) {
  const auto& c = segment.coefficients;
  const float t = argument - segment.center;
  const float slope = polynomial(t, c[1], c[2], c[3], c[4], c[5], c[6]);
  const float high = fma(slope, t, c[0]);
  return {high, fma(slope, t, c[0] - high)};
}

// (p(t) - p(0)) / t = high + low.
struct SegmentSlope {
  float t;
  float high;
  float low;
};

FASTACT_INLINE SegmentSlope segment_slope(const Segment& segment, float argument) {
  const auto& c = segment.coefficients;
  const float t = argument - segment.center;
  const float bend = polynomial(t, c[2], c[3], c[4], c[5], c[6]);
  const float slope = fma(bend, t, c[1]);
  return {t, slope, fma(bend, t, c[1] - slope)};
}

// The same with a smaller error. Also for a function that is zero at x = 0.
FASTACT_INLINE SegmentValue accurate_segment_value(const Segment& segment, float argument) {
  const auto [t, slope, slope_low] = segment_slope(segment, argument);
  const float constant = segment.coefficients[0];
  const float high = fma(slope, t, constant);
  return {high, fma(slope_low, t, fma(slope, t, constant - high))};
}

// For a function with a zero at another x: next to it, the linear term is the largest.
FASTACT_INLINE SegmentValue segment_value_with_zero(const Segment& segment, float argument) {
  const auto [t, slope, slope_low] = segment_slope(segment, argument);
  const float constant = segment.coefficients[0];
  const float linear = slope * t;
  const float linear_low = fma(slope_low, t, fma(slope, t, -linear));
  const float high = linear + constant;
  const float added = high - linear;
  const float error = (linear - (high - added)) + (constant - added);
  return {high, error + linear_low};
}

// Returns 2^guard e^-A times a value. `a` is A (Pieces: ops/math/exponential.h).
FASTACT_INLINE float decaying(const SegmentValue& value, const Pieces<float>& a) {
  const float tail = fma(a.r * a.r, exponential_tail(-a.r), -a.low);
  const float low = fma(value.low, -a.r, value.low);
  const float rest = fma(value.high, tail, fma(-value.high, a.high, low));
  return (value.high + rest) * a.scale;
}

// The same for e^-A = scale e^r.
FASTACT_INLINE float decaying(const SegmentValue& value, const Reduced<float>& a) {
  return decaying(value, Pieces<float>{-a.r, 0.0f, -a.r, a.scale});
}

}  // namespace fastact::inline FASTACT_TARGET
