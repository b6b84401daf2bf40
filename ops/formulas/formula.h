// What a formula is: the contract between the mathematics in this folder and the engines beside it.
//
//   struct Act {
//     static constexpr Traits kTraits = {...};
//
//     // The numbers of the operator's schema, in their order.
//     explicit constexpr Act(const double* parameters);
//
//     // f, f', f'', f''' for Order 0 to 3.
//     template <class Element, int Order>
//     auto derivative(Wide<Element> x) const;
//
//     // Optional, D_k(g1..gk, x) for k gradients: where it is quicker than the product with
//     // derivative<Element, k>, or closer to the exact one, or no product (Traits::weighted).
//     // That derivative is then not needed.
//     template <class Element>
//     auto backward(Wide<Element> g..., Wide<Element> x) const;
//
//     // f'''' in PyTorch's operators on float64 (differentiable.h), for PyTorch to differentiate
//     to
//     // any order. Not where f''' is zero, nor with Saves::kOutput.
//     template <class Tensor>
//     Tensor fourth_derivative(const Tensor& x) const;
//
//     // Only with Traits::gradient_from_result or Saves::kOutput, which say what it is. The next
//     // derivative, d''', has to be zero.
//     template <class Element, int Order>
//     auto derivative_from_result(Wide<Element> y) const;
//
//     // Optional, as backward() is.
//     template <class Element>
//     auto backward_from_result(Wide<Element> g..., Wide<Element> y) const;
//
//     // Optional, f for 16-bit types with a GPU's approximate instructions (approximate.h), where
//     // approximates() says that it holds for these parameters, as it does for kApproximated.
//     // A formula without parameters needs no such list. ops/catalogue.h names these formulas.
//     template <class Element>
//     static float approximate_value(float x);
//     bool approximates() const;
//     static constexpr double kApproximated[] = {...};
//
//     // Optional, float32's f or f' in segments (segments.h): for each such Order a table, and
//     // where x lies in it. Then derivative<float, Order> is not needed.
//     template <int Order>
//     static constexpr auto kSegmentTable = table_of<Order>(&kTableOfF, &kTableOfSlope);
//     template <int Order>
//     uint32_t segment(float x) const;
//     template <int Order>
//     float derivative_in(const Segment& segment, float x) const;
//
//     // Optional: a formula that takes the place of this one for the parameters that people use,
//     // in the kernels for which OtherAct::stands_in<Element, Order, FromResult>() is true. It may
//     // have another one in turn.
//     using Default = OtherAct;
//     static constexpr bool is_default(const double* parameters);
//
//     // Optional: what the parameters have to be, else calls raise an error.
//     static constexpr Requirement kRequirements[] = {...};
//
//     // Optional: with which parameters the gradient can come from the result, as kTraits says;
//     // with others the input is kept. Without it, with all.
//     static constexpr bool result_suffices(const double* parameters);
//   };
//
// With Saves::kOutput only derivative<Element, 0> is called: f' and the rest are functions of y.
//
// The header's comment holds the contract that `make prove` and the tests read, with gradients of 1
// and default parameters: the largest error in ULP by type and order, 0.5 for correctly rounded.
//
//   // Accuracy (ULP):  f    f'     f''    f'''
//   //   bfloat16       0.5  0.5    0.5    0.5
//   //   ...
//
// Where float64's terms cancel next to a zero of a derivative, a line names these derivatives:
// where one is below 1/16 and |x| < 10, its bound is in ULP of 1/16. There a 16-bit type's product
// with gradients may be off by 2^-14 of the type's epsilon times the gradients, beyond its
// rounding.
//
//   // Terms cancel (float64): f', f''
//
// derivative() may return a wider type than it takes (float32 SELU computes in double): the engine
// multiplies the incoming gradients in that type and rounds once. It returns NaN for NaN, and any
// NaN will do: round_to() makes it canonical. Where a derivative is piecewise zero it returns
// exactly 0, which the engine reads as "no gradient", whatever the incoming gradient is.
#pragma once

#include "ops/formulas/approximate.h"
#include "ops/formulas/arithmetic.h"
#include "ops/formulas/segments.h"

namespace fastact {

// The highest derivative that every formula provides.
inline constexpr int kTopOrder = 3;

// What the functional form keeps for its backward pass; never more bytes than PyTorch keeps.
enum class Saves : uint8_t {
  kInput,
  // The result serves in the input's place: f^(k)(f(x)) = f^(k)(x) for k >= 1.
  kResult,
  // The result, of which the derivative is a function: d(y) = f'(f^-1(y)). The derivative operators
  // take `output` instead of `self`, and derivative_from_result() gives d, d', d'' for Order 1..3.
  kOutput,
};

struct Traits {
  Saves saves = Saves::kInput;
  // The first derivative is also a function of the result, d(y) = f'(f^-1(y)): in-place calls then
  // keep no copy of the input. derivative_from_result() gives d, d', d'' for Order 1..3, and the
  // backward operators take is_result.
  bool gradient_from_result = false;
  // The orders that have kernels. From 1 on for a part of an operator of several tensors. A last
  // one below kTopOrder is piecewise constant in x: the derivatives beyond it are zero.
  int first_order = 0;
  int last_order = kTopOrder;
  // An activation f(w, x) with a weight that is a tensor, and affine in it. The weight takes the
  // place of D_k's last gradient: D_1(w, x) = f(w, x), D_2(g, w, x) = g df/dx, both by backward().
  // Their derivatives by w are D_1 and D_2 of the part behind this one in the catalogue.
  bool weighted = false;
  // Where self and the gradients differ in layout, a result lies as self does; else as the first
  // gradient. PyTorch's operators differ in this.
  bool self_leads = false;
  // The highest of the orders that divide in float, by reciprocal(): of all types but float64,
  // where they are not in segments. -1 for none.
  int last_division = -1;
  // Few operations an element: no way of moving the elements has to make time for them.
  bool piecewise_polynomial = false;
  // 16-byte packets of each input that a thread of a GPU takes at once where the tensor is large:
  // of float32's value, of the 16-bit types', and of the first derivative. 0 for those of
  // ops/cuda/policy.h, which says what more of them are good for.
  int value_packets = 0;
  int value_packets_16 = 0;
  int slope_packets = 0;
};

// What one of the parameters has to be. An error reads "expected lambd to be at least 0, but got
// -1".
struct Requirement {
  int parameter;  // its position
  const char* expected;
  // Of all parameters: an expectation may be about two.
  bool (*holds)(const double* parameters);
  // torch.nn.functional raises a ValueError where it checks, ATen's operators a RuntimeError.
  bool is_value_error = false;
};

}  // namespace fastact

namespace fastact::inline FASTACT_TARGET {

template <class Formula, class Element, int Order>
constexpr bool has_segments() {
  if constexpr (std::is_same_v<Element, float> &&
                requires { Formula::template kSegmentTable<Order>; }) {
    // Without a reference: nvcc 13.0 gives GCC 13 decltype((table)), whatever is written here.
    using Table = std::remove_cvref_t<decltype(Formula::template kSegmentTable<Order>)>;
    return !std::is_null_pointer_v<Table>;
  } else {
    return false;
  }
}

template <class Formula, class Element, int Order, bool FromResult>
inline constexpr bool kInSegments = !FromResult && has_segments<Formula, Element, Order>();

template <class Formula, class Element>
inline constexpr bool kApproximates = kIs16Bit<Element> && requires { &Formula::approximates; };

// Whether a kernel is another one with kApproximate.
template <class Formula, class Element, int Order, bool FromResult>
constexpr bool has_fast_form() {
  const bool divides = Order <= Formula::kTraits.last_division &&
                       !std::is_same_v<Element, double> &&
                       !kInSegments<Formula, Element, Order, FromResult>;
  return divides || (Order == 0 && kApproximates<Formula, Element>);
}

// Whether Formula::Default stands in for a formula.
template <class Formula, class Element, int Order, bool FromResult>
constexpr bool has_default() {
  if constexpr (requires { typename Formula::Default; }) {
    return Formula::Default::template stands_in<Element, Order, FromResult>();
  } else {
    return false;
  }
}

// A function of its own and no lambda: GCC 12 does not inline a lambda that is as long as GELU's
// derivative, and a loop with a call in it is not vectorised.
template <class Element, int Order, bool FromResult, class Formula>
FASTACT_INLINE auto derivative_at(const Formula& formula, Wide<Element> x) {
  if constexpr (FromResult || (Order > 0 && Formula::kTraits.saves == Saves::kOutput)) {
    return formula.template derivative_from_result<Element, Order>(x);
  } else if constexpr (kInSegments<Formula, Element, Order, FromResult>) {
    return formula.template derivative_in<Order>(
        find_segment<Formula, Order>(formula.template segment<Order>(x)), x);
  } else {
    return formula.template derivative<Element, Order>(x);
  }
}

// The derivative times the gradients, zero where the derivative is.
template <class Element, class T, class... Gradients>
FASTACT_INLINE auto product(T derivative, Gradients... gradients) {
  if constexpr (sizeof...(Gradients) == 0) {
    return derivative;
  } else {
    const T result = (static_cast<T>(gradients) * ...) * derivative;
    const T y = derivative == T{0} ? T{0} : result;
    if constexpr (std::is_same_v<Element, float> && std::is_same_v<T, float>) {
      return Computed{y};
    } else {
      return y;
    }
  }
}

template <class Element, class Formula>
FASTACT_INLINE auto value_at(const Formula& formula, Wide<Element> x) {
  if constexpr (kApproximate && kApproximates<Formula, Element>) {
    if (formula.approximates()) return formula.template approximate_value<Element>(x);
  }
  return derivative_at<Element, 0, false>(formula, x);
}

// One element of D_Order(g1..gk, x) = g1 * ... * gk * f^(k)(x), before rounding.
template <class Element, int Order, bool FromResult, class Formula, class... Gradients>
FASTACT_INLINE auto evaluate(const Formula& formula, Wide<Element> x, Gradients... gradients) {
  static_assert(sizeof...(Gradients) == Order);
  if constexpr (Order == 0) {
    return value_at<Element>(formula, x);
  } else if constexpr (FromResult && requires {
                         formula.template backward_from_result<Element>(gradients..., x);
                       }) {
    return formula.template backward_from_result<Element>(gradients..., x);
  } else if constexpr (!FromResult && Formula::kTraits.saves != Saves::kOutput &&
                       requires { formula.template backward<Element>(gradients..., x); }) {
    return formula.template backward<Element>(gradients..., x);
  } else {
    return product<Element>(derivative_at<Element, Order, FromResult>(formula, x), gradients...);
  }
}

}  // namespace fastact::inline FASTACT_TARGET
