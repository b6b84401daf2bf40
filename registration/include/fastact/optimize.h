// Fused operators in a TorchScript module that was made without them.
#pragma once

#include <fastact/export.h>
#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

namespace fastact {

// What optimize() did, a line for each activation: "fused_relu (batch norm, residual)" for what was
// replaced, "silu (gate): was not faster on a CPU" for what was left.
struct OptimizeReport {
  std::vector<std::string> replaced;
  std::vector<std::string> left;
};

// Freezes a module as torch::jit::freeze() does, which also folds batch norms into convolutions,
// and puts fused operators (docs/fused.md) in the place of what is left: batch norm with its
// running statistics, a sum with another tensor, an activation, a product with a gate. The frozen
// module has forward() alone, its weights are constants, and it needs FastAct where it runs.
//
// sample are forward()'s arguments. With them the result is compared with that of the frozen module
// without fused operators: the largest difference may be 4 sqrt(n) eps times the largest number,
// where n operations were replaced and eps is the type's. Without a sample sums and products are
// left, as shapes and types are not known.
//
// c10::Error for a module in training mode, for forward()'s own errors on the sample, and for
// results that differ by more. The module is then as it was.
FASTACT_API OptimizeReport optimize(torch::jit::Module& module,
                                    const std::vector<c10::IValue>& sample = {});

}  // namespace fastact
