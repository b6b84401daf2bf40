// Functions in segments: a polynomial for each of 16 intervals, with its coefficients from a table.
// In float32 that takes half the instructions of compensated arithmetic over the whole range.
//
// A smooth function needs nothing else (tanh). One that decays is e^-A times a smooth one, for an
// exponent A that the formula computes. On a GPU the table lies in shared memory: four loads of 8
// bytes an element. On a CPU it is permuted in vector registers, or rows of it are transposed
// (ops/cpu/loops.h).
//
// scripts/fit_segments.py writes the tables. A segment's center is chosen so that the function's
// value there is almost a float32 number, as in Gal's accurate tables (Gal and Bachelis, "An
// Accurate Elementary Mathematical Library for the IEEE Floating Point Standard", 1991).
#pragma once

#include <tuple>

#include "ops/formulas/exponential.h"

namespace fastact {

// From 0 on in one direction.
inline constexpr int kSegments = 16;
inline constexpr int kSegmentCoefficients = 7;

// With a Size of 16 for |x|; with 32 for x < 0, then for x > 0.
template <int Size>
struct SegmentTable {
  float scale;  // see segment_index()
  float centers[Size];
  float coefficients[kSegmentCoefficients][Size];
};

// Of the tables of f and f', that of f^(Order). None is a nullptr by its type: under UBSan, GCC
// does not count a table's address as a constant that differs from it.
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

// The polynomial of one segment, in t = argument - center.
struct Segment {
  float center;
  float coefficients[kSegmentCoefficients];
};

// Where |x| = size lies: the last two bits of the exponent and the first two of the significand of
// v = min(scale size + 5/64, 1), which are four segments from each power of two to the next. The
// number of v = 1 is that of v < 5/64, which there is not.
template <const auto& kTable>
FASTACT_INLINE uint32_t segment_index(float size) {
  constexpr float kScale = kTable.scale;
#if defined(__CUDA_ARCH__)
  const uint32_t v = to_bits(__saturatef(fma(size, kScale, 0x1.4p-4f)));  // one instruction
#else
  // Positive numbers are in the order of their bits, whose minimum is one instruction.
  const uint32_t sum = to_bits(fma(size, kScale, 0x1.4p-4f));
  const uint32_t v = sum < to_bits(1.0f) ? sum : to_bits(1.0f);
#endif
  return (v >> 21) % kSegments;
}

// |x| for a segment_index() that is the same from `end` on, as v is 1 there: only a GPU, which has
// the minimum for the polynomial already, takes it.
FASTACT_INLINE float unbounded_size(float x, [[maybe_unused]] float end) {
#if defined(__CUDA_ARCH__)
  return clamp_magnitude(x, end);
#else
  return magnitude(x);
#endif
}

// The same in a table for both signs.
template <const auto& kTable>
FASTACT_INLINE uint32_t signed_segment_index(float x, float size) {
  return segment_index<kTable>(size) + (~to_bits(x) >> 31) * kSegments;
}

#if defined(__CUDACC__)
// A table as the GPU reads it: in pairs, of which 16 fill the 32 banks of shared memory once. Quads
// are half as many loads, but collide: GELU ran at 0.894 instead of 0.933 of copy speed (H200).
// Aligned for the copy to there, which moves 16 bytes at a time.
template <int Size>
struct alignas(16) PackedSegments {
  float2 values[kSegmentCoefficients / 2 + 1][Size];
};

template <int Size>
constexpr PackedSegments<Size> packed(const SegmentTable<Size>& table) {
  PackedSegments<Size> result{};
  for (int i = 0; i < Size; ++i) {
    const auto& c = table.coefficients;
    result.values[0][i] = {table.centers[i], c[0][i]};
    for (int k = 1; k < kSegmentCoefficients; k += 2)
      result.values[(k + 1) / 2][i] = {c[k][i], c[k + 1][i]};
  }
  return result;
}

template <class Formula, int Order>
__device__ const auto kPackedSegments = packed(*Formula::template kSegmentTable<Order>);

// A block's copy, in the memory whose addresses are an index and a constant.
template <class Formula, int Order>
__device__ __forceinline__ auto& shared_segments() {
  __shared__ decltype(packed(*Formula::template kSegmentTable<Order>)) segments;
  return segments;
}
#endif

template <class Formula, int Order>
FASTACT_INLINE Segment find_segment(uint32_t index) {
#if defined(__CUDA_ARCH__)
  const auto& values = shared_segments<Formula, Order>().values;
  const float2 first = values[0][index];
  Segment segment{first.x, {first.y}};
#pragma unroll
  for (int k = 1; k < kSegmentCoefficients; k += 2) {
    const float2 pair = values[(k + 1) / 2][index];
    segment.coefficients[k] = pair.x;
    segment.coefficients[k + 1] = pair.y;
  }
  return segment;
#else
  constexpr const auto& kTable = *Formula::template kSegmentTable<Order>;
  Segment segment;
  segment.center = kTable.centers[index];
  for (int k = 0; k < kSegmentCoefficients; ++k)
    segment.coefficients[k] = kTable.coefficients[k][index];
  return segment;
#endif
}

// p(t) = high + low.
struct SegmentValue {
  float high;
  float low;
};

// A function without a zero but at a center: the constant coefficient is the largest term.
FASTACT_INLINE SegmentValue in_segment(const Segment& segment, float argument) {
  const auto& c = segment.coefficients;
  const float t = argument - segment.center;
  const float slope = polynomial(t, c[1], c[2], c[3], c[4], c[5], c[6]);
  const float high = fma(slope, t, c[0]);
  return {high, fma(slope, t, c[0] - high)};
}

// The polynomial's slope from the center, with what its last operation rounds off.
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

// The same, rounded once but for about 0.2 ULP; also next to a zero at 0.
FASTACT_INLINE float rounded_in_segment(const Segment& segment, float argument) {
  const auto [t, slope, slope_low] = slope_in_segment(segment, argument);
  return fma(slope, t, fma(slope_low, t, segment.coefficients[0]));
}

// In two parts; also next to a zero at 0.
FASTACT_INLINE SegmentValue in_segment_closely(const Segment& segment, float argument) {
  const auto [t, slope, slope_low] = slope_in_segment(segment, argument);
  const float constant = segment.coefficients[0];
  const float high = fma(slope, t, constant);
  return {high, fma(slope_low, t, fma(slope, t, constant - high))};
}

// Next to another zero the linear term is the largest.
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

// 2^guard e^-A times a value, for A in pieces.
FASTACT_INLINE float decaying(const SegmentValue& value, const Pieces<float>& a) {
  const float tail = fma(a.r * a.r, exponential_tail(-a.r), -a.low);
  const float low = fma(value.low, -a.r, value.low);
  const float rest = fma(value.high, tail, fma(-value.high, a.high, low));
  return (value.high + rest) * a.scale;
}

// The same where e^-A = scale e^r.
FASTACT_INLINE float decaying(const SegmentValue& value, const Reduced<float>& a) {
  return decaying(value, Pieces<float>{-a.r, 0.0f, -a.r, a.scale});
}

// For f(x) = x - f(-x) and its derivative, from what they are at -|x|, 2^guard times too large.
FASTACT_INLINE float mirrored_value(float x, float guarded) {
  return fma(guarded, -kUnguard<float>, positive_part(x));
}

FASTACT_INLINE float mirrored_slope(float x, float guarded) {
  const uint32_t sign = ~to_bits(x) & 0x80000000u;
#if defined(__CUDA_ARCH__)
  const float base = from_bits((sign >> 31) * 0x3f800000u);
#else
  // A CPU has no fast product of integers.
  const float base =
      from_bits(~static_cast<uint32_t>(static_cast<int32_t>(to_bits(x)) >> 31) & 0x3f800000u);
#endif
  return fma(from_bits(to_bits(guarded) ^ sign), kUnguard<float>, base);
}

}  // namespace fastact::inline FASTACT_TARGET
