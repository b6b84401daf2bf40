// CELU: f(x) = x for x > 0, alpha (e^(x / alpha) - 1) for x <= 0.
//
// Range: every input. celu(-0.0) = -0.0, celu(-inf) = -alpha for a positive alpha. alpha = 0 is an
// error, as in PyTorch.
//
// Accuracy (ULP):  f    f'     f''    f'''
//   bfloat16       0.5  0.5    0.5    0.5
//   float16        0.5  0.5    0.5    0.5
//   float32        0.5  0.8    0.501  0.501
//   float64        1.5  1.5    1.5    1.5
//
// The float32 gradient is within 1 ULP for any incoming gradient, and within 1.3 if one of the two
// is close to underflow. If alpha is not 1, it is within 0.51.
//
// From the result (in-place calls), f' = (y + alpha) / alpha includes the rounding errors of y and
// of the sum. Together they are about one ULP of alpha. This error is absolute: where f' is small,
// it is large relative to f'. If |alpha| is not from 2^-100 to 2^100, the in-place form saves its
// input.
//
// These bounds hold for the default alpha. With any other finite alpha, the 16-bit types and
// float32 are within 0.51, and float64 is within twice the bound.
//
// Source: Barron, "Continuously Differentiable Exponential Linear Units", 2017.
#pragma once

#include "ops/activations/shared/exponential_linear.h"

namespace fastact::inline FASTACT_TARGET {

struct OrdinaryCelu : OrdinaryExponentialLinear {
  FASTACT_INLINE explicit OrdinaryCelu(const double* parameters)
      : OrdinaryCelu(parameters[0], 1.0 / parameters[0]) {}

  static constexpr bool is_default(const double* parameters) { return parameters[0] == 1.0; }

 private:
  FASTACT_INLINE OrdinaryCelu(double alpha, double inverse)
      : OrdinaryExponentialLinear(1.0, alpha, inverse, fma(-alpha, inverse, 1.0) * inverse) {}
};

struct Celu : ExponentialLinear {
  static constexpr Traits kTraits = {.saves = Saves::kInput, .gradient_from_result = true};
  static constexpr Parameter kParameters[] = {{"alpha", 1.0}};
  using Default = OrdinaryCelu;
  static constexpr double kApproximated[] = {1.0};
  static constexpr Requirement kRequirements[] = {
      {.parameter = 0, .expected = "other than 0", .holds = [](const double* parameters) {
         return parameters[0] != 0;
       }}};

  static constexpr bool is_default(const double* parameters) {
    return OrdinaryCelu::is_ordinary(1.0, parameters[0], 1.0 / parameters[0]);
  }
  static constexpr bool result_suffices(const double* parameters) {
    return ExponentialLinear::result_suffices(1.0, parameters[0], 1.0 / parameters[0]);
  }

  FASTACT_INLINE explicit Celu(const double* parameters)
      : Celu(parameters[0], inverse_of(scaled(parameters[0]))) {}

 private:
  // The inverse of a subnormal alpha is beyond the range of double.
  FASTACT_INLINE Celu(double alpha, const ScaledSum& inverse)
      : ExponentialLinear(1.0, alpha, inverse) {}
};

}  // namespace fastact::inline FASTACT_TARGET
