// Shared by the CPU, CUDA and Meta kernels of clamped SwiGLU's gradients.
#pragma once

#include <ATen/TensorIterator.h>

#include <tuple>

#include "registration/checks.h"
#include "registration/operators/clamped_swiglu.h"

namespace fastact {

template <class Backend>
std::tuple<at::Tensor, at::Tensor> clamped_swiglu_gradients(const at::Tensor& grad_output,
                                                            const at::Tensor& gate,
                                                            const at::Tensor& linear, double limit,
                                                            double alpha) {
  const ClampedSwigluBackwardCall call(grad_output, gate, linear, limit, alpha);
  const Promoted promoted(call.tensors);
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false).add_owned_output(at::Tensor());
  config.add_owned_output(at::Tensor());
  for (int i = 0; i < call.op.num_inputs(); ++i) config.add_const_input(*promoted.tensors()[i]);
  at::TensorIterator iterator = config.build();
  if (iterator.numel() > 0) {
    Backend::run(call.op, call.op.kernel_id(*engine_type(iterator.dtype(0)), call.parameters),
                 call.parameters, iterator);
  }
  return {iterator.output(0), iterator.output(1)};
}

}  // namespace fastact
