// Functions in segments: a polynomial for each of several intervals, with coefficients from a
// table. There are two kinds of tables.
//
// A FullTable has 16 or 48 segments, which reach to where the function is constant in float32. The
// function is the polynomial of its segment, without an exponential.
//
// A SegmentTable has 16 segments of |x|, or 16 for each sign. It contains a smooth function. The
// result is that function, or e^-A times it, where the formula computes A.
//
// On a GPU the table is in shared memory. On a CPU it is permuted in vector registers, or rows of
// it are transposed (ops/cpu/packed.h).
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

// Returns the segment of |x| = size in a SegmentTable: the last two bits of the exponent and the
// first two bits of the significand of v = min(scale size + 5/64, 1). This gives four segments from
// each power of two to the next. v = 1 shares its index with v < 5/64, which does not occur.
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

// Returns a number whose low bits are the segment of |x| = size in a FullTable: the addition of
// 1.5 2^23 rounds to an integer.
template <const auto& kTable>
FASTACT_INLINE uint32_t full_segment_bits(float size) {
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

// Returns the segment of |x| for any x.
template <const auto& kTable>
FASTACT_INLINE uint32_t full_segment(float x) {
  constexpr float kEnd = kTable.end;
  return full_segment_bits<kTable>(clamp_ordered_magnitude(x, kEnd)) % kIndexRange;
}

// Returns the index before it is rounded.
template <const auto& kTable>
consteval double full_position(double a) {
  return a * (kTable.index[0] + a * (kTable.index[1] + a * kTable.index[2]));
}

// The number of segments that are used. The others repeat the last one.
template <const auto& kTable>
inline constexpr int kUsedSegments = static_cast<int>(full_position<kTable>(kTable.end) + 1.5);

// Returns the bits of an |x| below which all inputs are in the first `segments` segments of the
// table, and below its end.
template <const auto& kTable>
consteval uint32_t near_end(int segments) {
  // A search in bits, which have the order of the positive numbers.
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

// For f(x) = x - f(-x) and its derivative, computed from the results at -|x|, which are scaled by
// 2^guard.
FASTACT_INLINE float mirrored_value(float x, float guarded) {
  return fma(guarded, -kUnguard<float>, positive_part(x));
}

FASTACT_INLINE float mirrored_slope(float x, float guarded) {
  const uint32_t sign = ~to_bits(x) & 0x80000000u;
  const float base = step_of_sign(x, sign);
  return fma(from_bits(to_bits(guarded) ^ sign), kUnguard<float>, base);
}

// Returns the segment's polynomial of t.
template <class Segment, int... K>
FASTACT_INLINE float polynomial_of(const Segment& segment, float t,
                                   std::integer_sequence<int, K...>) {
  return polynomial(t, segment.coefficients[K]...);
}

// Returns f(x) from its segment. `size` is |x|, at most the table's end.
template <const auto& kTable, class Segment>
FASTACT_INLINE float in_near_segment(const Segment& segment, float x, float size) {
  const float y = polynomial_of(segment, size - segment.center,
                                std::make_integer_sequence<int, ShapeOf<kTable>::kCoefficients>{});
  if constexpr (kTable.reflection == Reflection::kOfOne) {
    return mirrored_slope(x, y);
  } else {
    return with_sign_of(y, x);
  }
}

// The same for any x.
template <const auto& kTable, class Segment>
FASTACT_INLINE float in_full_segment(const Segment& segment, float x) {
  constexpr float kEnd = kTable.end;
  return in_near_segment<kTable>(segment, x, clamp_magnitude(x, kEnd));
}

// p(t) = high + low.
struct SegmentValue {
  float high;
  float low;
};

// Evaluates a function that is zero at most at a center: the constant coefficient is the largest
// term.
FASTACT_INLINE SegmentValue in_segment(const Segment& segment, float argument) {
  const auto& c = segment.coefficients;
  const float t = argument - segment.center;
  const float slope = polynomial(t, c[1], c[2], c[3], c[4], c[5], c[6]);
  const float high = fma(slope, t, c[0]);
  return {high, fma(slope, t, c[0] - high)};
}

// The slope of the polynomial from the center, and the rounding error of its last operation.
struct SegmentSlope {
  float t;
  float high;
  float low;
};

FASTACT_INLINE SegmentSlope slope_in_segment(const Segment& segment, float argument) {
  const auto& c = segment.coefficients;
  const float t = argument - segment.center;
  const float bend = polynomial(t, c[2], c[3], c[4], c[5], c[6]);
  const float slope = fma(bend, t, c[1]);
  return {t, slope, fma(bend, t, c[1] - slope)};
}

// Returns the result in two parts. Also works next to a zero at 0.
FASTACT_INLINE SegmentValue in_segment_closely(const Segment& segment, float argument) {
  const auto [t, slope, slope_low] = slope_in_segment(segment, argument);
  const float constant = segment.coefficients[0];
  const float high = fma(slope, t, constant);
  return {high, fma(slope_low, t, fma(slope, t, constant - high))};
}

// Works next to a zero elsewhere, where the linear term is the largest.
FASTACT_INLINE SegmentValue in_segment_with_zero(const Segment& segment, float argument) {
  const auto [t, slope, slope_low] = slope_in_segment(segment, argument);
  const float constant = segment.coefficients[0];
  const float linear = slope * t;
  const float linear_low = fma(slope_low, t, fma(slope, t, -linear));
  const float high = linear + constant;
  const float added = high - linear;
  const float error = (linear - (high - added)) + (constant - added);
  return {high, error + linear_low};
}

// Returns 2^guard e^-A times a value, for A in pieces.
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
