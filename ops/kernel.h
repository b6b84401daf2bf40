// Types shared by the engines and their callers: the kernel's identity and its parameters. Includes
// nothing of Torch or CUDA.
#pragma once

#include <cstdint>

namespace fastact {

enum class DType : uint8_t { kFloat32, kFloat64, kBFloat16, kFloat16 };
inline constexpr int kNumDTypes = 4;

// No activation of ATen takes more than three numbers besides its tensor.
inline constexpr int kMaxParameters = 3;
struct Parameters {
  double values[kMaxParameters] = {};
};

// A kernel computes a form (ops/forms/form.h) element by element. Its operands are the form's
// outputs followed by its inputs. The fused form (ops/forms/fused.h) has the most.
inline constexpr int kMaxOperands = 6;
inline constexpr int kMaxInputs = kMaxOperands - 1;

// The largest number of forms in a family: that of an activation (ops/forms/derivative.h).
inline constexpr int kMaxForms = 7;

// How the shape of an input relates to the shape of the result.
enum class Broadcast : uint8_t {
  kElementwise,  // broadcasts like an input of PyTorch's elementwise operators
  kPerChannel,   // one element, or one for each index of dimension 1
};

// Properties of a form that are known at run time.
struct FormInfo {
  int outputs = 0;  // 0: the family has no such form
  int inputs = 0;
  Broadcast broadcasts[kMaxInputs] = {};
  bool takes_random_bits = false;
};

// Identifies a kernel within its family.
struct KernelId {
  int form = 0;
  DType dtype = DType::kFloat32;
};

// The inputs of the fused form (ops/forms/fused.h), in the order of the operator's schema. The
// kernels' operands have the same order, after the outputs.
enum class FusedInput : uint8_t { kSelf, kScale, kBias, kResidual, kGate };
inline constexpr int kFusedInputs = 5;
inline constexpr int kFusedOperands = 1 + kFusedInputs;
static_assert(kFusedOperands <= kMaxOperands);

// A set of fused inputs.
struct FusedSet {
  uint32_t bits = 0;

  [[nodiscard]] static constexpr FusedSet of(FusedInput input) {
    return {uint32_t{1} << static_cast<int>(input)};
  }
  [[nodiscard]] constexpr bool has(FusedInput input) const { return (bits & of(input).bits) != 0; }
  constexpr void add(FusedInput input) { bits |= of(input).bits; }
};

// The order in which the gradients of a fused form's scale and bias are summed. It depends on the
// sizes alone.
//
// If scale and bias vary along the columns, kSumRows compute values of a column are added one after
// the other. If they belong to the channels of images, the values of one channel in one image are
// split into blocks of kSumBlock. Each block is added in kSumLanes lanes, which are then halved
// repeatedly. Then kSumBlocks block sums are added in double. The resulting sums are added in
// double, kSumGroups at a time, one after the other, until one remains.
inline constexpr int kSumRows = 32;
inline constexpr int kSumBlock = 1024;
inline constexpr int kSumLanes = 256;
inline constexpr int kSumBlocks = 4;
inline constexpr int kSumGroups = 256;

// The operands of a row kernel (ops/forms/row_form.h): outer * inner rows of n elements. Row r has
// the outer index r / inner and the inner index r % inner. The first `count` operands contain rows.
// Their elements have one size, and the first `outputs` (0 or 1) of them are outputs. The next
// `numbers` operands contain one value for each row.
struct RowOperand {
  char* data = nullptr;  // null: a row output that is not stored
  // In bytes.
  int64_t outer_stride = 0;
  int64_t inner_stride = 0;
  int64_t element_stride = 0;
  // How many neighbouring elements of a row share an element of the operand, such as a weight for
  // each channel. The same for all inputs that rows may share (kShared), and 1 for other operands
  // and on a GPU.
  int64_t repeat = 1;
};
// LayerNorm's gradient has the most.
inline constexpr int kMaxRowOperands = 7;
struct RowOperands {
  int64_t n = 0;
  int64_t outer = 1;
  int64_t inner = 1;
  int64_t element_size = 0;
  int outputs = 1;
  int count = 0;
  int numbers = 0;
  RowOperand operands[kMaxRowOperands];  // outputs first
};

// The functions of one family on one target, indexed by KernelId.
template <class Function>
struct KernelTable {
  Function functions[kMaxForms][kNumDTypes] = {};

  constexpr Function operator[](const KernelId& id) const {
    return functions[id.form][static_cast<int>(id.dtype)];
  }
};

}  // namespace fastact
