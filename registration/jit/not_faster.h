// Activations that fuse_ in Python and optimize() in C++ leave to PyTorch on a CPU.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace fastact {

// Activations that gain nothing from one pass. On an AMD EPYC with AVX-512, float32, they had 0.89
// to 1.22 times PyTorch's speed in MobileNetV2 (batch norm and relu6), depending on allocator and
// load, and 0.76 to 0.99 in ResNet (with the residual, relu): `python benchmarks/models.py --fuse`.
// Measured alone (`--forms`), each listed activation was below 1.5 in at least one combination on
// one or two threads.
inline constexpr std::array<std::string_view, 15> kNotFasterOnCpu{
    "relu",      "leaky_relu",  "relu6",      "hardtanh",     "threshold",
    "hardswish", "hardsigmoid", "softshrink", "hardshrink",   "sigmoid",
    "silu",      "gelu",        "quick_gelu", "squared_relu", "softsign"};

// Sites with fewer elements are not fused on a CPU, because one fused call takes longer than
// PyTorch's two. Batch norm is exempt, because its own call takes longer than both.
inline constexpr int64_t kFewestOnCpu = 1 << 16;

}  // namespace fastact
