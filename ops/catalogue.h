// The list of activations and other forms that have kernels. It is the only such list: the build
// reads the names from this file (ops/CMakeLists.txt) and compiles each family of forms once per
// target.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "ops/activations/activation.h"
#include "ops/export.h"
#include "ops/floating_point.h"
#include "ops/kernel.h"

// X(name, Activation): the operator's name, which is also the name of its header in
// ops/activations/, and the type defined in that header.
#if defined(FASTACT_ONLY)
#include "ops/generated/only.h"  // a subset, see FASTACT_ONLY in docs/reference/build-options.md
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

// The families of row forms (ops/forms/row_form.h), as in FASTACT_FORMS.
#define FASTACT_ROW_FORMS(X)          \
  X(softmax, SoftmaxForms)            \
  X(logsumexp, LogsumexpForms)        \
  X(cross_entropy, CrossEntropyForms) \
  X(reductions, ReductionsForms)      \
  X(rms_norm, RmsNormForms)           \
  X(layer_norm, LayerNormForms)

// Activations with an approximate_value(): some of their GPU kernels have a second version.
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

// X(name, Forms): other families of forms. `name` is the name of the header in ops/forms/.
#define FASTACT_FORMS(X)                \
  X(prelu, PreluForms)                  \
  X(clamped_swiglu, ClampedSwigluForms) \
  X(alpha_dropout, AlphaDropoutForms)   \
  X(rrelu, RreluForms)

// Every family of elementwise forms in the order of their indices: first the activations, then the
// others.
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

// The index of an activation in this list is also the index of its family.
FASTACT_OPS_API std::span<const Activation> activations();

FASTACT_OPS_API std::span<const Family> families();

// The families of row forms.
FASTACT_OPS_API std::span<const Family> row_families();

// Returns a number as schemas and C++ write it: the fewest digits that identify it, and a decimal
// point.
FASTACT_OPS_API std::string literal(double number);

// Returns the index of the family with this name in families() or row_families(), or -1 if there is
// none.
FASTACT_OPS_API int family_index(std::string_view name);
FASTACT_OPS_API int row_family_index(std::string_view name);

}  // namespace fastact
