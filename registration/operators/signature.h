// Templates that convert between an operator's C++ signature, which the dispatcher calls, and the
// uniform form (operator, tensors, parameters) that all other code uses. A call is type-erased once
// when a dispatch key takes it, and typed once when it goes on to the next key.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <atomic>
#include <concepts>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "registration/build_info.h"
#include "registration/operators/operator.h"

namespace fastact {

// ---- Signatures

// An operator's arguments: tensors, of which the last ones may be optional; then numbers; then
// is_result, for derivatives that can be computed from the activation's result.
template <int Tensors, int Numbers, bool HasFlag, int Optional = 0>
struct Signature {};

// The C++ types that follow the tensors.
template <class... P>
struct Types {};

template <int Count, class... P>
struct RepeatedDouble : RepeatedDouble<Count - 1, double, P...> {};
template <class... P>
struct RepeatedDouble<0, P...> {
  using type = Types<P...>;
};

// The type of the tensor at this position. Tensors from Required on are optional.
template <size_t Position, size_t Required>
using TensorArgument =
    std::conditional_t<(Position < Required), const at::Tensor&, const std::optional<at::Tensor>&>;

// Converts an argument to the uniform form, in which an absent tensor is an undefined one.
// NOLINTNEXTLINE(bugprone-return-const-ref-from-parameter): a kernel's arguments outlive its call
inline const at::Tensor& tensor_of(const at::Tensor& argument) { return argument; }
inline const at::Tensor& tensor_of(const std::optional<at::Tensor>& argument) {
  static const at::Tensor& absent = *new at::Tensor();
  return argument.has_value() ? *argument : absent;
}
template <size_t Position, size_t Required>
decltype(auto) argument_of(const at::Tensor& tensor) {
  if constexpr (Position < Required) {
    return (tensor);
  } else {
    return tensor.defined() ? std::optional<at::Tensor>(tensor) : std::nullopt;
  }
}

template <class Tensors, class Numbers, size_t Required>
struct FunctionTypes;
template <size_t... I, class... P, size_t Required>
struct FunctionTypes<std::index_sequence<I...>, Types<P...>, Required> {
  using Functional = at::Tensor(TensorArgument<I, Required>..., P...);
  using InPlace = at::Tensor&(at::Tensor&, P...);
  using Out = at::Tensor&(TensorArgument<I, Required>..., P..., at::Tensor&);
};

template <int Numbers, bool HasFlag>
struct ParameterTypes : RepeatedDouble<Numbers> {};
template <int Numbers>
struct ParameterTypes<Numbers, true> : RepeatedDouble<Numbers, bool> {};

template <int Tensors, int Numbers, bool HasFlag, int Optional>
using FunctionsOf =
    FunctionTypes<std::make_index_sequence<Tensors>,
                  typename ParameterTypes<Numbers, HasFlag>::type, Tensors - Optional>;

template <class... P>
CallParameters collect(P... values) {
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

// The most tensors of an operator without optional ones: those of an activation's third derivative.
inline constexpr int kMaxRequired = kTopOrder + 1;

// Calls visit(Signature<...>) for this number of tensors and numbers, with or without is_result.
template <int Tensors = 1, int Numbers = 0, class Visit>
void with_signature(int tensors, int numbers, bool has_flag, const Visit& visit) {
  if constexpr (Tensors > kMaxRequired || Numbers > kMaxParameters) {
    TORCH_INTERNAL_ASSERT(false, "an operator takes more than a kernel does");
  } else if (tensors > Tensors) {
    with_signature<Tensors + 1, Numbers>(tensors, numbers, has_flag, visit);
  } else if (numbers > Numbers) {
    with_signature<Tensors, Numbers + 1>(tensors, numbers, has_flag, visit);
  } else if (!has_flag) {
    visit(Signature<Tensors, Numbers, false>{});
  } else if constexpr (Tensors > 1) {  // only derivatives have the flag
    visit(Signature<Tensors, Numbers, true>{});
  }
}

// The same for an operator with optional tensors: those of a fused form.
template <int Numbers = 0, class Visit>
void with_optional_signature(int numbers, const Visit& visit) {
  if constexpr (Numbers > kMaxParameters) {
    TORCH_INTERNAL_ASSERT(false, "an operator takes more than a kernel does");
  } else if (numbers > Numbers) {
    with_optional_signature<Numbers + 1>(numbers, visit);
  } else {
    visit(Signature<kFusedInputs, Numbers, false, kFusedInputs - 1>{});
  }
}

// The same for the signature of an operator.
template <class Visit>
void with_signature(const Descriptor& op, const Visit& visit) {
  const auto numbers =
      op.activation == nullptr ? 0 : static_cast<int>(op.activation->parameters.size());
  if (op.inputs.back().optional) {
    with_optional_signature(numbers, visit);
  } else {
    with_signature(static_cast<int>(op.inputs.size()), numbers, op.form_from_result >= 0, visit);
  }
}

// ---- Calls

// The typed handle of an operator. It is looked up at the first call, because kernels are
// registered before all schemas are.
template <class Function>
class LazyOperator {
 public:
  // The names must stay alive.
  constexpr LazyOperator(const char* name, const char* overload)
      : name_(name), overload_(overload) {}

  // Calls from the top of the dispatcher, or, if `keys` is given, from the highest of these keys
  // on.
  template <class... Arguments>
  decltype(auto) dispatch(const c10::DispatchKeySet* keys, Arguments&&... arguments) const {
    const auto* handle = handle_.load(std::memory_order_acquire);
    if (handle == nullptr) handle = look_up();
    return keys == nullptr ? handle->call(std::forward<Arguments>(arguments)...)
                           : handle->redispatch(*keys, std::forward<Arguments>(arguments)...);
  }

 private:
  [[gnu::noinline]] const c10::TypedOperatorHandle<Function>* look_up() const {
    TORCH_CHECK(torch_mismatch().empty(), torch_mismatch());
    // Kept until the process ends. If several first calls race, the first handle is kept.
    const auto* handle =
        new c10::TypedOperatorHandle<Function>(c10::Dispatcher::singleton()
                                                   .findSchemaOrThrow(name_, overload_)
                                                   .template typed<Function>());
    const c10::TypedOperatorHandle<Function>* first = nullptr;
    if (handle_.compare_exchange_strong(first, handle, std::memory_order_acq_rel)) return handle;
    delete handle;
    return first;
  }

  const char* name_;
  const char* overload_;
  mutable std::atomic<const c10::TypedOperatorHandle<Function>*> handle_ = nullptr;
};

// Only an activation's value has an in-place form. Only values, first derivatives and fused forms
// have an out form; other signatures are not compiled.
template <int Tensors, int Optional>
inline constexpr bool kHasOut = Tensors <= 2 || Optional > 0;

template <class Signature>
class TypedOperator;

template <int Tensors, int Numbers, bool HasFlag, int Optional>
class TypedOperator<Signature<Tensors, Numbers, HasFlag, Optional>> final : public Operator {
 public:
  explicit TypedOperator(Descriptor descriptor)
      : Operator(std::move(descriptor)),
        functional_(qualified_name.c_str(), ""),
        in_place_(qualified_in_place_name.c_str(), ""),
        out_(qualified_name.c_str(), out == nullptr ? "" : out) {}

  at::Tensor functional(const c10::DispatchKeySet* keys, TensorPointers tensors,
                        const CallParameters& parameters) const override {
    return expand(parameters, [&]<size_t... I>(std::index_sequence<I...>, auto... p) {
      return functional_.dispatch(keys, argument_of<I, kRequired>(*tensors[I])..., p...);
    });
  }

  at::Tensor& in_place(const c10::DispatchKeySet* keys, at::Tensor& self,
                       const CallParameters& parameters) const override {
    if constexpr (Tensors == 1) {
      return expand(parameters, [&](auto /*tensors*/, auto... p) -> at::Tensor& {
        return in_place_.dispatch(keys, self, p...);
      });
    }
    TORCH_INTERNAL_ASSERT(false, name, " has no in-place form");
  }

  at::Tensor& write(const c10::DispatchKeySet* keys, TensorPointers tensors,
                    const CallParameters& parameters, at::Tensor& to) const override {
    if constexpr (kHasOut<Tensors, Optional>) {
      return expand(
          parameters, [&]<size_t... I>(std::index_sequence<I...>, auto... p) -> at::Tensor& {
            return out_.dispatch(keys, argument_of<I, kRequired>(*tensors[I])..., p..., to);
          });
    }
    TORCH_INTERNAL_ASSERT(false, name, " has no out form");
  }

 private:
  using Functions = FunctionsOf<Tensors, Numbers, HasFlag, Optional>;
  static constexpr size_t kRequired = Tensors - Optional;

  // Calls f(std::index_sequence of the tensors, parameters...).
  template <class Function>
  static decltype(auto) expand(const CallParameters& parameters, const Function& f) {
    return [&]<class... P>(Types<P...>) -> decltype(auto) {
      return [&]<size_t... J>(std::index_sequence<J...>) -> decltype(auto) {
        return f(std::make_index_sequence<Tensors>{}, parameter_at<P>(parameters, J)...);
      }(std::index_sequence_for<P...>{});
    }(typename ParameterTypes<Numbers, HasFlag>::type{});
  }

  LazyOperator<typename Functions::Functional> functional_;
  LazyOperator<typename Functions::InPlace> in_place_;
  LazyOperator<typename Functions::Out> out_;
};

// ---- Kernels for the dispatcher

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
concept IsImplementation = ImplementsFunctional<I> || ImplementsInPlace<I> || ImplementsOut<I>;

template <class Implementation, class Tensors, class Parameters, size_t Required>
struct Kernels;
template <class Implementation, size_t... I, class... P, size_t Required>
struct Kernels<Implementation, std::index_sequence<I...>, Types<P...>, Required> {
  struct Functional {
    const Operator* op;
    at::Tensor operator()(c10::DispatchKeySet keys, TensorArgument<I, Required>... inputs,
                          P... parameters) const {
      const at::Tensor* tensors[] = {&tensor_of(inputs)...};
      return Implementation::functional(keys, *op, tensors, collect(parameters...));
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
    at::Tensor& operator()(c10::DispatchKeySet keys, TensorArgument<I, Required>... inputs,
                           P... parameters, at::Tensor& out) const {
      const at::Tensor* tensors[] = {&tensor_of(inputs)...};
      return Implementation::out(keys, *op, tensors, collect(parameters...), out);
    }
  };
};

inline std::string in_place_name(const Operator& op) { return op.name + "_"; }
inline std::string out_name(const Operator& op) { return op.name + "." + op.out; }

// Returns the operator's parameters as its schema lists them: ", float alpha=1.0, float scale=1.0",
// or nothing.
inline std::string parameter_arguments(const Operator& op) {
  std::string text;
  for (const Parameter& parameter : op.parameters()) {
    text.append(", float ").append(op.argument_name(parameter));
    if (parameter.default_value.has_value())
      text.append("=").append(literal(*parameter.default_value));
  }
  return text;
}

// Calls visit(op, name, is_mutable) for every form of every operator. Boxed kernels use it.
template <class Visit>
void for_each_name(const Visit& visit) {
  for (const Operator* op : operators()) {
    visit(*op, op->name, false);
    if (op->has_in_place) visit(*op, in_place_name(*op), true);
    if (op->out != nullptr) visit(*op, out_name(*op), true);
  }
}

// Returns true if an implementation serves operators with optional tensors, or without. Its
// kIsFused decides; without kIsFused it serves both.
template <class Implementation>
consteval bool takes_optional(bool optional) {
  if constexpr (requires { Implementation::kIsFused; }) {
    return Implementation::kIsFused == optional;
  } else {
    return true;
  }
}

// Registers the implementation's kernels for every operator, or for those for which serves()
// returns true.
template <IsImplementation Implementation>
void implement(torch::Library& library, c10::DispatchKey key,
               std::span<const Operator* const> list = operators()) {
  for (const Operator* op : list) {
    if constexpr (requires { Implementation::serves(*op); }) {
      if (!Implementation::serves(*op)) continue;
    }
    with_signature(*op, [&]<int Tensors, int Numbers, bool HasFlag, int Optional>(
                            Signature<Tensors, Numbers, HasFlag, Optional>) {
      if constexpr (takes_optional<Implementation>(Optional > 0)) {
        using Typed = Kernels<Implementation, std::make_index_sequence<Tensors>,
                              typename ParameterTypes<Numbers, HasFlag>::type, Tensors - Optional>;
        if constexpr (ImplementsFunctional<Implementation>) {
          library.impl(op->name.c_str(), torch::dispatch(key, typename Typed::Functional{op}));
        }
        if constexpr (ImplementsInPlace<Implementation> && Tensors == 1) {
          if (op->has_in_place) {
            library.impl(in_place_name(*op).c_str(),
                         torch::dispatch(key, typename Typed::InPlace{op}));
          }
        }
        if constexpr (ImplementsOut<Implementation> && kHasOut<Tensors, Optional>) {
          if (op->out != nullptr)
            library.impl(out_name(*op).c_str(), torch::dispatch(key, typename Typed::Out{op}));
        }
      }
    });
  }
}

}  // namespace fastact
