// The dispatch key CPU.
#include <ATen/Parallel.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <tuple>

#include "ops/cpu/engine.h"
#include "ops/cpu/fused.h"
#include "registration/device_kernels.h"
#include "registration/keys/clamped_swiglu.h"
#include "registration/keys/cpu_memory.h"
#include "registration/keys/fused.h"
#include "registration/keys/pointwise.h"
#include "registration/operators/fused.h"
#include "registration/operators/signature.h"

namespace fastact {
namespace {

struct Cpu {
  static at::Tensor empty(const at::Tensor& like, c10::MemoryFormat format) {
    return empty_on_cpu(like, format);
  }

  static at::Tensor empty_strided(const at::Tensor& like) { return empty_strided_on_cpu(like); }

  static bool converts_first(const at::Tensor& /*self*/) { return true; }

  static void run_dense(const Operator& op, const KernelId& id, const CallParameters& parameters,
                        const at::Tensor& out, TensorPointers tensors) {
    if (out.numel() > at::internal::GRAIN_SIZE && at::get_num_threads() > 1 &&
        !at::in_parallel_region()) {
      // Large enough for several threads. They are torch's, reached through its iterator:
      // at::parallel_for would compile OpenMP into this library. torch's grain size fits: SELU of
      // 2^16 float32 takes 18.7 us on two cores, 37.8 on one (docs/dev/tuning.md).
      at::TensorIteratorConfig config;
      config.set_check_mem_overlap(false).add_output(out);
      add_inputs(config, op, tensors);
      at::TensorIterator iterator = config.build();
      run(op, id, parameters, iterator);
      return;
    }
    char* data[kMaxOperands];
    int64_t strides[2 * kMaxOperands] = {};
    data[0] = static_cast<char*>(out.data_ptr());
    for (int i = 0; i < op.num_inputs(); ++i) {
      // Inputs are only read, but the array has one pointer type for inputs and output.
      data[i + 1] = static_cast<char*>(const_cast<void*>(tensors[i]->const_data_ptr()));
    }
    std::fill_n(strides, 1 + op.num_inputs(), out.element_size());
    find_kernel(op, id)(parameters.numbers, data, strides, out.numel(), 1);
  }

  static void run(const Operator& op, const KernelId& id, const CallParameters& parameters,
                  at::TensorIteratorBase& iterator) {
    const cpu::Kernel kernel = find_kernel(op, id);
    if (!op.last_input_leads || op.num_inputs() == 1) {
      iterator.for_each([&](char** data, const int64_t* strides, int64_t size0, int64_t size1) {
        kernel(parameters.numbers, data, strides, size0, size1);
      });
      return;
    }
    iterator.for_each([&](char** data, const int64_t* strides, int64_t size0, int64_t size1) {
      const int count = 1 + op.num_inputs();
      char* ordered[kMaxOperands];
      int64_t ordered_strides[2 * kMaxOperands];
      for (int i = 0; i < count; ++i) {
        const int position = iterator_operand(op, i);
        ordered[i] = data[position];
        ordered_strides[i] = strides[position];
        ordered_strides[count + i] = strides[count + position];
      }
      kernel(parameters.numbers, ordered, ordered_strides, size0, size1);
    });
  }

  static void run_fused(const Operator& op, DType type, const CallParameters& parameters,
                        const FusedInputs& inputs, at::TensorIteratorBase& iterator) {
    const cpu::InstructionSet set = selected_instruction_set();
    const cpu::FusedCall call = {
        .activation = cpu::find_fused_activation(op.family, type, set),
        .parameters = parameters.numbers,
        .inputs = inputs.set,
        .float32 = inputs.float32,
        .writes_preactivation = iterator.noutputs() > 1,
    };
    const cpu::FusedKernel kernel = cpu::find_fused_kernels(type, set).forward;
    iterator.for_each([&](char** data, const int64_t* strides, int64_t size0, int64_t size1) {
      kernel(call, data, strides, size0, size1);
    });
  }

 private:
  static cpu::Kernel find_kernel(const Operator& op, const KernelId& id) {
    return cpu::find_kernel(op.family, id, selected_instruction_set());
  }

  static cpu::InstructionSet selected_instruction_set() {
    try {
      return cpu::selected_instruction_set();
    } catch (const std::invalid_argument& error) {
      TORCH_CHECK(false, error.what());
    }
  }
};

struct WithArgument {
  const Operator* op;

  std::tuple<at::Tensor, at::Tensor> operator()(const at::Tensor& self,
                                                const std::optional<at::Tensor>& scale,
                                                const std::optional<at::Tensor>& bias,
                                                const std::optional<at::Tensor>& residual,
                                                const std::optional<at::Tensor>& gate,
                                                at::ArrayRef<double> numbers) const {
    const FusedArguments call(*op, fused_with_argument_name(*op), self, scale, bias, residual, gate,
                              numbers);
    return FusedPointwise<Cpu>::with_argument({}, *op, call.tensors, call.parameters);
  }
};

}  // namespace

const DeviceKernels& cpu_kernels() { return kKernelsOf<Pointwise<Cpu>>; }

TORCH_LIBRARY_IMPL(fastact, CPU, library) {
  implement<Pointwise<Cpu>>(library, c10::DispatchKey::CPU);
  implement<FusedPointwise<Cpu>>(library, c10::DispatchKey::CPU);
  if (!operators().empty())
    library.impl("_clamped_swiglu_backward", &clamped_swiglu_gradients<Cpu>);
  for (const Operator* op : operators())
    if (op->is_fused) library.impl(fused_with_argument_name(*op).c_str(), WithArgument{op});
}

}  // namespace fastact
