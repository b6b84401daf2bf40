// LayerNorm of a row, and its gradient by the input, for a weight w and a bias b of each element
// (Ba, Kiros and Hinton, "Layer normalization", 2016):
//
//   value     y = z w [+ b]                      with z = (x - m) r, m = mean(x)
//                                                and r = 1 / sqrt(mean((x - m)^2) + eps)
//   gradient  r (u - mean(u) - z mean(u z))      for the incoming g, with u = g w
//
// The variance is that of the row, without Bessel's correction.
//
// Numbers: 16-bit types compute in float, and every result is rounded once. m is rounded; the mean
// of x - m, computed together with the squares, corrects it. So a row far from 0 has accurate
// results.
//
// Accuracy (documented, not proven; float32 and float64): z has an error of at most 6 ULP of the
// larger of 1 and |z|.
//
// Special values: a row with NaN or an infinity is NaN in every element, as in PyTorch. If the
// squares of a row overflow, its z is 0, or NaN if its sum overflows too.
#pragma once

#include <cstdint>
#include <tuple>
#include <type_traits>

#include "ops/forms/norm.h"

namespace fastact::inline FASTACT_TARGET {

// The statistics of a row: the mean, its correction, and r.
template <class Element>
struct LayerNormStatistics : NormBase<Element> {
  using T = OpMath<Element>;
  using Sum = T;

  using NormBase<Element>::NormBase;

  // Returns `mean`, so that padding adds 0 to the sums of distances.
  FASTACT_INLINE T beyond_end() const { return mean; }

  FASTACT_INLINE T normalized(T x) const { return ((x - mean) - correction) * r; }

  template <class Visit>
  FASTACT_INLINE void each_number(const Visit& visit) {
    visit(mean);
    visit(correction);
    visit(r);
  }

  T mean = T{0};
  T correction = T{0};  // mean + correction is the mean
  T r = T{0};
};

template <class Element, bool HasBias>
struct LayerNormValue : LayerNormStatistics<Element> {
  using Base = LayerNormStatistics<Element>;
  using T = OpMath<Element>;
  using Sum = T;
  using Inputs =
      std::conditional_t<HasBias, Elements<Element, Element, Element>, Elements<Element, Element>>;
  using RowOutputs = Elements<T, T>;  // mean and r
  static constexpr Reduction kReductions[] = {Reduction::kSum, Reduction::kTwoSums};
  static constexpr int kShared = HasBias ? 2 : 1;

  using Base::Base;

  template <int R>
  FASTACT_INLINE T accumulate(T* sums, T x) const {
    if constexpr (R == 0) {
      sums[0] += x;
    } else {
      const T distance = x - this->mean;
      sums[0] += distance;
      sums[1] = fma(distance, distance, sums[1]);
    }
    return x;
  }

  template <int R>
  FASTACT_INLINE void finish(const Sum* totals) {
    if constexpr (R == 0) {
      this->mean = totals[0] / this->count;
    } else {
      this->correction = totals[0] / this->count;
      const T variance = fma(-this->correction, this->correction, totals[1] / this->count);
      // Rounding may have made it negative.
      this->r = inverse_root(variance < T{0} ? T{0} : variance, this->eps);
    }
  }

  FASTACT_INLINE T evaluate(T x, T w) const { return this->normalized(x) * w; }
  FASTACT_INLINE T evaluate(T x, T w, T b) const { return fma(this->normalized(x), w, b); }

  FASTACT_INLINE auto row_results() const { return tuple_of(this->mean, this->r); }
};

// Takes the mean and r from the forward pass. Computes `correction` again, and returns it.
template <class Element>
struct LayerNormGradient : LayerNormStatistics<Element> {
  using Base = LayerNormStatistics<Element>;
  using T = OpMath<Element>;
  using Sum = T;
  using Inputs = Elements<Element, Element, Element>;
  using RowOutputs = Elements<T>;
  using RowInputs = Elements<T, T>;
  static constexpr Reduction kReductions[] = {Reduction::kThreeSums};
  static constexpr int kShared = 1;
  static constexpr bool kAddsShared = true;

  using Base::Base;

  FASTACT_INLINE void start(T row_mean, T row_r) {
    this->mean = row_mean;
    this->r = row_r;
  }

  template <int R>
  FASTACT_INLINE T accumulate(T* sums, T x, T g, T w) const {
    const T distance = x - this->mean;
    const T u = g * w;
    sums[0] += distance;
    sums[1] += u;
    sums[2] = fma(u, distance, sums[2]);
    return x;
  }

  template <int R>
  FASTACT_INLINE void finish(const Sum* totals) {
    this->correction = totals[0] / this->count;
    mean_u = totals[1] / this->count;
    mean_uz = fma(-this->correction, mean_u, totals[2] / this->count) * this->r;
  }

  FASTACT_INLINE T evaluate(T x, T g, T w) const {
    return this->r * fma(-this->normalized(x), mean_uz, fma(g, w, -mean_u));
  }

  FASTACT_INLINE auto row_results() const { return tuple_of(this->correction); }

  template <class Visit>
  FASTACT_INLINE void each_number(const Visit& visit) {
    Base::each_number(visit);
    visit(mean_u);
    visit(mean_uz);
  }

  T mean_u = T{0};
  T mean_uz = T{0};
};

struct LayerNormForms {
  static constexpr int kCount = 3;

  template <class Element, int Index>
  using Form =
      std::tuple_element_t<Index,
                           std::tuple<LayerNormValue<Element, false>, LayerNormValue<Element, true>,
                                      LayerNormGradient<Element>>>;
};

}  // namespace fastact::inline FASTACT_TARGET
