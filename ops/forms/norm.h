// Shared by the norms of rows (ops/forms/rms_norm.h, ops/forms/layer_norm.h): eps and the length of
// the row.
#pragma once

#include <cstdint>

#include "ops/forms/row_form.h"

namespace fastact::inline FASTACT_TARGET {

// Returns 1 / sqrt(mean + eps).
template <class T>
FASTACT_INLINE T inverse_root(T mean, T eps) {
  return T{1} / square_root(mean + eps);
}

template <class Element>
struct NormBase {
  using T = OpMath<Element>;
  using Outputs = Elements<Element>;
  static constexpr int kReplacedBy = -1;
  static constexpr T kBeyondEnd = T{0};

  FASTACT_INLINE NormBase(const double* parameters, int64_t n)
      : count(static_cast<T>(n)), eps(static_cast<T>(parameters[0])) {}

  T count;
  T eps;
};

}  // namespace fastact::inline FASTACT_TARGET
