// The contract between an activation, whose mathematics is in this folder, and the kernels that
// ops/forms/derivative.h makes from it. A missing or malformed part fails to compile, with the name
// of its concept in the message.
//
// The comment at the top of an activation's header contains the accuracy contract that `make prove`
// and the tests read: the largest error in ULP by type and order, with gradients of 1 and default
// parameters. 0.5 means correctly rounded.
//
//   // Accuracy (ULP):  f    f'     f''    f'''
//   //   bfloat16       0.5  0.5    0.5    0.5
//   //   ...
//
// If the terms of a derivative cancel next to one of its zeros in float64, a line names the
// derivative. Where such a derivative is below 1/16 and |x| < 10, its bound is in ULP of 1/16.
// There, the product with gradients in a 16-bit type may have an additional error of 2^-14 of the
// type's epsilon times the gradients.
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

// What the functional form saves for its backward pass: the input or the result, as PyTorch does. A
// program may write to the other one before the backward pass.
enum class Saves : uint8_t {
  kInput,
  // The input. The in-place form saves the result, and uses it as kResultAsInput does.
  kInputOrResultAsInput,
  // The result, used in place of the input: f^(k)(f(x)) = f^(k)(x) for k >= 1.
  kResultAsInput,
  // The result. The derivative is a function of it: d(y) = f'(f^-1(y)). The derivative operators
  // take `output` instead of `self`, and derivative_from_result() returns d, d', d'' for Order
  // 1..3.
  kOutput,
};

struct Traits {
  Saves saves = Saves::kInput;
  // The first derivative is also a function of the result, d(y) = f'(f^-1(y)), so in-place calls
  // save no copy of the input. derivative_from_result() returns d, d', d'' for Order 1..3, and the
  // backward operators take is_result.
  bool gradient_from_result = false;
  // The highest order that divides in float, by reciprocal(); -1 for none. It applies to all types
  // except float64, and only to orders that are not computed in segments.
  int last_division = -1;
  // f(0) is 0, but the 16-bit formula returns a tiny number that breaks ties near 0. Rounding to 16
  // bits removes it. If the rounding comes later, without_tie() in ops/forms/fused.h removes it.
  bool breaks_ties_at_zero = false;
  // On a CPU, the 16-bit formulas of f and f' take longer than a look-up in a table
  // (ops/cpu/result_table.h).
  bool is_costly = false;
};

// A number in the operator's schema. Parameters without a default come first.
struct Parameter {
  std::string_view name;
  std::optional<double> default_value = std::nullopt;
};

// A requirement on one of the parameters. The error reads "expected lambd to be at least 0, but got
// -1".
struct Requirement {
  int parameter;  // its position
  const char* expected;
  // Takes all parameters, because a requirement may relate two of them.
  bool (*holds)(const double* parameters);
  // torch.nn.functional raises a ValueError for the checks it makes; ATen's operators raise a
  // RuntimeError.
  bool is_value_error = false;
};

}  // namespace fastact

namespace fastact::inline FASTACT_TARGET {

// ---- Requirements on every activation

// static constexpr Traits kTraits = {...};
template <class A>
concept HasTraits = std::same_as<decltype(A::kTraits), const Traits>;

// FASTACT_INLINE explicit A(const double* parameters): takes the schema's numbers in their order.
template <class A>
concept TakesParameters = std::constructible_from<A, const double*>;

// Returns true if float32's f^(Order) is computed in segments (segments.h). Such an activation has
// a table. If it is not a FullTable, the activation also has segment<Order>(x), which returns the
// index of x's segment, and derivative_in<Order>(segment, x).
template <class A, class Element, int Order>
constexpr bool has_segments() {
  if constexpr (std::is_same_v<Element, float> && requires { A::template kSegmentTable<Order>; }) {
    // decltype without a reference: nvcc 13.0 passes decltype((table)) to GCC 13, whatever is
    // written here.
    using Table = std::remove_cvref_t<decltype(A::template kSegmentTable<Order>)>;
    return !std::is_null_pointer_v<Table>;
  } else {
    return false;
  }
}

// backward<Element>(g1, ..., gk, x) = g1 * ... * gk * f^(k)(x). Defined if it is faster or more
// accurate than the product with derivative<Element, k>().
template <class A, class Element, int Order>
concept HasBackward = (Order == 1 && requires(const A a, OpMath<Element> x) {
                        a.template backward<Element>(x, x);
                      }) || (Order == 2 && requires(const A a, OpMath<Element> x) {
                        a.template backward<Element>(x, x, x);
                      }) || (Order == 3 && requires(const A a, OpMath<Element> x) {
                        a.template backward<Element>(x, x, x, x);
                      });

// derivative<Element, Order>(x) returns f, f', f'' or f'''. It may return a wider type than its
// operand; the engine multiplies by the gradients in that type and rounds once. NaN gives any NaN,
// which round_to() makes canonical. Where a derivative is zero, it returns exactly 0, which means
// "no gradient" for any incoming gradient.
template <class A, class Element, int Order>
concept HasDerivative =
    has_segments<A, Element, Order>() || HasBackward<A, Element, Order> ||
    requires(const A a, OpMath<Element> x) { a.template derivative<Element, Order>(x); };

// derivative_from_result<Element, Order>(y) returns d, d' or d''. The next derivative is zero.
template <class A, class Element, int Order>
concept HasDerivativeFromResult = requires(const A a, OpMath<Element> y) {
  a.template derivative_from_result<Element, Order>(y);
};

// backward_from_result<Element>(g1, ..., gk, y): optional, like backward().
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

// With Saves::kOutput, the derivative operators always take the result and have no is_result.
template <class A>
concept SavesOneThing = A::kTraits.saves != Saves::kOutput || !A::kTraits.gradient_from_result;

template <class A>
concept IsActivation = HasTraits<A> && TakesParameters<A> && SavesOneThing<A> && Differentiable<A>;

// ---- Optional parts of an activation

// static constexpr Parameter kParameters[] = {{"alpha", 1.0}, ...}: the numbers in the schema.
template <class A>
concept HasParameters = requires { std::span<const Parameter>(A::kParameters); };

// static constexpr Requirement kRequirements[] = {...}: a call that violates one raises an error.
template <class A>
concept HasRequirements = requires { std::span<const Requirement>(A::kRequirements); };

// Returns true if the gradient can be computed from the result with these parameters, as kTraits
// states. With other parameters, the input is saved. Without this function, any parameters will do.
template <class A>
concept HasResultCondition = requires(const double* parameters) {
  { A::result_suffices(parameters) } -> std::same_as<bool>;
};

// f'''' in PyTorch's operators on float64 (differentiable.h), which PyTorch differentiates to any
// order. Not defined if f''' is zero or with Saves::kOutput.
template <class A, class Tensor>
concept HasFourthDerivative = requires(const A a, const Tensor x) {
  { a.fourth_derivative(x) } -> std::convertible_to<Tensor>;
};

// approximate_value(): f for 16-bit types with a GPU's approximate instructions (approximate.h). It
// is valid for parameters for which approximates() returns true, such as `static constexpr double
// kApproximated[]`; an activation without parameters omits this array. ops/catalogue.h lists these
// activations.
template <class A, class Element>
concept HasApproximation = kIs16Bit<Element> && requires(const A a, float x) {
  { a.approximates() } -> std::same_as<bool>;
  { A::template approximate_value<Element>(x) } -> std::same_as<float>;
};

// unrounded<Element>(x): f for 16-bit types if the result stays float (ops/codegen/unrounded.h). It
// accepts any float x and omits steps that only prepare a rounding to 16 bits. A zero may have
// either sign, and a NaN need not be canonical.
template <class A, class Element>
concept HasUnrounded = kIs16Bit<Element> && requires(const A a, float x) {
  { a.template unrounded<Element>(x) } -> std::same_as<float>;
};

// The same with a GPU's approximate instructions, for any parameters.
template <class A, class Element>
concept HasApproximateUnrounded = HasUnrounded<A, Element> && requires(float x) {
  { A::template approximate_unrounded<Element>(x) } -> std::same_as<float>;
};

// An activation that replaces this one for common parameters. is_default() returns true for these
// parameters, and Default::stands_in<Element, Order, FromResult>() for the kernels in which it
// replaces this one. The Default may have a Default in turn.
template <class A>
concept HasDefault = requires(const double* parameters) {
  typename A::Default;
  { A::is_default(parameters) } -> std::same_as<bool>;
  { A::Default::template stands_in<float, 1, false>() } -> std::same_as<bool>;
};

}  // namespace fastact::inline FASTACT_TARGET
