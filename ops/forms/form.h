// The contract between a form, which defines what a kernel computes, and the engines, which move
// elements for any form. A form computes one element of each output from one element of each input.
//
//   template <class Element>
//   struct Sum {
//     using Outputs = Elements<Element>;
//     using Inputs = Elements<Element, float>;  // types may differ
//     FASTACT_INLINE explicit Sum(const double* parameters);
//     auto evaluate(OpMath<Element> x, float y) const;
//   };
//
// evaluate() takes each input as OpMath of its type. It returns a value that round_to() converts to
// the output's element, or a tuple of such values if there are several outputs.
//
// A family of forms is compiled together, into one table of kernels for each target:
//
//   struct SumForms {
//     static constexpr int kCount = 1;
//     template <class Element, int Index>  // void if there is no kernel
//     using Form = Sum<Element>;
//   };
#pragma once

#include <concepts>
#include <cstdint>
#include <iterator>
#include <type_traits>
#include <utility>

#include "ops/kernel.h"
#include "ops/math/arithmetic.h"

namespace fastact::inline FASTACT_TARGET {

template <class... E>
struct Elements {
  static constexpr int kCount = sizeof...(E);
};

template <class E>
struct FirstElement;
template <class Element, class... Rest>
struct FirstElement<Elements<Element, Rest...>> {
  using type = Element;
};
template <class E>
using FirstOf = typename FirstElement<E>::type;

// A tuple: one value of each type, in this order.
template <class... T>
struct Tuple;
template <class T>
struct Tuple<T> {
  T first;
};
template <class T, class... Rest>
struct Tuple<T, Rest...> {
  T first;
  Tuple<Rest...> rest;
};
template <>
struct Tuple<> {};

template <class T, class... Rest>
FASTACT_INLINE Tuple<T, Rest...> tuple_of(T first, Rest... rest) {
  if constexpr (sizeof...(Rest) == 0) {
    return {first};
  } else {
    return {first, tuple_of(rest...)};
  }
}

template <int Index, class... T>
FASTACT_INLINE const auto& at(const Tuple<T...>& tuple) {
  if constexpr (Index == 0) {
    return tuple.first;
  } else {
    return at<Index - 1>(tuple.rest);
  }
}
template <int Index, class... T>
FASTACT_INLINE auto& at(Tuple<T...>& tuple) {
  if constexpr (Index == 0) {
    return tuple.first;
  } else {
    return at<Index - 1>(tuple.rest);
  }
}

// ---- Shared by forms

// Returns the derivative times the gradients. If the derivative is zero, so is the result.
template <class Element, class T, class... Gradients>
FASTACT_INLINE auto product(T derivative, Gradients... gradients) {
  if constexpr (sizeof...(Gradients) == 0) {
    return derivative;
  } else {
    const T result = (static_cast<T>(gradients) * ...) * derivative;
    const T y = derivative == T{0} ? T{0} : result;
    if constexpr (std::is_same_v<Element, float> && std::is_same_v<T, float>) {
      return CanonicalOnGpu{y};
    } else {
      return y;
    }
  }
}

// ---- Requirements on every form

// The types of outputs and inputs. Their number is limited by the operands of a kernel.
template <class F>
concept HasOperands =
    F::Inputs::kCount >= 1 && F::Outputs::kCount + F::Inputs::kCount <= kMaxOperands;

template <class F, class Inputs>
struct IsEvaluated;
template <class F, class... E>
struct IsEvaluated<F, Elements<E...>> {
  static constexpr bool value =
      requires(const F form, OpMath<E>... inputs) { form.evaluate(inputs...); };
};

// Callable as evaluate() with one element of each input.
template <class F>
concept CanEvaluate = IsEvaluated<F, typename F::Inputs>::value;

template <class F>
concept IsForm = HasOperands<F> && F::Outputs::kCount >= 1 &&
                 std::constructible_from<F, const double*> && CanEvaluate<F>;

// ---- Optional properties of a form

// `static constexpr Broadcast kBroadcasts[]`: how each input broadcasts. The default is
// kElementwise.
template <class F>
concept HasBroadcasts = requires { F::kBroadcasts[0]; };

// A form with a segment table (segments.h): kTable; segment(inputs...), which returns the index of
// a segment; and evaluate_in(segment, inputs...). If the table is a FullTable, also
// preactivation(inputs...), which returns x, and evaluate_near(segment, inputs...), which is
// evaluate_in() for |x| below the table's end.
template <class F>
concept HasSegments = requires { F::kTable; };

// A form that has another form, Default, which replaces it if is_default(parameters).
template <class F>
concept HasDefaultForm = requires(const double* parameters) {
  typename F::Default;
  { F::is_default(parameters) } -> std::same_as<bool>;
};

// A form with one input, whose results a CPU looks up in a table (ops/cpu/result_table.h).
template <class F>
concept IsLookedUp = requires { requires F::kIsLookedUp; };

// A form with the inputs g and x, whose result is product<Element>(factor(x), g), where factor()
// returns a float. A CPU looks the factors up in a table (ops/cpu/result_table.h).
template <class F>
concept HasFactors = requires { requires F::kHasFactors; };

// A form whose first input is a word of random bits. The engines compute it from a seed and the
// element's index: word i % 4 of philox(seed, i / 4) (ops/math/philox.h).
template <class F>
concept TakesRandomBits = requires { requires F::kTakesRandomBits; };

// A form with a second version on GPUs (approximate.h): the same form compiled with kApproximate.
template <class F>
concept HasFastForm = requires { requires F::kHasFastForm; };

// A family in the list FASTACT_APPROXIMATED of ops/catalogue.h.
template <class Family>
concept IsApproximated = requires { requires Family::kIsApproximated; };

// ---- Properties that the engines use

// The number of operands and the size in bytes of each operand's elements, outputs first.
struct OperandSizes {
  int outputs;
  int count;
  int64_t bytes[kMaxOperands];

  // largest(): the size of the largest element. are_equal(): whether all sizes are equal.
  [[nodiscard]] constexpr int64_t largest() const {
    int64_t size = bytes[0];
    for (int i = 1; i < count; ++i) size = bytes[i] > size ? bytes[i] : size;
    return size;
  }
  [[nodiscard]] constexpr bool are_equal() const {
    bool equal = true;
    for (int i = 1; i < count; ++i) equal &= bytes[i] == bytes[0];
    return equal;
  }
};

// Shared by all forms with the same types.
template <class Outputs, class Inputs>
inline constexpr OperandSizes kSizes = {};
template <class... Out, class... In>
inline constexpr OperandSizes kSizes<Elements<Out...>, Elements<In...>> = {
    sizeof...(Out), sizeof...(Out) + sizeof...(In), {sizeof(Out)..., sizeof(In)...}};
template <class F>
inline constexpr const OperandSizes& kSizesOf = kSizes<typename F::Outputs, typename F::Inputs>;

template <class F>
inline constexpr int kOperandsOf = kSizesOf<F>.count;
template <class F>
inline constexpr int64_t kLargestOf = kSizesOf<F>.largest();

// Whether all operands have the same type, and which.
template <class Element, class Outputs, class Inputs>
struct AllAre : std::false_type {};
template <class Element, class... Out, class... In>
struct AllAre<Element, Elements<Out...>, Elements<In...>>
    : std::bool_constant<(std::is_same_v<Element, Out> && ...) &&
                         (std::is_same_v<Element, In> && ...)> {};
template <class F, class Element>
inline constexpr bool kAllAre = AllAre<Element, typename F::Outputs, typename F::Inputs>::value;

// Returns a table with Make<F>::run, a function or a pointer to one, for every form F of the family
// and every type.
template <template <class> class Make, class Function, class Family>
constexpr KernelTable<Function> make_kernel_table() {
  static_assert(Family::kCount <= kMaxForms);
  KernelTable<Function> table;
  const auto fill = [&]<class Element, int Index>(DType dtype) {
    using F = typename Family::template Form<Element, Index>;
    if constexpr (!std::is_void_v<F>) {
      static_assert(HasOperands<F>);  // engines check the other requirements
      table.functions[Index][static_cast<int>(dtype)] = Make<F>::run;
    }
  };
  [&]<int... Index>(std::integer_sequence<int, Index...>) {
    (fill.template operator()<float, Index>(DType::kFloat32), ...);
    (fill.template operator()<double, Index>(DType::kFloat64), ...);
    (fill.template operator()<BFloat16, Index>(DType::kBFloat16), ...);
    (fill.template operator()<Float16, Index>(DType::kFloat16), ...);
  }(std::make_integer_sequence<int, Family::kCount>{});
  return table;
}

}  // namespace fastact::inline FASTACT_TARGET
