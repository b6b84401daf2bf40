#include "registration/kernels/cpu_norm_gradients.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <memory>

#include "ops/cpu/fused.h"
#include "ops/cpu/norm_sums.h"
#include "ops/cpu/rows.h"
#include "registration/checks.h"
#include "registration/composites/norms.h"
#include "registration/kernels/cpu_memory.h"
#include "registration/kernels/parallel.h"
#include "registration/kernels/partial_sums.h"
#include "registration/kernels/rows.h"
#include "registration/row_vectors.h"

namespace fastact {
namespace {

// About this many elements, in whole rows, are added to the sums while they are in the cache.
constexpr int64_t kBlockElements = 8192;

// Computes in T. The rows form images: a vector applies to the rows of an image together. The
// images of rms_norm and layer_norm have one row. Those of group_norm have a row for each group,
// and `inner` neighbouring elements share an element of the vector, a channel.
template <class T>
class OnePass {
 public:
  OnePass(const Operator& op, TensorPointers tensors, const CallParameters& parameters,
          cpu::InstructionSet set)
      : op_(op),
        parameters_(parameters),
        set_(set),
        sums_(cpu::find_norm_sums(kType, set)),
        n_(tensors[kNormSelf]->size(-1)),
        rows_(tensors[kNormSelf]->numel() / n_),
        rows_of_image_(tensors[kNormWeight]->dim() == 2 ? tensors[kNormWeight]->size(0) : 1),
        channels_(tensors[kNormWeight]->numel()),
        inner_(rows_of_image_ * n_ / channels_) {}

  // Returns true if every thread gets a task. The sums of a single channel have another order,
  // which this class does not implement.
  [[nodiscard]] bool is_supported() const {
    const bool has_tasks =
        at::in_parallel_region() || parts(rows_, rows_of_task()) >= at::get_num_threads();
    return channels_ > 1 && has_tasks;
  }

  void run(TensorPointers tensors, at::Tensor* results) {
    x_ = tensors[kNormSelf]->contiguous();
    g_ = tensors[kNormGradOutput]->contiguous();
    if (wants(kBySelf)) results[kBySelf] = prepare_gradient_of_self(tensors);
    if (normalizes()) {
      ones_ = std::make_unique_for_overwrite<T[]>(static_cast<size_t>(n_));
      std::fill_n(ones_.get(), n_, T{1});
    }
    const int64_t images = rows_ / rows_of_image_;
    const int64_t groups = is_along_columns() ? parts(images, cpu::kTileRows)
                                              : images * parts(inner_, cpu::kTileColumns);
    const PartialSums of_weight(wants(kByWeight), groups, channels_);
    const PartialSums of_bias(wants(kByBias), groups, channels_);
    const int64_t each = rows_of_task();
    in_parallel(parts(rows_, each), each * n_, [&](int64_t task) {
      const int64_t first = task * each;
      const int64_t count = std::min(each, rows_ - first);
      if (is_along_columns()) {
        add_columns(first, count, of_weight.at(task, 0), of_bias.at(task, 0));
      } else {
        add_channels(first, count, of_weight, of_bias);
      }
    });
    const at::IntArrayRef shape = tensors[kNormWeight]->sizes();
    if (wants(kByWeight)) results[kByWeight] = of_weight.total(kScalarType, set_).view(shape);
    if (wants(kByBias)) results[kByBias] = of_bias.total(kScalarType, set_).view(shape);
  }

 private:
  static constexpr c10::ScalarType kScalarType = c10::CppTypeToScalarType<T>::value;
  static constexpr DType kType = kScalarType == at::kDouble ? DType::kFloat64 : DType::kFloat32;

  [[nodiscard]] bool wants(NormGradient result) const { return parameters_.output_mask[result]; }
  // True if the kernel for the gradient by self also yields the numbers that normalize a row: mean,
  // correction and r. Only LayerNorm's does.
  [[nodiscard]] bool has_statistics() const { return wants(kBySelf) && op_.num_inputs() > 3; }
  // True if the norm itself normalizes the rows.
  [[nodiscard]] bool normalizes() const { return wants(kByWeight) && !has_statistics(); }
  // True if each column of an image has a weight of its own. A partial sum is then one of kTileRows
  // images, and otherwise one of a part of a row.
  [[nodiscard]] bool is_along_columns() const { return inner_ == 1; }
  [[nodiscard]] int64_t rows_of_task() const {
    return is_along_columns() ? cpu::kTileRows * rows_of_image_ : rows_of_block();
  }
  [[nodiscard]] int64_t rows_of_block() const { return std::max(int64_t{1}, kBlockElements / n_); }

  [[nodiscard]] cpu::RowKernel row_kernel(const Operator& op, DType type) const {
    return cpu::find_row_kernel(op.family, op.kernel_id(type, parameters_), set_);
  }

  // Returns the result, which the tasks will write.
  at::Tensor prepare_gradient_of_self(TensorPointers tensors) {
    const at::Tensor result = empty_on_cpu(x_, c10::MemoryFormat::Contiguous);
    const at::Tensor weight = expanded_besides_rows(*tensors[kNormWeight], x_, -1);
    const at::Tensor* operands[kMaxRowOperands] = {&result, &x_, &g_, &weight};
    size_t count = 4;
    if (has_statistics()) {
      mean_ = tensors[kNormWeight + 1]->contiguous();
      r_ = tensors[kNormWeight + 2]->contiguous();
      correction_ = at::empty_like(mean_);
      for (const at::Tensor* number : {&correction_, &mean_, &r_}) operands[count++] = number;
    }
    // The other dimensions always merge: the rows are contiguous, and the weight is one row or has
    // a row for each group.
    self_call_ = {
        .kernel = row_kernel(*op_.called[kNormBackward], *engine_type(x_.scalar_type())),
        .parameters = parameters_.numbers,
        .operands = *row_operands({operands, count}, 4, /*has_output=*/true, x_.dim() - 1)};
    return result;
  }

  // The numbers of some rows. Elements of a 16-bit type are converted to a buffer.
  class Numbers {
   public:
    Numbers(const at::Tensor& tensor, cpu::InstructionSet set, int64_t most)
        : tensor_(tensor),
          widen_(cpu::find_norm_sums(*engine_type(tensor.scalar_type()), set).widen) {
      if (tensor.scalar_type() != kScalarType)
        buffer_ = std::make_unique_for_overwrite<T[]>(static_cast<size_t>(most));
    }
    // Returns n numbers from element `start` on.
    [[nodiscard]] const T* at(int64_t start, int64_t n) const {
      const auto* const from = static_cast<const char*>(tensor_.const_data_ptr()) +
                               start * static_cast<int64_t>(tensor_.element_size());
      if (buffer_ == nullptr) return reinterpret_cast<const T*>(from);
      widen_(from, buffer_.get(), n);
      return buffer_.get();
    }

   private:
    const at::Tensor& tensor_;
    decltype(cpu::NormSums::widen) widen_;
    std::unique_ptr<T[]> buffer_;
  };

  // Computes the gradient by self of rows [first, first + count), and calls visit(row, norm_row)
  // for each of them.
  template <class Visit>
  void for_each_row(int64_t first, int64_t count, const Visit& visit) const {
    const int64_t step = std::min(rows_of_block(), count);
    const Numbers of_g(g_, set_, step * n_);
    const Numbers of_x(x_, set_, step * n_);
    const auto z =
        std::make_unique_for_overwrite<T[]>(static_cast<size_t>(normalizes() ? step * n_ : 0));
    // These values leave rows that are normalized already as they are.
    static constexpr T kZero = 0;
    static constexpr T kOne = 1;
    const T* const means = has_statistics() ? mean_.const_data_ptr<T>() : &kZero;
    const T* const corrections = has_statistics() ? correction_.const_data_ptr<T>() : &kZero;
    const T* const factors = has_statistics() ? r_.const_data_ptr<T>() : &kOne;
    for (int64_t row = first; row < first + count; row += step) {
      const int64_t rows = std::min(step, first + count - row);
      if (wants(kBySelf)) cpu::run_rows(self_call_, row, rows);
      const T* const g = of_g.at(row * n_, rows * n_);
      const T* x = wants(kByWeight) ? of_x.at(row * n_, rows * n_) : g;
      if (normalizes()) {
        normalize(x, rows, z.get());
        x = z.get();
      }
      for (int64_t i = 0; i < rows; ++i) {
        const int64_t at = has_statistics() ? row + i : 0;
        visit(row + i, {x + i * n_, g + i * n_, means + at, corrections + at, factors + at});
      }
    }
  }

  void normalize(const T* x, int64_t rows, T* z) const {
    const Operator& norm = *op_.called[kNormWithoutBias];
    // Inputs are only read, but RowOperand has one pointer type for inputs and output.
    const auto data = [](const T* numbers) {
      return const_cast<char*>(reinterpret_cast<const char*>(numbers));
    };
    constexpr int64_t kSize = sizeof(T);
    cpu::RowsCall call;
    call.kernel = row_kernel(norm, kType);
    call.parameters = parameters_.numbers;
    call.operands.n = n_;
    call.operands.inner = rows;
    call.operands.element_size = kSize;
    call.operands.count = 3;
    call.operands.numbers = row_families()[norm.family].forms[norm.form].outputs - 1;
    const int64_t stride = n_ * kSize;
    RowOperand* const operands = call.operands.operands;
    operands[0] = {.data = data(z), .inner_stride = stride, .element_stride = kSize};
    operands[1] = {.data = data(x), .inner_stride = stride, .element_stride = kSize};
    operands[2] = {.data = data(ones_.get()), .element_stride = kSize};
    cpu::run_rows(call, 0, rows);
  }

  // Adds the columns of whole images.
  void add_columns(int64_t first, int64_t count, double* of_weight, double* of_bias) const {
    const auto columns = static_cast<size_t>(channels_);
    const auto weight_sums = of_weight == nullptr ? nullptr : std::make_unique<T[]>(columns);
    const auto bias_sums = of_bias == nullptr ? nullptr : std::make_unique<T[]>(columns);
    for_each_row(first, count, [&](int64_t row, const cpu::NormRow& norm_row) {
      const int64_t start = row % rows_of_image_ * n_;
      const auto at_start = [&](T* sums) { return sums == nullptr ? nullptr : sums + start; };
      sums_.add_to_columns(norm_row, n_, at_start(weight_sums.get()), at_start(bias_sums.get()));
    });
    if (of_weight != nullptr) sums_.store_columns(weight_sums.get(), channels_, of_weight);
    if (of_bias != nullptr) sums_.store_columns(bias_sums.get(), channels_, of_bias);
  }

  // Adds the elements of each channel of these rows.
  void add_channels(int64_t first, int64_t count, const PartialSums& of_weight,
                    const PartialSums& of_bias) const {
    const int64_t chunks = parts(inner_, cpu::kTileColumns);
    const int64_t of_row = channels_ / rows_of_image_;
    for_each_row(first, count, [&](int64_t row, const cpu::NormRow& norm_row) {
      for (int64_t chunk = 0; chunk < chunks; ++chunk) {
        const int64_t start = chunk * cpu::kTileColumns;
        cpu::NormRow of_chunk = norm_row;
        of_chunk.x = static_cast<const T*>(norm_row.x) + start;
        of_chunk.g = static_cast<const T*>(norm_row.g) + start;
        const int64_t group = row / rows_of_image_ * chunks + chunk;
        const int64_t channel = row % rows_of_image_ * of_row;
        sums_.add_channels(of_chunk, std::min(cpu::kTileColumns, inner_ - start), of_row, inner_,
                           of_weight.at(group, channel), of_bias.at(group, channel));
      }
    });
  }

  const Operator& op_;
  const CallParameters& parameters_;
  cpu::InstructionSet set_;
  cpu::NormSums sums_;
  int64_t n_;
  int64_t rows_;
  int64_t rows_of_image_;
  int64_t channels_;
  int64_t inner_;
  at::Tensor x_;
  at::Tensor g_;
  // One number for each row.
  at::Tensor mean_;
  at::Tensor correction_;
  at::Tensor r_;
  cpu::RowsCall self_call_ = {};
  std::unique_ptr<T[]> ones_;
};

template <class T>
bool compute_in_one_pass(const Operator& op, TensorPointers tensors,
                         const CallParameters& parameters, cpu::InstructionSet set,
                         at::Tensor* results) {
  OnePass<T> gradients(op, tensors, parameters, set);
  if (!gradients.is_supported()) return false;
  gradients.run(tensors, results);
  return true;
}

}  // namespace

bool compute_norm_gradients_on_cpu(const Operator& op, TensorPointers tensors,
                                   const CallParameters& parameters, cpu::InstructionSet set,
                                   at::Tensor* results) {
  return tensors[kNormSelf]->scalar_type() == at::kDouble
             ? compute_in_one_pass<double>(op, tensors, parameters, set, results)
             : compute_in_one_pass<float>(op, tensors, parameters, set, results);
}

}  // namespace fastact
