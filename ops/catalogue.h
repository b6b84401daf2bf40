// The list of what there are kernels for: the one place that knows it all. The build reads the
// names (ops/CMakeLists.txt), and compiles each family of forms once for each target.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "ops/activations/activation.h"
#include "ops/export.h"
#include "ops/floating_point.h"
#include "ops/kernel.h"

// X(name, Activation): the operator's name, which is also its header's in ops/activations/, and the
// type there.
#if defined(FASTACT_ONLY)
#include "ops/generated/only.h"  // some of them, see FASTACT_ONLY in docs/building.md
#else
#define FASTACT_ACTIVATIONS(X) \
  X(relu, Relu)                \
  X(selu, Selu)                \
  X(leaky_relu, LeakyRelu)     \
  X(relu6, Relu6)              \
  X(hardtanh, Hardtanh)        \
  X(threshold, Threshold)      \
  X(hardswish, Hardswish)      \
  X(hardsigmoid, Hardsigmoid)  \
  X(softsign, Softsign)        \
  X(softshrink, Softshrink)    \
  X(hardshrink, Hardshrink)    \
  X(squared_relu, SquaredRelu) \
  X(elu, Elu)                  \
  X(celu, Celu)                \
  X(sigmoid, Sigmoid)          \
  X(tanh, Tanh)                \
  X(silu, Silu)                \
  X(gelu, Gelu)                \
  X(gelu_tanh, GeluTanh)       \
  X(quick_gelu, QuickGelu)     \
  X(mish, Mish)                \
  X(softplus, Softplus)        \
  X(log_sigmoid, LogSigmoid)   \
  X(tanhshrink, Tanhshrink)

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

// X(name, Forms): other families of forms, the name being that of the header in ops/forms/.
#define FASTACT_FORMS(X) \
  X(prelu, PreluForms)   \
  X(clamped_swiglu, ClampedSwigluForms)

// Every family of forms, in the order of their indices: the activations', then the others.
#define FASTACT_FAMILIES(X) FASTACT_ACTIVATIONS(X) FASTACT_FORMS(X)

namespace fastact {

struct Activation {
  std::string_view name;
  std::span<const Parameter> parameters;
  Traits traits;
  std::span<const Requirement> requirements;
  InDefaultFloatingPoint<bool (*)(const double* parameters)> result_suffices;
};

struct Family {
  std::string_view name;
  FormInfo forms[kMaxForms];
};

// An activation's index is its family's.
FASTACT_OPS_API std::span<const Activation> activations();

FASTACT_OPS_API std::span<const Family> families();

// A number as schemas and C++ write it: as few digits as give it, and a point.
FASTACT_OPS_API std::string literal(double number);

// The index of a family by its name, -1 for none.
FASTACT_OPS_API int family_index(std::string_view name);

}  // namespace fastact
