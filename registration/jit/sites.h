// The operations in a graph that a fused operator can replace.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace fastact::optimizing {

// The operations that one fused operator replaces.
struct Site {
  std::string activation;
  std::vector<double> parameters;
  std::vector<torch::jit::Node*> nodes;  // in the graph's order; the last one computes the result
  torch::jit::Value* self = nullptr;
  torch::jit::Node* norm = nullptr;
  torch::jit::Value* residual = nullptr;
  torch::jit::Value* gate = nullptr;

  [[nodiscard]] bool is_alone() const {
    return norm == nullptr && residual == nullptr && gate == nullptr;
  }
  // Returns text such as "relu (batch norm, residual)".
  [[nodiscard]] std::string title() const {
    std::string parts;
    if (norm != nullptr) parts += ", batch norm";
    if (residual != nullptr) parts += ", residual";
    if (gate != nullptr) parts += ", gate";
    return activation + " (" + parts.substr(std::min<size_t>(2, parts.size())) + ")";
  }
};

// Returns the number if the value is a constant one.
std::optional<double> number(torch::jit::Value* value);

// Appends the activations of the block and of its inner blocks, each alone.
void visit(torch::jit::Block& block, std::vector<Site>& found);

// Returns the sites around an activation, largest first.
std::vector<Site> candidates(const Site& alone);

}  // namespace fastact::optimizing
