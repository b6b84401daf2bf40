// Operators composed of others: fused_<activation>, <activation>_and_mul, glu, clamped_swiglu,
// prelu, selu_alpha_dropout, rrelu, softmax, log_softmax, logsumexp, sum, mean, var_mean,
// cross_entropy, rms_norm, layer_norm, add_rms_norm, add_layer_norm, group_norm and instance_norm.
// They check their arguments, shape or convert them, and call operators that have kernels.
#pragma once

#include <torch/library.h>

#include <optional>
#include <span>

#include "registration/operators/operator.h"

namespace fastact {

struct Composites {
  // Defines their schemas.
  void (*define)(torch::Library& library);
  // Registers the functions that decompose a call.
  void (*implement)(torch::Library& library);
  bool draws_random_numbers = false;
};

// The parameters of a row operator without numbers.
CallParameters along_dim(int64_t dim);

using Dtype = std::optional<at::ScalarType>;

// Returns self in the type `dtype`, if that has a value, with a history.
at::Tensor converted_to(const at::Tensor& self, Dtype dtype);

// Returns the tensor in the type in which the kernels of row operators compute.
at::Tensor wide(const at::Tensor& tensor);

// Returns all of them. Returns none if torch is not the version that the library was built for.
std::span<const Composites> all_composites();

extern const Composites kFusedComposites;
extern const Composites kClampedSwigluComposites;
extern const Composites kPreluComposites;
extern const Composites kAlphaDropoutComposites;
extern const Composites kRreluComposites;
extern const Composites kRowComposites;
extern const Composites kReductionComposites;
extern const Composites kCrossEntropyComposites;
extern const Composites kNormComposites;
extern const Composites kGroupNormComposites;

}  // namespace fastact
