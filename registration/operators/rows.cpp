// Softmax and log-softmax (ops/forms/softmax.h). The public operators softmax and log_softmax,
// which convert to `dtype`, call those with an underscore:
//
//   _softmax(self, dim), _log_softmax(self, dim)
//   softmax_backward(grad_output, output, dim), log_softmax_backward(grad_output, output, dim)

#include "registration/composites/rows.h"

#include <string>
#include <utility>
#include <vector>

#include "registration/operators/operator.h"

namespace fastact {
namespace {

// The forms of SoftmaxForms (ops/forms/softmax.h).
enum SoftmaxForm : int { kSoftmax, kLogSoftmax, kSoftmaxGradient, kLogSoftmaxGradient };

Descriptor row_operator(std::string name, std::vector<Input> inputs, int form, const char* out) {
  Descriptor descriptor;
  descriptor.name = std::move(name);
  descriptor.inputs = std::move(inputs);
  descriptor.has_rows = true;
  descriptor.family = row_family_index("softmax");
  descriptor.form = form;
  descriptor.out = out;
  return descriptor;
}

}  // namespace

std::vector<Descriptor> row_operators() {
  using Rule = DerivativeRule;
  constexpr int kIncoming = Rule::kIncoming;
  const std::string softmax_backward = "softmax_backward";
  const std::string log_softmax_backward = "log_softmax_backward";

  // Softmax's Jacobian is symmetric, log-softmax's is not.
  Descriptor softmax = row_operator("_softmax", {"self"}, kSoftmax, "out");
  softmax.derives_from_result = true;
  softmax.derivatives = {Rule::call(softmax_backward, {kIncoming, 0})};

  Descriptor log_softmax = row_operator("_log_softmax", {"self"}, kLogSoftmax, "out");
  log_softmax.derives_from_result = true;
  log_softmax.derivatives = {Rule::call(log_softmax_backward, {kIncoming, 0})};
  log_softmax.tangents = {Rule::compose(&log_softmax_tangent)};

  const std::vector<Input> gradient_inputs = {"grad_output", "output"};
  Descriptor softmax_gradient =
      row_operator(softmax_backward, gradient_inputs, kSoftmaxGradient, "grad_input");
  softmax_gradient.derivatives = {Rule::call(softmax_backward, {kIncoming, 1}),
                                  Rule::compose(&softmax_backward_by_output)};
  softmax_gradient.tangents = {Rule::call(softmax_backward, {kIncoming, 1}),
                               Rule::compose(&softmax_backward_tangent_of_output)};

  Descriptor log_softmax_gradient =
      row_operator(log_softmax_backward, gradient_inputs, kLogSoftmaxGradient, "grad_input");
  log_softmax_gradient.derivatives = {Rule::compose(&log_softmax_backward_by_grad),
                                      Rule::compose(&log_softmax_backward_by_output)};
  log_softmax_gradient.tangents = {Rule::call(log_softmax_backward, {kIncoming, 1}),
                                   Rule::compose(&log_softmax_backward_by_output)};

  return {std::move(softmax), std::move(log_softmax), std::move(softmax_gradient),
          std::move(log_softmax_gradient)};
}

}  // namespace fastact
