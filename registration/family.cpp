#include "registration/family.h"

#include <vector>

#include "registration/build_info.h"
#include "registration/signatures.h"

namespace fastact {

std::string operator_name(std::string_view activation, int order) {
  constexpr const char* kSuffixes[] = {"", "_backward", "_double_backward", "_triple_backward"};
  return std::string(activation) + kSuffixes[order];
}

std::span<const char* const> gradient_names(int order) {
  static constexpr const char* kNames[] = {"grad_grad_grad", "grad_grad_input", "grad_output"};
  return std::span(kNames).last(order);
}

const char* operand_name(const Activation& activation, int order) {
  return order > 0 && activation.traits.saves == Saves::kOutput ? "output" : "self";
}

const char* out_overload(int order) { return order == 0 ? "out" : "grad_input"; }

std::string out_operator_name(std::string_view activation, int order) {
  return operator_name(activation, order) + "." + out_overload(order);
}

std::span<const Family* const> families() {
  // Never destroyed: kernels point to families until the process ends.
  static const auto& all = *[] {
    auto* list = new std::vector<const Family*>();
    if (!torch_mismatch().empty()) return list;
    for (int index = 0; index < static_cast<int>(catalogue().size()); ++index) {
      with_types(catalogue()[index], [&]<class Forward, class Derivative>(Forward, Derivative) {
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
