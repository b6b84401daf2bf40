#include "registration/jit/sites.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace fastact::optimizing {
namespace {

using torch::jit::Node;
using torch::jit::Value;

bool has_fused_form(const std::string& activation) {
  return c10::Dispatcher::singleton().findSchema({"fastact::fused_" + activation, ""}).has_value();
}

bool is_tensor(const Value* value) { return value->type()->isSubtypeOf(*c10::TensorType::get()); }

bool is_functional(const Node& node) {
  return node.outputs().size() == 1 && is_tensor(node.output()) && !node.inputs().empty() &&
         is_tensor(node.input(0));
}

// Returns an activation without its neighbours: the functional form of ATen or FastAct.
std::optional<Site> activation(Node& node) {
  const std::string_view ns = node.kind().ns().toUnqualString();
  if ((ns != "aten" && ns != "fastact") || !is_functional(node)) return std::nullopt;
  Site site;
  site.activation = node.kind().toUnqualString();
  size_t inputs = node.inputs().size();
  if (ns == "aten" && site.activation == "gelu") {
    const auto approximate = torch::jit::toIValue(node.input(--inputs));
    if (!approximate.has_value() || !approximate->isString()) return std::nullopt;
    if (approximate->toStringRef() == "tanh") site.activation = "gelu_tanh";
  }
  if (!has_fused_form(site.activation)) return std::nullopt;
  for (size_t i = 1; i < inputs; ++i) {
    const std::optional<double> parameter = number(node.input(i));
    if (!parameter.has_value()) return std::nullopt;
    site.parameters.push_back(*parameter);
  }
  site.self = node.input(0);
  site.nodes = {&node};
  return site;
}

bool is_constant_tensor(Value* value, bool or_none) {
  const std::optional<c10::IValue> constant = torch::jit::toIValue(value);
  return constant.has_value() && (constant->isTensor() || (or_none && constant->isNone()));
}

// Returns true for a batch norm with constant running statistics.
bool is_norm(Node& node) {
  if (node.kind() != c10::aten::batch_norm) return false;
  const auto training = torch::jit::toIValue(node.input(5));
  return training.has_value() && training->isBool() && !training->toBool() &&
         is_constant_tensor(node.input(1), true) && is_constant_tensor(node.input(2), true) &&
         is_constant_tensor(node.input(3), false) && is_constant_tensor(node.input(4), false) &&
         number(node.input(7)).has_value();
}

// Returns true for a sum or a product of two tensors.
bool is_of_two_tensors(Node& node, c10::Symbol kind) {
  if (node.kind() != kind || !is_functional(node)) return false;
  if (!is_tensor(node.input(1)) || node.input(0) == node.input(1)) return false;
  return kind != c10::aten::add || number(node.input(2)) == 1.0;
}

// Returns the only user of a value if it is in the same block, else null.
Node* only_user(Value& value) {
  if (value.uses().size() != 1) return nullptr;
  Node* const user = value.uses()[0].user;
  return user->owningBlock() == value.node()->owningBlock() ? user : nullptr;
}

}  // namespace

std::optional<double> number(Value* value) {
  const std::optional<c10::IValue> constant = torch::jit::toIValue(value);
  if (!constant.has_value() || !(constant->isDouble() || constant->isInt())) return std::nullopt;
  return constant->toScalar().toDouble();
}

std::vector<Site> candidates(const Site& alone) {
  std::vector<Site> before;
  Node& act = *alone.nodes[0];
  Node& source = *alone.self->node();
  if (only_user(*alone.self) == &act) {
    if (is_of_two_tensors(source, c10::aten::add)) {
      for (const int i : {0, 1}) {
        Value* const x = source.input(i);
        if (only_user(*x) != &source || !is_norm(*x->node())) continue;
        Site site = alone;
        site.nodes = {x->node(), &source, &act};
        site.self = x->node()->input(0);
        site.norm = x->node();
        site.residual = source.input(1 - i);
        before.push_back(site);
      }
      Site site = alone;
      site.nodes = {&source, &act};
      site.self = source.input(0);
      site.residual = source.input(1);
      before.push_back(site);
    } else if (is_norm(source)) {
      Site site = alone;
      site.nodes = {&source, &act};
      site.self = source.input(0);
      site.norm = &source;
      before.push_back(site);
    }
  }
  before.push_back(alone);
  std::vector<Site> found;
  Node* const user = only_user(*act.output());
  for (const Site& site : before) {
    if (user != nullptr && is_of_two_tensors(*user, c10::aten::mul)) {
      Site gated = site;
      gated.nodes.push_back(user);
      gated.gate = user->input(user->input(0) == act.output() ? 1 : 0);
      found.push_back(gated);
    }
    if (!site.is_alone()) found.push_back(site);
  }
  return found;
}

void visit(torch::jit::Block& block, std::vector<Site>& found) {
  for (Node* node : block.nodes()) {
    if (std::optional<Site> site = activation(*node)) found.push_back(std::move(*site));
    for (torch::jit::Block* inner : node->blocks()) visit(*inner, found);
  }
}

}  // namespace fastact::optimizing
