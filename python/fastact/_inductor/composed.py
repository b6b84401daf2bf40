"""Piecewise activations in Inductor's own operations, on any CPU and GPU.

These are values of 16 bits, which the operations give without a rounding, or with the operator's
own. Of float32 and float64 the operators return one NaN, which costs more than the activation and
which Inductor's operations have no number for; of 16 bits its conversion decides about NaNs.
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


# Bounds by selection: a zero keeps its sign. Triton's maximum of -0.0 and 0.0 is 0.0 with newer
# torches, such as 2.15.
def _at_least(low: float) -> Callable:
    return lambda x: ops.where(ops.lt(x, _number(low)), _number(low), x)


def _at_most(high: float) -> Callable:
    return lambda x: ops.where(ops.gt(x, _number(high)), _number(high), x)


def _hardshrink(limit: float) -> Callable:
    return lambda x: ops.where(ops.le(ops.abs(x), _number(limit)), _number(0.0), x)


def _threshold(threshold: float, value: float) -> Callable:
    return lambda x: ops.where(ops.le(x, _number(threshold)), _number(value), x)


def _leaky_relu(slope: float, dtype: torch.dtype) -> Callable:
    """As ops/activations/leaky_relu.h has it: with the float that is next to the slope, further
    from zero, and in bfloat16 the least float, which breaks ties."""
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
    """A function of Inductor's float32 values: one element of the call's result from one of the
    operand. None where there is none with the operator's bits."""
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
    # Triton would make one fma of the product and the difference.
    if call.family == "leaky_relu" and device.type == "cpu" and 2.0**-99 <= numbers[0] <= 2.0**99:
        return _leaky_relu(numbers[0], dtype)
    return None
