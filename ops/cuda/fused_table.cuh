// The fused kernels of an activation, by type: values and gradients. A translation unit with
// approximate instructions (ops/math/approximate.h) contains only the kernels that divide.
#pragma once

#include <type_traits>

#include "ops/cuda/fused.cuh"
#include "ops/cuda/fused_backward.cuh"

namespace fastact::cuda {

// Returns true if D_Order has a different kernel with approximate instructions.
template <class A, class Element, int Order>
constexpr bool has_fast_fused_form() {
  return Order <= A::kTraits.last_division && !std::is_same_v<Element, double> &&
         !has_segments<A, Element, Order>();
}

template <class A>
constexpr FusedTable make_fused_table() {
  FusedTable table;
  const auto fill = [&]<class Element>(DType dtype) {
    const int i = static_cast<int>(dtype);
    constexpr bool kValue = has_fast_fused_form<A, Element, 0>();
    using Precision = GradientElement<A, Element>;
    constexpr bool kGradients =
        has_fast_fused_form<A, Precision, 0>() || has_fast_fused_form<A, Precision, 1>();
    if constexpr (!kApproximate || kValue)
      table.kernels[i] = &FusedLaunch<Derivative<A, Element, 0, false>, Element>::run;
    if constexpr (!kApproximate || kGradients) {
      table.backward[i] = &FusedBackwardLaunch<Derivative<A, Precision, 0, false>,
                                               Derivative<A, Precision, 1, false>, Element>::run;
    }
  };
  fill.template operator()<float>(DType::kFloat32);
  fill.template operator()<double>(DType::kFloat64);
  fill.template operator()<BFloat16>(DType::kBFloat16);
  fill.template operator()<Float16>(DType::kFloat16);
  return table;
}

}  // namespace fastact::cuda
