// The dispatch key ADInplaceOrView: version counters of the tensors that are written to.
#include <torch/csrc/autograd/VariableTypeUtils.h>

#include "registration/operators/implement.h"

namespace fastact {
namespace {

struct VersionCounters {
  static at::Tensor& in_place(c10::DispatchKeySet keys, const Operator& op, at::Tensor& self,
                              const CallParameters& parameters) {
    {
      const at::AutoDispatchBelowADInplaceOrView guard;
      const c10::DispatchKeySet below = keys & c10::after_ADInplaceOrView_keyset;
      op.in_place(&below, self, parameters);
    }
    torch::autograd::increment_version(self);
    return self;
  }

  static at::Tensor& out(c10::DispatchKeySet keys, const Operator& op, TensorPointers tensors,
                         const CallParameters& parameters, at::Tensor& out) {
    {
      const at::AutoDispatchBelowADInplaceOrView guard;
      const c10::DispatchKeySet below = keys & c10::after_ADInplaceOrView_keyset;
      op.write(&below, tensors, parameters, out);
    }
    torch::autograd::increment_version(out);
    return out;
  }
};

}  // namespace

TORCH_LIBRARY_IMPL(fastact, ADInplaceOrView, library) {
  implement<VersionCounters>(library, c10::DispatchKey::ADInplaceOrView);
}

}  // namespace fastact
