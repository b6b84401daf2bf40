// Calls FastAct's operators by name through the dispatcher, like TorchScript.

#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/selu.h>
#include <ATen/ops/tensor.h>

#include <cstdio>

inline bool is_registered(const char* name) {
  return c10::Dispatcher::singleton().findSchema({name, ""}).has_value();
}

inline at::Tensor call_selu(const at::Tensor& input) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow("fastact::selu", "")
      .typed<at::Tensor(const at::Tensor&)>()
      .call(input);
}

// Returns true if the operators exist and compute. Otherwise prints the problem and returns false.
inline bool operators_work() {
  for (const char* name : {"fastact::selu", "fastact::relu", "fastact::build_info"}) {
    if (!is_registered(name)) {
      std::printf("%s is not registered\n", name);
      return false;
    }
  }
  const at::Tensor input = at::tensor({-2.0F, -0.0F, 0.5F, 3.0F});
  if (!call_selu(input).allclose(at::selu(input))) {
    std::printf("fastact::selu computes something else than aten::selu\n");
    return false;
  }
  return true;
}
