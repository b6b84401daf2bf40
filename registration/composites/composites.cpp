#include "registration/composites/composites.h"

#include <ATen/core/grad_mode.h>

#include <iterator>

#include "ops/floating_point.h"
#include "registration/checks.h"
#include "registration/conversion.h"

namespace fastact {

CallParameters along_dim(int64_t dim) {
  CallParameters parameters;
  parameters.dim = dim;
  return parameters;
}

at::Tensor converted_to(const at::Tensor& self, Dtype dtype) {
  if (!dtype.has_value()) return self;
  const bool has_history = at::GradMode::is_enabled() && self.requires_grad();
  if (is_plain(self) && !has_history) return converted(self, *dtype);
  const DefaultFloatingPoint environment;
  return self.to(*dtype);
}

at::Tensor wide(const at::Tensor& tensor) {
  return tensor.to(type_of_statistics(tensor.scalar_type()));
}

std::span<const Composites> all_composites() {
  static const Composites all[] = {
      kFusedComposites, kClampedSwigluComposites, kPreluComposites,     kAlphaDropoutComposites,
      kRreluComposites, kRowComposites,           kReductionComposites, kCrossEntropyComposites,
      kNormComposites,  kGroupNormComposites};
  constexpr size_t kOfRows = 5;  // the last ones
  if (operators().empty()) return {};
  return std::span(all).first(std::size(all) - (row_families().empty() ? kOfRows : 0));
}

}  // namespace fastact
