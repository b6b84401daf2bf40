#include "ops/catalogue.h"

#include "ops/generated/formulas.h"

namespace fastact {
namespace {

template <class Formula>
constexpr std::span<const Requirement> requirements_of() {
  if constexpr (requires { Formula::kRequirements; }) {
    return Formula::kRequirements;
  } else {
    return {};
  }
}

template <class Formula>
constexpr bool result_suffices(const double* parameters) {
  if constexpr (requires { Formula::result_suffices(parameters); }) {
    return Formula::result_suffices(parameters);
  } else {
    return true;
  }
}

}  // namespace

std::span<const Activation> catalogue() {
#define FASTACT_ACTIVATION(name, Formula, parameters) \
  {#name, parameters, Formula::kTraits, requirements_of<Formula>(), &result_suffices<Formula>},
  static constexpr Activation kActivations[] = {FASTACT_ACTIVATIONS(FASTACT_ACTIVATION)};
#undef FASTACT_ACTIVATION
  return kActivations;
}

}  // namespace fastact
