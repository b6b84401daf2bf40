// What an activation is: the contract between the mathematics in this folder and the kernels that
// ops/forms/derivative.h makes of it. A part that is missing or has another form fails to compile
// with the name of its concept.
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
#pragma once

#include <concepts>
#include <optional>
#include <span>
#include <string_view>

#include "ops/math/approximate.h"
#include "ops/math/arithmetic.h"
#include "ops/math/segments.h"

namespace fastact {

// The highest derivative that every activation provides.
inline constexpr int kTopOrder = 3;

// What the functional form keeps for its backward pass; never more bytes than PyTorch keeps.
enum class Saves : uint8_t {
  kInput,
  // The result, which serves in the input's place: f^(k)(f(x)) = f^(k)(x) for k >= 1.
  kResultAsInput,
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
  // The highest of the orders that divide in float, by reciprocal(): of all types but float64,
  // where they are not in segments. -1 for none.
  int last_division = -1;
  // f(0) is 0, of which a 16-bit formula makes a tiny number that breaks ties next to it. It is
  // rounded away, but not where 16 bits are rounded later (without_tie() in ops/forms/fused.h).
  bool breaks_ties_at_zero = false;
};

// A number of the operator's schema. Those without a default come first.
struct Parameter {
  std::string_view name;
  std::optional<double> default_value = std::nullopt;
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

// ---- What every activation has

// static constexpr Traits kTraits = {...};
template <class A>
concept HasTraits = std::same_as<decltype(A::kTraits), const Traits>;

// FASTACT_INLINE explicit A(const double* parameters), the schema's numbers in their order.
template <class A>
concept TakesParameters = std::constructible_from<A, const double*>;

// Whether float32's f^(Order) is in segments (segments.h): a table for it, segment<Order>(x), which
// is where x lies in it, and derivative_in<Order>(segment, x).
template <class A, class Element, int Order>
constexpr bool has_segments() {
  if constexpr (std::is_same_v<Element, float> && requires { A::template kSegmentTable<Order>; }) {
    // Without a reference: nvcc 13.0 gives GCC 13 decltype((table)), whatever is written here.
    using Table = std::remove_cvref_t<decltype(A::template kSegmentTable<Order>)>;
    return !std::is_null_pointer_v<Table>;
  } else {
    return false;
  }
}

// backward<Element>(g1, ..., gk, x) = g1 * ... * gk * f^(k)(x): where it is quicker than the
// product with derivative<Element, k>(), or closer to the exact one.
template <class A, class Element, int Order>
concept HasBackward = (Order == 1 && requires(const A a, OpMath<Element> x) {
                        a.template backward<Element>(x, x);
                      }) || (Order == 2 && requires(const A a, OpMath<Element> x) {
                        a.template backward<Element>(x, x, x);
                      }) || (Order == 3 && requires(const A a, OpMath<Element> x) {
                        a.template backward<Element>(x, x, x, x);
                      });

// derivative<Element, Order>(x): f, f', f'', f'''. It may return a wider type than it takes: the
// engine multiplies the gradients in that type and rounds once. NaN for NaN, and any NaN will do,
// as round_to() makes it the one NaN. Where a derivative is zero it returns exactly 0, which stands
// for "no gradient" whatever the gradient is.
template <class A, class Element, int Order>
concept HasDerivative =
    has_segments<A, Element, Order>() || HasBackward<A, Element, Order> ||
    requires(const A a, OpMath<Element> x) { a.template derivative<Element, Order>(x); };

// derivative_from_result<Element, Order>(y): d, d', d'', of which the next one is zero.
template <class A, class Element, int Order>
concept HasDerivativeFromResult = requires(const A a, OpMath<Element> y) {
  a.template derivative_from_result<Element, Order>(y);
};

// backward_from_result<Element>(g1, ..., gk, y): optional, as backward() is.
template <class A, class Element, class... Gradients>
concept HasBackwardFromResult = requires(const A a, Gradients... gradients, OpMath<Element> y) {
  a.template backward_from_result<Element>(gradients..., y);
};

template <class A, class Element>
concept HasEveryDerivative =
    HasDerivative<A, Element, 0> &&
    (A::kTraits.saves == Saves::kOutput ||
     (HasDerivative<A, Element, 1> && HasDerivative<A, Element, 2> &&
      HasDerivative<A, Element, 3>)) &&
    ((A::kTraits.saves != Saves::kOutput && !A::kTraits.gradient_from_result) ||
     (HasDerivativeFromResult<A, Element, 1> && HasDerivativeFromResult<A, Element, 2> &&
      HasDerivativeFromResult<A, Element, 3>));

template <class A>
concept Differentiable = HasEveryDerivative<A, float> && HasEveryDerivative<A, double> &&
                         HasEveryDerivative<A, BFloat16> && HasEveryDerivative<A, Float16>;

// With Saves::kOutput the derivative operators take the result always, not by is_result.
template <class A>
concept SavesOneThing = A::kTraits.saves != Saves::kOutput || !A::kTraits.gradient_from_result;

template <class A>
concept IsActivation = HasTraits<A> && TakesParameters<A> && SavesOneThing<A> && Differentiable<A>;

// ---- What an activation may have

// static constexpr Parameter kParameters[] = {{"alpha", 1.0}, ...}: the schema's numbers.
template <class A>
concept HasParameters = requires { std::span<const Parameter>(A::kParameters); };

// static constexpr Requirement kRequirements[] = {...}: else calls raise an error.
template <class A>
concept HasRequirements = requires { std::span<const Requirement>(A::kRequirements); };

// With which parameters the gradient can come from the result, as kTraits says; with others the
// input is kept. Without it, with all.
template <class A>
concept HasResultCondition = requires(const double* parameters) {
  { A::result_suffices(parameters) } -> std::same_as<bool>;
};

// f'''' in PyTorch's operators on float64 (differentiable.h), for PyTorch to differentiate to any
// order. Not where f''' is zero, nor with Saves::kOutput.
template <class A, class Tensor>
concept HasFourthDerivative = requires(const A a, const Tensor x) {
  { a.fourth_derivative(x) } -> std::convertible_to<Tensor>;
};

// f for 16-bit types with a GPU's approximate instructions (approximate.h), where approximates()
// says that it holds for these parameters, as it does for `static constexpr double
// kApproximated[]`, which an activation without parameters does not need. ops/catalogue.h names
// these activations.
template <class A, class Element>
concept HasApproximation = kIs16Bit<Element> && requires(const A a, float x) {
  { a.approximates() } -> std::same_as<bool>;
  { A::template approximate_value<Element>(x) } -> std::same_as<float>;
};

// unrounded<Element>(x): f for 16-bit types where the result stays float, as ops/forms/unrounded.h
// says: for any float x, and shorter by what only a rounding to 16 bits needs. A zero may have
// either sign, and NaN is any NaN.
template <class A, class Element>
concept HasUnrounded = kIs16Bit<Element> && requires(const A a, float x) {
  { a.template unrounded<Element>(x) } -> std::same_as<float>;
};

// The same with a GPU's approximate instructions, for any parameters.
template <class A, class Element>
concept HasApproximateUnrounded = HasUnrounded<A, Element> && requires(float x) {
  { A::template approximate_unrounded<Element>(x) } -> std::same_as<float>;
};

// An activation that takes the place of this one for the parameters that people use: is_default()
// says for which, and Default::stands_in<Element, Order, FromResult>() in which kernels. It may
// have another one in turn.
template <class A>
concept HasDefault = requires(const double* parameters) {
  typename A::Default;
  { A::is_default(parameters) } -> std::same_as<bool>;
  { A::Default::template stands_in<float, 1, false>() } -> std::same_as<bool>;
};

}  // namespace fastact::inline FASTACT_TARGET
