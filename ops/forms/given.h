// Which form serves which parameters, for compilers that take one element of a form into kernels of
// their own (ops/cuda/one_element.cu, ops/cpu/one_vector.cpp). They know the parameters of a call
// when they compile it. A kernel's name is family__form__type__parameters:
// gelu__1__float16__defaults is GELU's first derivative. The form `unrounded` is a value's for a
// result that is not rounded at once (ops/forms/unrounded.h), for the same parameters as the value.
// The family `fused` has the fused form's steps (FusedSteps). The parameters are
//   defaults   their defaults, or there are none
//   any        any
//   ordinary   the same, within the bounds that the variable ordinary_of__family__form__type has:
//              the least and the greatest, for each
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

#include "ops/forms/fused.h"
#include "ops/forms/unrounded.h"

namespace fastact::inline FASTACT_TARGET {

template <class Family>
struct ActivationOf {
  using type = void;
};
template <class A>
struct ActivationOf<DerivativeForms<A>> {
  using type = A;
};

// How many parameters there are, and of these how many have a default.
template <class Family, class A = typename ActivationOf<Family>::type>
struct ParametersOf {
  static constexpr int kCount = 0;
  static constexpr bool kHaveDefaults = true;
  static constexpr Parameters kDefaults = {};
};
template <class Family, class A>
  requires HasParameters<A>
struct ParametersOf<Family, A> {
  static constexpr std::span<const Parameter> kParameters{A::kParameters};
  static constexpr int kCount = static_cast<int>(kParameters.size());
  static constexpr bool kHaveDefaults = kParameters[0].default_value.has_value();
  static constexpr Parameters kDefaults = [] {
    Parameters defaults;
    for (int i = 0; i < kCount; ++i)
      defaults.values[i] = kParameters[i].default_value.value_or(0.0);
    return defaults;
  }();
};

enum class Given : uint8_t { kDefaults, kAny, kOrdinary };

struct Bounds {
  double least;
  double greatest;
};
template <int Count>
struct OrdinaryParameters {
  Bounds bounds[Count];
};

// Whether F::is_default() holds at every corner of the bounds. Then it does between them, as it
// bounds the size of parameters and of products of their powers.
template <class F, int Count>
constexpr bool is_default_within(const OrdinaryParameters<Count>& ordinary) {
  for (int corner = 0; corner < (1 << Count); ++corner) {
    double values[kMaxParameters] = {};
    for (int i = 0; i < Count; ++i) {
      const Bounds& bounds = ordinary.bounds[i];
      values[i] = (corner >> i & 1) != 0 ? bounds.greatest : bounds.least;
    }
    if (!F::is_default(values)) return false;
  }
  return true;
}

// The widest such bounds that are a power of two and its inverse, with none for a parameter of
// which is_default() asks nothing.
template <class F, int Count>
constexpr OrdinaryParameters<Count> ordinary_parameters() {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  OrdinaryParameters<Count> ordinary{};
  double size = 0x1p100;
  do {
    size /= 2;
    for (Bounds& bounds : ordinary.bounds) bounds = {1 / size, size};
  } while (size > 1 && !is_default_within<F, Count>(ordinary));
  for (Bounds& bounds : ordinary.bounds) {
    const Bounds narrow = bounds;
    bounds = {-kInfinity, kInfinity};
    if (!is_default_within<F, Count>(ordinary)) bounds = narrow;
  }
  return ordinary;
}

// A family's form; void where it has none of this index.
template <class Family, class Element, int Index, bool = (Index < Family::kCount)>
struct FormOf {
  using type = void;
};
template <class Family, class Element, int Index>
struct FormOf<Family, Element, Index, true> {
  using type = typename Family::template Form<Element, Index>;
};

// A family that compilers call: nothing here tells its parameters.
template <class Family>
concept IsCalled = requires { requires Family::kIsCalled; };

// The form that serves, by a pointer to it; void where there is none of this kind.
template <class Family, class F, Given Kind>
constexpr auto form_for() {
  using P = ParametersOf<Family>;
  if constexpr (std::is_void_v<F> || IsCalled<Family>) {
    return static_cast<void*>(nullptr);
  } else if constexpr (Kind == Given::kDefaults) {
    if constexpr (!P::kHaveDefaults) {
      return static_cast<void*>(nullptr);
    } else if constexpr (HasDefaultForm<F>) {
      if constexpr (F::is_default(P::kDefaults.values)) {
        return form_for<Family, typename F::Default, Kind>();
      } else {
        return static_cast<F*>(nullptr);
      }
    } else {
      return static_cast<F*>(nullptr);
    }
  } else if constexpr (P::kCount == 0 || HasDefaultForm<F> != (Kind == Given::kOrdinary)) {
    return static_cast<void*>(nullptr);
  } else if constexpr (Kind == Given::kOrdinary) {
    static_assert(is_default_within<F, P::kCount>(ordinary_parameters<F, P::kCount>()));
    return static_cast<typename F::Default*>(nullptr);
  } else {
    return static_cast<F*>(nullptr);
  }
}

// Of the kernels with a GPU's approximate instructions, the forms that have such a second form.
template <class F>
using IfCompiled = std::conditional_t<!kApproximate || HasFastForm<F>, F, void>;
template <class Family, class F, Given Kind>
using ServingForm = std::remove_pointer_t<decltype(form_for<Family, F, Kind>())>;
template <class Family, class F, Given Kind>
using FormFor = IfCompiled<ServingForm<Family, F, Kind>>;
template <class Family, class F, Given Kind>
using UnroundedFor = IfCompiled<typename UnroundedOf<ServingForm<Family, F, Kind>>::type>;

// The bounds of ordinary parameters; 0 where there is no form for them.
template <class Family, class F>
constexpr auto ordinary_of() {
  if constexpr (std::is_void_v<FormFor<Family, F, Given::kOrdinary>>) {
    return 0;
  } else {
    return ordinary_parameters<F, ParametersOf<Family>::kCount>();
  }
}

// A form's result as the number in which a compiler goes on computing. Of float32 and float64 it is
// the element. Of 16 bits it is the float that rounds to the element, for operands that need be
// elements no more than those of the fused form; f(0) is 0 where that is what it rounds to.
template <class F, class Element, class Result, class... Operands>
FASTACT_INLINE OpMath<Element> intermediate(Result result, Operands... operands) {
  const OpMath<Element> value = number_of<Element>(result);
  if constexpr (sizeof...(Operands) == 1 && requires { typename F::Activation; }) {
    return without_tie<typename F::Activation, Element>(operands..., value);
  } else {
    return value;
  }
}

}  // namespace fastact::inline FASTACT_TARGET

// X(name, Family, index, Element, dtype) for every form that a compiler may ask for, in each type:
// of an activation all but the third derivative.
#define FASTACT_IN_EACH_TYPE(X, name, Family, index) \
  X(name, Family, index, float, float32)             \
  X(name, Family, index, double, float64)            \
  X(name, Family, index, BFloat16, bfloat16)         \
  X(name, Family, index, Float16, float16)

static_assert(fastact::kMaxForms == 7);
#define FASTACT_OF_ACTIVATION(X, name, Type)              \
  FASTACT_IN_EACH_TYPE(X, name, DerivativeForms<Type>, 0) \
  FASTACT_IN_EACH_TYPE(X, name, DerivativeForms<Type>, 1) \
  FASTACT_IN_EACH_TYPE(X, name, DerivativeForms<Type>, 2) \
  FASTACT_IN_EACH_TYPE(X, name, DerivativeForms<Type>, 4) \
  FASTACT_IN_EACH_TYPE(X, name, DerivativeForms<Type>, 5)
#define FASTACT_OF_FAMILY(X, name, Family) \
  FASTACT_IN_EACH_TYPE(X, name, Family, 0) \
  FASTACT_IN_EACH_TYPE(X, name, Family, 1) \
  FASTACT_IN_EACH_TYPE(X, name, Family, 2) \
  FASTACT_IN_EACH_TYPE(X, name, Family, 3) \
  FASTACT_IN_EACH_TYPE(X, name, Family, 4) \
  FASTACT_IN_EACH_TYPE(X, name, Family, 5) \
  FASTACT_IN_EACH_TYPE(X, name, Family, 6)

// X(form, For, Family, index, Element) for the value that is not rounded, in each type of 16 bits.
#define FASTACT_OF_UNROUNDED(X, name, Type)                                              \
  X(name##__##unrounded##__##bfloat16, UnroundedFor, DerivativeForms<Type>, 0, BFloat16) \
  X(name##__##unrounded##__##float16, UnroundedFor, DerivativeForms<Type>, 0, Float16)
