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

template <class Implementation, Signature S, class Tensors = TensorsOf<S>,
          class Parameters = ParametersOf<S>>
struct Kernels;
template <class Implementation, Signature S, size_t... I, class... P>
struct Kernels<Implementation, S, std::index_sequence<I...>, Types<P...>> {
  struct Functional {
    const Operator* op;
    at::Tensor operator()(c10::DispatchKeySet keys, TensorArgument<I, kRequired<S>>... inputs,
                          P... parameters) const {
      const at::Tensor* tensors[] = {&tensor_of(inputs)...};
      return Implementation::functional(keys, *op, tensors, collect(parameters...));
    }
  };
  struct Several {
    const Operator* op;
    ResultsOf<S> operator()(c10::DispatchKeySet keys, TensorArgument<I, kRequired<S>>... inputs,
                            P... parameters) const {
      const at::Tensor* tensors[] = {&tensor_of(inputs)...};
      std::array<at::Tensor, S.results> results;
      Implementation::several(keys, *op, tensors, collect(parameters...), results.data());
      return std::apply([](auto&... each) { return ResultsOf<S>(std::move(each)...); }, results);
    }
  };
  struct InPlace {
    const Operator* op;
    at::Tensor& operator()(c10::DispatchKeySet keys, at::Tensor& self, P... parameters) const {
      return Implementation::in_place(keys, *op, self, collect(parameters...));
    }
  };
  struct Out {
    const Operator* op;
    at::Tensor& operator()(c10::DispatchKeySet keys, TensorArgument<I, kRequired<S>>... inputs,
                           P... parameters, at::Tensor& out) const {
      const at::Tensor* tensors[] = {&tensor_of(inputs)...};
      return Implementation::out(keys, *op, tensors, collect(parameters...), out);
    }
  };
};

// Calls visit(op, name, is_mutable) for every form of every elementwise operator and row operator.
// Boxed kernels use it.
template <class Visit>
void for_each_name(const Visit& visit) {
  for (const Operator* op : operators()) {
    if (!op->is_elementwise() && !op->has_rows) continue;
    visit(*op, op->name, false);
    if (op->has_in_place) visit(*op, in_place_name(*op), true);
    if (op->out != nullptr) visit(*op, out_name(*op), true);
  }
}

// Registers the implementation's kernels. An implementation that defines serves() gets only the
// operators for which it returns true.
template <IsImplementation Implementation>
void implement(torch::Library& library, c10::DispatchKey key) {
  for (const Operator* op : operators()) {
    if constexpr (requires { Implementation::serves(*op); }) {
      if (!Implementation::serves(*op)) continue;
    }
    const auto add = [&](const std::string& name, auto kernel) {
      library.impl(name.c_str(), torch::dispatch(key, std::move(kernel)));
    };
    with_signature(*op, [&]<Signature S>() {
      using Typed = Kernels<Implementation, S>;
      if constexpr (S.results > 1) {
        if constexpr (ImplementsSeveral<Implementation>) add(op->name, typename Typed::Several{op});
      } else {
        if constexpr (ImplementsFunctional<Implementation>)
          add(op->name, typename Typed::Functional{op});
        if constexpr (ImplementsInPlace<Implementation> && S.tensors == 1)
          if (op->has_in_place) add(in_place_name(*op), typename Typed::InPlace{op});
        if constexpr (ImplementsOut<Implementation> && kHasOut<S>)
          if (op->out != nullptr) add(out_name(*op), typename Typed::Out{op});
      }
    });
  }
}

}  // namespace fastact
