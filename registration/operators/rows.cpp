// Softmax and what is computed from its exponentials. Public operators with the same name call
// those with an underscore (composites/rows.cpp, composites/cross_entropy.cpp):
//
//   _softmax(self, dim), _log_softmax(self, dim)
//   softmax_backward(grad_output, output, dim), log_softmax_backward(grad_output, output, dim)
//   _logsumexp(self, dim), _logsumexp_backward(self, grad_output, dim)
//   _cross_entropy(self, target, dim), _cross_entropy_backward(self, target, grad_output, dim)
//
// The results of _logsumexp and _cross_entropy have one number for each row. So do target, the
// index of an element, and the grad_output of their backward operators.
#include "registration/composites/rows.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "registration/operators/operator.h"

namespace fastact {
namespace {

// The forms of SoftmaxForms (ops/forms/softmax.h).
enum SoftmaxForm : int { kSoftmax, kLogSoftmax, kSoftmaxGradient, kLogSoftmaxGradient };

std::vector<Descriptor> logsumexp_operators() {
  using Rule = DerivativeRule;
  const char* const family = "logsumexp";
  const std::string backward = "_logsumexp_backward";
  const std::vector<std::string> called = {"_softmax", "softmax_backward", backward};

  Descriptor value = row_operator("_logsumexp", {"self"}, family, 0);
  value.row_result = RowResult::kNumber;
  value.of_empty_row = -std::numeric_limits<double>::infinity();
  value.derivatives = {Rule::compose(&logsumexp_by_self)};
  value.tangents = {Rule::compose(&logsumexp_tangent)};
  value.called_names = called;

  Descriptor gradient =
      row_operator(backward, {"self", {"grad_output", InputKind::kPerRow}}, family, 1);
  gradient.out = "grad_input";
  gradient.derivatives = {Rule::compose(&logsumexp_backward_by_self),
                          Rule::compose(&logsumexp_backward_by_grad)};
  gradient.tangents = {gradient.derivatives[0], Rule::call(backward, {0, Rule::kIncoming})};
  gradient.called_names = called;
  return {std::move(value), std::move(gradient)};
}

std::vector<Descriptor> cross_entropy_operators() {
  using Rule = DerivativeRule;
  const char* const family = "cross_entropy";
  const std::string backward = "_cross_entropy_backward";
  const std::vector<std::string> called = {"_softmax", "softmax_backward", backward};
  const Input target = {"target", InputKind::kIndexInRow};

  Descriptor value = row_operator("_cross_entropy", {"self", target}, family, 0);
  value.row_result = RowResult::kWideNumber;
  value.of_empty_row = 0.0;
  value.derivatives = {Rule::call(backward, {0, 1, Rule::kIncoming}), Rule::zero()};
  value.tangents = {Rule::compose(&cross_entropy_tangent), Rule::zero()};
  value.called_names = called;

  Descriptor gradient =
      row_operator(backward, {"self", target, {"grad_output", InputKind::kPerRow}}, family, 1);
  gradient.out = "grad_input";
  gradient.derivatives = {Rule::compose(&cross_entropy_backward_by_self), Rule::zero(),
                          Rule::compose(&cross_entropy_backward_by_grad)};
  gradient.tangents = {gradient.derivatives[0], Rule::zero(),
                       Rule::call(backward, {0, 1, Rule::kIncoming})};
  gradient.called_names = called;
  return {std::move(value), std::move(gradient)};
}

}  // namespace

Descriptor row_operator(std::string name, std::vector<Input> inputs, const char* family, int form) {
  Descriptor descriptor;
  descriptor.name = std::move(name);
  descriptor.inputs = std::move(inputs);
  descriptor.has_rows = true;
  descriptor.family = row_family_index(family);
  descriptor.form = form;
  descriptor.out = "out";
  return descriptor;
}

std::vector<Descriptor> row_operators() {
  using Rule = DerivativeRule;
  constexpr int kIncoming = Rule::kIncoming;
  const char* const family = "softmax";
  const std::string softmax_backward = "softmax_backward";
  const std::string log_softmax_backward = "log_softmax_backward";

  // Softmax's Jacobian is symmetric, log-softmax's is not.
  Descriptor softmax = row_operator("_softmax", {"self"}, family, kSoftmax);
  softmax.derives_from_result = true;
  softmax.derivatives = {Rule::call(softmax_backward, {kIncoming, 0})};

  Descriptor log_softmax = row_operator("_log_softmax", {"self"}, family, kLogSoftmax);
  log_softmax.derives_from_result = true;
  log_softmax.derivatives = {Rule::call(log_softmax_backward, {kIncoming, 0})};
  log_softmax.tangents = {Rule::compose(&log_softmax_tangent)};

  const std::vector<Input> gradient_inputs = {"grad_output", "output"};
  Descriptor softmax_gradient =
      row_operator(softmax_backward, gradient_inputs, family, kSoftmaxGradient);
  softmax_gradient.out = "grad_input";
  softmax_gradient.derivatives = {Rule::call(softmax_backward, {kIncoming, 1}),
                                  Rule::compose(&softmax_backward_by_output)};
  softmax_gradient.tangents = {Rule::call(softmax_backward, {kIncoming, 1}),
                               Rule::compose(&softmax_backward_tangent_of_output)};

  Descriptor log_softmax_gradient =
      row_operator(log_softmax_backward, gradient_inputs, family, kLogSoftmaxGradient);
  log_softmax_gradient.out = "grad_input";
  log_softmax_gradient.derivatives = {Rule::compose(&log_softmax_backward_by_grad),
                                      Rule::compose(&log_softmax_backward_by_output)};
  log_softmax_gradient.tangents = {Rule::call(log_softmax_backward, {kIncoming, 1}),
                                   Rule::compose(&log_softmax_backward_by_output)};

  std::vector<Descriptor> all = {std::move(softmax), std::move(log_softmax),
                                 std::move(softmax_gradient), std::move(log_softmax_gradient)};
  for (std::vector<Descriptor> more : {logsumexp_operators(), cross_entropy_operators()})
    std::ranges::move(more, std::back_inserter(all));
  return all;
}

}  // namespace fastact
