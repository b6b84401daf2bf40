"""Piecewise activations composed of Inductor's own operations, for any CPU and GPU.

They compute 16-bit values, either exactly or with the operator's rounding. In float32 and float64,
the operators return one NaN. Inductor's operations cannot express this NaN, and it costs more than
the activation. In 16-bit types, Inductor's conversion determines NaNs.
"""

import math
from collections.abc import Callable

import torch
from torch._inductor.virtualized import ops

from fastact._inductor.operators import Call


def _number(value: float):
    return ops.constant(value, torch.float32)


def _float32(value: float) -> float:
    return torch.tensor(value, dtype=torch.float32).item()


# Clamps by selection, so that a zero keeps its sign: Triton's maximum of -0.0 and 0.0 is 0.0 in
# newer versions of torch, such as 2.15.
def _at_least(low: float) -> Callable:
    return lambda x: ops.where(ops.lt(x, _number(low)), _number(low), x)


def _at_most(high: float) -> Callable:
    return lambda x: ops.where(ops.gt(x, _number(high)), _number(high), x)


def _hardshrink(limit: float) -> Callable:
    return lambda x: ops.where(ops.le(ops.abs(x), _number(limit)), _number(0.0), x)


def _threshold(threshold: float, value: float) -> Callable:
    return lambda x: ops.where(ops.le(x, _number(threshold)), _number(value), x)


def _leaky_relu(slope: float, dtype: torch.dtype) -> Callable:
    """Returns the formula of ops/activations/leaky_relu.h. It uses the float next to the slope and
    further from zero and, in bfloat16, the smallest float, which breaks ties."""
    beyond = _float32(slope)
    least = 0.0
    if beyond != slope:
        if beyond < slope:
            beyond = torch.nextafter(torch.tensor(beyond), torch.tensor(math.inf)).item()
        least = 2.0**-149 if dtype == torch.bfloat16 else 0.0

    def leaky_relu(x):
        below = ops.mul(x, _number(beyond))
        if least:
            below = ops.sub(below, _number(least))
        return ops.where(ops.ge(x, _number(0.0)), x, below)

    return leaky_relu


def element(call: Call, dtype: torch.dtype, device: torch.device) -> Callable | None:
    """Returns a function of Inductor's float32 values that computes one element of the call's
    result from one element of the operand, or None if no such function has the operator's bits."""
    if dtype.itemsize != 2 or call.form != 0:
        return None
    numbers = [min(max(x, -3e38), 3e38) for x in call.parameters]
    if numbers != list(call.parameters):  # too large, or a NaN
        return None
    if call.family == "relu":
        return _at_least(0.0)
    if call.family in ("relu6", "hardtanh"):
        low, high = (torch.tensor(x).to(dtype).item() for x in numbers or (0.0, 6.0))
        if not (math.isfinite(low) and math.isfinite(high)):
            return None
        return lambda x: _at_most(high)(_at_least(low)(x))
    if call.family == "hardshrink":
        return _hardshrink(_float32(numbers[0]))
    if call.family == "threshold":
        return _threshold(*map(_float32, numbers))
    # Triton would contract the product and the difference to one fma.
    if call.family == "leaky_relu" and device.type == "cpu" and 2.0**-99 <= numbers[0] <= 2.0**99:
        return _leaky_relu(numbers[0], dtype)
    return None
