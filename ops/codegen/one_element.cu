// One kernel for each form, which computes one element. This file is only compiled to PTX: once in
// IEEE arithmetic, and once with approximate GPU instructions for the forms that have a second
// version. scripts/codegen/inline_assembly.py turns the PTX into inline assembly that torch.compile
// inserts into its own kernels.
//
// ops/codegen/given.h explains the kernel names. A kernel reads the operands from `in` as OpMath of
// the type. For 16-bit types, operands and result are float; intermediate() in ops/codegen/given.h
// defines the result. Parameters that are not the defaults are read from `parameters`. A form in
// segments (ops/math/segments.h) loads its segment from a table in the module itself.
#include <cstdint>
#include <type_traits>
#include <utility>

#include "ops/catalogue.h"
#include "ops/codegen/given.h"
#include "ops/cuda/packet.cuh"
#include "ops/generated/families.h"

namespace fastact::cuda {

template <class F, class Inputs = typename F::Inputs, class Outputs = typename F::Outputs>
struct OneElement;
template <class F, class... In, class Out>
struct OneElement<F, Elements<In...>, Elements<Out>> {
  template <class T>
  static __device__ __forceinline__ void run(const F& form, const T* in, T* out) {
    [&]<size_t... I>(std::index_sequence<I...>) {
      *out = intermediate<F, Out>(evaluate(form, in[I]...), in[I]...);
    }(std::make_index_sequence<sizeof...(In)>{});
  }

 private:
  template <class... Operands>
  static __device__ __forceinline__ auto evaluate(const F& form, Operands... operands) {
    if constexpr (HasSegments<F>) {
      const auto& table = kPackedSegments<*F::kTable>;
      return form.evaluate_in(segment_from(table, form.segment(operands...)), operands...);
    } else {
      return form.evaluate(operands...);
    }
  }
};

template <class Family, class Form, Given Kind, class T>
__device__ __forceinline__ void evaluate_one(const T* in, const double* parameters, T* out) {
  if constexpr (!std::is_void_v<Form>) {
    constexpr Parameters kDefaults = ParametersOf<Family>::kDefaults;
    const Form form(Kind == Given::kDefaults ? kDefaults.values : parameters);
    OneElement<Form>::run(form, in, out);
  }
}

// `For` is FormFor or UnroundedFor.
#define FASTACT_KERNEL(kernel, For, Family, index, Element, Kind)                        \
  extern "C" __global__ void kernel(const OpMath<Element>* in, const double* parameters, \
                                    OpMath<Element>* out) {                              \
    using Form = For<Family, FormOf<Family, Element, index>::type, Given::Kind>;         \
    evaluate_one<Family, Form, Given::Kind>(in, parameters, out);                        \
  }
#define FASTACT_KERNELS_OF(form, For, Family, index, Element)              \
  FASTACT_KERNEL(form##__defaults, For, Family, index, Element, kDefaults) \
  FASTACT_KERNEL(form##__any, For, Family, index, Element, kAny)           \
  FASTACT_KERNEL(form##__ordinary, For, Family, index, Element, kOrdinary)
#define FASTACT_KERNELS(name, Family, index, Element, dtype)       \
  extern "C" {                                                     \
  __device__ auto ordinary_of__##name##__##index##__##dtype =      \
      ordinary_of<Family, FormOf<Family, Element, index>::type>(); \
  }                                                                \
  FASTACT_KERNELS_OF(name##__##index##__##dtype, FormFor, Family, index, Element)
#define FASTACT_UNROUNDED(name, Type) FASTACT_OF_UNROUNDED(FASTACT_KERNELS_OF, name, Type)
#define FASTACT_ACTIVATION(name, Type) FASTACT_OF_ACTIVATION(FASTACT_KERNELS, name, Type)
#define FASTACT_FAMILY(name, Family) FASTACT_OF_FAMILY(FASTACT_KERNELS, name, Family)

#if FASTACT_APPROXIMATE
FASTACT_APPROXIMATED(FASTACT_ACTIVATION)
#else
FASTACT_ACTIVATIONS(FASTACT_ACTIVATION)
FASTACT_FORMS(FASTACT_FAMILY)
FASTACT_FAMILY(fused, FusedSteps)
#endif
FASTACT_ACTIVATIONS(FASTACT_UNROUNDED)

}  // namespace fastact::cuda
