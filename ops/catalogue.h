// The list of activations: the one place that knows them all. The build reads it too
// (ops/CMakeLists.txt), compiles ops/formulas/<name>.h once for each target, and generates the
// public C++ header from it.
#pragma once

#include <span>
#include <string_view>

#include "ops/export.h"
#include "ops/kernel.h"

// X(name, Formula, parameters): the operator's name, which is also its header's; the formula's
// type; the parameters between `self` and the end of the operator's schema, as in "float alpha=1.0,
// float scale=1.0"; those without a default come first.
#if defined(FASTACT_ONLY)
#include "ops/generated/only.h"  // some of them, see FASTACT_ONLY in docs/building.md
#else
#define FASTACT_ACTIVATIONS(X)                                           \
  X(relu, Relu, "")                                                      \
  X(selu, Selu, "")                                                      \
  X(leaky_relu, LeakyRelu, "float negative_slope=0.01")                  \
  X(relu6, Relu6, "")                                                    \
  X(hardtanh, Hardtanh, "float min_val=-1.0, float max_val=1.0")         \
  X(threshold, Threshold, "float threshold, float value")                \
  X(hardswish, Hardswish, "")                                            \
  X(hardsigmoid, Hardsigmoid, "")                                        \
  X(softsign, Softsign, "")                                              \
  X(softshrink, Softshrink, "float lambd=0.5")                           \
  X(hardshrink, Hardshrink, "float lambd=0.5")                           \
  X(squared_relu, SquaredRelu, "")                                       \
  X(elu, Elu, "float alpha=1.0, float scale=1.0, float input_scale=1.0") \
  X(celu, Celu, "float alpha=1.0")                                       \
  X(sigmoid, Sigmoid, "")                                                \
  X(tanh, Tanh, "")                                                      \
  X(silu, Silu, "")                                                      \
  X(gelu, Gelu, "")                                                      \
  X(gelu_tanh, GeluTanh, "")                                             \
  X(quick_gelu, QuickGelu, "")                                           \
  X(mish, Mish, "")                                                      \
  X(softplus, Softplus, "float beta=1.0, float threshold=20.0")          \
  X(log_sigmoid, LogSigmoid, "")                                         \
  X(tanhshrink, Tanhshrink, "")

// Of these, the ones with an approximate_value(): some of their kernels have a second form on GPUs.
#define FASTACT_APPROXIMATED(X) \
  X(elu, Elu)                   \
  X(celu, Celu)                 \
  X(sigmoid, Sigmoid)           \
  X(tanh, Tanh)                 \
  X(silu, Silu)                 \
  X(gelu, Gelu)                 \
  X(gelu_tanh, GeluTanh)        \
  X(quick_gelu, QuickGelu)      \
  X(mish, Mish)                 \
  X(softplus, Softplus)         \
  X(log_sigmoid, LogSigmoid)    \
  X(tanhshrink, Tanhshrink)
#endif

// The parts of operators of several tensors (registration/prelu.cpp), in the same form. They have
// elementwise kernels, but none of an activation's other forms.
#define FASTACT_PARTS(X) X(prelu, Prelu, "") X(prelu_weight, PreluWeight, "")

// Everything that the engines have kernels for, in the order of their indices.
#define FASTACT_FORMULAS(X) FASTACT_ACTIVATIONS(X) FASTACT_PARTS(X)

namespace fastact {

struct Activation {
  std::string_view name;
  std::string_view parameters;
  Traits traits;
  std::span<const Requirement> requirements;
  bool (*result_suffices)(const double* parameters);
};

// The activations, then the parts, whose names start with an underscore.
FASTACT_OPS_API std::span<const Activation> formulas();

// The activations.
FASTACT_OPS_API std::span<const Activation> catalogue();

}  // namespace fastact
