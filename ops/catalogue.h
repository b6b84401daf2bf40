// The list of activations: the one place that knows them all. The build reads it too
// (ops/CMakeLists.txt), compiles ops/formulas/<name>.h once for each target, and generates the
// public C++ header from it.
#pragma once

#include <span>
#include <string_view>

#include "ops/kernel.h"

// X(name, Formula, parameters): the operator's name, which is also its header's; the formula's
// type; the parameters between `self` and the end of the operator's schema, as in "float alpha=1.0,
// float scale=1.0".
#define FASTACT_ACTIVATIONS(X) \
  X(relu, Relu, "")            \
  X(selu, Selu, "")

namespace fastact {

struct Activation {
  std::string_view name;
  std::string_view parameters;
  Traits traits;
};

std::span<const Activation> catalogue();

}  // namespace fastact
