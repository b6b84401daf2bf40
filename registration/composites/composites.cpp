#include "registration/composites/composites.h"

#include "registration/operators/operator.h"

namespace fastact {

std::span<const Composites> all_composites() {
  static const Composites all[] = {
      kFusedComposites, kClampedSwigluComposites, kPreluComposites, kAlphaDropoutComposites,
      kRreluComposites, kRowComposites,           kNormComposites};
  if (operators().empty()) return {};
  return all;
}

}  // namespace fastact
