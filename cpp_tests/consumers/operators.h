// Asks the dispatcher for FastAct's operators by name, as TorchScript does.

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

// Prints what is wrong and returns false when the operators are not there or do not compute.
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
