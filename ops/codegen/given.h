// Selects the form for given parameters, for compilers that include one element of a form in their
// own kernels (ops/codegen/one_element.cu, ops/codegen/inlined.h). They know a call's parameters
// when they compile it. A kernel is named family__form__type__parameters:
// gelu__1__float16__defaults is the first derivative of GELU. The form `unrounded` is the value
// with a result that is not rounded at once (ops/codegen/unrounded.h); it takes the parameters of
// the value. The family `fused` contains the steps of the fused form (FusedSteps). `parameters` is
// one of:
//   defaults   the default parameters, or no parameters
//   any        any parameters
//   ordinary   parameters within the bounds in the variable ordinary_of__family__form__type, which
//              lists the least and the greatest value of each
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

#include "ops/codegen/unrounded.h"
#include "ops/forms/fused.h"

namespace fastact::inline FASTACT_TARGET {

template <class Family>
struct ActivationOf {
  using type = void;
};
template <class A>
struct ActivationOf<DerivativeForms<A>> {
  using type = A;
};

// The number of parameters, and how many of them have a default.
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

// Returns true if F::is_default() holds at every corner of the bounds. It then holds between the
// corners, because is_default() only bounds parameters and products of their powers.
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

// Returns the widest such bounds of the form 2^-n to 2^n. A parameter that is_default() does not
// restrict is unbounded.
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

// A form of a family; void if the family has none with this index.
template <class Family, class Element, int Index, bool = (Index < Family::kCount)>
struct FormOf {
  using type = void;
};
template <class Family, class Element, int Index>
struct FormOf<Family, Element, Index, true> {
  using type = typename Family::template Form<Element, Index>;
};

// A family that compilers call although its parameters are not declared here.
template <class Family>
concept IsCalled = requires { requires Family::kIsCalled; };

// Returns a pointer whose type is the form to use, or void* if there is none of this kind.
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

// In kernels with approximate GPU instructions, only forms with a second version exist.
template <class F>
using IfCompiled = std::conditional_t<!kApproximate || HasFastForm<F>, F, void>;
template <class Family, class F, Given Kind>
using ServingForm = std::remove_pointer_t<decltype(form_for<Family, F, Kind>())>;
template <class Family, class F, Given Kind>
using FormFor = IfCompiled<ServingForm<Family, F, Kind>>;
template <class Family, class F, Given Kind>
using UnroundedFor = IfCompiled<typename UnroundedOf<ServingForm<Family, F, Kind>>::type>;

// Returns the bounds of ordinary parameters, or 0 if there is no form for them.
template <class Family, class F>
constexpr auto ordinary_of() {
  if constexpr (std::is_void_v<FormFor<Family, F, Given::kOrdinary>>) {
    return 0;
  } else {
    return ordinary_parameters<F, ParametersOf<Family>::kCount>();
  }
}

// Returns a form's result as a compute value with which a compiler continues. For float32 and
// float64 it equals the element. For 16-bit types it is a float that rounds to the element. As in
// the fused form, the operands need not be elements. f(0) is 0 if it rounds to 0.
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

// X(name, Family, index, Element, dtype) for every form that a compiler may request, in each type.
// The third derivatives of activations are excluded.
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

// X(form, For, Family, index, Element) for the unrounded value, in each 16-bit type.
#define FASTACT_OF_UNROUNDED(X, name, Type)                                              \
  X(name##__##unrounded##__##bfloat16, UnroundedFor, DerivativeForms<Type>, 0, BFloat16) \
  X(name##__##unrounded##__##float16, UnroundedFor, DerivativeForms<Type>, 0, Float16)
