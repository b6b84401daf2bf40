"""64-bit digests of an operator's results over a whole space, and the ways to compute them.

The digest is the sum, modulo 2^64, of one mixed word for each 8 bytes of results and their place.
So the results may be computed in any order and on any device.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch

from .inputs import BLOCK, Space, counters, gradient_space, mix_, unary_space
from .workers import each

# Of the operators that compute the value and the derivatives.
SUFFIXES = ("", "_backward", "_double_backward", "_triple_backward")

# The part for slow machines and instruction sets: a fixed 256th of the blocks, scattered over the
# space.
PART = 256
# A GPU wants more work in a call than a cache holds.
CUDA_BLOCKS = 128
# Pieces that a process takes at a time, of half a millisecond each.
CHUNK = 16


def digest_of(results, first):
    """The digest of results whose first element has the index `first` in its space."""
    words = results.view(torch.int64)
    place = counters(first * results.dtype.itemsize // 8, len(words), results.device)
    mixed = mix_(place.bitwise_xor_(words))
    # Without this a sum of products would be a product of a sum.
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
    # For operators at many settings of their parameters: the elements of each, whose index is what
    # `operator` then takes first. A piece is of one setting.
    elements_of_setting: int | None = None

    def at(self, first):
        """The kernel for the piece that starts there."""
        if self.elements_of_setting is None:
            return self
        setting = first // self.elements_of_setting
        return replace(self, operator=partial(self.operator, setting), elements_of_setting=None)

    def ranges(self, part, step):
        """(first, count) of the pieces of the space, or of its part, in steps of so many blocks."""
        elements = self.space.elements
        if self.elements_of_setting is not None:
            size = self.elements_of_setting
            return [(i, size) for i in range(0, elements, size)]
        if elements <= BLOCK * PART:  # its own part
            part = False
        if not part:
            return [(i, min(BLOCK * step, elements - i)) for i in range(0, elements, BLOCK * step)]
        blocks = range(elements // BLOCK)
        chosen = (b for b in blocks if (b * 0x9E3779B1 >> 16) % PART == 0)
        return [(b * BLOCK, BLOCK) for b in chosen]


# backward and double_backward are also digested with gradients other than 1.
GRADIENT_ORDERS = (1, 2)


def activation_kernels(id, name, parameters, has_is_result, dtype):
    """All that has a digest, for one activation with its parameters and one dtype."""

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
    """The elementwise operators of which prelu and its derivatives are made."""
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
    """The digest of a kernel over its space or the part of it, as 16 hexadecimal digits."""

    def piece(where):
        operands = kernel.space.operands(*where, device)
        return where[1], digest_of(path(kernel.at(where[0]), operands), where[0])

    ranges = kernel.ranges(part, CUDA_BLOCKS if device == "cuda" else 1)
    total = 0
    for count, value in each(piece, ranges, workers, CHUNK):
        total += value
        progress(count)
    return f"{total % (1 << 64):016x}"
