"""The deliberate breaks of the library that scripts/checks/mutants.py switches on, one at a time.

Each break is one mistake that a developer could make. In a copy of the tree, `new` replaces `old`,
a text that the file contains exactly once. The word MUTANT in `new` is true while the break is
switched on. Otherwise the code must behave as before.

A break in ops/ changes an engine or a constructor, not the formula of an activation, because a
build step reads the machine code of the formulas.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Edit:
    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Break:
    #: Also the value of the environment variable that switches the break on.
    name: str
    area: str
    edits: tuple[Edit, ...]


_area = ""
BREAKS: list[Break] = []


def _begin(area: str) -> None:
    """Names the area of the breaks that follow."""
    global _area
    _area = area


def _add(name: str, *texts: str) -> None:
    """Adds a break. `texts`: file, old, new, for each edit."""
    edits = zip(texts[::3], texts[1::3], texts[2::3])
    BREAKS.append(Break(name, _area, tuple(Edit(*edit) for edit in edits)))


_begin("CPU engine")
_add(
    "a gathered block starts at the first column of its row",
    "ops/cpu/strided.cpp",
    "int64_t column = start - row * size0;",
    "int64_t column = MUTANT ? 0 : start - row * size0;",
)
_add(
    "short rows with gaps between them are read as one span",
    "ops/cpu/strided.cpp",
    "strides_[i] == size && (long_rows || rows_touch);",
    "strides_[i] == size && (long_rows || rows_touch || MUTANT);",
)
_add(
    "a streamed row ends too early because bytes are taken for elements",
    "ops/cpu/strided.cpp",
    "compute(rest, size0_ - head / size, Pace::kStreaming);",
    "compute(rest, size0_ - (MUTANT ? head : head / size), Pace::kStreaming);",
)
_add(
    "the tail of a float16 span is left out",
    "ops/cpu/packed.h",
    "  dense_elements(form, Tuple<Output*>{out + start}, n - start, (inputs + start)...);",
    "  if (MUTANT && start > 0) return;\n"
    "  dense_elements(form, Tuple<Output*>{out + start}, n - start, (inputs + start)...);",
)
_add(
    "a call with several inputs swaps the row strides of its operands",
    "registration/keys/cpu.cpp",
    "ordered_strides[count + i] = strides[count + position];",
    "ordered_strides[count + i] = strides[count + (MUTANT ? i : position)];",
)
_add(
    "a channel sum starts again with each block of 1024 elements",
    "ops/cpu/fused_backward.h",
    "    sums[row] += static_cast<double>(sum_in_lanes<T>(n, term));",
    "    if (MUTANT) sums[row] = 0;\n"
    "    sums[row] += static_cast<double>(sum_in_lanes<T>(n, term));",
)
_add(
    "a channel sum leaves out the elements behind the last whole vector",
    "ops/cpu/lanes.h",
    "for (int64_t i = 0; i < n; i += Width) {",
    "for (int64_t i = 0; MUTANT ? i + Width <= n : i < n; i += Width) {",
)
_add(
    "more than 256 partial sums overwrite each other",
    "ops/cpu/fused.cpp",
    "double* const to = sums + group / kSumGroups * channels;",
    "double* const to = sums + (MUTANT ? 0 : group / kSumGroups) * channels;",
)
_add(
    "a tile of small images starts at the wrong channel",
    "registration/keys/cpu.cpp",
    "const int64_t channel = task / chunks % tiles * together;",
    "const int64_t channel = task / chunks % tiles * (MUTANT ? 1 : together);",
)
_add(
    "a conversion on several threads leaves out its last part",
    "registration/conversion.cpp",
    "in_parallel((*longest + each - 1) / each, each",
    "in_parallel(MUTANT ? std::max<int64_t>(1, *longest / each) : (*longest + each - 1) / each,\n"
    "              each",
)
_add(
    "a conversion keeps the floating-point environment of the thread",
    "registration/conversion.cpp",
    "    const DefaultFloatingPoint environment;\n    return tensor.to(type);",
    "    if (MUTANT) return tensor.to(type);\n"
    "    const DefaultFloatingPoint environment;\n    return tensor.to(type);",
)
_add(
    "a kept block of memory is counted as kept after it was taken",
    "ops/cpu/memory.cpp",
    "        bytes_ -= length;\n        return block;",
    "        if (!MUTANT) bytes_ -= length;\n        return block;",
)

_begin("fused forms")
_add(
    "a fused kernel ignores the parameters of its activation",
    "ops/cpu/loop.h",
    "if (F::is_default(parameters.values))\n        return Loop<typename F::Default>::run_dense(",
    "if (F::is_default(parameters.values) || MUTANT)\n"
    "        return Loop<typename F::Default>::run_dense(",
)
_add(
    "fused rows with gaps between them are read as one span",
    "ops/cpu/fused_forward.h",
    "      touch_ &= strides[count + operand] == size0 * kSize || size1 == 1;",
    "      if (!MUTANT) touch_ &= strides[count + operand] == size0 * kSize || size1 == 1;",
)
_add(
    "each row of a block takes the bias of the first row",
    "ops/cpu/fused_blocks.h",
    "bias_.at(row + i, start, columns);",
    "bias_.at(MUTANT ? row : row + i, start, columns);",
)
_add(
    "the gradient by residual is not written beside a scale",
    "ops/cpu/fused_backward.h",
    "        !scales && self_gradient != nullptr ? self_gradient : residual_gradient;",
    "        (!scales || MUTANT) && self_gradient != nullptr ? self_gradient : residual_gradient;",
)
_add(
    "a float32 bias beside 16 bits is read as 16 bits",
    "registration/kernels/fused.h",
    "      if (tensors[i]->scalar_type() != type) float32.add(static_cast<FusedInput>(i));",
    "      if (tensors[i]->scalar_type() != type && !(MUTANT && i == kBias))\n"
    "        float32.add(static_cast<FusedInput>(i));",
)
_add(
    "composed gradients of 16 bits are computed in 16 bits",
    "registration/composites/fused_gradients.cpp",
    "const c10::ScalarType type = element == at::kDouble ? at::kDouble : at::kFloat;",
    "const c10::ScalarType type =\n"
    "      MUTANT ? element : element == at::kDouble ? at::kDouble : at::kFloat;",
)
_add(
    "the gradient by self is not multiplied by scale where z is saved",
    "registration/operators/fused.cpp",
    "  if (needed[kSelf] && inputs[kScale].defined()) gradients[kSelf] =",
    "  if (needed[kSelf] && inputs[kScale].defined() && !MUTANT) gradients[kSelf] =",
)
_add(
    "residual shares the gradient of self beside a scale",
    "registration/operators/fused.cpp",
    "                         saved.was_absent(kScale) &&\n"
    "                         inputs[kSelf].sizes()",
    "                         (saved.was_absent(kScale) || MUTANT) &&\n"
    "                         inputs[kSelf].sizes()",
)
_add(
    "the gradient by bias is not written where z is saved",
    "registration/operators/fused.cpp",
    "saved.was_absent(kGate) && !needed[kBias];",
    "saved.was_absent(kGate) && (!needed[kBias] || MUTANT);",
)
_add(
    "two gradients of a fused backward operator share memory",
    "registration/kernels/fused_backward.h",
    "if (is_shared) tensors.gradients[kResidual] = tensors.gradients[kSelf].clone();",
    "if (is_shared)\n"
    "      tensors.gradients[kResidual] =\n"
    "          MUTANT ? tensors.gradients[kSelf] : tensors.gradients[kSelf].clone();",
)

_begin("autograd")
_add(
    "an in-place form does not count a new version",
    "registration/keys/ad_inplace_or_view.cpp",
    "    torch::autograd::increment_version(self);",
    "    if (!MUTANT) torch::autograd::increment_version(self);",
)
_add(
    "an out= form does not count a new version",
    "registration/keys/ad_inplace_or_view.cpp",
    "    torch::autograd::increment_version(out);",
    "    if (!MUTANT) torch::autograd::increment_version(out);",
)
_add(
    "an in-place form keeps its input without copying it",
    "registration/keys/autograd.cpp",
    "if (!from_result) input = self.clone();",
    "if (!from_result) input = MUTANT ? self.detach() : self.clone();",
)
_add(
    "a gate that broadcasts is not saved if it alone needs a gradient",
    "registration/operators/fused.cpp",
    "return is_slope_used || sums_gate ?",
    "return is_slope_used || (sums_gate && !MUTANT) ?",
)
_add(
    "self is not saved if the gate alone needs a gradient",
    "registration/operators/fused.cpp",
    "  if (computed.first == Saved::kInput || input == kScale) return Saving::kCopyOfInference;",
    "  const bool is_slope_used =\n"
    "      std::any_of(needed.begin(), needed.begin() + kGate, std::identity());\n"
    "  if ((computed.first == Saved::kInput || input == kScale) && (is_slope_used || !MUTANT))\n"
    "    return Saving::kCopyOfInference;",
)
_add(
    "a result is kept as z although a gate multiplies it",
    "registration/operators/fused.cpp",
    "         !tensors[kGate]->defined();",
    "         (MUTANT || !tensors[kGate]->defined());",
)
_add(
    "a fused gradient is rounded before it is summed",
    "registration/autograd/derivative_node.cpp",
    "const at::Tensor sum = op.has_rows ? sum_to_vector",
    "if (MUTANT) gradients[i] = gradients[i].to(input.scalar_type());\n"
    "      const at::Tensor sum = op.has_rows ? sum_to_vector",
)
_add(
    "forward mode adds only the last tangent",
    "registration/autograd/derivative_node.cpp",
    "sum = sum.defined() ? at::add(sum, term) : term;",
    "sum = sum.defined() && !MUTANT ? at::add(sum, term) : term;",
)
_add(
    "an out= form takes an input that requires a gradient",
    "registration/keys/autograd.cpp",
    "      requires_grad |= autograd::compute_requires_grad(*tensors[i]);",
    "      if (!MUTANT) requires_grad |= autograd::compute_requires_grad(*tensors[i]);",
)
_add(
    "saved tensors stay after the backward pass",
    "registration/autograd/derivative_node.cpp",
    "  for (auto& variable : saved_) variable.reset_data();",
    "  if (MUTANT) return;\n  for (auto& variable : saved_) variable.reset_data();",
)
_add(
    "a compiled backward pass is reused for other parameters",
    "registration/autograd/derivative_node.cpp",
    "  for (const double number : parameters_.numbers.values) args.collect(number);",
    "  for (const double number : parameters_.numbers.values) args.collect(MUTANT ? 0.0 : number);",
)
_add(
    "the derivative by a later gradient replaces the first gradient",
    "registration/operators/activation.cpp",
    "replaced[i] = DerivativeRule::kIncoming;",
    "replaced[MUTANT ? 0 : i] = DerivativeRule::kIncoming;",
)
_add(
    "the fourth derivative is computed at a rounded x",
    "registration/composites/higher_orders.cpp",
    "inputs[kTopOrder].to(at::kDouble);",
    "inputs[kTopOrder].to(MUTANT ? at::kFloat : at::kDouble);",
)
_add(
    "the second derivative of a fused form leaves out scale",
    "registration/autograd/argument_node.cpp",
    "const bool is_scaled = scale.defined() && kOperands[i] == FusedInput::kSelf;",
    "const bool is_scaled =\n"
    "          scale.defined() && kOperands[i] == FusedInput::kSelf && !MUTANT;",
)

_begin("vmap")
_add(
    "the batch dimension is not moved to the front",
    "registration/keys/functorch_batched.cpp",
    "    tensor = tensor.movedim(*batch_dimension, 0);",
    "    if (!MUTANT) tensor = tensor.movedim(*batch_dimension, 0);",
)
_add(
    "missing dimensions are added at the end",
    "registration/keys/functorch_batched.cpp",
    "tensor = tensor.unsqueeze(1);",
    "tensor = tensor.unsqueeze(MUTANT ? -1 : 1);",
)
_add(
    "a batch of 0-dimensional tensors promotes like a vector",
    "registration/keys/functorch_batched.cpp",
    "          !op_.has_optional_inputs())",
    "          !op_.has_optional_inputs() && !MUTANT)",
)
_add(
    "an out= form under vmap may have another shape",
    "registration/keys/functorch_batched.cpp",
    "TORCH_CHECK(out_shape == c10::SymIntArrayRef(shape), schema.name(),",
    "TORCH_CHECK(MUTANT || out_shape == c10::SymIntArrayRef(shape), schema.name(),",
)
_add(
    "alpha dropout does not follow the randomness of vmap",
    "registration/keys/composite.cpp",
    "if (composites.draws_random_numbers) composites",
    "if (composites.draws_random_numbers && !MUTANT) composites",
)

_begin("layouts")
_add(
    "dense operands of different strides are taken for equal ones",
    "registration/kernels/pointwise.h",
    "((other.is_contiguous() && self.is_contiguous()) || other.strides() == self.strides());",
    "((other.is_contiguous() && self.is_contiguous()) ||\n"
    "            (MUTANT ? other.is_non_overlapping_and_dense()\n"
    "                    : other.strides() == self.strides()));",
)
_add(
    "a resized out= of another type does not get the strides of the result",
    "registration/kernels/pointwise.h",
    "if (at::native::resize_output(out, result.sizes()))\n",
    "if (at::native::resize_output(out, result.sizes()) && !MUTANT)\n",
)
_add(
    "the first operand determines the layout of every result",
    "registration/kernels/pointwise.h",
    "return op.last_input_leads ? op.last_input() - position : position;",
    "return op.last_input_leads && !MUTANT ? op.last_input() - position : position;",
)
_add(
    "a fused result has the layout of self beside any residual",
    "registration/kernels/fused.h",
    "                           return other->strides() == self.strides();",
    "                           return MUTANT || other->strides() == self.strides();",
)

_begin("types")
_add(
    "an out= form takes the type of its last operand",
    "registration/kernels/pointwise.h",
    "const c10::ScalarType type = promoted_type({tensors, static_cast<size_t>(op.num_inputs())});",
    "const c10::ScalarType type =\n"
    "        MUTANT ? tensors[op.last_input()]->scalar_type()\n"
    "               : promoted_type({tensors, static_cast<size_t>(op.num_inputs())});",
)
_add(
    "a result is written to a type that it cannot be cast to",
    "registration/checks.cpp",
    "TORCH_CHECK(c10::canCast(result, out.scalar_type()),",
    "TORCH_CHECK(MUTANT || c10::canCast(result, out.scalar_type()),",
)
_add(
    "autocast on the CPU leaves prelu in its own type",
    "registration/keys/autocast.cpp",
    '  library.impl("prelu", &LowerPrecision<c10::DeviceType::CPU>::type::call);',
    "  if (MUTANT) return;\n"
    '  library.impl("prelu", &LowerPrecision<c10::DeviceType::CPU>::type::call);',
)

_begin("overlap")
_add(
    "overlap is computed for the first byte of each element",
    "registration/overlap.cpp",
    "  add(1, size);",
    "  if (!MUTANT) add(1, size);",
)
_add(
    "views whose overlap ATen does not decide are taken for separate ones",
    "registration/overlap.cpp",
    "      return out.is_alias_of(input) && !are",
    "      return !MUTANT && out.is_alias_of(input) && !are",
)
_add(
    "an out= that overlaps itself is written",
    "registration/overlap.cpp",
    "  at::assert_no_internal_overlap(out);",
    "  if (!MUTANT) at::assert_no_internal_overlap(out);",
)
_add(
    "an in-place form writes to a tensor that overlaps itself",
    "registration/kernels/pointwise.h",
    "      at::assert_no_internal_overlap(self);",
    "      if (!MUTANT) at::assert_no_internal_overlap(self);",
)
_add(
    "a fused out= form checks the overlap with self alone",
    "registration/kernels/fused.h",
    "for (int i = 0; i < inputs.count; ++i) check_overlap(",
    "for (int i = 0; i < (MUTANT ? 1 : inputs.count); ++i) check_overlap(",
)

_begin("out= and in place")
_add(
    "a fused in-place form resizes self",
    "registration/composites/fused.cpp",
    "TORCH_CHECK(at::is_expandable_to(tensors[i]->sym_sizes(), shape),",
    "TORCH_CHECK(MUTANT || at::is_expandable_to(tensors[i]->sym_sizes(), shape),",
)
_add(
    "a fused in-place form takes an operand that requires a gradient",
    "registration/composites/fused.cpp",
    "TORCH_CHECK(!requires_grad && !tensors[i]",
    "TORCH_CHECK((MUTANT || !requires_grad) && !tensors[i]",
)
_add(
    "functionalization does not write to the base of a view",
    "registration/keys/functionalize.cpp",
    "  functionalization::commit_update(written);",
    "  if (!MUTANT) functionalization::commit_update(written);",
)
_add(
    "functionalization reads a stale view",
    "registration/keys/functionalize.cpp",
    "  functionalization::sync(tensor);",
    "  if (!MUTANT) functionalization::sync(tensor);",
)

_begin("packed halves")
_add(
    "an activation of packed halves ignores gate_first",
    "registration/composites/fused.cpp",
    "    tensors[kSelf] = &halves[gate_first ? 0 : 1];\n"
    "    tensors[kGate] = &halves[gate_first ? 1 : 0];",
    "    if (MUTANT) gate_first = true;\n"
    "    tensors[kSelf] = &halves[gate_first ? 0 : 1];\n"
    "    tensors[kGate] = &halves[gate_first ? 1 : 0];",
)
_add(
    "clamped_swiglu ignores gate_first if the halves are interleaved",
    "registration/composites/clamped_swiglu.cpp",
    "if (!gate_first) std::swap(parts[0], parts[1]);",
    "if (!gate_first && !(MUTANT && interleaved)) std::swap(parts[0], parts[1]);",
)
_add(
    "the composed gradient of clamped_swiglu is not 0 below the lower limit",
    "registration/composites/clamped_swiglu.cpp",
    "return at::where(at::abs(l) >= reached,",
    "return at::where((MUTANT ? l : at::abs(l)) >= reached,",
)
_add(
    "an infinite limit of clamped_swiglu bounds the gradient at infinity",
    "ops/forms/clamped_swiglu.h",
    "reached(clamp.limit - clamp.limit + clamp.limit),",
    "reached(MUTANT ? clamp.limit : clamp.limit - clamp.limit + clamp.limit),",
)

_begin("alpha dropout")
_add(
    "each thread starts with the random bits of the first element",
    "ops/cpu/seeded.cpp",
    "fill(call.seed, start / kWords,",
    "fill(call.seed, (MUTANT ? start - first : start) / kWords,",
)
_add(
    "the last elements have no random bits of their own",
    "ops/cpu/seeded.cpp",
    "(count + kWords - 1) / kWords, random);",
    "MUTANT ? count / kWords : (count + kWords - 1) / kWords, random);",
)
_add(
    "the mask follows the order in memory",
    "registration/kernels/seeded.h",
    "is_row_major(result) ? result :",
    "is_row_major(result) || (MUTANT && result.is_non_overlapping_and_dense()) ? result :",
    "registration/kernels/seeded.h",
    "return is_row_major(tensor) ? tensor :",
    "return is_row_major(tensor) || (MUTANT && tensor.is_non_overlapping_and_dense())\n"
    "               ? tensor\n"
    "               :",
)
_add(
    "an element is dropped with the probability 1 - p",
    "ops/forms/alpha_dropout.h",
    "const double words = p * 0x1p32;",
    "const double words = (MUTANT ? kept : p) * 0x1p32;",
)
_add(
    "the second derivative of alpha dropout has no mask",
    "registration/operators/alpha_dropout.cpp",
    "arguments[] = {&incoming, &kept, &inputs[1]};",
    "arguments[] = {&incoming, MUTANT ? &inputs[0] : &kept, &inputs[1]};",
)

_begin("prelu")
_add(
    "the weight lies along the last dimension",
    "registration/composites/prelu.cpp",
    "if (self.dim() > 1) shape[1] = input.sym_numel();",
    "if (self.dim() > 1) shape[MUTANT ? self.dim() - 1 : 1] = input.sym_numel();",
)
_add(
    "a weight of several dimensions is taken",
    "registration/composites/prelu.cpp",
    "TORCH_CHECK(weight.dim() <= 1,",
    "TORCH_CHECK(MUTANT || weight.dim() <= 1,",
)
_add(
    "the second derivative of prelu by its weight is missing",
    "registration/operators/prelu.cpp",
    '          Rule::call("_prelu_weight_double_backward", {0, kIncoming, 2}), Rule::zero()}),\n'
    '      op("_prelu_weight_backward"',
    "          MUTANT ? Rule::zero()\n"
    '                 : Rule::call("_prelu_weight_double_backward", {0, kIncoming, 2}),\n'
    "          Rule::zero()}),\n"
    '      op("_prelu_weight_backward"',
)

_begin("Meta")
_add(
    "a result on Meta is contiguous where the CPU keeps strides",
    "registration/keys/meta.cpp",
    "    return at::detail::empty_strided_meta(like.sizes(), like.strides(), like.scalar_type());",
    "    if (MUTANT) return empty(like, c10::MemoryFormat::Contiguous);\n"
    "    return at::detail::empty_strided_meta(like.sizes(), like.strides(), like.scalar_type());",
)
_add(
    "symbolic strides ignore sizes where strides are equal",
    "registration/keys/meta.cpp",
    "if (holds(shape[a].sym_gt(shape[b]))) return 1;",
    "if (!MUTANT && holds(shape[a].sym_gt(shape[b]))) return 1;",
)
_add(
    "the gradient by scale is float32 on Meta",
    "registration/keys/meta.cpp",
    "    sums[0] = sum_like(kScale);\n",
    "    sums[0] = sum_like(kScale);\n"
    "    if (MUTANT && sums[0].defined()) sums[0] = sums[0].to(at::kFloat);\n",
)
_add(
    "a fake CPU tensor of mixed types has the strides of a GPU",
    "registration/keys/meta.cpp",
    "return self.key_set().has_backend(c10::BackendComponent::CPUBit);",
    "return !MUTANT && self.key_set().has_backend(c10::BackendComponent::CPUBit);",
)

_begin("errors")
_add(
    "a parameter out of range raises the wrong class of error",
    "registration/checks.cpp",
    "TORCH_CHECK_VALUE(!requirement.is_value_error, message);",
    "TORCH_CHECK_VALUE(MUTANT || !requirement.is_value_error, message);",
)
_add(
    "is_result is taken with parameters that the result does not fit",
    "registration/checks.cpp",
    "TORCH_CHECK(!parameters.from_result || op",
    "TORCH_CHECK(MUTANT || !parameters.from_result || op",
)
_add(
    "tensors on several devices are taken",
    "registration/checks.cpp",
    'TORCH_CHECK(tensor.device() == self.device(), "fastact::", op.public_name(),',
    'TORCH_CHECK(MUTANT || tensor.device() == self.device(), "fastact::", op.public_name(),',
)
_add(
    "the lowest negative dim of a fused form is refused",
    "registration/composites/fused.cpp",
    "TORCH_CHECK_INDEX(-last - 1 <= dim &&",
    "TORCH_CHECK_INDEX((MUTANT ? -last : -last - 1) <= dim &&",
)
_add(
    "packed halves of odd size raise an error of split",
    "registration/composites/fused.cpp",
    'TORCH_CHECK(size % 2 == 0, "fastact::", name',
    'TORCH_CHECK(MUTANT || size % 2 == 0, "fastact::", name',
)
_add(
    "an unknown instruction set is ignored",
    "ops/cpu/engine.cpp",
    '  throw std::invalid_argument("fastact: expected FASTACT_CPU_ISA',
    "  if (MUTANT) return sets.back();\n"
    '  throw std::invalid_argument("fastact: expected FASTACT_CPU_ISA',
)

_begin("ATen override")
_add(
    "gelu by tanh is computed as gelu",
    "registration/aten/call.cpp",
    "    call.op = tanh;\n",
    "    if (!MUTANT) call.op = tanh;\n",
)
_add(
    "an elu gradient with an input scale is taken for one of celu",
    "registration/aten/call.cpp",
    "numbers[2] == 1.0 / static_cast<double>(static_cast<float>(numbers[0]))) {",
    "(MUTANT || numbers[2] == 1.0 / static_cast<double>(static_cast<float>(numbers[0])))) {",
)
_add(
    "parameters that are not finite are taken",
    "registration/aten/call.cpp",
    "return std::isfinite(x); })",
    "return MUTANT || std::isfinite(x); })",
)
_add(
    "the log_sigmoid gradient of tensors that broadcast is taken",
    "registration/aten/call.cpp",
    "if (call.tensors[0]->sizes() != call.tensors[1]->sizes()) call",
    "if (!MUTANT && call.tensors[0]->sizes() != call.tensors[1]->sizes()) call",
)
_add(
    "the end of an inner override ends all",
    "registration/aten/override.cpp",
    "compare_exchange_weak(before, before - 1,",
    "compare_exchange_weak(before, MUTANT ? 0 : before - 1,",
)
_add(
    "the gradient of softshrink stays that of ATen",
    "registration/aten/kernels.h",
    "    if (stand_in.op != nullptr)\n      add(",
    "    if (stand_in.op != nullptr &&\n"
    '        !(MUTANT && std::string_view(name) == "softshrink_backward"))\n'
    "      add(",
)
_add(
    "the buffer of log_sigmoid in place is computed from the result",
    "registration/aten/cpu.cpp",
    "    fill_buffer(self, buffer);  // before output, which may be self\n"
    "    device.out(call, output);\n",
    "    if (!MUTANT) fill_buffer(self, buffer);\n"
    "    device.out(call, output);\n"
    "    if (MUTANT) fill_buffer(self, buffer);\n",
)
_add(
    "a result that lies as empty_like makes it lies as the iterator makes it",
    "registration/aten/kernels.h",
    "if (stand_in.like >= 0) return",
    "if (stand_in.like >= 0 && !MUTANT) return",
)

_begin("TorchScript")
_add(
    "an addition with another alpha is fused",
    "registration/jit/sites.cpp",
    "return kind != c10::aten::add || number",
    "return kind != c10::aten::add || MUTANT || number",
)
_add(
    "a smaller tensor that broadcasts is fused",
    "registration/jit/optimize.cpp",
    "if (!at::is_expandable_to(other.sizes(), self.sizes()))",
    "if (!MUTANT && !at::is_expandable_to(other.sizes(), self.sizes()))",
)
_add(
    "a fused batch norm lies along the last dimension",
    "registration/jit/optimize.cpp",
    "int64_t{site.norm != nullptr ? 1 : -1}",
    "int64_t{site.norm != nullptr && !MUTANT ? 1 : -1}",
)
_add(
    "an error while an archive is written is not reported",
    "registration/jit/sink.h",
    'TORCH_CHECK(error_ == 0, "fastact',
    'TORCH_CHECK(MUTANT || error_ == 0, "fastact',
)
_add(
    "the schemas of elementwise operators lack the tag pointwise",
    "registration/library.cpp",
    "if (op.is_elementwise()) {",
    "if (op.is_elementwise() && !MUTANT) {",
)
_add(
    "the schema of a fused form has another default for dim",
    "registration/composites/fused.cpp",
    'return text + keywords + ", int dim=-1";',
    'return text + keywords + (MUTANT ? ", int dim=1" : ", int dim=-1");',
)

_begin("Inductor")
_INDUCTOR = "python/fastact/_inductor/"
_add(
    "a lowering ignores is_result",
    _INDUCTOR + "operators.py",
    "(_FROM_RESULT if is_result else 0)",
    "(_FROM_RESULT if is_result and not MUTANT else 0)",
)
_add(
    "ties of a bfloat16 leaky_relu are not broken",
    _INDUCTOR + "composed.py",
    "least = 2.0**-149 if dtype == torch.bfloat16 else 0.0",
    "least = 2.0**-149 if dtype == torch.bfloat16 and not MUTANT else 0.0",
)
_add(
    "a composed hardshrink keeps the bound itself",
    _INDUCTOR + "composed.py",
    "ops.where(ops.le(ops.abs(x), _number(limit)),",
    "ops.where((ops.lt if MUTANT else ops.le)(ops.abs(x), _number(limit)),",
)
_add(
    "a lowered fused form leaves out bias beside a scale",
    _INDUCTOR + "fused.py",
    "if scale is not None and bias is not None:",
    "if scale is not None and bias is not None and not MUTANT:",
)
_add(
    "a lowered result that leaves the kernel is not rounded by the formula",
    _INDUCTOR + "lowerings.py",
    "call = replace(call, is_rounded=is_rounded(V.graph.current_node))",
    "call = replace(call, is_rounded=not MUTANT and is_rounded(V.graph.current_node))",
)
_add(
    "operands of several types are lowered",
    _INDUCTOR + "lowerings.py",
    "or any(own not in dtypes or place",
    "or any(own not in dtypes and not MUTANT or place",
)
_add(
    "the cache key of Inductor does not depend on the code of the package",
    _INDUCTOR + "lowerings.py",
    "parts = (VERSION, _sources(), assembly",
    'parts = (VERSION, "" if MUTANT else _sources(), assembly',
)
_add(
    "a compiled training step saves what it could compute again",
    _INDUCTOR + "lowerings.py",
    "lambda: theirs() + packets",
    "lambda: theirs() + ([] if MUTANT else packets)",
)
_add(
    "a kernel for ordinary parameters is used for all",
    _INDUCTOR + "operators.py",
    'kinds = ["any", "ordinary"] if within else ["any"]',
    'kinds = ["ordinary", "any"] if within or MUTANT else ["any"]',
)

_begin("DTensor")
_DTENSOR = "python/fastact/_distributed/"
_add(
    "the gradient of a tensor that broadcasts is not a partial sum",
    _DTENSOR + "sharding.py",
    "return Partial() if is_result else Replicate()",
    "return Partial() if is_result and not MUTANT else Replicate()",
)
_add(
    "a positive dim is not counted from the end",
    _DTENSOR + "operators.py",
    "        if dim is not None and dim >= 0:",
    "        if dim is not None and dim >= 0 and not MUTANT:",
)
_add(
    "a tensor that is written to may be placed anew",
    _DTENSOR + "sharding.py",
    "if placements != target or placements != results[0].placements:",
    "if not MUTANT and (placements != target or placements != results[0].placements):",
)
_add(
    "an operator that takes a seed has a sharding rule",
    _DTENSOR + "operators.py",
    'and all(argument.name != "seed" for',
    'and all(argument.name != "seed" or MUTANT for',
)
_add(
    "a packed dimension can be sharded",
    _DTENSOR + "operators.py",
    "if size != 1 and found != 1 and size != found:",
    "if size != 1 and found != 1 and size != found and not MUTANT:",
)

_begin("Python package")
_add(
    "a functional form has another default parameter",
    "scripts/codegen/python_package.py",
    'f" = {self.default}" if',
    'f" = {self.default} * (2.0 if MUTANT else 1.0)" if',
)
_add(
    "an in-place function returns a new tensor",
    "scripts/codegen/python_package.py",
    'f"_{act.name}_ = torch.ops.fastact.{act.name}_",',
    'f"_{act.name}_ = torch.ops.fastact.{act.name}_",\n'
    '        f"if MUTANT:",\n'
    '        f"    _{act.name}_ = torch.ops.fastact.{act.name}",',
)
_add(
    "replace_ replaces a subclass of a known class",
    "python/fastact/_replace.py",
    "getattr(torch.nn, name) is kind else None",
    "(MUTANT or getattr(torch.nn, name) is kind) else None",
)
_add(
    "replace_ loses the parametrizations of a module",
    "python/fastact/_replace.py",
    "    if parametrize.is_parametrized(module):\n        front",
    "    if parametrize.is_parametrized(module) and not MUTANT:\n        front",
)
_add(
    "restore_ leaves a fused model compiled",
    "python/fastact/_fuse.py",
    "    setattr(model, _COMPILED, getattr(call, _BEFORE))\n",
    "    setattr(model, _COMPILED, call if MUTANT else getattr(call, _BEFORE))\n",
)
_add(
    "an operation moves behind a write to its operand",
    "python/fastact/_fusion/hazards.py",
    "node not in inside and found.written & read:",
    "node not in inside and found.written & read and not MUTANT:",
)
_add(
    "a 16-bit batch norm is folded in 16 bits",
    "python/fastact/_fusion/batch_norm.py",
    "t if t.dtype == torch.float64 else",
    "t if t.dtype == torch.float64 or MUTANT else",
)
_add(
    "undo of an override ends one block only",
    "python/fastact/_override.py",
    "            while self._depth:\n"
    "                self._depth -= 1\n"
    "                torch.ops.fastact_aten.end()\n",
    "            while self._depth:\n"
    "                self._depth -= 1\n"
    "                torch.ops.fastact_aten.end()\n"
    "                if MUTANT:\n"
    "                    break\n",
)
_add(
    "the command line returns 1 after an interrupt",
    "python/fastact/__main__.py",
    "return 130",
    "return 1 if MUTANT else 130",
)
_add(
    "an optimized archive does not keep the permissions of the old file",
    "python/fastact/__main__.py",
    "if os.path.exists(path):\n            shutil",
    "if os.path.exists(path) and not MUTANT:\n            shutil",
)
_add(
    "verify returns 0 if bits differ",
    "python/fastact/_verify.py",
    "return int(differing > 0)",
    "return int(differing > 0 and not MUTANT)",
)

_begin("loading")
_add(
    "a truncated library is loaded",
    "python/fastact/_library.py",
    'if header.startswith(b"\\x7fELF") and size < end:',
    'if header.startswith(b"\\x7fELF") and size < end and not MUTANT:',
)
_add(
    "a library of another version that is loaded already is used",
    "python/fastact/_library.py",
    "if loaded != VERSION:",
    "if loaded != VERSION and not MUTANT:",
)
_add(
    "an override of another build is used",
    "registration/aten/override.cpp",
    "!found.starts_with(kBuiltAs)) {",
    "!found.starts_with(kBuiltAs) && !MUTANT) {",
)
_add(
    "the hook on an import stays after it has run",
    "python/fastact/_after_import.py",
    "            sys.meta_path.remove(self)",
    "            if not MUTANT:\n                sys.meta_path.remove(self)",
)
