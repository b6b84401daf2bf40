// log(1 + e^-|x|) in float32, in segments (segments.h). softplus and log_sigmoid share it.
#pragma once

#include "ops/activations/tables/softplus.h"
#include "ops/math/logistic.h"
#include "ops/math/segments.h"

namespace fastact::inline FASTACT_TARGET {

struct LogarithmInSegments {
  template <int Order>
  static constexpr auto kSegmentTable = table_of<Order>(&kSoftplusSegments);

  template <int Order>
  FASTACT_INLINE static uint32_t segment(float x) {
    return segment_index<*kSegmentTable<Order>>(unbounded_size(x, kLogisticEnd<float>));
  }

  // Returns the value at -|x|, scaled by 2^guard.
  FASTACT_INLINE static float guarded(const Segment& segment, float x) {
    const float size = clamp_magnitude(x, kLogisticEnd<float>);
    return decaying(segment_value(segment, size), reduce_in_pieces(size));
  }
};

}  // namespace fastact::inline FASTACT_TARGET
