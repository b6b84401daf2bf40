// Templates that convert between an operator's C++ signature, which the dispatcher calls, and the
// uniform form (operator, tensors, parameters) that all other code uses. A call is type-erased once
// when a dispatch key takes it, and typed once when it goes on to the next key.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "registration/build_info.h"
#include "registration/operators/operator.h"

namespace fastact {

// ---- Signatures

// An operator's arguments, in order: tensors, the last of which may be optional; numbers;
// is_result, for derivatives that can be computed from the activation's result, or the dim of a row
// operator; and output_mask.
struct Signature {
  int tensors = 1;
  int optional = 0;
  int numbers = 0;
  bool is_result = false;
  bool output_mask = false;
  bool dim = false;
  int results = 1;

  bool operator==(const Signature&) const = default;
};

// The C++ types that follow the tensors.
template <class... P>
struct Types {};

template <int Results>
using MaskOf = std::array<bool, Results>;
template <class T>
inline constexpr bool kIsMask = false;
template <size_t Results>
inline constexpr bool kIsMask<std::array<bool, Results>> = true;

template <int Count, class... P>
struct RepeatedDouble : RepeatedDouble<Count - 1, double, P...> {};
template <class... P>
struct RepeatedDouble<0, P...> {
  using type = Types<P...>;
};

template <Signature S>
struct ParameterTypes : RepeatedDouble<S.numbers> {};
template <Signature S>
  requires(S.is_result)
struct ParameterTypes<S> : RepeatedDouble<S.numbers, bool> {};
template <Signature S>
  requires(S.output_mask && !S.dim)
struct ParameterTypes<S> : RepeatedDouble<S.numbers, MaskOf<S.results>> {};
template <Signature S>
  requires(S.dim && !S.output_mask)
struct ParameterTypes<S> : RepeatedDouble<S.numbers, int64_t> {};
template <Signature S>
  requires(S.dim && S.output_mask)
struct ParameterTypes<S> : RepeatedDouble<S.numbers, int64_t, MaskOf<S.results>> {};
template <Signature S>
using ParametersOf = typename ParameterTypes<S>::type;

// The tensors by position. Tensors from Required on are optional.
template <Signature S>
using TensorsOf = std::make_index_sequence<S.tensors>;
template <Signature S>
inline constexpr size_t kRequired = S.tensors - S.optional;
template <size_t Position, size_t Required>
using TensorArgument =
    std::conditional_t<(Position < Required), const at::Tensor&, const std::optional<at::Tensor>&>;

// at::Tensor, or a tuple of several.
template <int Results, class... T>
struct ResultTypes : ResultTypes<Results - 1, at::Tensor, T...> {};
template <class... T>
struct ResultTypes<0, T...> {
  using type = std::tuple<T...>;
};
template <>
struct ResultTypes<0, at::Tensor> {
  using type = at::Tensor;
};
template <Signature S>
using ResultsOf = typename ResultTypes<S.results>::type;

inline const at::Tensor& absent_tensor() {
  static const at::Tensor& absent = *new at::Tensor();
  return absent;
}

// Converts an argument to the uniform form, in which an absent tensor is an undefined one.
// NOLINTNEXTLINE(bugprone-return-const-ref-from-parameter): a kernel's arguments outlive its call
inline const at::Tensor& tensor_of(const at::Tensor& argument) { return argument; }
inline const at::Tensor& tensor_of(const std::optional<at::Tensor>& argument) {
  return argument.has_value() ? *argument : absent_tensor();
}
template <size_t Position, size_t Required>
decltype(auto) argument_of(const at::Tensor& tensor) {
  if constexpr (Position < Required) {
    return (tensor);
  } else {
    return tensor.defined() ? std::optional<at::Tensor>(tensor) : std::nullopt;
  }
}

template <Signature S, class Tensors = TensorsOf<S>, class Parameters = ParametersOf<S>>
struct FunctionsOf;
template <Signature S, size_t... I, class... P>
struct FunctionsOf<S, std::index_sequence<I...>, Types<P...>> {
  using Functional = ResultsOf<S>(TensorArgument<I, kRequired<S>>..., P...);
  using InPlace = at::Tensor&(at::Tensor&, P...);
  using Out = at::Tensor&(TensorArgument<I, kRequired<S>>..., P..., at::Tensor&);
};

template <class... P>
CallParameters collect(P... values) {
  CallParameters result;
  [[maybe_unused]] int next = 0;
  [[maybe_unused]] const auto take = [&]<class T>(T value) {
    if constexpr (std::is_same_v<T, bool>) {
      result.from_result = value;
    } else if constexpr (kIsMask<T>) {
      std::ranges::copy(value, result.output_mask.begin());
    } else if constexpr (std::is_same_v<T, int64_t>) {
      result.dim = value;
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
  } else if constexpr (kIsMask<T>) {
    T mask;
    std::copy_n(parameters.output_mask.begin(), mask.size(), mask.begin());
    return mask;
  } else if constexpr (std::is_same_v<T, int64_t>) {
    return parameters.dim;
  } else {
    return parameters.numbers.values[position];
  }
}

// The signatures for which code is compiled. The most tensors of an operator without optional ones
// are those of an activation's third derivative.
inline constexpr auto kSignatures = [] {
  constexpr size_t kNumbers = kMaxParameters + 1;
  constexpr size_t kTensors = kTopOrder + 1;
  constexpr size_t kOthers = 4;
  constexpr size_t kRows = 14;
  std::array<Signature, kNumbers * (2 * kTensors - 1 + kOthers) + kRows> all;
  auto next = all.begin();
  // A row operator; its derivative, or cross_entropy; its derivative.
  *next++ = {.tensors = 1, .dim = true};
  *next++ = {.tensors = 2, .dim = true};
  *next++ = {.tensors = 3, .dim = true};
  // The variance, without and with the mean.
  *next++ = {.tensors = 1, .numbers = 1, .dim = true};
  *next++ = {.tensors = 1, .numbers = 1, .dim = true, .results = 2};
  // RMSNorm; its derivative, or LayerNorm.
  *next++ = {.tensors = 2, .numbers = 1, .dim = true};
  *next++ = {.tensors = 3, .numbers = 1, .dim = true};
  // LayerNorm with statistics, without and with a bias; its derivative.
  *next++ = {.tensors = 2, .numbers = 1, .dim = true, .results = 3};
  *next++ = {.tensors = 3, .numbers = 1, .dim = true, .results = 3};
  *next++ = {.tensors = 5, .numbers = 1, .dim = true};
  // A norm of a sum, without and with a bias.
  *next++ = {.tensors = 3, .numbers = 1, .dim = true, .results = 2};
  *next++ = {.tensors = 4, .numbers = 1, .dim = true, .results = 2};
  // All gradients of RMSNorm and of LayerNorm.
  *next++ = {.tensors = 3, .numbers = 1, .output_mask = true, .dim = true, .results = 2};
  *next++ = {.tensors = 5, .numbers = 1, .output_mask = true, .dim = true, .results = 3};
  for (int numbers = 0; numbers <= kMaxParameters; ++numbers) {
    for (int tensors = 1; tensors <= kTopOrder + 1; ++tensors) {
      *next++ = {.tensors = tensors, .numbers = numbers};
      // Only derivatives take is_result.
      if (tensors > 1) *next++ = {.tensors = tensors, .numbers = numbers, .is_result = true};
    }
    // The gradients of two inputs.
    *next++ = {.tensors = 3, .numbers = numbers, .results = 2};
    // A fused form; with z; its gradients.
    constexpr int kOptional = kFusedInputs - 1;
    *next++ = {.tensors = kFusedInputs, .optional = kOptional, .numbers = numbers};
    *next++ = {.tensors = kFusedInputs, .optional = kOptional, .numbers = numbers, .results = 2};
    *next++ = {.tensors = 1 + kFusedInputs,
               .optional = kOptional,
               .numbers = numbers,
               .output_mask = true,
               .results = kFusedInputs};
  }
  return all;
}();

// Calls visit.template operator()<S>() for the signature of an operator.
template <class Visit>
void with_signature(const Descriptor& op, const Visit& visit) {
  const auto is_optional = [](const Input& input) { return input.kind == InputKind::kOptional; };
  const Signature wanted = {
      .tensors = static_cast<int>(op.inputs.size()),
      .optional = static_cast<int>(std::ranges::count_if(op.inputs, is_optional)),
      .numbers = op.activation == nullptr ? 0 : static_cast<int>(op.activation->parameters.size()),
      .is_result = op.form_from_result >= 0,
      .output_mask = op.takes_output_mask,
      .dim = op.has_rows,
      .results = op.results};
  const auto visit_if = [&]<Signature S>() {
    if (S == wanted) visit.template operator()<S>();
    return S == wanted;
  };
  const bool found = [&]<size_t... I>(std::index_sequence<I...>) {
    return (visit_if.template operator()<kSignatures[I]>() || ...);
  }(std::make_index_sequence<kSignatures.size()>{});
  TORCH_INTERNAL_ASSERT(found, op.name, ": expected one of kSignatures");
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

// Only an activation's value has an in-place form. Only values, first derivatives, row operators
// and fused forms have an out form; other signatures are not compiled.
template <Signature S>
inline constexpr bool kHasOut = S.results == 1 && (S.tensors <= 2 || S.optional > 0 || S.dim);

template <Signature S>
class TypedOperator final : public Operator {
 public:
  explicit TypedOperator(Descriptor descriptor)
      : Operator(std::move(descriptor)),
        functional_(qualified_name.c_str(), ""),
        in_place_(qualified_in_place_name.c_str(), ""),
        out_(qualified_name.c_str(), out == nullptr ? "" : out) {}

  at::Tensor functional(const c10::DispatchKeySet* keys, TensorPointers tensors,
                        const CallParameters& parameters) const override {
    if constexpr (S.results == 1) return call_functional(keys, tensors, parameters);
    TORCH_INTERNAL_ASSERT(false, name, " has several results");
  }

  void several(const c10::DispatchKeySet* keys, TensorPointers tensors,
               const CallParameters& parameters, at::Tensor* to) const override {
    if constexpr (S.results > 1) {
      std::apply([&](auto&&... each) { ((*to++ = std::move(each)), ...); },
                 call_functional(keys, tensors, parameters));
      return;
    }
    TORCH_INTERNAL_ASSERT(false, name, " has one result");
  }

  at::Tensor& in_place(const c10::DispatchKeySet* keys, at::Tensor& self,
                       const CallParameters& parameters) const override {
    if constexpr (S.tensors == 1) {
      return expand(parameters, [&](auto /*tensors*/, auto... p) -> at::Tensor& {
        return in_place_.dispatch(keys, self, p...);
      });
    }
    TORCH_INTERNAL_ASSERT(false, name, " has no in-place form");
  }

  at::Tensor& write(const c10::DispatchKeySet* keys, TensorPointers tensors,
                    const CallParameters& parameters, at::Tensor& to) const override {
    if constexpr (kHasOut<S>) {
      return expand(
          parameters, [&]<size_t... I>(std::index_sequence<I...>, auto... p) -> at::Tensor& {
            return out_.dispatch(keys, argument_of<I, kRequired<S>>(*tensors[I])..., p..., to);
          });
    }
    TORCH_INTERNAL_ASSERT(false, name, " has no out form");
  }

 private:
  ResultsOf<S> call_functional(const c10::DispatchKeySet* keys, TensorPointers tensors,
                               const CallParameters& parameters) const {
    return expand(parameters, [&]<size_t... I>(std::index_sequence<I...>, auto... p) {
      return functional_.dispatch(keys, argument_of<I, kRequired<S>>(*tensors[I])..., p...);
    });
  }

  // Calls f(std::index_sequence of the tensors, parameters...).
  template <class Function>
  static decltype(auto) expand(const CallParameters& parameters, const Function& f) {
    return [&]<class... P>(Types<P...>) -> decltype(auto) {
      return [&]<size_t... J>(std::index_sequence<J...>) -> decltype(auto) {
        return f(TensorsOf<S>{}, parameter_at<P>(parameters, J)...);
      }(std::index_sequence_for<P...>{});
    }(ParametersOf<S>{});
  }

  LazyOperator<typename FunctionsOf<S>::Functional> functional_;
  LazyOperator<typename FunctionsOf<S>::InPlace> in_place_;
  LazyOperator<typename FunctionsOf<S>::Out> out_;
};

// ---- Names

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

}  // namespace fastact
