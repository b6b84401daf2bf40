// The operators through which Python calls the optimizer of TorchScript modules.
#pragma once

#include <torch/library.h>

namespace fastact {

// Defines optimize_archive() and not_faster_on_cpu().
void define_optimizer(torch::Library& library);

}  // namespace fastact
