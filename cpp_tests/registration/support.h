// Shared by the tests of this folder: operators by name, as TorchScript and torch.ops look them up,
// and comparisons to the last bit.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "ops/catalogue.h"

namespace fastact::testing {

#define FASTACT_ACTIVATION_NAME(name, A) #name,
inline constexpr const char* kActivations[] = {FASTACT_ACTIVATIONS(FASTACT_ACTIVATION_NAME)};
#undef FASTACT_ACTIVATION_NAME

inline constexpr std::array<at::ScalarType, 4> kTypes = {at::kFloat, at::kDouble, at::kBFloat16,
                                                         at::kHalf};

// Returns the distance from 1 to the next larger number.
inline double epsilon_of(at::ScalarType type) {
  if (type == at::kDouble) return 0x1p-52;
  if (type == at::kFloat) return 0x1p-23;
  return type == at::kHalf ? 0x1p-10 : 0x1p-7;
}

// Calls fastact::<name>, or fastact::<name>.<overload>, through the dispatcher.
template <class Function, class... Arguments>
decltype(auto) call(const char* name, const char* overload, Arguments&&... arguments) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow((std::string("fastact::") + name).c_str(), overload)
      .typed<Function>()
      .call(std::forward<Arguments>(arguments)...);
}

// The same for any activation's operator: passes the tensors, then the schema's defaults, or 0.25
// for parameters without one.
inline at::Tensor call_with_defaults(const std::string& name,
                                     const std::vector<at::Tensor>& tensors) {
  const c10::OperatorHandle handle =
      c10::Dispatcher::singleton().findSchemaOrThrow(("fastact::" + name).c_str(), "");
  std::vector<c10::IValue> stack(tensors.begin(), tensors.end());
  const auto& arguments = handle.schema().arguments();
  for (size_t i = stack.size(); i < arguments.size(); ++i) {
    stack.push_back(arguments[i].default_value().value_or(0.25));
  }
  handle.callBoxed(stack);
  return stack.front().toTensor();
}

// Uses every activation like a program: values, in place, and gradients.
inline std::vector<at::Tensor> use_every_activation(const at::Tensor& x) {
  std::vector<at::Tensor> results;
  for (const std::string name : kActivations) {
    results.push_back(call_with_defaults(name, {x}));
    results.push_back(call_with_defaults(name + "_", {x.clone()}));
    const at::Tensor leaf = x.clone().requires_grad_();
    call_with_defaults(name, {leaf}).backward(at::ones_like(x));
    results.push_back(leaf.grad());
  }
  return results;
}

using Unary = at::Tensor(const at::Tensor&);
using InPlace = at::Tensor&(at::Tensor&);
using UnaryOut = at::Tensor&(const at::Tensor&, at::Tensor&);
// The signatures of first derivatives, for activations without and with is_result.
using Backward = at::Tensor(const at::Tensor&, const at::Tensor&);
using BackwardFlag = at::Tensor(const at::Tensor&, const at::Tensor&, bool);

// Returns the bits of the elements, whatever the strides.
inline at::Tensor bits_of(const at::Tensor& tensor) {
  const at::ScalarType integer = tensor.element_size() == 2   ? at::kShort
                                 : tensor.element_size() == 4 ? at::kInt
                                                              : at::kLong;
  return tensor.detach().contiguous().view(integer);
}

// Compares type, shape and bits. Unlike at::equal, it distinguishes -0 from 0 and compares NaNs.
inline ::testing::AssertionResult same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type()) {
    return ::testing::AssertionFailure() << a.scalar_type() << " is not " << b.scalar_type();
  }
  if (a.sizes() != b.sizes()) {
    return ::testing::AssertionFailure() << a.sizes() << " is not " << b.sizes();
  }
  const at::Tensor different = bits_of(a).ne(bits_of(b));
  const auto count = different.sum().item<int64_t>();
  if (count == 0) return ::testing::AssertionSuccess();
  const at::Tensor first = different.flatten().nonzero().select(0, 0);
  return ::testing::AssertionFailure()
         << count << " of " << a.numel() << " elements differ, the first "
         << a.detach().flatten().index({first}) << " and " << b.detach().flatten().index({first});
}

inline bool same_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::ranges::equal(
      a, b, [](const at::Tensor& x, const at::Tensor& y) { return bool{same_bits(x, y)}; });
}

// Returns the message of the exception that f throws, without torch's backtrace, or "" if it throws
// none.
template <class Exception, class Function>
std::string message_of(const Function& f) {
  try {
    f();
  } catch (const Exception& error) {
    return error.what_without_backtrace();
  }
  return "";
}

// Returns ordinary numbers on both branches, with special values in the middle and at the end of
// vectors.
inline at::Tensor inputs(at::ScalarType type, int64_t count = 1009) {
  at::Tensor x = at::linspace(-9, 9, count, at::kDouble).to(type);
  const double infinity = std::numeric_limits<double>::infinity();
  const at::Tensor special =
      at::tensor({0.0, -0.0, infinity, -infinity, std::nan(""), -std::nan("")}, at::kDouble)
          .to(type);
  const int64_t n = std::min<int64_t>(special.numel(), count);
  x.slice(0, count / 2, count / 2 + n).copy_(special.slice(0, 0, std::min(n, count - count / 2)));
  return x;
}

}  // namespace fastact::testing
