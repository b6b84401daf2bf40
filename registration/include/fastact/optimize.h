// Inserts fused operators into a TorchScript module.
#pragma once

#include <fastact/export.h>
#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

namespace fastact {

// The result of optimize(), with one entry for each activation. `replaced` contains entries such as
// "fused_relu (batch norm, residual)", and `left` entries such as "silu (gate): was not faster on a
// CPU".
struct OptimizeReport {
  std::vector<std::string> replaced;
  std::vector<std::string> left;
};

// Freezes a module like torch::jit::freeze(), which also folds batch norms into convolutions. Then
// uses fused operators (docs/reference/fused.md) for batch norm with running statistics, a sum with
// another tensor, an activation, and a product with a gate. The frozen module has only forward(),
// its weights are constants, and it needs FastAct where it runs.
//
// `sample` contains the arguments of forward(). With a sample, the result is compared with that of
// the frozen module without fused operators. The largest allowed difference is 4 sqrt(n) eps times
// the largest absolute value, where n is the number of replaced operations and eps is the machine
// epsilon of the type. Without a sample, sums and products are not replaced, because shapes and
// types are unknown.
//
// Throws c10::Error for a module in training mode, for errors of forward() on the sample, and if
// the results differ by more than allowed. The module is then unchanged.
FASTACT_API OptimizeReport optimize(torch::jit::Module& module,
                                    const std::vector<c10::IValue>& sample = {});

}  // namespace fastact
