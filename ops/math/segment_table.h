// The tables of functions in segments, and what a table holds of one segment (segments.h).
#pragma once

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

// The polynomial of one segment, in t = argument - center.
struct Segment {
  float center;
  float coefficients[kSegmentCoefficients];
};

}  // namespace fastact
