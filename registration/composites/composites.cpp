#include "registration/composites/composites.h"

#include <iterator>

#include "registration/checks.h"

namespace fastact {

CallParameters along_dim(int64_t dim) {
  CallParameters parameters;
  parameters.dim = dim;
  return parameters;
}

at::Tensor wide(const at::Tensor& tensor) {
  return tensor.to(type_of_statistics(tensor.scalar_type()));
}

std::span<const Composites> all_composites() {
  static const Composites all[] = {
      kFusedComposites, kClampedSwigluComposites, kPreluComposites,        kAlphaDropoutComposites,
      kRreluComposites, kRowComposites,           kCrossEntropyComposites, kNormComposites};
  constexpr size_t kOfRows = 3;  // the last ones
  if (operators().empty()) return {};
  return std::span(all).first(std::size(all) - (row_families().empty() ? kOfRows : 0));
}

}  // namespace fastact
