#include "ops/catalogue.h"

#include <algorithm>
#include <charconv>
#include <iterator>

#include "ops/forms/derivative.h"
#include "ops/forms/row_form.h"
#include "ops/generated/families.h"
#include "ops/generated/row_families.h"

namespace fastact {

const double kHiddenOne = 1.0;

namespace {

template <class A>
constexpr Activation entry(std::string_view name) {
  Activation activation = {.name = name,
                           .parameters = {},
                           .traits = A::kTraits,
                           .requirements = {},
                           .result_suffices = +[](const double*) { return true; }};
  if constexpr (HasParameters<A>) activation.parameters = A::kParameters;
  if constexpr (HasRequirements<A>) activation.requirements = A::kRequirements;
  if constexpr (HasResultCondition<A>) activation.result_suffices = &A::result_suffices;
  return activation;
}

template <class F>
constexpr FormInfo form_info() {
  if constexpr (std::is_void_v<F>) {
    return {};
  } else {
    FormInfo info = {.outputs = F::Outputs::kCount + kRowOutputs<F>,
                     .inputs = F::Inputs::kCount + kRowInputs<F>,
                     .broadcasts = {}};
    if constexpr (HasBroadcasts<F>) std::ranges::copy(F::kBroadcasts, info.broadcasts);
    info.takes_random_bits = TakesRandomBits<F>;
    return info;
  }
}

template <class Forms>
constexpr Family family(std::string_view name) {
  Family result = {.name = name, .forms = {}};
  [&]<int... Index>(std::integer_sequence<int, Index...>) {
    ((result.forms[Index] = form_info<typename Forms::template Form<float, Index>>()), ...);
  }(std::make_integer_sequence<int, Forms::kCount>{});
  return result;
}

#define FASTACT_ACTIVATION(name, A) entry<A>(#name),
constexpr Activation kActivations[] = {FASTACT_ACTIVATIONS(FASTACT_ACTIVATION)};
#undef FASTACT_ACTIVATION

#define FASTACT_DERIVATIVES(name, A) family<DerivativeForms<A>>(#name),
#define FASTACT_OTHERS(name, Forms) family<Forms>(#name),
constexpr Family kFamilies[] = {FASTACT_ACTIVATIONS(FASTACT_DERIVATIVES)
                                    FASTACT_FORMS(FASTACT_OTHERS)};
// The last one is empty, because a build may have no row forms.
constexpr Family kRowFamilies[] = {FASTACT_ROW_FORMS(FASTACT_OTHERS) Family()};
#undef FASTACT_OTHERS
#undef FASTACT_DERIVATIVES

int index_in(std::span<const Family> families, std::string_view name) {
  const auto found = std::ranges::find(families, name, &Family::name);
  return found == families.end() ? -1 : static_cast<int>(found - families.begin());
}

}  // namespace

std::span<const Activation> activations() { return kActivations; }

std::span<const Family> families() { return kFamilies; }

std::span<const Family> row_families() {
  return std::span(kRowFamilies).first(std::size(kRowFamilies) - 1);
}

std::string literal(double number) {
  char digits[32];
  std::string text(digits, std::to_chars(digits, std::end(digits), number).ptr);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

int family_index(std::string_view name) { return index_in(kFamilies, name); }

int row_family_index(std::string_view name) { return index_in(row_families(), name); }

}  // namespace fastact
