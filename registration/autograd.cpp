// The dispatch keys Autograd and ADInplaceOrView: histories, tangents, version counters.
// derivative_node.h has the mathematics.
#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>

#include "registration/derivative_node.h"
#include "registration/signatures.h"

namespace fastact {
namespace {

namespace autograd = torch::autograd;

bool has_tangent(const at::Tensor& tensor) { return tensor._fw_grad(/*level=*/0).defined(); }

// A gradient of D_k is kept if another tensor of the call wants its gradient; self, if any does.
void save_inputs(DerivativeNode& node, int order, TensorPointers tensors) {
  const auto wanted = [&](int position) { return node.should_compute_output(position); };
  for (int i = 0; i < order; ++i) {
    bool others_want = false;
    for (int j = 0; j <= order; ++j) others_want |= j != i && wanted(j);
    if (others_want) node.save(i, *tensors[i]);
  }
  node.save(order, *tensors[order]);
}

// Whether a compiler is tracing. It takes over mutation itself, and knows how to undo a copy_, but
// not this library's node on a mutated input.
bool is_traced(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->is_python_dispatch() ||
         at::functionalization::impl::isFunctionalTensor(tensor);
}

struct Autograd {
  static at::Tensor functional(c10::DispatchKeySet keys, const Family& family, int order,
                               TensorPointers tensors, const CallParameters& parameters) {
    bool requires_grad = false;
    bool tangent = false;
    for (int i = 0; i <= order; ++i) {
      requires_grad |= tensors[i]->requires_grad();
      tangent |= has_tangent(*tensors[i]);
    }
    at::Tensor out;
    {
      const at::AutoDispatchBelowADInplaceOrView guard;
      const c10::DispatchKeySet below = keys & c10::after_autograd_keyset;
      out = family.functional(&below, order, tensors, parameters);
    }
    const bool saves_result = order == 0 && family.saves_result(parameters);
    DerivativeNodePointer node;
    if (requires_grad && autograd::GradMode::is_enabled()) {
      node = make_derivative_node(family, order, parameters, tensors);
      if (!saves_result) save_inputs(*node, order, tensors);
      set_derivative_history(out, node);
    }
    if (tangent) {
      at::Tensor primals[kTopOrder + 1];
      at::Tensor tangents[kTopOrder + 1];
      for (int i = 0; i <= order; ++i) {
        primals[i] = tensors[i]->_fw_primal(/*level=*/0);
        tangents[i] = tensors[i]->_fw_grad(/*level=*/0);
      }
      if (saves_result) primals[0] = out;
      const at::Tensor sum = ladder_forward(family, order, parameters, primals, tangents);
      out._set_fw_grad(sum.defined() ? sum : at::zeros_like(out), /*level=*/0,
                       /*is_inplace_op=*/false);
    }
    // With its tangent, for forward over reverse mode.
    if (node != nullptr && saves_result) node->save(0, out, /*is_output=*/true);
    return out;
  }

  static at::Tensor& in_place(c10::DispatchKeySet keys, const Family& family, at::Tensor& self,
                              const CallParameters& parameters) {
    const bool requires_grad = autograd::compute_requires_grad(self);
    const bool tangent = has_tangent(self);
    if (requires_grad || tangent) {
      autograd::check_inplace(self, requires_grad);
      if (is_traced(self)) {
        const at::Tensor input = self.clone();
        const at::Tensor* tensors[] = {&input};
        return self.copy_(family.call(0, tensors, parameters));
      }
    }
    // The gradient comes from the result where it can; else from a copy of the input.
    const bool from_result = family.in_place_saves_result(parameters);
    at::Tensor input;
    if ((requires_grad || tangent) && !from_result) input = self.clone();
    CallParameters derivative_parameters = parameters;
    derivative_parameters.from_result = from_result && family.traits().gradient_from_result;

    DerivativeNodePointer node;
    if (requires_grad) {
      const at::Tensor* tensors[] = {&self};
      node = make_derivative_node(family, 0, derivative_parameters, tensors);
    }
    {
      const at::AutoDispatchBelowAutograd guard;
      const c10::DispatchKeySet below = keys & c10::after_autograd_keyset;
      family.in_place(&below, self, parameters);
    }
    if (node != nullptr) {
      rebase_derivative_history(self, node);
      if (from_result) {
        node->save(0, self, /*is_output=*/true, self.is_view());
      } else {
        node->save(0, input);
      }
    }
    if (tangent) {
      const at::Tensor primal = (from_result ? self : input)._fw_primal(/*level=*/0);
      const at::Tensor& old_tangent = self._fw_grad(/*level=*/0);
      const at::Tensor new_tangent =
          ladder_forward(family, 0, derivative_parameters, &primal, &old_tangent);
      self._set_fw_grad(old_tangent.copy_(new_tangent), /*level=*/0, /*is_inplace_op=*/true);
    }
    return self;
  }

  static at::Tensor& out(c10::DispatchKeySet keys, const Family& family, int order,
                         TensorPointers tensors, const CallParameters& parameters,
                         at::Tensor& out) {
    const std::string name = operator_name(family.activation(), order);
    bool requires_grad = autograd::compute_requires_grad(out);
    bool tangent = has_tangent(out);
    for (int i = 0; i <= order; ++i) {
      requires_grad |= autograd::compute_requires_grad(*tensors[i]);
      tangent |= has_tangent(*tensors[i]);
    }
    if (requires_grad) autograd::throw_error_out_requires_grad(("fastact::" + name).c_str());
    TORCH_CHECK_NOT_IMPLEMENTED(!tangent, "Trying to use forward AD with fastact::", name,
                                " that does not support it because it is an out= function");
    const at::AutoDispatchBelowAutograd guard;
    const c10::DispatchKeySet below = keys & c10::after_autograd_keyset;
    return family.out(&below, order, tensors, parameters, out);
  }
};

struct VersionCounters {
  static at::Tensor& in_place(c10::DispatchKeySet keys, const Family& family, at::Tensor& self,
                              const CallParameters& parameters) {
    {
      const at::AutoDispatchBelowADInplaceOrView guard;
      const c10::DispatchKeySet below = keys & c10::after_ADInplaceOrView_keyset;
      family.in_place(&below, self, parameters);
    }
    autograd::increment_version(self);
    return self;
  }

  static at::Tensor& out(c10::DispatchKeySet keys, const Family& family, int order,
                         TensorPointers tensors, const CallParameters& parameters,
                         at::Tensor& out) {
    {
      const at::AutoDispatchBelowADInplaceOrView guard;
      const c10::DispatchKeySet below = keys & c10::after_ADInplaceOrView_keyset;
      family.out(&below, order, tensors, parameters, out);
    }
    autograd::increment_version(out);
    return out;
  }
};

}  // namespace

TORCH_LIBRARY_IMPL(fastact, Autograd, library) {
  implement<Autograd>(library, c10::DispatchKey::Autograd);
}

TORCH_LIBRARY_IMPL(fastact, ADInplaceOrView, library) {
  implement<VersionCounters>(library, c10::DispatchKey::ADInplaceOrView);
}

}  // namespace fastact
