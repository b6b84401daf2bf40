// One function for each form, which computes one vector of elements. This file is only compiled to
// assembly. scripts/inline_vectors.py turns the assembly into code that torch.compile inserts into
// the C++ that it writes for CPUs.
//
// ops/forms/given.h explains the function names. A function takes each operand in a vector
// register. For 16-bit types, operands and result are float; intermediate() in ops/forms/given.h
// defines the result. A function reads parameters that are not the defaults from `parameters`. A
// function for a form that does not exist consists of an invalid instruction.
#include <cstring>
#include <type_traits>
#include <utility>

#include "ops/catalogue.h"
#include "ops/cpu/packed.h"
#include "ops/forms/given.h"
#include "ops/generated/families.h"

namespace fastact::cpu::inline FASTACT_TARGET {

template <class T>
struct VectorOf {
  static constexpr int kSize = kFloats * sizeof(float) / sizeof(T);
  typedef T Vector __attribute__((vector_size(kFloats * sizeof(float))));
  using Array = T[kSize];
};

template <class F, class Inputs = typename F::Inputs, class Outputs = typename F::Outputs>
struct OneVector;
template <class F, class... In, class Out>
struct OneVector<F, Elements<In...>, Elements<Out>> {
  using T = OpMath<Out>;
  static constexpr int kSize = VectorOf<T>::kSize;
  using Vector = typename VectorOf<T>::Vector;

  static FASTACT_INLINE Vector run(const F form, const Vector* operands) {
    alignas(64) T x[sizeof...(In)][kSize];
    std::memcpy(x, operands, sizeof x);
    alignas(64) T result[kSize];
    [&]<size_t... I>(std::index_sequence<I...>) __attribute__((always_inline)) {
      if constexpr (HasSegments<F>) {
        alignas(64) uint32_t index[kSize];
        FASTACT_ONE_VECTOR
        for (int i = 0; i < kSize; ++i) index[i] = form.segment(x[I][i]...);
        alignas(64) float c[kSegmentCoefficients + 1][kSize];
        permute_segments<*F::kTable>(index, c);
        FASTACT_ONE_VECTOR
        for (int i = 0; i < kSize; ++i)
          result[i] = round_to<float>(form.evaluate_in(segment_of(c, i), x[I][i]...));
      } else {
        FASTACT_ONE_VECTOR
        for (int i = 0; i < kSize; ++i)
          result[i] = intermediate<F, Out>(form.evaluate(x[I][i]...), x[I][i]...);
      }
    }(std::index_sequence_for<In...>{});
    Vector y;
    std::memcpy(&y, result, sizeof y);
    return y;
  }
};

template <class Family, class Form, Given Kind, class V>
FASTACT_INLINE V evaluate_vector(const double* parameters, V a, V b, V c) {
  if constexpr (std::is_void_v<Form>) {
    __builtin_trap();
  } else {
    constexpr Parameters kDefaults = ParametersOf<Family>::kDefaults;
    const V operands[] = {a, b, c};
    static_assert(Form::Inputs::kCount <= std::size(operands));
    return OneVector<Form>::run(Form(Kind == Given::kDefaults ? kDefaults.values : parameters),
                                operands);
  }
}

template <class F>
constexpr int operands_of() {
  if constexpr (std::is_void_v<F>) {
    return 0;
  } else {
    return F::Inputs::kCount;
  }
}

// `For` is FormFor or UnroundedFor.
#define FASTACT_FUNCTION(function, For, Family, index, Element, Kind)             \
  extern "C" VectorOf<OpMath<Element>>::Vector function(                          \
      const double* parameters, VectorOf<OpMath<Element>>::Vector a,              \
      VectorOf<OpMath<Element>>::Vector b, VectorOf<OpMath<Element>>::Vector c) { \
    using Form = For<Family, FormOf<Family, Element, index>::type, Given::Kind>;  \
    return evaluate_vector<Family, Form, Given::Kind>(parameters, a, b, c);       \
  }
#define FASTACT_FUNCTIONS_OF(form, For, Family, index, Element)                               \
  extern "C" {                                                                                \
  extern const int operands_of__##form = operands_of<FormOf<Family, Element, index>::type>(); \
  }                                                                                           \
  FASTACT_FUNCTION(form##__defaults, For, Family, index, Element, kDefaults)                  \
  FASTACT_FUNCTION(form##__any, For, Family, index, Element, kAny)                            \
  FASTACT_FUNCTION(form##__ordinary, For, Family, index, Element, kOrdinary)
#define FASTACT_FUNCTIONS(name, Family, index, Element, dtype)     \
  extern "C" {                                                     \
  extern const auto ordinary_of__##name##__##index##__##dtype =    \
      ordinary_of<Family, FormOf<Family, Element, index>::type>(); \
  }                                                                \
  FASTACT_FUNCTIONS_OF(name##__##index##__##dtype, FormFor, Family, index, Element)
#define FASTACT_UNROUNDED(name, Type) FASTACT_OF_UNROUNDED(FASTACT_FUNCTIONS_OF, name, Type)

#define FASTACT_ACTIVATION(name, Type) FASTACT_OF_ACTIVATION(FASTACT_FUNCTIONS, name, Type)
#define FASTACT_FAMILY(name, Family) FASTACT_OF_FAMILY(FASTACT_FUNCTIONS, name, Family)

FASTACT_ACTIVATIONS(FASTACT_ACTIVATION)
FASTACT_FORMS(FASTACT_FAMILY)
FASTACT_FAMILY(fused, FusedSteps)
FASTACT_ACTIVATIONS(FASTACT_UNROUNDED)

}  // namespace fastact::cpu::inline FASTACT_TARGET
