// Registers kernels for the dispatcher: functions with an operator's C++ signature, which call the
// uniform function of an implementation.
#pragma once

#include <torch/library.h>

#include <array>
#include <concepts>
#include <string>
#include <tuple>
#include <utility>

#include "registration/operators/operator.h"
#include "registration/operators/signature.h"

namespace fastact {

// The functions that an implementation of a dispatch key may define.
template <class I>
concept ImplementsFunctional = requires(c10::DispatchKeySet keys, const Operator& op,
                                        TensorPointers tensors, const CallParameters& parameters) {
  { I::functional(keys, op, tensors, parameters) } -> std::same_as<at::Tensor>;
};
template <class I>
concept ImplementsInPlace = requires(c10::DispatchKeySet keys, const Operator& op, at::Tensor& self,
                                     const CallParameters& parameters) {
  { I::in_place(keys, op, self, parameters) } -> std::same_as<at::Tensor&>;
};
template <class I>
concept ImplementsOut =
    requires(c10::DispatchKeySet keys, const Operator& op, TensorPointers tensors,
             const CallParameters& parameters, at::Tensor& out) {
      { I::out(keys, op, tensors, parameters, out) } -> std::same_as<at::Tensor&>;
    };
template <class I>
concept ImplementsSeveral =
    requires(c10::DispatchKeySet keys, const Operator& op, TensorPointers tensors,
             const CallParameters& parameters, at::Tensor* results) {
      { I::several(keys, op, tensors, parameters, results) } -> std::same_as<void>;
    };
template <class I>
concept IsImplementation =
    ImplementsFunctional<I> || ImplementsInPlace<I> || ImplementsOut<I> || ImplementsSeveral<I>;

// The functions that an implementation defines. The other pointers are null.
struct ImplementedFunctions {
  at::Tensor (*functional)(c10::DispatchKeySet, const Operator&, TensorPointers,
                           const CallParameters&) = nullptr;
  void (*several)(c10::DispatchKeySet, const Operator&, TensorPointers, const CallParameters&,
                  at::Tensor*) = nullptr;
  at::Tensor& (*in_place)(c10::DispatchKeySet, const Operator&, at::Tensor&,
                          const CallParameters&) = nullptr;
  at::Tensor& (*out)(c10::DispatchKeySet, const Operator&, TensorPointers, const CallParameters&,
                     at::Tensor&) = nullptr;
};

template <IsImplementation I>
constexpr ImplementedFunctions functions_of() {
  ImplementedFunctions functions;
  if constexpr (ImplementsFunctional<I>) functions.functional = &I::functional;
  if constexpr (ImplementsSeveral<I>) functions.several = &I::several;
  if constexpr (ImplementsInPlace<I>) functions.in_place = &I::in_place;
  if constexpr (ImplementsOut<I>) functions.out = &I::out;
  return functions;
}

// The kernels of a signature. They reach the implementation through a pointer: the dispatcher's
// wrappers of a kernel take long to compile, so all implementations share them.
template <Signature S, class Tensors = TensorsOf<S>, class Parameters = ParametersOf<S>>
struct Kernels;
template <Signature S, size_t... I, class... P>
struct Kernels<S, std::index_sequence<I...>, Types<P...>> {
  struct Functional {
    const Operator* op;
    decltype(ImplementedFunctions::functional) run;
    at::Tensor operator()(c10::DispatchKeySet keys, TensorArgument<I, kRequired<S>>... inputs,
                          P... parameters) const {
      const at::Tensor* tensors[] = {&tensor_of(inputs)...};
      return run(keys, *op, tensors, collect(parameters...));
    }
  };
  struct Several {
    const Operator* op;
    decltype(ImplementedFunctions::several) run;
    ResultsOf<S> operator()(c10::DispatchKeySet keys, TensorArgument<I, kRequired<S>>... inputs,
                            P... parameters) const {
      const at::Tensor* tensors[] = {&tensor_of(inputs)...};
      std::array<at::Tensor, S.results> results;
      run(keys, *op, tensors, collect(parameters...), results.data());
      return std::apply([](auto&... each) { return ResultsOf<S>(std::move(each)...); }, results);
    }
  };
  struct InPlace {
    const Operator* op;
    decltype(ImplementedFunctions::in_place) run;
    at::Tensor& operator()(c10::DispatchKeySet keys, at::Tensor& self, P... parameters) const {
      return run(keys, *op, self, collect(parameters...));
    }
  };
  struct Out {
    const Operator* op;
    decltype(ImplementedFunctions::out) run;
    at::Tensor& operator()(c10::DispatchKeySet keys, TensorArgument<I, kRequired<S>>... inputs,
                           P... parameters, at::Tensor& out) const {
      const at::Tensor* tensors[] = {&tensor_of(inputs)...};
      return run(keys, *op, tensors, collect(parameters...), out);
    }
  };
};

// Calls visit(op, name, is_mutable) for every form of every elementwise operator and row operator
// whose results have the rows or the elements of the inputs. Boxed kernels use it.
template <class Visit>
void for_each_name(const Visit& visit) {
  for (const Operator* op : operators()) {
    if ((!op->is_elementwise() && !op->has_rows) || op->takes_output_mask) continue;
    visit(*op, op->name, false);
    if (op->has_in_place) visit(*op, in_place_name(*op), true);
    if (op->out != nullptr) visit(*op, out_name(*op), true);
  }
}

// Registers an operator's kernels, without those whose function is null.
inline void implement(torch::Library& library, c10::DispatchKey key, const Operator& op,
                      const ImplementedFunctions& functions) {
  const auto add = [&]<class Kernel>(const std::string& name, const Kernel& kernel) {
    if (kernel.run != nullptr) library.impl(name.c_str(), torch::dispatch(key, Kernel(kernel)));
  };
  with_signature(op, [&]<Signature S>() {
    using K = Kernels<S>;
    if constexpr (S.results > 1) {
      add(op.name, typename K::Several{&op, functions.several});
    } else {
      add(op.name, typename K::Functional{&op, functions.functional});
      if constexpr (S.tensors == 1)
        if (op.has_in_place) add(in_place_name(op), typename K::InPlace{&op, functions.in_place});
      if constexpr (kHasOut<S>)
        if (op.out != nullptr) add(out_name(op), typename K::Out{&op, functions.out});
    }
  });
}

// Registers the implementation's kernels. An implementation that defines serves() gets only the
// operators for which it returns true.
template <IsImplementation Implementation>
void implement(torch::Library& library, c10::DispatchKey key) {
  for (const Operator* op : operators()) {
    if constexpr (requires { Implementation::serves(*op); }) {
      if (!Implementation::serves(*op)) continue;
    }
    implement(library, key, *op, functions_of<Implementation>());
  }
}

}  // namespace fastact
