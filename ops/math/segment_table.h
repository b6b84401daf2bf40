// Coefficient tables of piecewise polynomials, whose pieces are called segments, and the
// coefficients of one segment. segments.h evaluates them.
#pragma once

#include <cstdint>
#include <type_traits>

namespace fastact {

// The segments of a SegmentTable on one side of 0.
inline constexpr int kSegments = 16;
inline constexpr int kSegmentCoefficients = 7;

// Size 16: segments of |x|. Size 32: segments for x < 0, then for x > 0.
template <int Size>
struct SegmentTable {
  float scale;  // see segment_index()
  float centers[Size];
  float coefficients[kSegmentCoefficients][Size];
};

// How f(x) for x > 0 follows from f(-x).
enum class Reflection {
  kOdd,       // f(x) = -f(-x)
  kSumIsOne,  // f(x) = 1 - f(-x)
};

// The segments cover a = |x| from 0 to `end`. For larger a the function is constant in float32. The
// segment of a is round(index[0] a + index[1] a^2 + index[2] a^3). Each polynomial approximates
// |f(-a)|. If f is not odd, it is scaled by 2^guard (ops/math/exponential.h).
template <int Size, int Degree>
struct FullTable {
  Reflection reflection;
  float end;
  float index[3];
  float centers[Size];
  float coefficients[Degree + 1][Size];
};

// A power of two, more than the largest index of a segment.
inline constexpr uint32_t kIndexRange = 64;

template <class Table>
struct TableShape;
template <int Size>
struct TableShape<SegmentTable<Size>> {
  static constexpr int kSize = Size;
  static constexpr int kCoefficients = kSegmentCoefficients;
  static constexpr bool kIsFull = false;
};
template <int Size, int Degree>
struct TableShape<FullTable<Size, Degree>> {
  static constexpr int kSize = Size;
  static constexpr int kCoefficients = Degree + 1;
  static constexpr bool kIsFull = true;
};
template <const auto& kTable>
using ShapeOf = TableShape<std::remove_cvref_t<decltype(kTable)>>;

// The polynomial of one segment, in t = argument - center.
template <int Coefficients>
struct SegmentOf {
  float center;
  float coefficients[Coefficients];
};
using Segment = SegmentOf<kSegmentCoefficients>;

}  // namespace fastact
