// One activation's family of operators, as the dispatcher sees it.
//
// Operators of a family differ in how many tensors and numbers they take. Everything in this folder
// is written once, for any order of any activation, in a uniform form: (order, tensors,
// parameters). signatures.h translates.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>

#include <span>
#include <string>
#include <string_view>

#include "ops/catalogue.h"

namespace fastact {

// What a call carries beside its tensors.
struct CallParameters {
  Parameters numbers;
  bool from_result = false;
};

// The tensors of D_k in the schema's order: k gradients, then self (or output).
using TensorPointers = const at::Tensor* const*;

// "selu", "selu_backward", "selu_double_backward", "selu_triple_backward" for the orders 0 to 3;
// with a weight, whose value has order 1, "_prelu", "_prelu_backward" for 1 and 2.
std::string operator_name(const Activation& activation, int order);

// The schema's name of D_order's tensor at `position`: first the gradients, or in the last one's
// place "weight" (Traits::weighted), then "self", or "output" where it is the activation's result
// (Saves::kOutput).
const char* tensor_name(const Activation& activation, int order, int position);

// The overload of D_order that writes into a given tensor: "out", "grad_input"; orders 0 and 1 have
// one.
inline constexpr int kOrdersWithOut = 2;
const char* out_overload(int order);

// "selu.out", "selu_backward.grad_input".
std::string out_operator_name(const Activation& activation, int order);

class Family {
 public:
  explicit Family(int index) : index_(index), activation_(formulas()[index]) {}
  virtual ~Family() = default;
  Family(const Family&) = delete;
  Family& operator=(const Family&) = delete;

  int index() const { return index_; }
  const Activation& activation() const { return activation_; }
  const Traits& traits() const { return activation_.traits; }
  // Whether it has neither an in-place nor an out form, only D_k's functional ones.
  bool is_part() const { return traits().first_order > 0; }

  // Whether the functional form keeps its result for backward.
  bool saves_result(const CallParameters& parameters) const {
    return traits().saves != Saves::kInput &&
           activation_.result_suffices(parameters.numbers.values);
  }
  // Whether the in-place form, which has no more than its result, can do with that.
  bool in_place_saves_result(const CallParameters& parameters) const {
    return (traits().saves != Saves::kInput || traits().gradient_from_result) &&
           activation_.result_suffices(parameters.numbers.values);
  }

  // Calls through the dispatcher: from the top, or, with keys, from the highest of those on.
  at::Tensor call(int order, TensorPointers tensors, const CallParameters& parameters) const {
    return functional(nullptr, order, tensors, parameters);
  }
  virtual at::Tensor functional(const c10::DispatchKeySet* keys, int order, TensorPointers tensors,
                                const CallParameters& parameters) const = 0;
  virtual at::Tensor& in_place(const c10::DispatchKeySet* keys, at::Tensor& self,
                               const CallParameters& parameters) const = 0;
  virtual at::Tensor& out(const c10::DispatchKeySet* keys, int order, TensorPointers tensors,
                          const CallParameters& parameters, at::Tensor& out) const = 0;

 private:
  int index_;
  const Activation& activation_;
};

// All families, in the order of formulas(). None in a torch of another version than the library was
// built for, so that nothing calls into what may have changed.
std::span<const Family* const> families();

// The family at `index` of formulas(); an error that names both versions in another torch.
const Family& family_at(int index);

}  // namespace fastact
