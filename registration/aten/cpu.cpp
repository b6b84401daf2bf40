// The dispatch key CPU of ATen's operators.
#include <ATen/CPUFunctions.h>
#include <ATen/Dispatch.h>
#include <ATen/EmptyTensor.h>
#include <ATen/OpMathType.h>
#include <ATen/ops/celu_compositeexplicitautograd_dispatch.h>

#include <cmath>

#include "registration/aten/kernels.h"

namespace fastact::aten {
namespace {

// Fills the buffer of log_sigmoid_forward. ATen's results are contiguous whatever the layout of
// self, and its backward pass reads exp(-|self|) from the forward pass. FastAct does not need the
// buffer; it is filled in case an override ends between the two passes.
void fill_buffer(const at::Tensor& self, at::Tensor& buffer) {
  // For up to 8 numbers, three calls of ATen take longer than its log_sigmoid.
  constexpr int64_t kFew = 64;
  if (self.numel() > kFew || !self.is_contiguous()) {
    at::cpu::abs_outf(self, buffer);
    at::cpu::neg_(buffer);
    at::cpu::exp_(buffer);
    return;
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, self.scalar_type(), "log_sigmoid_forward", [&] {
        using Wide = at::opmath_type<scalar_t>;
        const scalar_t* x = self.const_data_ptr<scalar_t>();
        scalar_t* to = buffer.mutable_data_ptr<scalar_t>();
        for (int64_t i = 0; i < self.numel(); ++i)
          to[i] = static_cast<scalar_t>(std::exp(-std::abs(static_cast<Wide>(x[i]))));
      });
}

at::Tensor empty_contiguous(const at::Tensor& like) {
  return at::detail::empty_cpu(like.sizes(), like.scalar_type(), /*pin_memory=*/false,
                               c10::MemoryFormat::Contiguous);
}

struct CpuLogSigmoid : KernelBase {
  std::tuple<at::Tensor, at::Tensor> operator()(const at::Tensor& self) const {
    const Call call(stand_in, self);
    if (!call.is_taken()) return at::cpu::log_sigmoid_forward(self);
    at::Tensor output;
    if (self.is_contiguous()) {
      output = device.functional({stand_in.op}, call);
    } else {
      output = empty_contiguous(self);
      device.out(call, output);
    }
    at::Tensor buffer = empty_contiguous(self);
    fill_buffer(self, buffer);
    return {output, buffer};
  }
};

struct CpuLogSigmoidOut : KernelBase {
  std::tuple<at::Tensor&, at::Tensor&> operator()(const at::Tensor& self, at::Tensor& output,
                                                  at::Tensor& buffer) const {
    const Call call(stand_in, self);
    if (!call.is_taken(output) || !call.is_taken(buffer) || buffer.is_alias_of(self))
      return at::cpu::log_sigmoid_forward_outf(self, output, buffer);
    output.resize_as_(self);
    buffer.resize_as_(self, c10::MemoryFormat::Contiguous);
    fill_buffer(self, buffer);  // before output, which may be self
    device.out(call, output);
    return {output, buffer};
  }
};

void add_cpu(torch::Library& library) {
  Registrar registrar(library, c10::DispatchKey::CPU, cpu_kernels());
  FASTACT_REGISTER_ATEN_OPERATORS(at::cpu)
  registrar.add_log_sigmoid<CpuLogSigmoid, CpuLogSigmoidOut>();
  registrar.add_prelu<&at::cpu::_prelu_kernel, &at::cpu::_prelu_kernel_backward>();
  registrar.add_norms<&at::cpu::native_layer_norm_symint, &at::cpu::native_group_norm_symint>();
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, CPU, library) { register_quietly(library, &add_cpu); }

}  // namespace fastact::aten
