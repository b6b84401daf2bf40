// ELU: f(x) = scale x for x > 0, scale alpha (e^(input_scale x) - 1) for x <= 0.
//
// Range: every input. elu(-0.0) = -0.0, elu(-inf) = -scale alpha; f'(0) = scale alpha input_scale,
// from the left.
//
// Accuracy (ULP):  f    f'     f''    f'''
//   bfloat16       0.5  0.5    0.5    0.5
//   float16        0.5  0.5    0.5    0.5
//   float32        0.5  0.8    0.501  0.501
//   float64        1.5  1.5    1.5    1.5
//
// The float32 gradient is within 1 ULP for any incoming gradient, and within 1.3 if one of the two
// is close to underflow. If a parameter is not the default, it is within 0.51.
//
// From the result (in-place calls), f' = input_scale (y + scale alpha) includes the rounding errors
// of y and of the sum. Together they are about one ULP of scale alpha. This error is absolute:
// where f' is small, it is large relative to f'. With a negative scale, or with alpha and
// input_scale of different signs, the sign of the result does not determine the sign of the input.
// Then the in-place form saves its input. It also does so if a parameter is neither 0 nor from
// 2^-100 to 2^100 in magnitude.
//
// These bounds hold for the defaults. With any other finite parameters, the 16-bit types and
// float32 are within 0.51. float64 is within twice the bound, which includes the rounding of scale
// alpha.
//
// Source: Clevert, Unterthiner and Hochreiter, "Fast and Accurate Deep Network Learning by
// Exponential Linear Units", 2015; the scales are ATen's.
#pragma once

#include "ops/activations/shared/exponential_linear.h"

namespace fastact::inline FASTACT_TARGET {

struct OrdinaryElu : OrdinaryExponentialLinear {
  FASTACT_INLINE explicit constexpr OrdinaryElu(const double* parameters)
      : OrdinaryExponentialLinear(parameters[1], parameters[0] * parameters[1], parameters[2],
                                  0.0) {}

  static constexpr bool is_default(const double* parameters) {
    return parameters[0] == 1.0 && parameters[1] == 1.0 && parameters[2] == 1.0;
  }
};

struct Elu : ExponentialLinear {
  static constexpr Traits kTraits = {.saves = Saves::kInput, .gradient_from_result = true};
  static constexpr Parameter kParameters[] = {{"alpha", 1.0}, {"scale", 1.0}, {"input_scale", 1.0}};
  using Default = OrdinaryElu;
  static constexpr double kApproximated[] = {1.0, 1.0, 1.0};

  // parameters: alpha, scale, input_scale
  static constexpr bool is_default(const double* parameters) {
    return OrdinaryElu::is_ordinary(parameters[1], parameters[0] * parameters[1], parameters[2]);
  }
  static constexpr bool result_suffices(const double* parameters) {
    return ExponentialLinear::result_suffices(parameters[1], parameters[0], parameters[2]);
  }

  FASTACT_INLINE explicit Elu(const double* parameters)
      : ExponentialLinear(parameters[1], parameters[0], {scaled(parameters[2]), {}}) {}
};

}  // namespace fastact::inline FASTACT_TARGET
