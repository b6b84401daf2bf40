// The tables of functions in segments, and the entries of one segment (segments.h).
#pragma once

namespace fastact {

// Segments on one side of 0.
inline constexpr int kSegments = 16;
inline constexpr int kSegmentCoefficients = 7;

// Size 16: segments of |x|. Size 32: segments for x < 0, then for x > 0.
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
