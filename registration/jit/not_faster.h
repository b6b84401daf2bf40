// What stays PyTorch's on a CPU, for fuse_ in Python and optimize() in C++.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace fastact {

// Activations for which one pass was no gain. On an AMD EPYC with AVX-512, float32, they had 0.89
// to 1.22 times PyTorch's speed in MobileNetV2 (batch norm and relu6), by allocator and load, and
// 0.76 to 0.99 in ResNet (with the residual, relu): `python benchmarks/models.py --fuse`. Alone,
// `--forms`, those on the list were below 1.5 in at least one combination on one or two threads.
inline constexpr std::array<std::string_view, 15> kNotFasterOnCpu{
    "relu",      "leaky_relu",  "relu6",      "hardtanh",     "threshold",
    "hardswish", "hardsigmoid", "softshrink", "hardshrink",   "sigmoid",
    "silu",      "gelu",        "quick_gelu", "squared_relu", "softsign"};

// A call takes longer than PyTorch's two: with fewer elements they stay on a CPU. Batch norm's own
// call takes longer than both.
inline constexpr int64_t kFewestOnCpu = 1 << 16;

}  // namespace fastact
