"""Digests that the Python package does not verify, and further ways to call operators."""

import json
import re

import torch
from _digests.inputs import Space, every_pattern, mixed
from _digests.kernels import SUFFIXES, Kernel, activation_kernels, dense
from _digests.rows import LENGTHS, row_kernels

from drawn_parameters import settings


def kernels(act, dtype):
    """Returns everything that has a digest, for a row of the oracle table and a dtype."""
    return activation_kernels(act.id, act.name, act.parameters, act.takes_is_result, dtype)


def kernels_of_rows(name, dtype):
    """Returns everything that has a digest, for a row operator and a dtype."""
    return [kernel for length in LENGTHS for kernel in row_kernels(name, length, dtype)]


def one_digest_a_line(reference: dict) -> str:
    """Returns the digests as JSON in which each operator's pair of digests is one line."""
    text = json.dumps(reference, indent=1)
    return re.sub(r"\{[^{}]*\}", lambda pair: json.dumps(json.loads(pair[0])), text) + "\n"


# The digests in the file are those of these random parameters. Another seed gives other digests.
DRAWN_SETTINGS = 64
DRAWN_SEED = 1
DRAWN_ELEMENTS = 1 << 16


def drawn_kernels(name, dtype):
    """Yields an activation's operators, each with one digest for all its random parameters."""
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


# ---- Ways to compute a piece, besides dense(). All return the same bits


def strided(kernel, operands):
    """Spreads each operand out, by 2, 3, ... elements."""
    spread = [
        t.new_zeros(len(t) * (step + 2))[:: step + 2].copy_(t) for step, t in enumerate(operands)
    ]
    return kernel.operator(*spread).contiguous()


def offset(kernel, operands):
    """Starts each operand at a different odd offset."""
    shifted = [
        t.new_empty(len(t) + 2 * i + 1)[2 * i + 1 :].copy_(t) for i, t in enumerate(operands)
    ]
    return kernel.operator(*shifted)


def tails(kernel, operands):
    """Splits the operands into pieces whose length is a prime, so no multiple of a vector or
    packet. Rows stay whole."""
    length = max(4099 // kernel.row, 1) * kernel.row
    pieces = zip(*(t.split(length) for t in operands))
    return torch.cat([kernel.operator(*piece) for piece in pieces])


def threads(kernel, operands):
    """Computes the operands twice in one call, with 7 threads, then with 2. Returns NaN if the four
    results differ."""
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
            return torch.full_like(other, torch.nan)  # certainly not the correct result
    return results[0]


PATHS = {f.__name__: f for f in (dense, strided, offset, tails, threads)}
