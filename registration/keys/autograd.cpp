// The dispatch key Autograd: histories and tangents. autograd/derivative_node.h contains the
// mathematics.
#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>

#include <algorithm>

#include "registration/autograd/derivative_node.h"
#include "registration/checks.h"
#include "registration/device_kernels.h"
#include "registration/operators/implement.h"

namespace fastact {
namespace {

namespace autograd = torch::autograd;

bool has_tangent(const at::Tensor& tensor) { return tensor._fw_grad(/*level=*/0).defined(); }

// Returns a tensor with the shape of `tensor` and memory for one element, which is not set.
at::Tensor shape_of(const at::Tensor& tensor) {
  return at::empty_symint({}, tensor.options()).expand_symint(tensor.sym_sizes());
}

// Saves what the needed gradients use.
void save_inputs(DerivativeNode& node, const Operator& op, TensorPointers tensors,
                 const Computed& computed) {
  NeededGradients needed = {};
  for (int i = 0; i < op.num_inputs(); ++i) needed[i] = node.should_compute_output(i);
  const auto is_used = [&](int input) {
    for (int j = 0; j < op.num_inputs(); ++j)
      if (needed[j] && op.derivatives[j].uses(input)) return true;
    return false;
  };
  for (int i = computed.first == Saved::kInput ? 0 : 1; i < op.num_inputs(); ++i) {
    const Saving saving = op.saving != nullptr ? op.saving(i, tensors, computed, needed)
                          : is_used(i)         ? Saving::kInput
                                               : Saving::kNothing;
    if (saving == Saving::kNothing) continue;
    if (i == 0 && op.derives_from_shape) {
      node.save_input(0, shape_of(*tensors[0]));
      continue;
    }
    node.save_input(i, saving == Saving::kInput ? *tensors[i] : savable(*tensors[i]));
  }
  if (computed.first == Saved::kPreactivation) node.save_preactivation(computed.preactivation);
}

// Sets the tangent of `out` if an input has one. If `keeps_result` is true, it is computed from the
// result instead of the first input.
void set_tangent(const at::Tensor& out, const Operator& op, TensorPointers tensors,
                 const CallParameters& parameters, bool keeps_result) {
  if (std::none_of(tensors, tensors + op.num_inputs(),
                   [](const at::Tensor* tensor) { return has_tangent(*tensor); }))
    return;
  at::Tensor primals[kMaxInputs];
  at::Tensor tangents[kMaxInputs];
  for (int i = 0; i < op.num_inputs(); ++i) {
    if (!tensors[i]->defined()) continue;
    primals[i] = tensors[i]->_fw_primal(/*level=*/0);
    tangents[i] = tensors[i]->_fw_grad(/*level=*/0);
  }
  if (keeps_result) primals[0] = out;
  const at::Tensor sum = jvp(op, parameters, out, primals, tangents);
  out._set_fw_grad(sum.defined() ? sum : at::zeros_like(out), /*level=*/0, /*is_inplace_op=*/false);
}

// Returns true if a compiler is tracing. A compiler handles mutation itself. It can undo a copy_,
// but not this library's node on a mutated input.
bool is_traced(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->is_python_dispatch() ||
         at::functionalization::impl::isFunctionalTensor(tensor);
}

struct Autograd {
  static bool serves(const Operator& op) { return op.is_differentiable(); }

  static at::Tensor functional(c10::DispatchKeySet keys, const Operator& op, TensorPointers tensors,
                               const CallParameters& parameters) {
    const c10::DispatchKeySet below = keys & c10::after_autograd_keyset;
    return differentiable(&below, op, tensors, parameters, parameters, op.saves_result(parameters));
  }

  // The first result has a history and a tangent.
  static void several(c10::DispatchKeySet keys, const Operator& op, TensorPointers tensors,
                      const CallParameters& parameters, at::Tensor* results) {
    {
      const at::AutoDispatchBelowADInplaceOrView guard;
      const c10::DispatchKeySet below = keys & c10::after_autograd_keyset;
      several_below(&below, op, tensors, parameters, results);
    }
    if (requires_grad_of_any(op, tensors)) {
      const DerivativeNodePointer node = make_derivative_node(op, parameters, tensors);
      save_inputs(*node, op, tensors, /*computed=*/{});
      node->save_statistics(results + 1);
      set_derivative_history(results[0], node);
    }
    set_tangent(results[0], op, tensors, parameters, /*keeps_result=*/false);
  }

  static at::Tensor& in_place(c10::DispatchKeySet keys, const Operator& op, at::Tensor& self,
                              const CallParameters& parameters) {
    const bool requires_grad = autograd::compute_requires_grad(self);
    const bool tangent = has_tangent(self);
    // The gradient is computed from the result if possible, else from a copy of the input.
    const bool from_result = op.in_place_saves_result(parameters);
    CallParameters derivative_parameters = parameters;
    derivative_parameters.from_result = from_result && op.activation->traits.gradient_from_result;
    at::Tensor input;
    if (requires_grad || tangent) {
      autograd::check_inplace(self, requires_grad);
      if (is_traced(self)) {
        input = self.clone();
        const at::Tensor* tensors[] = {&input};
        return self.copy_(differentiable(/*below=*/nullptr, op, tensors, parameters,
                                         derivative_parameters, from_result));
      }
      if (!from_result) input = self.clone();
    }

    DerivativeNodePointer node;
    if (requires_grad) {
      const at::Tensor* tensors[] = {&self};
      node = make_derivative_node(op, derivative_parameters, tensors);
    }
    {
      const at::AutoDispatchBelowAutograd guard;
      const c10::DispatchKeySet below = keys & c10::after_autograd_keyset;
      op.in_place(&below, self, parameters);
    }
    if (node != nullptr) {
      rebase_derivative_history(self, node);
      if (from_result) {
        node->save_result(self, self.is_view());
      } else {
        node->save_input(0, input);
      }
    }
    if (tangent) {
      const at::Tensor primal = (from_result ? self : input)._fw_primal(/*level=*/0);
      const at::Tensor& old_tangent = self._fw_grad(/*level=*/0);
      const at::Tensor new_tangent = jvp(op, derivative_parameters, self, &primal, &old_tangent);
      self._set_fw_grad(old_tangent.copy_(new_tangent), /*level=*/0, /*is_inplace_op=*/true);
    }
    return self;
  }

  static at::Tensor& out(c10::DispatchKeySet keys, const Operator& op, TensorPointers tensors,
                         const CallParameters& parameters, at::Tensor& out) {
    bool requires_grad = autograd::compute_requires_grad(out);
    bool tangent = has_tangent(out);
    for (int i = 0; i < op.num_inputs(); ++i) {
      if (!tensors[i]->defined()) continue;
      requires_grad |= autograd::compute_requires_grad(*tensors[i]);
      tangent |= has_tangent(*tensors[i]);
    }
    if (requires_grad) autograd::throw_error_out_requires_grad(op.qualified_name.c_str());
    TORCH_CHECK_NOT_IMPLEMENTED(!tangent, "Trying to use forward AD with fastact::", op.name,
                                " that does not support it because it is an out= function");
    const at::AutoDispatchBelowAutograd guard;
    const c10::DispatchKeySet below = keys & c10::after_autograd_keyset;
    return op.write(&below, tensors, parameters, out);
  }

 private:
  // Calls the functional form, and sets the result's history and tangent. `below` points to the
  // dispatch keys of the call, or is null to take the tensors' own keys. If `keeps_result` is true,
  // the derivatives are computed from the result instead of the first input, and
  // `derivative_parameters` says so to the derivative operators.
  static at::Tensor differentiable(const c10::DispatchKeySet* below, const Operator& op,
                                   TensorPointers tensors, const CallParameters& parameters,
                                   const CallParameters& derivative_parameters, bool keeps_result) {
    const bool requires_grad = requires_grad_of_any(op, tensors);
    Computed computed;
    if (requires_grad && op.compute != nullptr && !is_traced(*tensors[0])) {
      computed = op.compute(op, tensors, parameters, below);
    } else {
      const at::AutoDispatchBelowADInplaceOrView guard;
      computed.result = functional_below(below, op, tensors, parameters);
      if (keeps_result) computed.first = Saved::kResult;
    }
    const at::Tensor& out = computed.result;
    DerivativeNodePointer node;
    if (requires_grad) {
      node = make_derivative_node(op, derivative_parameters, tensors);
      save_inputs(*node, op, tensors, computed);
      set_derivative_history(out, node);
    }
    set_tangent(out, op, tensors, derivative_parameters, keeps_result);
    // Saved after its tangent is set, for forward-over-reverse mode.
    if (node != nullptr && computed.first == Saved::kResult) node->save_result(out);
    return out;
  }
};

}  // namespace

TORCH_LIBRARY_IMPL(fastact, Autograd, library) {
  implement<Autograd>(library, c10::DispatchKey::Autograd);
}

}  // namespace fastact
