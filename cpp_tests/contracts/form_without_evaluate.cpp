// Must not compile, because evaluate() does not accept its inputs. The compiler's message must
// contain CanEvaluate.
#include "ops/forms/form.h"

namespace fastact::inline FASTACT_TARGET {

template <class Element>
struct Incomplete {
  using Outputs = Elements<Element>;
  using Inputs = Elements<Element, Element>;

  FASTACT_INLINE explicit constexpr Incomplete(const double* /*parameters*/) {}

  FASTACT_INLINE OpMath<Element> evaluate(OpMath<Element> x) const { return x; }
};

static_assert(IsForm<Incomplete<float>>);

}  // namespace fastact::inline FASTACT_TARGET
