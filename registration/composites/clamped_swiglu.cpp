// clamped_swiglu, which splits a packed tensor, and the derivatives of _clamped_swiglu.
#include "registration/composites/clamped_swiglu.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/clamp_max.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/split_with_sizes.h>
#include <ATen/ops/unbind.h>
#include <ATen/ops/unflatten.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <string>
#include <utility>
#include <vector>

#include "registration/checks.h"
#include "registration/composites/composites.h"
#include "registration/operators/clamped_swiglu.h"

namespace fastact {
namespace {

constexpr const char* kSwigluName = "fastact::clamped_swiglu";

const Operator& swiglu_elementwise() {
  static const Operator& op = operator_named("_clamped_swiglu");
  return op;
}

// Returns the derivative by one input, times the incoming gradient.
template <int Input>
at::Tensor swiglu_derivative(const Operator& /*op*/, const CallParameters& parameters,
                             const at::Tensor& incoming, const at::Tensor* inputs) {
  const c10::ScalarType type = promoted_type(
      std::vector<const at::Tensor*>{&incoming, &inputs[kGatePart], &inputs[kLinearPart]});
  const c10::ScalarType wide = type == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor x = inputs[kGatePart].to(wide);
  const at::Tensor l = inputs[kLinearPart].to(wide);
  const at::Tensor g = incoming.to(wide);
  const double alpha = parameters.numbers.values[1];
  const double limit = parameters.numbers.values[0];  // PyTorch's operators round it to `wide`
  const at::Tensor c = at::clamp_max(x, limit);
  // NaN for an infinite limit: no comparison with it is true.
  const double reached = limit - limit + limit;
  if constexpr (Input == kLinearPart) {
    // Clamped where the product is 0, to avoid infinity times 0.
    const at::Tensor value = at::clamp_min(c, -800.0 / alpha) * at::sigmoid(alpha * c);
    return at::where(at::abs(l) >= reached, at::zeros_like(g), g * value);
  } else {
    const at::Tensor w = alpha * at::clamp(c, -800.0 / alpha, 800.0 / alpha);
    const at::Tensor logistic = at::sigmoid(w);
    const at::Tensor slope = logistic * (1.0 + w * at::sigmoid(-w));
    return at::where(x >= reached, at::zeros_like(g),
                     g * (slope * (at::clamp(l, -limit, limit) + 1.0)));
  }
}

// ---- clamped_swiglu

// The gate and the linear part as views. Their backward pass is one concatenation.
struct SwigluParts {
  SwigluParts(const at::Tensor& self, double limit, double alpha, bool gate_first,
              bool interleaved) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        engine_type(self.scalar_type()).has_value(), kSwigluName,
        ": expected self to be float32, float64, bfloat16 or float16, but got ",
        self.scalar_type());
    const double parameters[] = {limit, alpha};
    for (const Requirement& requirement : swiglu_elementwise().activation->requirements) {
      TORCH_CHECK(requirement.holds(parameters), kSwigluName, ": expected ",
                  swiglu_elementwise().parameters()[requirement.parameter].name, " to be ",
                  requirement.expected, ", but got ", parameters[requirement.parameter]);
    }
    TORCH_CHECK(self.dim() > 0, kSwigluName,
                ": expected self to have a last dimension, of two halves, but got a 0-D tensor");
    const c10::SymInt size = self.sym_size(-1);
    TORCH_CHECK(size % 2 == 0, kSwigluName,
                ": expected self's last dimension to have an even size, but got ", size);
    parts = interleaved ? at::unbind(at::unflatten_symint(self, -1, {size / 2, 2}), -1)
                        : at::split_with_sizes_symint(self, {size / 2, size / 2}, -1);
    if (!gate_first) std::swap(parts[0], parts[1]);
    tensors[kGatePart] = parts.data();
    tensors[kLinearPart] = &parts[1];
    numbers.numbers = {{limit, alpha}};
  }

  std::vector<at::Tensor> parts;
  const at::Tensor* tensors[2] = {};
  CallParameters numbers;
};

at::Tensor swiglu_of_halves(const at::Tensor& self, double limit, double alpha, bool gate_first,
                            bool interleaved) {
  const SwigluParts parts(self, limit, alpha, gate_first, interleaved);
  return swiglu_elementwise().call(parts.tensors, parts.numbers);
}

at::Tensor& write_swiglu_of_halves(const at::Tensor& self, double limit, double alpha,
                                   bool gate_first, bool interleaved, at::Tensor& out) {
  const SwigluParts parts(self, limit, alpha, gate_first, interleaved);
  return swiglu_elementwise().write(nullptr, parts.tensors, parts.numbers, out);
}

void define_swiglu(torch::Library& library) {
  const std::string arguments =
      "Tensor self, float limit=7.0, float alpha=1.702, *, bool gate_first=True, "
      "bool interleaved=False";
  const std::vector<at::Tag> tags = {at::Tag::pt2_compliant_tag};
  library.def(("clamped_swiglu(" + arguments + ") -> Tensor").c_str(), tags);
  library.def(("clamped_swiglu.out(" + arguments + ", Tensor(a!) out) -> Tensor(a!)").c_str(),
              tags);
}

void implement_swiglu(torch::Library& library) {
  library.impl("clamped_swiglu", &swiglu_of_halves);
  library.impl("clamped_swiglu.out", &write_swiglu_of_halves);
}

}  // namespace

const Composites kClampedSwigluComposites = {.define = &define_swiglu,
                                             .implement = &implement_swiglu};

at::Tensor clamped_swiglu_derivative_by_gate(const Operator& op, const CallParameters& parameters,
                                             const at::Tensor& incoming, const at::Tensor* inputs) {
  return swiglu_derivative<kGatePart>(op, parameters, incoming, inputs);
}

at::Tensor clamped_swiglu_derivative_by_linear(const Operator& op, const CallParameters& parameters,
                                               const at::Tensor& incoming,
                                               const at::Tensor* inputs) {
  return swiglu_derivative<kLinearPart>(op, parameters, incoming, inputs);
}

void compose_clamped_swiglu_backward(const Operator& op, TensorPointers tensors,
                                     const CallParameters& parameters, at::Tensor* results) {
  check_inputs(op, tensors, parameters);
  const at::Tensor inputs[] = {*tensors[1], *tensors[2]};
  const c10::ScalarType type = promoted_type({tensors, 3});
  results[0] = swiglu_derivative<kGatePart>(op, parameters, *tensors[0], inputs).to(type);
  results[1] = swiglu_derivative<kLinearPart>(op, parameters, *tensors[0], inputs).to(type);
}

}  // namespace fastact
