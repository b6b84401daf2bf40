"""Digests of the row operators: rows of several lengths and kinds.

A kernel computes rows of one length. Its results are those of the rows, one after the other: a row,
or one or two numbers.
"""

from functools import partial

import torch

from .inputs import Space, counters, mix_
from .kernels import Kernel

_NORMS = ("rms_norm", "layer_norm")
# These return one number for each row, or two.
_LOSSES = ("logsumexp", "cross_entropy")
_REDUCTIONS = ("sum", "mean", "var_mean")
#: The row operators. All except the reductions have kernels for their gradients.
ROWS = ("softmax", "log_softmax", *_NORMS, *_LOSSES, *_REDUCTIONS)
# Around the sizes of vectors, lanes and tiles, and of the kernels of short rows.
LENGTHS = (1, 2, 7, 33, 128, 257, 1001, 1024, 2050, 4095, 5000)
# The rows of a kernel have about this number of elements. There are enough rows for every kind.
_ELEMENTS = 1 << 15
_FEWEST = 16


def _numbers(dtype, operand, shape, device):
    """Returns uniform numbers from -1 to 1 in float64, exact in `dtype` or in float32."""
    words = mix_(counters((operand + 1) << 40, shape.numel(), device))
    bits = 53 if dtype == torch.float64 else 24
    return (words >> (64 - bits)).double().mul_(2.0 ** (1 - bits)).view(shape)


def rows_of(dtype, operand, shape, device):
    """Returns rows of eleven kinds in turns."""
    x = _numbers(dtype, operand, shape, device)
    middle = shape[1] // 2
    every = [x[kind::11] for kind in range(11)]
    (normal, wide, far, equal, dominated, masked, subnormal, zeros, plus, minus, nan) = every
    normal.mul_(4)
    wide.mul_(64)
    far.div_(32).add_(1000)
    equal.copy_(equal[:, :1] * 4)
    dominated[:, middle] = 20
    masked[:, middle + 1 :] = -torch.inf
    subnormal.mul_(torch.finfo(dtype).smallest_normal)
    zeros.mul_(0)  # of both signs
    plus[:, middle] = torch.inf
    minus.fill_(-torch.inf)
    nan[:, middle] = torch.nan
    return x.to(dtype)


def _row_space(dtype, length, gradients):
    rows = max(_FEWEST, _ELEMENTS // length // 8 * 8)  # whole words of 8 bytes
    shape = torch.Size((rows, length))

    def operands(first, count, device):
        incoming = [_numbers(dtype, 1 + i, shape, device).to(dtype) for i in range(gradients)]
        return [t.flatten() for t in (*incoming, rows_of(dtype, 0, shape, device))]

    return Space(f"fixed {rows} rows", rows * length, operands)


def _value(name, length, x):
    rows = x.unflatten(0, (-1, length))
    if name in _NORMS:
        vectors = _vectors(name, length, x)
        return getattr(torch.ops.fastact, name)(rows, (length,), *vectors, eps=1e-5).flatten()
    if name == "cross_entropy":
        return torch.ops.fastact._cross_entropy(rows, _targets(rows), 1).flatten()
    result = getattr(torch.ops.fastact, name)(rows, 1)
    return (torch.stack(result, -1) if name == "var_mean" else result).flatten()


def _targets(rows):
    """Returns the index of an element of each row: the one in the middle."""
    return torch.full_like(rows[:, :1], rows.shape[1] // 2, dtype=torch.int64)


def norm_gradient(name, x, g, weight, eps, dim):
    """Returns the gradient of a norm by x along `dim`, for the incoming gradient g."""
    ops = torch.ops.fastact
    if name == "rms_norm":
        return ops._rms_norm_backward(x, g, weight, eps, dim)
    _, *statistics = ops._layer_norm_without_bias_with_statistics(x, weight, eps, dim)
    return ops._layer_norm_backward(x, g, weight, *statistics, eps, dim)


def _gradient(name, length, grad, x):
    """Returns the gradient by x for the incoming gradient."""
    rows, g = x.unflatten(0, (-1, length)), grad.unflatten(0, (-1, length))
    if name in _NORMS:
        weight, *_ = _vectors(name, length, x)
        return norm_gradient(name, rows, g, weight, 1e-5, 1).flatten()
    if name in _LOSSES:
        wide = torch.float64 if x.dtype == torch.float64 else torch.float32
        targets = [_targets(rows)] if name == "cross_entropy" else []
        backward = getattr(torch.ops.fastact, f"_{name}_backward")
        return backward(rows, *targets, g[:, :1].to(wide), 1).flatten()
    y = getattr(torch.ops.fastact, name)(rows, 1)
    return getattr(torch.ops.fastact, f"{name}_backward")(g, y, 1).flatten()


def _vectors(name, length, x):
    """Returns a weight and, for layer_norm, a bias."""
    shape, count = torch.Size((length,)), 1 + (name == "layer_norm")
    return [_numbers(x.dtype, 2 + i, shape, x.device).to(x.dtype) for i in range(count)]


def row_kernels(name, length, dtype):
    """Yields everything that has a digest, for one row operator, length and dtype."""
    id = f"{name}-length={length}"
    value, gradient = partial(_value, name, length), partial(_gradient, name, length)
    yield Kernel(id, dtype, "value", value, _row_space(dtype, length, 0), row=length)
    if name not in _REDUCTIONS:
        yield Kernel(id, dtype, "gradients_1", gradient, _row_space(dtype, length, 1), row=length)
