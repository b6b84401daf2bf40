// ReLU6: f(x) = min(max(x, 0), 6).
//
// Range: every input. relu6(-0.0) = -0.0, as in PyTorch.
//
// Accuracy (ULP):  f    f'   f''  f'''
//   bfloat16       0.5  0.5  0.5  0.5
//   float16        0.5  0.5  0.5  0.5
//   float32        0.5  0.5  0.5  0.5
//   float64        0.5  0.5  0.5  0.5
//
// f'(x) = 1 for 0 < x < 6, 0 elsewhere and at the bounds. f'(NaN) = NaN, where PyTorch passes the
// gradient on. f'' and f''' are 0.
//
// Source: the definition (Krizhevsky, "Convolutional Deep Belief Networks on CIFAR-10", 2010).
#pragma once

#include "ops/activations/shared/clamp.h"

namespace fastact::inline FASTACT_TARGET {

struct Relu6 : Clamp {
  FASTACT_INLINE explicit Relu6(const double* /*parameters*/) : Clamp(0.0, 6.0) {}
};

}  // namespace fastact::inline FASTACT_TARGET
