// Softplus: f(x) = log(1 + e^(beta x)) / beta for beta x <= threshold, else x.
//
// Range: every input. f(-inf) = 0. The far negative tail keeps its relative accuracy down to the
// subnormal numbers. For the comparison with the threshold, beta x is rounded to the element's type
// (16-bit types: to float), as in PyTorch. f'(inf) = 1 and f'(-inf) = 0; the higher derivatives are
// 0 at both infinities.
//
// Accuracy (ULP):  f     f'    f''   f'''
//   bfloat16       0.5   0.5   0.5   0.5
//   float16        0.5   0.5   0.5   0.5
//   float32        1.5   1.7   0.501 0.501
//   float64        0.85  3     5     8
//
// If beta is not 1, float32's value is within 2 ULP, the results of the 16-bit types are within
// 0.51, and those of float64 within twice the bound.
//
// Source: the definition (Dugas et al., 2001). logarithm.h describes the computation in double,
// segments.h that of f in float32, logistic.h that of f' in float32.
#pragma once

#include "ops/activations/activation.h"
#include "ops/activations/shared/logarithm_in_segments.h"
#include "ops/math/any_rate.h"
#include "ops/math/differentiable.h"
#include "ops/math/logarithm.h"

namespace fastact::inline FASTACT_TARGET {

// For a beta of 1 and a threshold above which the result rounds to x in any case. float32's f and
// f' then need no operations for beta.
struct SoftplusOfOne : LogarithmInSegments {
  static constexpr Traits kTraits = {.saves = Saves::kInput, .last_division = 3, .is_costly = true};

  template <class Element, int Order, bool FromResult>
  static constexpr bool stands_in() {
    return std::is_same_v<Element, float> && Order <= 1;
  }

  FASTACT_INLINE explicit constexpr SoftplusOfOne(const double* /*parameters*/) {}

  template <int Order>
  FASTACT_INLINE static CanonicalOnGpu derivative_in(const Segment& segment, float x) {
    return CanonicalOnGpu{fma(guarded(segment, x), kUnguard<float>, positive_part(x))};
  }

  template <class Element, int Order>
  FASTACT_INLINE static float derivative(float x) {
    return logistic_of(x, clamp_magnitude(x, kLogisticEnd<float>));
  }
};

// For a beta of ordinary size: neither 1 / beta nor beta^2 lifts a result that the arithmetic
// flushes to 0 above the smallest number of its type.
struct OrdinarySoftplus {
  static constexpr Traits kTraits = SoftplusOfOne::kTraits;
  using Default = SoftplusOfOne;

  template <class Element, int Order, bool FromResult>
  static constexpr bool stands_in() {
    return true;
  }

  static constexpr bool is_default(const double* parameters) {
    return parameters[0] == 1.0 && parameters[1] >= 20.0;
  }

  FASTACT_INLINE explicit constexpr OrdinarySoftplus(const double* parameters)
      : beta_(parameters[0]),
        inverse_(1.0 / parameters[0]),
        threshold_(parameters[1]),
        beta_high_(static_cast<float>(beta_)),
        beta_size_low_(static_cast<float>(beta_ < 0.0 ? beta_high_ - beta_ : beta_ - beta_high_)),
        inverse_high_(static_cast<float>(inverse_)),
        unguarded_high_(inverse_high_ * kUnguard<float>),
        unguarded_low_(static_cast<float>(inverse_ - inverse_high_) * kUnguard<float>),
        // The largest finite float bounds the threshold, so that an infinite x beta exceeds it.
        threshold_float_(
            static_cast<float>(threshold_ > 0x1.fffffep127 ? 0x1.fffffep127 : threshold_)) {}

  template <class Element, int Order>
  FASTACT_INLINE auto derivative(OpMath<Element> x) const {
    using T = OpMath<Element>;
    const T z = x * beta(T{});
    const bool linear = z > threshold(T{});
    if constexpr (Order == 0) {
      const T value = value_below_threshold<Element>(x, z);
      return linear ? x : value;
    } else if constexpr (Order == 1 && kIs16Bit<Element>) {
      const float slope = logistic_16<Element>(z);
      return linear ? 1.0f : slope;
    } else if constexpr (Order == 1 && std::is_same_v<Element, float>) {
      const auto [size, rest] = split_magnitude(x, z);
      const float slope = logistic_of(z, size, rest);
      return linear ? 1.0f : slope;
    } else {
      const double slope = derivative_below_threshold<Element, Order>(static_cast<double>(x));
      return narrowed<Element>(linear ? (Order == 1 ? 1.0 : 0.0) : slope);
    }
  }

  template <int Order>
  static constexpr auto kSegmentTable = LogarithmInSegments::kSegmentTable<Order>;

  template <int Order>
  FASTACT_INLINE uint32_t segment(float x) const {
    return segment_index<*kSegmentTable<Order>>(
        clamp_magnitude(x * beta_high_, kLogisticEnd<float>));
  }

  template <int Order>
  FASTACT_INLINE CanonicalOnGpu derivative_in(const Segment& segment, float x) const {
    const float z = x * beta_high_;
    const auto [size, rest] = split_magnitude(x, z);
    const float guarded = decaying(segment_value(segment, size), reduce_in_pieces(size, rest));
    const float base = z > 0.0f ? x : 0.0f;
    const float value = fma(guarded, unguarded_high_, fma(guarded, unguarded_low_, base));
    return CanonicalOnGpu{z > threshold_float_ ? x : value};
  }

  // True for the default parameters, with which the result rounds to x above the threshold.
  FASTACT_INLINE bool approximates() const { return beta_ == 1.0 && threshold_ == 20.0; }

  template <class Element>
  FASTACT_INLINE static float approximate_value(float x) {
    return approximate_log_1p_exponential<Element>(x);
  }

 private:
  FASTACT_INLINE float beta(float) const { return beta_high_; }
  FASTACT_INLINE double beta(double) const { return beta_; }
  FASTACT_INLINE float threshold(float) const { return threshold_float_; }
  FASTACT_INLINE double threshold(double) const { return threshold_; }

  // x beta| = size + rest, clamped. z is x beta, rounded.
  struct SplitMagnitude {
    float size;
    float rest;
  };

  FASTACT_INLINE SplitMagnitude split_magnitude(float x, float z) const {
    const float size = clamp_magnitude(z, kLogisticEnd<float>);
    const float lost = fma(magnitude(x), magnitude(beta_high_), -size);
    const float rest = fma(magnitude(x), beta_size_low_, lost);
    return {size, magnitude(z) < kLogisticEnd<float> ? rest : 0.0f};
  }

  // Returns the rounding error of z = x beta, or 0 if z is clamped.
  FASTACT_INLINE static double rest_of(double z, double rest) {
    return magnitude(z) < kLogisticEnd<double> ? rest : 0.0;
  }

  template <class Element>
  FASTACT_INLINE OpMath<Element> value_below_threshold(OpMath<Element> x, OpMath<Element> z) const {
    if constexpr (kIs16Bit<Element>) {
      const float e = log_1p_power_16<Element>(z);
      return log_1p_exponential_16<Element>(z, e) * inverse_high_;
    } else {
      const auto [high, low] = log_1p_exponential(z, rest_of(z, fma(x, beta_, -z)));
      const double value = fma(high, inverse_, low * inverse_) * kUnguard<double>;
      return z > 40.0 ? x : value;
    }
  }

  template <class Element, int Order>
  FASTACT_INLINE double derivative_below_threshold(double x) const {
    const double z = x * beta_;
    const double size = clamp_magnitude(z, kDerivativeEnd<Element>);
    const double rest = rest_of(z, fma(magnitude(x), magnitude(beta_), -size));
    if constexpr (Order == 1) {
      return logistic<Element>(z, size, rest);
    } else {
      const auto [guarded, t] = logistic_slope<Element>(size, rest);
      if constexpr (Order == 2) return guarded * beta_ * kDerivativeUnguard<Element>;
      const double result = guarded * t * (beta_ * beta_) * kDerivativeUnguard<Element>;
      return below_a_tie<Element>(x, z < 0.0 ? -result : result);
    }
  }

  double beta_;
  double inverse_;
  double threshold_;
  float beta_high_;
  float beta_size_low_;
  float inverse_high_;
  float unguarded_high_;
  float unguarded_low_;
  float threshold_float_;
};

// For any beta, in double for every type. An infinite beta gives the IEEE result of the definition.
// A beta of 0 gives log(2) / 0, also at the infinities.
struct Softplus {
  static constexpr Traits kTraits = SoftplusOfOne::kTraits;
  static constexpr Parameter kParameters[] = {{"beta", 1.0}, {"threshold", 20.0}};
  using Default = OrdinarySoftplus;

  static constexpr bool is_default(const double* parameters) {
    const double size = parameters[0] < 0.0 ? -parameters[0] : parameters[0];
    return size >= 0x1p-7 && size <= 0x1p7;
  }

  FASTACT_INLINE explicit Softplus(const double* parameters)
      : beta(parameters[0]),
        threshold(parameters[1]),
        rate(scaled(beta)),
        inverse(inverse_of(rate).value),
        // Only the sign of an infinite inverse matters.
        inverse_of_rest(beta == 0.0 ? 0.0 : inverse.significand) {}

  template <class Element, int Order>
  FASTACT_INLINE auto derivative(OpMath<Element> x) const {
    using T = OpMath<Element>;
    const auto wide = static_cast<double>(x);
    const bool linear = x * static_cast<T>(beta) > static_cast<T>(threshold);
    const ScaledArgument z = scaled_argument(rate, {0.0, 0.0}, wide);
    if constexpr (Order == 0) {
      const double value = value_below_threshold(z);
      return narrowed<Element>(linear || z.value > kSaturated ? wide : value);
    } else {
      const double slope = derivative_below_threshold<Order>(z);
      return narrowed<Element>(linear ? (Order == 1 ? 1.0 : 0.0) : slope);
    }
  }

  static constexpr double kApproximated[] = {1.0, 20.0};
  FASTACT_INLINE bool approximates() const { return beta == 1.0 && threshold == 20.0; }

  template <class Element>
  FASTACT_INLINE static float approximate_value(float x) {
    return OrdinarySoftplus::approximate_value<Element>(x);
  }

  template <class Tensor>
  Tensor fourth_derivative(const Tensor& x) const {
    const Tensor z = beta * x;
    // One factor at a time, because beta^3 may be infinite.
    const Tensor slope = beta * (beta * (beta * LogisticDerivatives<Tensor>(z).third()));
    return where(z > threshold, 0.0, slope);
  }

 private:
  // From here on, e^-z is negligible beside 1.
  static constexpr double kSaturated = 60.0;

  double beta;
  double threshold;
  Scaled rate;
  Scaled inverse;
  double inverse_of_rest;

  FASTACT_INLINE double value_below_threshold(const ScaledArgument& z) const {
    const auto [high, low] = log_1p_exponential(z.value, z.rest);
    const double near = fma(high, inverse.significand, low * inverse_of_rest);
    // Here log(1 + e^z) = e^z.
    const auto [n, p, rest] = scaled_exponential(z.value, z.rest);
    const double far = fma(p, inverse.significand, inverse.significand);
    const bool is_far = z.value < -kSaturated;
    return times_power_of_two(is_far ? far : near,
                              inverse.exponent + (is_far ? n : -static_cast<double>(kGuardDouble)));
  }

  template <int Order>
  FASTACT_INLINE double derivative_below_threshold(const ScaledArgument& z) const {
    if constexpr (Order == 1) {
      return logistic<double>(z.value, clamp_magnitude(z.value, kDerivativeEnd<double>),
                              z.value < 0.0 ? -z.rest : z.rest);
    } else {
      // e^-|z| = 2^n (1 + p). p t is the product for the logistic function's p and t at |z|.
      const auto [n, p, rest] =
          scaled_exponential(-magnitude(z.value), z.value < 0.0 ? z.rest : -z.rest);
      const double scale = power_of_two(clamp_below(n, -kSaturated));
      const double share = 1.0 / (1.0 + fma(scale, p, scale));
      const double slope = (1.0 + p) * share * share;
      if constexpr (Order == 2)
        return times_power_of_two(slope * rate.significand, n + rate.exponent);
      const double squared = rate.significand * rate.significand;
      // For tiny z, t is -|z| / 2.
      const double t = fma(scale, p, scale - 1.0) * share;
      const double y = z.is_tiny() ? -0.125 * squared * rate.significand * z.size
                                   : slope * squared * (z.value < 0.0 ? -t : t);
      const double exponent =
          z.is_tiny() ? 3.0 * rate.exponent + z.exponent : n + 2.0 * rate.exponent;
      return times_power_of_two(y, exponent);
    }
  }
};

}  // namespace fastact::inline FASTACT_TARGET
