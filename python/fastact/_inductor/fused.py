"""The fused operators, act(self * scale + bias + residual) * gate, for Inductor's own kernels.

They consist of the steps of ops/forms/fused.h. Each step is inlined separately, like an activation,
so that no compiler contracts the product of one step and the sum of another.
"""

from collections.abc import Callable
from dataclasses import replace

import torch

from fastact._inductor.operators import STEPS, Call

# The values of FusedStep.
_SCALE, _SCALE_AND_BIAS, _SUM, _GATE = range(4)


def element(
    backend: Callable, call: Call, are_there: tuple[bool, ...], dtype: torch.dtype,
    device: torch.device,
) -> Callable | None:  # fmt: skip
    """Returns a function of Inductor's values that computes one element of the result from one
    element of each present operand (self, scale, bias, residual, gate), or None if the call is not
    inlined."""
    value = backend(replace(call, of_elements=False), dtype, device)
    steps = [backend(Call(STEPS, i, ()), dtype, device) for i in range(4)]
    if value is None or None in steps:
        return None

    def evaluate(*operands):
        given = iter(operands)
        z, scale, bias, residual, gate = (next(given) if there else None for there in are_there)
        if scale is not None and bias is not None:
            z = steps[_SCALE_AND_BIAS](z, scale, bias)
        elif scale is not None:
            z = steps[_SCALE](z, scale)
        elif bias is not None:
            z = steps[_SUM](z, bias)
        if residual is not None:
            z = steps[_SUM](z, residual)
        y = value(z)
        return y if gate is None else steps[_GATE](y, gate)

    return evaluate
