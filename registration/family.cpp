#include "registration/family.h"

#include <vector>

#include "registration/build_info.h"
#include "registration/signatures.h"

namespace fastact {

std::string operator_name(const Activation& activation, int order) {
  constexpr const char* kSuffixes[] = {"", "_backward", "_double_backward", "_triple_backward"};
  const int gradients = activation.traits.weighted && order > 0 ? order - 1 : order;
  return std::string(activation.name) + kSuffixes[gradients];
}

const char* tensor_name(const Activation& activation, int order, int position) {
  constexpr const char* kGradients[] = {"grad_grad_grad", "grad_grad_input", "grad_output"};
  const bool weighted = activation.traits.weighted;
  if (position == order)
    return order > 0 && activation.traits.saves == Saves::kOutput ? "output" : "self";
  if (weighted && position == order - 1) return "weight";
  return kGradients[kTopOrder - order + position + (weighted ? 1 : 0)];
}

const char* out_overload(int order) { return order == 0 ? "out" : "grad_input"; }

std::string out_operator_name(const Activation& activation, int order) {
  return operator_name(activation, order) + "." + out_overload(order);
}

std::span<const Family* const> families() {
  // Never destroyed: kernels point to families until the process ends.
  static const auto& all = *[] {
    auto* list = new std::vector<const Family*>();
    if (!torch_mismatch().empty()) return list;
    for (int index = 0; index < static_cast<int>(formulas().size()); ++index) {
      with_types(formulas()[index], [&]<class Forward, class Derivative>(Forward, Derivative) {
        list->push_back(new TypedFamily<Forward, Derivative>(index));
      });
    }
    return list;
  }();
  return all;
}

const Family& family_at(int index) {
  TORCH_CHECK(!families().empty(), torch_mismatch());
  return *families()[index];
}

}  // namespace fastact
