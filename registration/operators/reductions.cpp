// Reductions of rows, which return one number for each row. The public operators sum, mean and
// var_mean (composites/reductions.cpp) call:
//
//   _sum(self, dim), _mean(self, dim)
//   _var(self, correction, dim), _var_mean(self, correction, dim)
#include "registration/composites/reductions.h"

#include <utility>
#include <vector>

#include "registration/operators/operator.h"

namespace fastact {
namespace {

// The forms of ReductionsForms (ops/forms/reductions.h).
enum ReductionForm : int { kSum, kMean, kVariance };

constexpr Parameter kCorrection[] = {{.name = "correction", .default_value = std::nullopt}};
constexpr Activation kVarianceParameters = row_parameters(kCorrection);

Descriptor reduction(const char* name, int form) {
  Descriptor descriptor = row_operator(name, {"self"}, "reductions", form);
  descriptor.row_result = RowResult::kNumber;
  return descriptor;
}

}  // namespace

std::vector<Descriptor> reduction_operators() {
  using Rule = DerivativeRule;
  constexpr int kIncoming = Rule::kIncoming;

  Descriptor sum = reduction("_sum", kSum);
  sum.of_empty_row = 0.0;
  sum.derives_from_shape = true;
  sum.derivatives = {Rule::compose(&sum_by_self)};
  sum.tangents = {Rule::call("_sum", {kIncoming})};

  Descriptor mean = reduction("_mean", kMean);
  mean.derives_from_shape = true;
  mean.derivatives = {Rule::compose(&mean_by_self)};
  mean.tangents = {Rule::call("_mean", {kIncoming})};

  Descriptor variance = reduction("_var", kVariance);
  variance.activation = &kVarianceParameters;
  variance.caller = "var_mean";
  variance.called_names = {"_sum", "_mean"};
  variance.derivatives = {Rule::compose(&var_by_self)};
  variance.tangents = {Rule::compose(&var_tangent)};

  // Without derivatives: var_mean calls it if none are needed.
  Descriptor both = reduction("_var_mean", kVariance);
  both.activation = &kVarianceParameters;
  both.out = nullptr;
  both.results = 2;

  return {std::move(sum), std::move(mean), std::move(variance), std::move(both)};
}

}  // namespace fastact
