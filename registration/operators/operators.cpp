#include <ATen/core/Tensor.h>

#include <algorithm>
#include <iterator>

#include "registration/build_info.h"
#include "registration/device_kernels.h"
#include "registration/operators/operator.h"
#include "registration/operators/signature.h"

namespace fastact {

// <name>_operators() of each family in ops/forms/, defined in registration/operators/<name>.cpp.
#define FASTACT_DECLARE(name, Forms) std::vector<Descriptor> name##_operators(int family);
FASTACT_FORMS(FASTACT_DECLARE)
#undef FASTACT_DECLARE

namespace {

std::vector<Descriptor> descriptors() {
  std::vector<Descriptor> all;
  const auto append = [&](std::vector<Descriptor> more) {
    std::ranges::move(more, std::back_inserter(all));
  };
  for (size_t i = 0; i < activations().size(); ++i)
    append(activation_operators(activations()[i], static_cast<int>(i)));
  for (size_t i = 0; i < activations().size(); ++i)
    append(fused_operators_of(activations()[i], static_cast<int>(i)));
#define FASTACT_APPEND(name, Forms) append(name##_operators(family_index(#name)));
  FASTACT_FORMS(FASTACT_APPEND)
#undef FASTACT_APPEND
  if (!row_families().empty()) {  // with FASTACT_ONLY, a build may have none
    append(row_operators());
    append(reduction_operators());
    append(norm_operators());
  }
  return all;
}

// Checks a descriptor for mistakes that would otherwise break a later call.
void check(const Descriptor& descriptor) {
  const size_t inputs = descriptor.inputs.size();
  const bool has_optional_inputs = descriptor.inputs.back().kind == InputKind::kOptional;
  if (!has_optional_inputs) {
    const Family& family = (descriptor.has_rows ? row_families() : families())[descriptor.family];
    const FormInfo form = family.forms[descriptor.form];
    TORCH_INTERNAL_ASSERT(
        // A row operator need not store the row outputs. Some results are computed
        // outside the row kernel.
        (form.outputs == descriptor.results ||
         (descriptor.has_rows &&
          (descriptor.results == 1 || descriptor.takes_output_mask || descriptor.adds_residual))) &&
            form.inputs == static_cast<int>(inputs) - (descriptor.adds_residual ? 1 : 0) &&
            form.takes_random_bits == (descriptor.inputs.back().kind == InputKind::kSeed),
        descriptor.name, ": expected as many inputs and results as its form has, but got ", inputs,
        " and ", descriptor.results);
  }
  TORCH_INTERNAL_ASSERT((descriptor.compute == nullptr) == (descriptor.saving == nullptr),
                        descriptor.name);
  const size_t derivatives = descriptor.derivatives.size();
  TORCH_INTERNAL_ASSERT(derivatives == inputs || (derivatives == 0 && descriptor.results > 1),
                        descriptor.name, ": expected a derivative by each input");
  TORCH_INTERNAL_ASSERT(derivatives == 0 || inputs + descriptor.results - 1 <= kMaxInputs,
                        descriptor.name, ": expected at most ", kMaxInputs, " saved tensors");
  TORCH_INTERNAL_ASSERT(descriptor.tangents.empty() || descriptor.tangents.size() == inputs,
                        descriptor.name, ": expected a tangent of each input");
  TORCH_INTERNAL_ASSERT(!descriptor.is_value || descriptor.activation != nullptr, descriptor.name);
  TORCH_INTERNAL_ASSERT(!descriptor.has_in_place || inputs == 1, descriptor.name);
  TORCH_INTERNAL_ASSERT(
      descriptor.out == nullptr || inputs <= 2 || has_optional_inputs || descriptor.has_rows,
      descriptor.name);
}

std::vector<const Operator*> build() {
  std::vector<const Operator*> list;
  if (!torch_mismatch().empty()) return list;
  std::vector<Operator*> made;
  for (Descriptor& descriptor : descriptors()) {
    check(descriptor);
    with_signature(descriptor, [&]<Signature S>() {
      made.push_back(new TypedOperator<S>(std::move(descriptor)));
    });
  }
  const auto named = [&](const Operator& caller, const std::string& name) -> const Operator* {
    const auto found = std::ranges::find(made, name, &Operator::name);
    TORCH_INTERNAL_ASSERT(found != made.end(), caller.name, ": calls ", name);
    return *found;
  };
  for (Operator* op : made) {
    for (std::vector<DerivativeRule>* rules : {&op->derivatives, &op->tangents}) {
      for (DerivativeRule& rule : *rules) {
        if (rule.op_name.empty()) continue;
        rule.op = named(*op, rule.op_name);
        TORCH_INTERNAL_ASSERT(rule.op->inputs.size() == rule.arguments.size(), op->name,
                              ": expected its derivative to be an operator of ",
                              rule.arguments.size(), " tensors, but got ", rule.op_name);
      }
    }
    for (const std::string& name : op->called_names) op->called.push_back(named(*op, name));
    list.push_back(op);
  }
  return list;
}

}  // namespace

bool DerivativeRule::uses(int input) const {
  return composition != nullptr || std::ranges::find(arguments, input) != arguments.end();
}

std::span<const Operator* const> operators() {
  // Never destroyed: kernels point to operators until the process ends.
  static const auto& all = *new std::vector<const Operator*>(build());
  return all;
}

const Operator* find_operator(std::string_view name) {
  const auto found = std::ranges::find(operators(), name, &Operator::name);
  return found == operators().end() ? nullptr : *found;
}

const Operator& operator_named(std::string_view name) {
  TORCH_CHECK(!operators().empty(), torch_mismatch());
  const Operator* found = find_operator(name);
  TORCH_INTERNAL_ASSERT(found != nullptr, "no operator ", name);
  return *found;
}

}  // namespace fastact
