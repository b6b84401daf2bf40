"""Computes 64-bit digests of an operator's results over a whole space.

A digest is the sum, modulo 2^64, of one word for each 8 bytes of results, mixed with their
position. So the results may be computed in any order and on any device.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch

from .inputs import BLOCK, Space, counters, gradient_space, mix_, unary_space
from .workers import each

# Suffixes of the operators that compute the value and the derivatives, by order.
SUFFIXES = ("", "_backward", "_double_backward", "_triple_backward")

# Slow machines and instruction sets compute a fixed 1/256 of the blocks, spread over the space.
PART = 256
# A GPU needs more work per call than fits a CPU's cache.
CUDA_BLOCKS = 128
# The number of pieces that a process takes at a time. A piece takes half a millisecond.
CHUNK = 16


def digest_of(results, first):
    """Returns the digest of results whose first element has the index `first` in its space."""
    words = results.view(torch.int64)
    place = counters(first * results.dtype.itemsize // 8, len(words), results.device)
    mixed = mix_(place.bitwise_xor_(words))
    # Otherwise the sum of products would be a product with a sum.
    mixed.bitwise_xor_((mixed >> 32).bitwise_and_((1 << 32) - 1))
    return int(mixed.sum()) % (1 << 64)


@dataclass(frozen=True)
class Kernel:
    """An operator over a space."""

    name: str  # the activation's, with its parameters
    dtype: torch.dtype
    form: str  # "value", "derivative_1", "derivative_1_from_result", "gradients_1", ...
    operator: Callable
    space: Space
    # For operators with many settings of their parameters: the number of elements of each setting.
    # `operator` then takes the setting's index first, and a piece contains one setting.
    elements_of_setting: int | None = None
    #: The number of elements that cannot be computed apart: those of a row.
    row: int = 1

    def at(self, first):
        """Returns the kernel for the piece that starts at `first`."""
        if self.elements_of_setting is None:
            return self
        setting = first // self.elements_of_setting
        return replace(self, operator=partial(self.operator, setting), elements_of_setting=None)

    def ranges(self, part, step):
        """Returns (first, count) of each piece of the space, or of its part. A piece of the space
        has `step` blocks."""
        elements = self.space.elements
        if self.elements_of_setting is not None:
            size = self.elements_of_setting
            return [(i, size) for i in range(0, elements, size)]
        if elements <= BLOCK * PART:  # the part is the whole space
            part = False
        if not part:
            return [(i, min(BLOCK * step, elements - i)) for i in range(0, elements, BLOCK * step)]
        blocks = range(elements // BLOCK)
        chosen = (b for b in blocks if (b * 0x9E3779B1 >> 16) % PART == 0)
        return [(b * BLOCK, BLOCK) for b in chosen]


# backward and double_backward are also digested with gradients other than 1.
GRADIENT_ORDERS = (1, 2)


def activation_kernels(id, name, parameters, has_is_result, dtype):
    """Yields everything that has a digest, for one activation, its parameters and one dtype."""

    def operator(order, **options):
        return partial(getattr(torch.ops.fastact, name + SUFFIXES[order]), **parameters, **options)

    yield Kernel(id, dtype, "value", operator(0), unary_space(dtype, 0))
    for order in range(1, len(SUFFIXES)):
        space = unary_space(dtype, order)
        yield Kernel(id, dtype, f"derivative_{order}", operator(order), space)
        if has_is_result:
            from_result = operator(order, is_result=True)
            yield Kernel(id, dtype, f"derivative_{order}_from_result", from_result, space)
    for order in GRADIENT_ORDERS:
        space = gradient_space(dtype, order)
        yield Kernel(id, dtype, f"gradients_{order}", operator(order), space)


PRELU = "prelu"


def prelu_kernels(dtype):
    """Yields the elementwise operators that compose prelu and its derivatives."""
    family = torch.ops.fastact
    for form, operator, operands in (
        ("value", family._prelu, 2),
        ("gradients_by_input", family._prelu_backward, 3),
        ("gradients_by_weight", family._prelu_weight_backward, 2),
        ("second_by_weight", family._prelu_weight_double_backward, 3),
    ):
        yield Kernel(PRELU, dtype, form, operator, gradient_space(dtype, operands - 1))


def dense(kernel, operands):
    return kernel.operator(*operands)


def compute(
    kernel: Kernel,
    device: str,
    part: bool,
    path: Callable = dense,
    workers: int = 1,
    progress: Callable = lambda elements: None,
) -> str:
    """Returns the digest of a kernel over its space or its part, as 16 hexadecimal digits."""

    def piece(where):
        operands = kernel.space.operands(*where, device)
        return where[1], digest_of(path(kernel.at(where[0]), operands), where[0])

    ranges = kernel.ranges(part, CUDA_BLOCKS if device == "cuda" else 1)
    total = 0
    for count, value in each(piece, ranges, workers, CHUNK):
        total += value
        progress(count)
    return f"{total % (1 << 64):016x}"
