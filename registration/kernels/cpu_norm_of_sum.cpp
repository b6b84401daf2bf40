#include "registration/kernels/cpu_norm_of_sum.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "ops/cpu/fused.h"
#include "ops/cpu/rows.h"
#include "registration/checks.h"
#include "registration/kernels/cpu_memory.h"
#include "registration/kernels/parallel.h"
#include "registration/kernels/rows.h"
#include "registration/row_vectors.h"

namespace fastact {
namespace {

// A task adds about this many elements, in whole rows, and normalizes them while they are in the
// cache.
constexpr int64_t kSumElements = 8192;

// Adds contiguous elements, and rounds once.
class Sum {
 public:
  Sum(const at::Tensor& self, const at::Tensor& residual, const at::Tensor& sum,
      cpu::InstructionSet set)
      : size_(static_cast<int64_t>(self.element_size())) {
    static const Operator& identity = operator_named("_fused_leaky_relu");
    const DType type = *engine_type(self.scalar_type());
    kernel_ = cpu::find_fused_kernels(type, set).forward;
    call_.activation = cpu::find_fused_activation(identity.family, type, set);
    call_.parameters.values[0] = 1.0;  // the slope
    call_.inputs.add(FusedInput::kSelf);
    call_.inputs.add(FusedInput::kResidual);
    int i = 0;
    // Inputs are only read, but the kernel has one pointer type for inputs and output.
    for (const at::Tensor* tensor : {&sum, &self, &residual})
      first_[i++] = static_cast<char*>(const_cast<void*>(tensor->const_data_ptr()));
  }

  // Computes elements [start, start + n).
  void operator()(int64_t start, int64_t n) const {
    constexpr int kOperands = 3;
    char* data[kOperands];
    int64_t strides[2 * kOperands] = {};
    for (int i = 0; i < kOperands; ++i) {
      data[i] = first_[i] + start * size_;
      strides[i] = size_;
    }
    kernel_(call_, data, strides, n, 1);
  }

 private:
  int64_t size_;
  cpu::FusedKernel kernel_;
  cpu::FusedCall call_;
  char* first_[3] = {};
};

}  // namespace

bool compute_norm_of_sum_on_cpu(const Operator& op, TensorPointers tensors,
                                const CallParameters& parameters, cpu::InstructionSet set,
                                at::Tensor* results) {
  const at::Tensor& self = *tensors[0];
  const at::Tensor& residual = *tensors[1];
  const int64_t last = self.dim() - 1;
  if (last < 0 || row_dimension(op, parameters.dim, self.dim()) != last || !self.is_contiguous() ||
      !residual.is_contiguous()) {
    return false;
  }
  const int64_t n = self.size(last);
  const int64_t rows = n == 0 ? 0 : self.numel() / n;
  // Several threads share a long row.
  if (rows < at::get_num_threads() && n >= cpu::kLeastShared && !at::in_parallel_region())
    return false;
  for (int i = 0; i < 2; ++i) results[i] = empty_on_cpu(self, c10::MemoryFormat::Contiguous);
  const at::Tensor& norm = results[0];
  const at::Tensor& sum = results[1];
  if (rows == 0) return true;
  at::Tensor vectors[2];
  const at::Tensor* operands[kMaxRowOperands] = {&norm, &sum};
  int count = 2;
  for (int i = 2; i < op.num_inputs(); ++i, ++count) {
    vectors[i - 2] = repeated_along_rows(*tensors[i], self, last).expand(self.sizes());
    operands[count] = &vectors[i - 2];
  }
  // The statistics are not stored.
  const int numbers = row_families()[op.family].forms[op.form].outputs - 1;
  const auto rows_call = row_operands({operands, static_cast<size_t>(count + numbers)}, count,
                                      /*has_output=*/true, last);
  if (!rows_call.has_value()) return false;  // a vector may differ from row to row
  const cpu::RowsCall call = {
      .kernel = cpu::find_row_kernel(
          op.family, op.kernel_id(*engine_type(self.scalar_type()), parameters), set),
      .parameters = parameters.numbers,
      .operands = *rows_call};
  const Sum add(self, residual, sum, set);
  const int64_t together = std::max(int64_t{1}, kSumElements / n);
  in_parallel((rows + together - 1) / together, together * n, [&](int64_t task) {
    const int64_t first = task * together;
    const int64_t in_task = std::min(together, rows - first);
    add(first * n, in_task * n);
    cpu::run_rows(call, first, in_task);
  });
  return true;
}

}  // namespace fastact
