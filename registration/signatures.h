// The templates that translate between the operators' C++ signatures and the uniform form of
// family.h.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <tuple>
#include <type_traits>
#include <utility>

#include "registration/family.h"

namespace fastact {

// The C++ types of an operator's parameters: some doubles, then, for derivatives of an activation
// whose gradient can come from its result, a bool.
template <class... P>
struct Types {};

template <int Count, class... P>
struct RepeatedDouble : RepeatedDouble<Count - 1, double, P...> {};
template <class... P>
struct RepeatedDouble<0, P...> {
  using type = Types<P...>;
};

template <size_t>
using TensorArgument = const at::Tensor&;

template <int Order, class ParameterTypes, class = std::make_index_sequence<Order>>
struct Signature;

template <int Order, class... P, size_t... I>
struct Signature<Order, Types<P...>, std::index_sequence<I...>> {
  using Functional = at::Tensor(TensorArgument<I>..., const at::Tensor&, P...);
  using InPlace = at::Tensor&(at::Tensor&, P...);
  using Out = at::Tensor&(TensorArgument<I>..., const at::Tensor&, P..., at::Tensor&);
};

template <class... P>
CallParameters collect(P... values) {
  static_assert((0 + ... + (std::is_same_v<P, bool> ? 0 : 1)) <= kMaxParameters,
                "a schema has more numbers than the kernels take");
  CallParameters result;
  [[maybe_unused]] int next = 0;
  [[maybe_unused]] const auto take = [&]<class T>(T value) {
    if constexpr (std::is_same_v<T, bool>) {
      result.from_result = value;
    } else {
      result.numbers.values[next++] = value;
    }
  };
  (take(values), ...);
  return result;
}

template <class T>
T parameter_at(const CallParameters& parameters, [[maybe_unused]] size_t position) {
  if constexpr (std::is_same_v<T, bool>) {
    return parameters.from_result;
  } else {
    return parameters.numbers.values[position];
  }
}

struct QualifiedName {
  std::string name;
  const char* overload;
};

// An operator's typed handle, looked up at its first call: kernels are registered before all
// schemas are.
template <class Function>
class LazyOperator {
 public:
  // Implicit, so that a tuple of these, which cannot move, is built from names.
  // NOLINTNEXTLINE(google-explicit-constructor)
  LazyOperator(QualifiedName name) : name_(std::move(name)) {}

  template <class... Arguments>
  decltype(auto) dispatch(const c10::DispatchKeySet* keys, Arguments&&... arguments) const {
    const auto* handle = handle_.load(std::memory_order_acquire);
    if (handle == nullptr) handle = look_up();
    return keys == nullptr ? handle->call(std::forward<Arguments>(arguments)...)
                           : handle->redispatch(*keys, std::forward<Arguments>(arguments)...);
  }

 private:
  const c10::TypedOperatorHandle<Function>* look_up() const {
    // Kept for the life of the process. Of first calls at once the first one's handle stays.
    const auto* handle = new c10::TypedOperatorHandle<Function>(
        c10::Dispatcher::singleton()
            .findSchemaOrThrow(name_.name.c_str(), name_.overload)
            .template typed<Function>());
    const c10::TypedOperatorHandle<Function>* first = nullptr;
    if (handle_.compare_exchange_strong(first, handle, std::memory_order_acq_rel)) return handle;
    delete handle;
    return first;
  }

  QualifiedName name_;
  mutable std::atomic<const c10::TypedOperatorHandle<Function>*> handle_ = nullptr;
};

// f(std::integral_constant<int, order>).
template <class Function>
decltype(auto) with_order(int order, const Function& f) {
  switch (order) {
    case 0:
      return f(std::integral_constant<int, 0>{});
    case 1:
      return f(std::integral_constant<int, 1>{});
    case 2:
      return f(std::integral_constant<int, 2>{});
    default:
      return f(std::integral_constant<int, kTopOrder>{});
  }
}

template <class ForwardTypes, class DerivativeTypes>
class TypedFamily final : public Family {
 public:
  template <int Order>
  using ParameterTypes = std::conditional_t<Order == 0, ForwardTypes, DerivativeTypes>;

  explicit TypedFamily(int index) : TypedFamily(index, formulas()[index]) {}

  at::Tensor functional(const c10::DispatchKeySet* keys, int order, TensorPointers tensors,
                        const CallParameters& parameters) const override {
    return with_order(order, [&](auto constant) {
      constexpr int kOrder = decltype(constant)::value;
      return expand<kOrder>(parameters, [&]<size_t... I>(std::index_sequence<I...>, auto... p) {
        return std::get<kOrder>(functional_).dispatch(keys, *tensors[I]..., p...);
      });
    });
  }

  at::Tensor& in_place(const c10::DispatchKeySet* keys, at::Tensor& self,
                       const CallParameters& parameters) const override {
    return expand<0>(parameters, [&](auto /*tensors*/, auto... p) -> at::Tensor& {
      return in_place_.dispatch(keys, self, p...);
    });
  }

  at::Tensor& out(const c10::DispatchKeySet* keys, int order, TensorPointers tensors,
                  const CallParameters& parameters, at::Tensor& out) const override {
    const auto write = [&](auto constant) -> at::Tensor& {
      constexpr int kOrder = decltype(constant)::value;
      return expand<kOrder>(
          parameters, [&]<size_t... I>(std::index_sequence<I...>, auto... p) -> at::Tensor& {
            return std::get<kOrder>(out_).dispatch(keys, *tensors[I]..., p..., out);
          });
    };
    return order == 0 ? write(std::integral_constant<int, 0>{})
                      : write(std::integral_constant<int, 1>{});
  }

 private:
  template <int Order>
  using FunctionalOperator =
      LazyOperator<typename Signature<Order, ParameterTypes<Order>>::Functional>;
  template <int Order>
  using OutOperator = LazyOperator<typename Signature<Order, ParameterTypes<Order>>::Out>;

  TypedFamily(int index, const Activation& activation)
      : Family(index),
        functional_(qualified(activation, 0), qualified(activation, 1), qualified(activation, 2),
                    qualified(activation, 3)),
        in_place_(QualifiedName{qualified(activation, 0).name + "_", ""}),
        out_(qualified(activation, 0, out_overload(0)), qualified(activation, 1, out_overload(1))) {
  }

  static QualifiedName qualified(const Activation& activation, int order,
                                 const char* overload = "") {
    return {"fastact::" + operator_name(activation, order), overload};
  }

  // f(std::index_sequence<0 .. Order>, parameters...)
  template <int Order, class Function>
  static decltype(auto) expand(const CallParameters& parameters, const Function& f) {
    return [&]<class... P>(Types<P...>) -> decltype(auto) {
      return [&]<size_t... J>(std::index_sequence<J...>) -> decltype(auto) {
        return f(std::make_index_sequence<Order + 1>{}, parameter_at<P>(parameters, J)...);
      }(std::index_sequence_for<P...>{});
    }(ParameterTypes<Order>{});
  }

  std::tuple<FunctionalOperator<0>, FunctionalOperator<1>, FunctionalOperator<2>,
             FunctionalOperator<3>>
      functional_;
  LazyOperator<typename Signature<0, ForwardTypes>::InPlace> in_place_;
  std::tuple<OutOperator<0>, OutOperator<1>> out_;
};

// ---- Kernels for the dispatcher. An Implementation has any of
//   static at::Tensor functional(c10::DispatchKeySet, const Family&, int order, TensorPointers,
//   const CallParameters&); static at::Tensor& in_place(c10::DispatchKeySet, const Family&,
//   at::Tensor& self, const CallParameters&); static at::Tensor& out(c10::DispatchKeySet, const
//   Family&, int order, TensorPointers, const CallParameters&,
//                          at::Tensor& out);

template <class Implementation, int Order, class ParameterTypes,
          class = std::make_index_sequence<Order>>
struct FunctionalKernel;
template <class Implementation, int Order, class... P, size_t... I>
struct FunctionalKernel<Implementation, Order, Types<P...>, std::index_sequence<I...>> {
  const Family* family;
  at::Tensor operator()(c10::DispatchKeySet keys, TensorArgument<I>... gradients,
                        const at::Tensor& self, P... parameters) const {
    const at::Tensor* tensors[] = {&gradients..., &self};
    return Implementation::functional(keys, *family, Order, tensors, collect(parameters...));
  }
};

template <class Implementation, class ParameterTypes>
struct InPlaceKernel;
template <class Implementation, class... P>
struct InPlaceKernel<Implementation, Types<P...>> {
  const Family* family;
  at::Tensor& operator()(c10::DispatchKeySet keys, at::Tensor& self, P... parameters) const {
    return Implementation::in_place(keys, *family, self, collect(parameters...));
  }
};

template <class Implementation, int Order, class ParameterTypes,
          class = std::make_index_sequence<Order>>
struct OutKernel;
template <class Implementation, int Order, class... P, size_t... I>
struct OutKernel<Implementation, Order, Types<P...>, std::index_sequence<I...>> {
  const Family* family;
  at::Tensor& operator()(c10::DispatchKeySet keys, TensorArgument<I>... gradients,
                         const at::Tensor& self, P... parameters, at::Tensor& out) const {
    const at::Tensor* tensors[] = {&gradients..., &self};
    return Implementation::out(keys, *family, Order, tensors, collect(parameters...), out);
  }
};

// How many numbers the schema of an activation's operators carries.
constexpr int count_parameters(std::string_view parameters) {
  if (parameters.empty()) return 0;
  return 1 + static_cast<int>(std::count(parameters.begin(), parameters.end(), ','));
}

#define FASTACT_PARAMETER_COUNT(name, Formula, parameters) count_parameters(parameters),
inline constexpr int kMostParameters = std::max({FASTACT_ACTIVATIONS(FASTACT_PARAMETER_COUNT) 0});
#undef FASTACT_PARAMETER_COUNT

// visit(ForwardTypes, DerivativeTypes) for the family's signatures; only those that the catalogue
// needs are compiled.
template <int Count = 0, class Visit>
void with_types(const Activation& activation, const Visit& visit) {
  if (count_parameters(activation.parameters) == Count) {
    using Forward = typename RepeatedDouble<Count>::type;
    if (activation.traits.gradient_from_result) {
      visit(Forward{}, typename RepeatedDouble<Count, bool>::type{});
    } else {
      visit(Forward{}, Forward{});
    }
  } else if constexpr (Count < kMostParameters) {
    with_types<Count + 1>(activation, visit);
  }
}

// Registers the Implementation's kernels for every operator of every family.
template <class Implementation>
void implement(torch::Library& library, c10::DispatchKey key) {
  for (const Family* family : families()) {
    const Activation& activation = family->activation();
    with_types(activation, [&]<class Forward, class Derivative>(Forward, Derivative) {
      if constexpr (requires { &Implementation::functional; }) {
        const auto add = [&]<int Order, class ParameterTypes>() {
          if (Order < activation.traits.first_order || Order > activation.traits.last_order) return;
          library.impl(operator_name(activation, Order).c_str(),
                       torch::dispatch(
                           key, FunctionalKernel<Implementation, Order, ParameterTypes>{family}));
        };
        add.template operator()<0, Forward>();
        add.template operator()<1, Derivative>();
        add.template operator()<2, Derivative>();
        add.template operator()<3, Derivative>();
      }
      if (family->is_part()) return;
      if constexpr (requires { &Implementation::in_place; }) {
        library.impl((std::string(activation.name) + "_").c_str(),
                     torch::dispatch(key, InPlaceKernel<Implementation, Forward>{family}));
      }
      if constexpr (requires { &Implementation::out; }) {
        const auto add = [&]<int Order, class ParameterTypes>() {
          library.impl(
              out_operator_name(activation, Order).c_str(),
              torch::dispatch(key, OutKernel<Implementation, Order, ParameterTypes>{family}));
        };
        add.template operator()<0, Forward>();
        add.template operator()<1, Derivative>();
      }
    });
  }
}

}  // namespace fastact
