// optimize(): finds the operations in a frozen graph that a fused operator can replace.
#include "fastact/optimize.h"

#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/passes/remove_mutation.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <set>
#include <utility>

#include "registration/build_info.h"
#include "registration/jit/library.h"
#include "registration/jit/not_faster.h"
#include "registration/jit/sink.h"
#include "registration/jit/sites.h"

namespace fastact {
namespace optimizing {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

// The tensors of a sample, by their values in the graph.
using Sample = std::map<const Value*, at::Tensor>;

// ---- Information from the sample

// Copies the sample, because forward() may write to its arguments.
std::vector<c10::IValue> copied(const std::vector<c10::IValue>& sample) {
  std::vector<c10::IValue> copies;
  copies.reserve(sample.size());
  for (const c10::IValue& value : sample) copies.push_back(value.deepcopy());
  return copies;
}

// Runs a copy of the graph. Returns its result and sets the tensors of `wanted`.
c10::IValue run(Graph& graph, const torch::jit::Module& module,
                const std::vector<c10::IValue>& sample, const std::set<Value*>& wanted,
                Sample& tensors) {
  for (Value* value : wanted) graph.registerOutput(value);
  const std::shared_ptr<Graph> copy = graph.copy();
  while (graph.outputs().size() > 1) graph.eraseOutput(graph.outputs().size() - 1);
  Node* const all = copy->appendNode(copy->createTuple(copy->outputs()));
  while (!copy->outputs().empty()) copy->eraseOutput(copy->outputs().size() - 1);
  copy->registerOutput(all->output());

  const at::NoGradGuard no_gradients;
  torch::jit::GraphFunction function("sample", copy, nullptr);
  torch::jit::Stack stack{module._ivalue()};
  for (c10::IValue& value : copied(sample)) stack.push_back(std::move(value));
  module.get_method("forward").function().getSchema().checkAndNormalizeInputs(stack, {});
  function.run(stack);
  const std::vector<c10::IValue> values = stack.at(0).toTupleRef().elements().vec();
  size_t i = 1;
  for (const Value* value : wanted) tensors[value] = values.at(i++).toTensor();
  return values.at(0);
}

// Returns true if a, and b where it does not broadcast, have equal strides. Dimensions of size 1 do
// not count.
bool lie_alike(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor expanded = b.expand(a.sizes());
  for (int64_t dim = 0; dim < a.dim(); ++dim) {
    const int64_t stride = expanded.stride(dim);
    if (a.size(dim) != 1 && stride != 0 && stride != a.stride(dim)) return false;
  }
  return true;
}

// Returns the reason for not fusing a site, or an empty string.
std::string refusal(const Site& site, const Sample& sample, bool has_sample) {
  const auto find = [&](const Value* value) {
    const auto found = sample.find(value);
    return found == sample.end() ? at::Tensor() : found->second;
  };
  const at::Tensor self = find(site.self);
  for (const Value* const value : {site.residual, site.gate}) {
    if (value == nullptr) continue;
    const at::Tensor other = find(value);
    if (!self.defined() || !other.defined()) {
      return has_sample ? "it is in a branch or a loop, where shapes are unknown"
                        : "shapes are unknown without a sample";
    }
    if (self.scalar_type() != other.scalar_type() || self.device() != other.device())
      return "its tensors differ in type or device";
    if (!at::is_expandable_to(other.sizes(), self.sizes()))
      return "its activation applies to a smaller tensor, which broadcasts";
    if (!lie_alike(self, other)) return "its result would have other strides";
  }
  // Without a residual or gate, the result has the memory format of the batch norm.
  if (self.defined() && site.norm != nullptr && !self.is_contiguous(self.suggest_memory_format()))
    return "its result would have other strides";
  if (self.defined()) {
    const c10::ScalarType type = self.scalar_type();
    const bool is_known =
        type == at::kFloat || type == at::kDouble || type == at::kBFloat16 || type == at::kHalf;
    if (!is_known || self.layout() != at::kStrided)
      return "the operators do not support such a tensor";
  }
  const c10::Device device = self.defined()
                                 ? self.device()
                                 : torch::jit::toIValue(site.norm->input(3))->toTensor().device();
  if (!device.is_cpu()) return "";
  if (std::ranges::find(kNotFasterOnCpu, site.activation) != kNotFasterOnCpu.end())
    return "was not faster on a CPU";
  if (site.norm == nullptr && self.numel() < kFewestOnCpu)
    return "on a CPU it is faster only from " + std::to_string(kFewestOnCpu) + " elements on";
  return "";
}

// ---- The fused operator

// Returns scale and bias of a batch norm, in float32 for 16-bit types.
std::pair<at::Tensor, at::Tensor> vectors(Node& norm) {
  const auto wide = [](const at::Tensor& t) {
    return t.scalar_type() == at::kDouble ? t : t.to(at::kFloat);
  };
  const auto constant = [&](int i) { return torch::jit::toIValue(norm.input(i)); };
  const at::Tensor mean = wide(constant(3)->toTensor());
  const at::Tensor variance = wide(constant(4)->toTensor());
  const at::Tensor weight =
      constant(1)->isNone() ? at::ones_like(mean) : wide(constant(1)->toTensor());
  const at::Tensor bias =
      constant(2)->isNone() ? at::zeros_like(mean) : wide(constant(2)->toTensor());
  const at::Tensor scale = at::mul(weight, at::rsqrt(at::add(variance, *number(norm.input(7)))));
  return {scale, at::addcmul(bias, mean, scale, -1)};
}

// Moves the nodes of a site directly before its last node, if reads and writes allow it.
bool gather(const std::shared_ptr<Graph>& graph, const Site& site) {
  torch::jit::AliasDb aliases(graph);
  Node* next = site.nodes.back();
  for (size_t i = site.nodes.size() - 1; i-- > 0;) {
    if (!aliases.moveBeforeTopologicallyValid(site.nodes[i], next)) return false;
    next = site.nodes[i];
  }
  return true;
}

// Returns the fused result. Dead-code elimination removes the replaced nodes later, because other
// sites may refer to them.
Value* replace(Graph& graph, const Site& site) {
  const at::NoGradGuard no_gradients;
  Node* const last = site.nodes.back();
  const torch::jit::WithInsertPoint here(last);
  Value* const none = graph.insertNode(graph.createNone())->output();
  Value* scale = none;
  Value* bias = none;
  if (site.norm != nullptr) {
    const auto [s, b] = vectors(*site.norm);
    scale = graph.insertConstant(s);
    bias = graph.insertConstant(b);
  }
  const auto or_none = [&](Value* value) { return value == nullptr ? none : value; };
  std::vector<Value*> inputs{site.self, scale, bias, or_none(site.residual), or_none(site.gate)};
  for (const double parameter : site.parameters) inputs.push_back(graph.insertConstant(parameter));
  inputs.push_back(graph.insertConstant(int64_t{site.norm != nullptr ? 1 : -1}));
  Node* const fused = graph.insertNode(
      graph.create(c10::Symbol::fromQualString("fastact::fused_" + site.activation), inputs));
  fused->copyMetadata(last);
  fused->output()->copyMetadata(last->output());
  last->output()->replaceAllUsesWith(fused->output());
  return fused->output();
}

// ---- The check

void tensors_in(const c10::IValue& value, std::vector<at::Tensor>& found) {
  value.visit([&](const c10::IValue& part) {
    if (part.isTensor()) found.push_back(part.toTensor());
    return false;
  });
}

void check(const c10::IValue& expected, const c10::IValue& found, size_t operations) {
  std::vector<at::Tensor> theirs;
  std::vector<at::Tensor> ours;
  tensors_in(expected, theirs);
  tensors_in(found, ours);
  TORCH_CHECK(theirs.size() == ours.size(), "fastact::optimize: expected ", theirs.size(),
              " tensors, but got ", ours.size());
  for (size_t i = 0; i < theirs.size(); ++i) {
    if (theirs[i].numel() == 0) continue;
    const auto parts = [](const at::Tensor& tensor) {  // of complex numbers: two real ones each
      return tensor.is_complex() ? at::view_as_real(tensor.resolve_conj()) : tensor;
    };
    const bool is_floating = parts(theirs[i]).is_floating_point();
    const at::ScalarType type = parts(theirs[i]).scalar_type();
    const at::Tensor a = parts(theirs[i]).to(at::kDouble);
    const at::Tensor b = parts(ours[i]).to(at::kDouble);
    TORCH_CHECK(a.sizes() == b.sizes() && theirs[i].scalar_type() == ours[i].scalar_type(),
                "fastact::optimize: expected a result of ", theirs[i].toString(), a.sizes(),
                ", but got ", ours[i].toString(), b.sizes());
    const double largest = a.abs().nan_to_num(0, 0, 0).max().item<double>();
    double epsilon = 0;
    if (type == at::kDouble) epsilon = std::ldexp(1, -52);
    if (type == at::kFloat) epsilon = std::ldexp(1, -23);
    if (type == at::kHalf) epsilon = std::ldexp(1, -10);
    if (type == at::kBFloat16) epsilon = std::ldexp(1, -7);
    const double bound =
        is_floating ? 4 * std::sqrt(static_cast<double>(operations)) * epsilon * largest : 0;
    const bool is_close = a.isclose(b, /*rtol=*/0, bound, /*equal_nan=*/true).all().item<bool>();
    TORCH_CHECK(is_close, "fastact::optimize: expected the sample's result to differ by at most ",
                bound, " from the module's own, but got ", at::sub(a, b).abs().max().item<double>(),
                "; the module is unchanged");
  }
}

// For the command line: optimizes one archive into another.
std::string optimize_archive(const std::string& input, const std::string& output,
                             const std::vector<at::Tensor>& sample) {
  torch::jit::Module module = torch::jit::load(input);
  const OptimizeReport report = optimize(module, {sample.begin(), sample.end()});
  {
    // torch's writer terminates the process on a write error, so the sink reports none to it.
    Sink sink(output);
    std::ostream stream(&sink);
    module.save(stream);
    sink.close();
  }
  std::string text;
  for (const std::string& line : report.replaced) text += line + '\n';
  for (const std::string& line : report.left) text += "left: " + line + '\n';
  return text;
}

std::vector<std::string> not_faster_on_cpu() {
  return {kNotFasterOnCpu.begin(), kNotFasterOnCpu.end()};
}

}  // namespace
}  // namespace optimizing

OptimizeReport optimize(torch::jit::Module& module, const std::vector<c10::IValue>& sample) {
  using namespace optimizing;
  TORCH_CHECK(!module.hasattr("training") || !module.is_training(),
              "fastact::optimize: expected a module in inference mode, but got one in training "
              "mode: call eval() first");
  torch::jit::Module frozen = torch::jit::freeze(module);
  const std::shared_ptr<Graph> graph = frozen.get_method("forward").graph();
  torch::jit::RemoveTensorMutation(graph);

  std::vector<Site> alone;
  visit(*graph->block(), alone);
  std::vector<std::vector<Site>> every;
  std::set<Value*> wanted;
  for (const Site& site : alone) {
    every.push_back(candidates(site));
    for (const Site& candidate : every.back()) {
      for (Value* value : {candidate.self, candidate.residual, candidate.gate}) {
        if (value != nullptr && value->node()->owningBlock() == graph->block())
          wanted.insert(value);
      }
    }
  }
  Sample tensors;
  c10::IValue expected;
  // Copies run, so that the module's state does not change.
  if (!sample.empty()) expected = run(*graph, frozen.deepcopy(), sample, wanted, tensors);

  OptimizeReport report;
  std::set<Node*> taken;
  std::map<Value*, Value*> results;  // from replaced values to results of fused operators
  size_t operations = 0;
  for (const std::vector<Site>& sites : every) {
    std::string why;
    bool is_fused = false;
    for (Site site : sites) {
      const auto is_taken = [&](Node* node) { return taken.contains(node); };
      if (std::any_of(site.nodes.begin(), site.nodes.end(), is_taken)) continue;
      std::string reason = refusal(site, tensors, !sample.empty());
      if (reason.empty()) {
        for (Value** value : {&site.self, &site.residual, &site.gate}) {
          const auto found = results.find(*value);
          if (found != results.end()) *value = found->second;
        }
        if (gather(graph, site)) {
          report.replaced.push_back("fused_" + site.title());
          operations += site.nodes.size();
          taken.insert(site.nodes.begin(), site.nodes.end());
          results[site.nodes.back()->output()] = replace(*graph, site);
          is_fused = true;
          break;
        }
        reason = "a tensor is written to in between";
      }
      if (why.empty()) why = site.title() + ": " + reason;
    }
    if (!is_fused && !why.empty()) report.left.push_back(why);
  }
  torch::jit::EliminateDeadCode(graph);
  graph->lint();
  if (!sample.empty()) {
    const at::NoGradGuard no_gradients;
    check(expected, frozen.deepcopy().forward(copied(sample)), operations);
  }
  module = frozen;
  return report;
}

void define_optimizer(torch::Library& library) {
  library.def("optimize_archive(str input, str output, Tensor[] sample) -> str",
              &optimizing::optimize_archive);
  library.def("not_faster_on_cpu() -> str[]", &optimizing::not_faster_on_cpu);
}

}  // namespace fastact
