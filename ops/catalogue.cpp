#include "ops/catalogue.h"

#include "ops/generated/formulas.h"

namespace fastact {

const double kHiddenOne = 1.0;

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

template <class Formula>
constexpr Activation entry(std::string_view name, std::string_view parameters) {
  return {name, parameters, Formula::kTraits, requirements_of<Formula>(),
          &result_suffices<Formula>};
}

#define FASTACT_ACTIVATION(name, Formula, parameters) entry<Formula>(#name, parameters),
#define FASTACT_PART(name, Formula, parameters) entry<Formula>("_" #name, parameters),
constexpr Activation kFormulas[] = {FASTACT_ACTIVATIONS(FASTACT_ACTIVATION)
                                        FASTACT_PARTS(FASTACT_PART)};
#undef FASTACT_PART
#undef FASTACT_ACTIVATION

#define FASTACT_ONE(name, Formula, parameters) +1
constexpr size_t kNumActivations = 0 FASTACT_ACTIVATIONS(FASTACT_ONE);
#undef FASTACT_ONE

}  // namespace

std::span<const Activation> formulas() { return kFormulas; }

std::span<const Activation> catalogue() { return formulas().first(kNumActivations); }

}  // namespace fastact
