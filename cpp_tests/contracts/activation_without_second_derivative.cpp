// Must not compile, because f'' is missing. The compiler's message must contain HasDerivative.
#include "ops/forms/derivative.h"

namespace fastact::inline FASTACT_TARGET {

struct Incomplete {
  static constexpr Traits kTraits = {.saves = Saves::kInput};

  FASTACT_INLINE explicit constexpr Incomplete(const double* /*parameters*/) {}

  template <class Element, int Order>
    requires(Order != 2)
  FASTACT_INLINE OpMath<Element> derivative(OpMath<Element> x) const {
    return x;
  }
};

using Form = DerivativeForms<Incomplete>::Form<float, 0>;

}  // namespace fastact::inline FASTACT_TARGET
