// The operators' schemas.
#include <torch/library.h>

#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "fastact/fastact.h"
#include "registration/build_info.h"
#include "registration/family.h"

namespace fastact {
namespace {

// ", float alpha=1.0", or nothing.
std::string numbers(const Activation& activation) {
  return activation.parameters.empty() ? "" : ", " + std::string(activation.parameters);
}

// "(Tensor grad_output, Tensor self, float alpha=1.0, bool is_result=False", up to the closing
// parenthesis.
std::string arguments(const Activation& activation, int order) {
  std::string text = "(";
  for (int i = 0; i <= order; ++i)
    text.append(i == 0 ? "Tensor " : ", Tensor ").append(tensor_name(activation, order, i));
  text += numbers(activation);
  if (order > 0 && activation.traits.gradient_from_result) text += ", bool is_result=False";
  return text;
}

// Torch 2.11 has a tag for out variants, later versions do not.
template <class Tag>
void tag_out_variant(std::vector<Tag>& tags) {
  if constexpr (requires { Tag::out_variant; }) tags.push_back(Tag::out_variant);
}

void define(torch::Library& library, const std::string& schema, bool is_out = false) {
  std::vector<at::Tag> tags = {at::Tag::pt2_compliant_tag, at::Tag::pointwise};
  if (is_out) tag_out_variant(tags);
  library.def(schema.c_str(), std::as_const(tags));
}

void define_derivatives(torch::Library& library, const Activation& activation) {
  for (int order = activation.traits.first_order; order <= activation.traits.last_order; ++order) {
    define(library,
           operator_name(activation, order) + arguments(activation, order) + ") -> Tensor");
  }
}

void define_activation(torch::Library& library, const Activation& activation) {
  define_derivatives(library, activation);
  for (int order = 0; order < kOrdersWithOut; ++order) {
    std::string schema = out_operator_name(activation, order) + arguments(activation, order);
    schema.append(", *, Tensor(a!) ").append(out_overload(order)).append(") -> Tensor(a!)");
    define(library, schema, /*is_out=*/true);
  }
  std::string in_place(activation.name);
  in_place.append("_(Tensor(a!) self").append(numbers(activation)).append(") -> Tensor(a!)");
  define(library, in_place);
}

}  // namespace

TORCH_LIBRARY(fastact, library) {
  if (const std::string& mismatch = torch_mismatch(); !mismatch.empty()) {
    // Not by torch's own logging, which may have changed as well.
    std::cerr << mismatch << std::endl;  // NOLINT(performance-avoid-endl)
    return;
  }
  for (const Activation& activation : catalogue()) define_activation(library, activation);
  for (const Activation& part : formulas().subspan(catalogue().size()))
    define_derivatives(library, part);
  library.def("prelu(Tensor self, Tensor weight) -> Tensor", {at::Tag::pt2_compliant_tag});
  library.def("build_info() -> str", [] { return build_info(); });
}

}  // namespace fastact
