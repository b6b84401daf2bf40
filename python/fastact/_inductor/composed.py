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


def _relu(x):
    # Triton's maximum of -0.0 and 0.0 is 0.0 with newer torches, such as 2.15.
    return ops.where(ops.lt(x, _number(0.0)), _number(0.0), x)


def _clamp(low: float, high: float) -> Callable:
    # Of equal numbers, zeros of either sign, C++ gives the second: here the one that is clamped.
    return lambda x: ops.minimum(_number(high), ops.maximum(_number(low), x))


def _clamp_on_gpu(low: float, high: float) -> Callable:
    def clamp(x):
        above = ops.where(ops.lt(x, _number(low)), _number(low), x)
        return ops.where(ops.gt(above, _number(high)), _number(high), above)

    # As _relu: only a zero at a bound that is one may lose its sign.
    return clamp if 0.0 in (low, high) else _clamp(low, high)


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
    is_cpu = device.type == "cpu"
    if dtype.itemsize != 2 or call.form != 0:
        return None
    numbers = [min(max(x, -3e38), 3e38) for x in call.parameters]
    if numbers != list(call.parameters):  # too large, or a NaN
        return None
    if call.family == "relu":
        return ops.relu if is_cpu else _relu
    if call.family in ("relu6", "hardtanh"):
        low, high = (torch.tensor(x).to(dtype).item() for x in numbers or (0.0, 6.0))
        clamp = _clamp if is_cpu else _clamp_on_gpu
        return clamp(low, high) if math.isfinite(low) and math.isfinite(high) else None
    if call.family == "hardshrink":
        return _hardshrink(_float32(numbers[0]))
    if call.family == "threshold":
        return _threshold(_float32(numbers[0]), _float32(numbers[1]))
    # Triton would make one fma of the product and the difference.
    if call.family == "leaky_relu" and is_cpu and 2.0**-99 <= numbers[0] <= 2.0**99:
        return _leaky_relu(numbers[0], dtype)
    return None
