// One element of each form, a kernel for each. It is compiled to PTX alone, of which
// scripts/inline_assembly.py makes the inline assembly that torch.compile takes into kernels of its
// own: once in IEEE arithmetic, and once with a GPU's approximate instructions the forms that have
// such a second form.
//
// A kernel's name is family__form__type__parameters: gelu__1__float16__defaults is GELU's first
// derivative. It reads the operands from `in` as OpMath of the type; of 16 bits each is rounded to
// its type first, as is the result. The parameters are
//   __defaults   their defaults, or there are none
//   __any        any, from `parameters`
//   __ordinary   the same, within the bounds that the variable ordinary_of__family__form__type has:
//                the least and the greatest, for each
// A form in segments (ops/math/segments.h) has no kernel here, as it reads a table.
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>

#include "ops/catalogue.h"
#include "ops/cuda/packet.cuh"
#include "ops/forms/derivative.h"
#include "ops/generated/families.h"

namespace fastact::cuda {

template <class E>
__device__ __forceinline__ OpMath<E> rounded_operand(OpMath<E> x) {
  if constexpr (std::is_same_v<E, BFloat16>) {
    return from_bits(round_pair<E>(0.0f, x));
  } else if constexpr (std::is_same_v<E, Float16>) {
    return __half2float(__ushort_as_half(static_cast<uint16_t>(round_pair<E>(x, 0.0f))));
  } else {
    return x;
  }
}

template <class E, class Result>
__device__ __forceinline__ OpMath<E> rounded_result(Result y) {
  if constexpr (kIs16Bit<E>) {
    return rounded_operand<E>(unrounded(y));
  } else {
    return round_to<E>(y);
  }
}

template <class F, class Inputs = typename F::Inputs, class Outputs = typename F::Outputs>
struct OneElement;
template <class F, class... In, class Out>
struct OneElement<F, Elements<In...>, Elements<Out>> {
  template <class T>
  static __device__ __forceinline__ void run(const F& form, const T* in, T* out) {
    [&]<size_t... I>(std::index_sequence<I...>) {
      *out = rounded_result<Out>(form.evaluate(rounded_operand<In>(in[I])...));
    }(std::make_index_sequence<sizeof...(In)>{});
  }
};

// ---- Which form serves for which parameters

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

// The form that serves, by a pointer to it; void where there is none of this kind.
template <class Family, class F, Given Kind>
constexpr auto form_for() {
  using P = ParametersOf<Family>;
  if constexpr (std::is_void_v<F>) {
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
template <class F>
using IfCompiled =
    std::conditional_t<!HasSegments<F> && (!kApproximate || HasFastForm<F>), F, void>;
template <class Family, class F, Given Kind>
using FormFor = IfCompiled<std::remove_pointer_t<decltype(form_for<Family, F, Kind>())>>;

template <class Family, class F, Given Kind, class T>
__device__ __forceinline__ void evaluate_one(const T* in, const double* parameters, T* out) {
  using Form = FormFor<Family, F, Kind>;
  if constexpr (!std::is_void_v<Form>) {
    constexpr Parameters kDefaults = ParametersOf<Family>::kDefaults;
    const Form form(Kind == Given::kDefaults ? kDefaults.values : parameters);
    OneElement<Form>::run(form, in, out);
  }
}

template <class Family, class F>
constexpr auto ordinary_of() {
  if constexpr (std::is_void_v<FormFor<Family, F, Given::kOrdinary>>) {
    return 0;
  } else {
    return ordinary_parameters<F, ParametersOf<Family>::kCount>();
  }
}

#define FASTACT_KERNEL(name, Family, index, Element, dtype, kind, Kind)                           \
  extern "C" __global__ void name##__##index##__##dtype##kind(                                    \
      const OpMath<Element>* in, const double* parameters, OpMath<Element>* out) {                \
    evaluate_one<Family, FormOf<Family, Element, index>::type, Given::Kind>(in, parameters, out); \
  }
#define FASTACT_KERNELS(name, Family, index, Element, dtype)                 \
  extern "C" {                                                               \
  __device__ auto ordinary_of__##name##__##index##__##dtype =                \
      ordinary_of<Family, FormOf<Family, Element, index>::type>();           \
  }                                                                          \
  FASTACT_KERNEL(name, Family, index, Element, dtype, __defaults, kDefaults) \
  FASTACT_KERNEL(name, Family, index, Element, dtype, __any, kAny)           \
  FASTACT_KERNEL(name, Family, index, Element, dtype, __ordinary, kOrdinary)
#define FASTACT_FORM(name, Family, index)                  \
  FASTACT_KERNELS(name, Family, index, float, float32)     \
  FASTACT_KERNELS(name, Family, index, double, float64)    \
  FASTACT_KERNELS(name, Family, index, BFloat16, bfloat16) \
  FASTACT_KERNELS(name, Family, index, Float16, float16)

// Every form but an activation's third derivative, which no compiler asks for.
static_assert(kMaxForms == 7);
#define FASTACT_ACTIVATION(name, Type)         \
  FASTACT_FORM(name, DerivativeForms<Type>, 0) \
  FASTACT_FORM(name, DerivativeForms<Type>, 1) \
  FASTACT_FORM(name, DerivativeForms<Type>, 2) \
  FASTACT_FORM(name, DerivativeForms<Type>, 4) \
  FASTACT_FORM(name, DerivativeForms<Type>, 5)
#define FASTACT_FAMILY(name, Family) \
  FASTACT_FORM(name, Family, 0)      \
  FASTACT_FORM(name, Family, 1)      \
  FASTACT_FORM(name, Family, 2)      \
  FASTACT_FORM(name, Family, 3)      \
  FASTACT_FORM(name, Family, 4)      \
  FASTACT_FORM(name, Family, 5)      \
  FASTACT_FORM(name, Family, 6)

#if FASTACT_APPROXIMATE
FASTACT_APPROXIMATED(FASTACT_ACTIVATION)
#else
FASTACT_ACTIVATIONS(FASTACT_ACTIVATION)
FASTACT_FORMS(FASTACT_FAMILY)
#endif

}  // namespace fastact::cuda
