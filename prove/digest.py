"""64-bit digests of an operator's results over a whole space, and the ways to compute them.

The digest is the sum, modulo 2^64, of one mixed word for each 8 bytes of results and their place.
So the results may be computed in any order and on any device.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch

from drawn_parameters import settings
from inputs import (
    BLOCK,
    Space,
    counters,
    every_pattern,
    gradient_space,
    mix_,
    mixed,
    unary_space,
)
from op_table import SUFFIXES
from workers import each

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


def kernels(act, dtype, top_order):
    """All that has a digest, for one activation and dtype."""
    yield Kernel(act.id, dtype, "value", act.op, unary_space(dtype, 0))
    for order in range(1, top_order + 1):
        for options in act.derivative_options:
            suffix = "_from_result" if options else ""
            operator = partial(act.ladder, **options)
            space = unary_space(dtype, order)
            yield Kernel(act.id, dtype, f"derivative_{order}{suffix}", operator, space)
    for order in GRADIENT_ORDERS:
        space = gradient_space(dtype, order)
        yield Kernel(act.id, dtype, f"gradients_{order}", act.ladder, space)


# Of parameters drawn at random, which the digests' file is about: another seed, other digests.
DRAWN_SETTINGS = 64
DRAWN_SEED = 1
DRAWN_ELEMENTS = 1 << 16


def drawn_kernels(name, dtype):
    """An activation's operators, each with one digest for all its drawn parameters."""
    drawn = settings(name, DRAWN_SETTINGS, DRAWN_SEED)
    for order, suffix in enumerate(SUFFIXES):
        operator = getattr(torch.ops.fastact, name + suffix)

        def at_setting(i, *tensors, operator=operator):
            return operator(*tensors, *drawn[i].values)

        def operands(first, count, device, number=order + 1):
            tensors = [mixed(dtype, i, first, count, device) for i in range(number)]
            if dtype.itemsize == 2:
                tensors[-1] = every_pattern(dtype, 0, count, device)
            return tensors

        space = Space(
            f"{DRAWN_SETTINGS} settings of 2^{DRAWN_ELEMENTS.bit_length() - 1} inputs",
            DRAWN_SETTINGS * DRAWN_ELEMENTS,
            operands,
        )
        form = "value" if order == 0 else f"gradients_{order}"
        yield Kernel(f"{name}-drawn", dtype, form, at_setting, space, DRAWN_ELEMENTS)


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


# ---- The ways to compute a piece: all give the same bits


def dense(kernel, operands):
    return kernel.operator(*operands)


def strided(kernel, operands):
    """Each operand spread out, by 2, 3, ... elements."""
    spread = [
        t.new_zeros(len(t) * (step + 2))[:: step + 2].copy_(t) for step, t in enumerate(operands)
    ]
    return kernel.operator(*spread).contiguous()


def offset(kernel, operands):
    """Each operand behind another odd number of elements."""
    shifted = [
        t.new_empty(len(t) + 2 * i + 1)[2 * i + 1 :].copy_(t) for i, t in enumerate(operands)
    ]
    return kernel.operator(*shifted)


def tails(kernel, operands):
    """Pieces whose length, a prime, is a multiple of no vector and no packet."""
    pieces = zip(*(t.split(4099) for t in operands))
    return torch.cat([kernel.operator(*piece) for piece in pieces])


def threads(kernel, operands):
    """Twice the operands, so that there is enough for 7 threads, and then for 2."""
    before = torch.get_num_threads()
    twice = [t.repeat(2) for t in operands]
    results = []
    try:
        for count in (7, 2):
            torch.set_num_threads(count)
            results += kernel.operator(*twice).chunk(2)
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        if not torch.equal(other.view(torch.int8), results[0].view(torch.int8)):
            return torch.full_like(other, torch.nan)  # whatever is right, this is not
    return results[0]


PATHS = {f.__name__: f for f in (dense, strided, offset, tails, threads)}


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
