#include "registration/operators/alpha_dropout.h"

#include <ATen/ops/mul.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "registration/device_kernels.h"
#include "registration/operators/signature.h"

namespace fastact {
namespace {

// The parameters of the operators.
constexpr Parameter kProbability[] = {{.name = "p"}};
constexpr Activation kDropout = {.name = "alpha_dropout",
                                 .parameters = kProbability,
                                 .traits = {},
                                 .requirements = {},
                                 .result_suffices = nullptr};

Descriptor described(const char* name, std::vector<const char*> inputs, int index) {
  Descriptor descriptor;
  descriptor.name = name;
  descriptor.inputs = std::move(inputs);
  descriptor.form = index;
  descriptor.activation = &kDropout;
  return descriptor;
}

DerivativeRule rule(const Operator& op, std::vector<int> arguments) {
  DerivativeRule result = DerivativeRule::call(op.name, std::move(arguments));
  result.op = &op;
  return result;
}

struct Operators {
  using OfTwo = TypedOperator<Signature<2, 1, false>>;
  using OfThree = TypedOperator<Signature<3, 1, false>>;

  Operators() {
    constexpr int kIncoming = DerivativeRule::kIncoming;
    value.derivatives = {rule(backward, {kIncoming, 0, 1}), DerivativeRule::zero()};
    backward.derivatives = {rule(backward, {kIncoming, 1, 2}),
                            DerivativeRule::compose(&second_derivative), DerivativeRule::zero()};
    mask.derivatives = {rule(mask, {kIncoming, 1, 2}), DerivativeRule::zero(),
                        DerivativeRule::zero()};
  }

  static const Operators& all() {
    static const Operators& operators = *new Operators();
    return operators;
  }

  // The derivative of the gradient by self.
  static at::Tensor second_derivative(const Operator& /*op*/, const CallParameters& parameters,
                                      const at::Tensor& incoming, const at::Tensor* inputs) {
    static const Operator& selu_double_backward = operator_named("selu_double_backward");
    const at::Tensor* const tensors[] = {&inputs[0], &inputs[1], &inputs[2]};
    const at::Tensor kept = all().mask.call(tensors, parameters);
    const at::Tensor* const arguments[] = {&incoming, &kept, &inputs[1]};
    return selu_double_backward.call(arguments, {});
  }

  OfTwo value{described("_selu_alpha_dropout", {"self", "seed"},
                        static_cast<int>(AlphaDropoutForm::kValue))};
  OfThree backward{described("_selu_alpha_dropout_backward", {"grad_output", "self", "seed"},
                             static_cast<int>(AlphaDropoutForm::kGradient))};
  OfThree mask{described("_alpha_dropout_mask", {"grad_output", "self", "seed"},
                         static_cast<int>(AlphaDropoutForm::kMask))};
};

at::Tensor selu_with_dropout(const at::Tensor& self, double p, bool train) {
  TORCH_CHECK_VALUE(p >= 0 && p <= 1,
                    "fastact::selu_alpha_dropout: expected p to be from 0 to 1, but got ", p);
  static const Operator& selu = operator_named("selu");
  const at::Tensor* const tensors[] = {&self};
  if (!train || p == 0) return selu.call(tensors, {});
  // As in at::alpha_dropout.
  if (p == 1) return at::mul(selu.call(tensors, {}), at::zeros({}, self.options()));
  const at::Tensor seed = at::randint(std::numeric_limits<int64_t>::max(), {1},
                                      self.options().dtype(at::kLong).requires_grad(false));
  const at::Tensor* const with_seed[] = {&self, &seed};
  return Operators::all().value.call(with_seed, {.numbers = {{p}}});
}

}  // namespace

std::span<const Operator* const> alpha_dropout_operators() {
  // The operator is absent in a build without selu, and in an incompatible torch.
  if (find_operator("selu") == nullptr) return {};
  const Operators& all = Operators::all();
  static const Operator* const list[] = {&all.value, &all.backward, &all.mask};
  return list;
}

AlphaDropoutForm alpha_dropout_form(const Operator& op) {
  return static_cast<AlphaDropoutForm>(op.form);
}

TORCH_LIBRARY_FRAGMENT(fastact, library) {
  if (alpha_dropout_operators().empty()) return;
  library.def("selu_alpha_dropout(Tensor self, float p, bool train) -> Tensor",
              {at::Tag::pt2_compliant_tag, at::Tag::nondeterministic_seeded});
  for (const Operator* op : alpha_dropout_operators()) {
    std::string schema = op->name + "(";
    for (const char* input : op->inputs) schema.append("Tensor ").append(input).append(", ");
    library.def((schema + "float p) -> Tensor").c_str(), {at::Tag::pt2_compliant_tag});
  }
}

TORCH_LIBRARY_IMPL(fastact, CompositeImplicitAutograd, library) {
  if (!alpha_dropout_operators().empty()) library.impl("selu_alpha_dropout", &selu_with_dropout);
}

// Makes vmap's `randomness` apply to the seed. Every call under vmap reaches this key, even if self
// is not batched.
TORCH_LIBRARY_IMPL(fastact, FuncTorchVmapMode, library) {
  if (!alpha_dropout_operators().empty()) library.impl("selu_alpha_dropout", &selu_with_dropout);
}

}  // namespace fastact
