// The part of a descriptor that all operators with random bits share.
#pragma once

#include <utility>
#include <vector>

#include "registration/operators/operator.h"

namespace fastact {

// Describes an operator that takes `inputs` and a seed.
inline Descriptor seeded_descriptor(const char* name, std::vector<Input> inputs, int family,
                                    int form, const Activation& activation) {
  Descriptor descriptor;
  descriptor.name = name;
  descriptor.inputs = std::move(inputs);
  descriptor.inputs.emplace_back("seed", InputKind::kSeed);
  descriptor.family = family;
  descriptor.form = form;
  descriptor.activation = &activation;
  return descriptor;
}

}  // namespace fastact
