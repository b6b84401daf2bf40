// What the engines and their callers say to each other: which kernel, which parameters. No Torch,
// no CUDA.
#pragma once

#include <cstdint>

namespace fastact {

enum class DType : uint8_t { kFloat32, kFloat64, kBFloat16, kFloat16 };
inline constexpr int kNumDTypes = 4;

// No activation of ATen's has more than three numbers beside its tensor.
inline constexpr int kMaxParameters = 3;
struct Parameters {
  double values[kMaxParameters] = {};
};

// A kernel computes a form (ops/forms/form.h), element by element. Its operands are the form's
// outputs, then its inputs: at most those of the fused form (ops/forms/fused.h).
inline constexpr int kMaxOperands = 6;
inline constexpr int kMaxInputs = kMaxOperands - 1;

// The forms of a family, at most: those of an activation (ops/forms/derivative.h).
inline constexpr int kMaxForms = 7;

// How the shape of an input relates to the result's.
enum class Broadcast : uint8_t {
  kElementwise,  // as the inputs of PyTorch's elementwise operators
  kPerChannel,   // one element, or one for each index of dimension 1
};

// What is known of a form at run time.
struct FormInfo {
  int outputs = 0;  // 0: the family has no such form
  int inputs = 0;
  Broadcast broadcasts[kMaxInputs] = {};
};

// A kernel of a family.
struct KernelId {
  int form = 0;
  DType dtype = DType::kFloat32;
};

// The fused form's inputs (ops/forms/fused.h), in the order of the operator's schema, and of the
// kernels' operands behind the output.
enum class FusedInput : uint8_t { kSelf, kScale, kBias, kResidual, kGate };
inline constexpr int kFusedInputs = 5;
inline constexpr int kFusedOperands = 1 + kFusedInputs;
static_assert(kFusedOperands <= kMaxOperands);

// A set of them.
struct FusedSet {
  uint32_t bits = 0;

  [[nodiscard]] static constexpr FusedSet of(FusedInput input) {
    return {uint32_t{1} << static_cast<int>(input)};
  }
  [[nodiscard]] constexpr bool has(FusedInput input) const { return (bits & of(input).bits) != 0; }
  constexpr void add(FusedInput input) { bits |= of(input).bits; }
};

// What there is of SELU with alpha dropout (ops/forms/alpha_dropout.h).
enum class AlphaDropoutForm : uint8_t { kValue, kGradient, kMask };

// The order in which a fused form's gradients by scale and bias are summed, which the sizes alone
// give. Of vectors along the columns: a column's numbers of so many rows, one after the other. Of
// channels of images: a channel's numbers in an image, in blocks, each in lanes, which are added by
// halves; then so many blocks, in double. These sums in double: so many, one after the other, until
// there is one.
inline constexpr int kSumRows = 32;
inline constexpr int kSumBlock = 1024;
inline constexpr int kSumLanes = 256;
inline constexpr int kSumBlocks = 4;
inline constexpr int kSumGroups = 256;

// The functions of one family on one target, by KernelId.
template <class Function>
struct KernelTable {
  Function functions[kMaxForms][kNumDTypes] = {};

  constexpr Function operator[](const KernelId& id) const {
    return functions[id.form][static_cast<int>(id.dtype)];
  }
};

}  // namespace fastact
