#include "ops/catalogue.h"

#include "ops/generated/formulas.h"

namespace fastact {

std::span<const Activation> catalogue() {
#define FASTACT_ACTIVATION(name, Formula, parameters) {#name, parameters, Formula::kTraits},
  static constexpr Activation kActivations[] = {FASTACT_ACTIVATIONS(FASTACT_ACTIVATION)};
#undef FASTACT_ACTIVATION
  return kActivations;
}

}  // namespace fastact
