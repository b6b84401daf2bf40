"""fused_<activation>: act(self * scale + bias + residual) * gate. Compares values with exact
values, and bits for every set of operands, instruction set and device. Tests the order of sums, and
errors. test_combinations.py tests what fused forms share with other operators."""

import functools
import itertools
import json
import math
import re
from pathlib import Path

import mpmath
import numpy as np
import pytest
import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

import fused_digests
import oracle
from op_table import ACTIVATIONS, REPRESENTATIVES
from oracle import FORMATS, LongDouble, ulp_of, wide
from support import (
    assert_same_bits,
    build_info,
    dtype_name,
    error_of,
    first_line,
    run_python,
    smooth_values,
    untouched,
    values,
)

EVERY_ACTIVATION = True
INPUTS = ("scale", "bias", "residual", "gate")
# Every set of operands besides self.
SETS = [c for n in range(5) for c in itertools.combinations(INPUTS, n)]
close = torch.testing.assert_close
acts = pytest.mark.parametrize("act", REPRESENTATIVES, ids=lambda act: act.id)
# How operands reach a formula does not depend on it.
two_acts = pytest.mark.parametrize(
    "act", [a for a in ACTIVATIONS if a.name in ("selu", "gelu")], ids=lambda act: act.id
)
(RELU,) = (act for act in ACTIVATIONS if act.name == "relu")
sets = pytest.mark.parametrize("names", SETS, ids=lambda names: "+".join(names) or "none")


def parameters_of(act):
    """Renames elu's parameter that has the name of an operand."""
    return {f"output_{n}" if n in INPUTS else n: value for n, value in act.parameters.items()}


def fused(act, x, out=None, dim=-1, **operands):
    op = getattr(torch.ops.fastact, f"fused_{act.name}")
    options = {} if out is None else {"out": out}
    return op(x, **operands, **parameters_of(act), dim=dim, **options)


def drawn(shape, names, dtype, device="cpu", wide_vectors=False):
    """Returns self and the operands, with scale and bias along the last dimension."""
    x = values(*shape, dtype=dtype, device=device)
    vector = torch.float32 if wide_vectors else dtype
    operands = {
        name: values(shape[-1], dtype=vector, device=device)
        if name in ("scale", "bias")
        else values(*shape, dtype=dtype, device=device)
        for name in names
    }
    return x, operands


def argument(x, scale=None, bias=None, residual=None, gate=None):
    """Returns z, computed as in ops/forms/fused.h: in float for 16-bit types, otherwise in the
    element's type; self * scale + bias is rounded once, and the sum with residual once."""
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    shape = x.shape
    z = x.to(dtype)

    def number(t):
        return t.to(dtype).expand(shape)

    if scale is not None:
        bias = torch.full_like(z, -0.0) if bias is None else number(bias)
        z = rounded_fma(z, number(scale), bias)
    elif bias is not None:
        z = z + number(bias)
    return z if residual is None else z + number(residual)


def rounded_fma(x, y, z):
    """Returns x * y + z, rounded once, computed by MPFR."""
    found = fma_of_bytes(x.dtype, *(t.cpu().double().numpy().tobytes() for t in (x, y, z)))
    return found.reshape(x.shape).to(x.device)


@functools.cache
def fma_of_bytes(dtype, *operands):
    """Caches results, because each activation is tested with the same operands."""
    import gmpy2

    digits = FORMATS[dtype].digits
    with gmpy2.context(precision=digits, emin=FORMATS[dtype].smallest + 1, subnormalize=True):
        triples = zip(*(np.frombuffer(t).tolist() for t in operands))
        result = [
            float(gmpy2.fma(gmpy2.mpfr(a), gmpy2.mpfr(b), gmpy2.mpfr(c))) for a, b, c in triples
        ]
    return torch.tensor(result, dtype=dtype)


def one_by_one(act, x, **operands):
    """Computes the operations separately, with the roundings of the fused form."""
    y = act.op(argument(x, **operands))
    return y if operands.get("gate") is None else y * operands["gate"]


# ---- numbers


@pytest.mark.kernels
@pytest.mark.parametrize("wide_vectors", (False, True), ids=("same_type", "float32_vectors"))
def test_16_bits_within_0_51_ulp(act, half, device, wide_vectors):
    """The error is relative to the exact value at z, times gate. Sizes range from subnormal numbers
    to beyond float16's largest."""
    n = 4000
    x, operands = drawn((n, 2), INPUTS, half, device, wide_vectors)
    x = x * (2.0 ** torch.linspace(-12, 12, n)).to(half).to(device)[:, None]
    operands["scale"] = operands["scale"].new_tensor([1.5, -40.0])
    operands["residual"] = operands["residual"] * 0.5
    gate = operands.pop("gate")
    z = argument(x, **operands)
    with np.errstate(all="ignore"):
        value = act.derivative(LongDouble, wide(z), 0) + np.zeros(z.numel(), np.longdouble)
    for gated in (False, True):
        if gated:
            operands["gate"] = gate
        with np.errstate(all="ignore"):
            exact = value * (wide(gate) if gated else 1)
        result = wide(fused(act, x, **operands))
        largest = FORMATS[half].largest
        # f(z) is computed as a float.
        finite = (np.abs(exact) <= largest) & (np.abs(value) <= FORMATS[torch.float32].largest)
        assert finite.sum() > 0.6 * len(exact)
        ulp = ulp_of(exact[finite], half)
        errors = np.abs(result[finite] - exact[finite]) / ulp
        worst = int(errors.argmax())
        assert errors.max() <= 0.51, (errors.max(), wide(z)[finite][worst], exact[finite][worst])
        beyond = np.abs(exact) > largest * (1 + 2 * torch.finfo(half).eps)
        assert (result[beyond] == np.copysign(np.inf, exact[beyond])).all()


@pytest.mark.kernels
def test_float32_and_float64_within_the_formulas_bound(act, device):
    """A gate adds one rounding."""
    for dtype, n in ((torch.float32, 300), (torch.float64, 300)):
        x, operands = drawn((n, 3), INPUTS, dtype, device)
        gate = operands.pop("gate")
        digits = [float(t) for t in argument(x, **operands).cpu().reshape(-1)]
        exact = [oracle.exact(act.derivative, t, 0) for t in digits]
        value = np.array([np.longdouble(mpmath.nstr(y, 30)) for y in exact])
        for gated in (False, True):
            if gated:
                operands["gate"] = gate
            factor = gate if gated else torch.ones_like(x)
            result = fused(act, x, **operands)
            allowed = act.ulp[dtype][0] * ulp_of(value, dtype) * np.abs(wide(factor))
            product = value * wide(factor)
            errors = np.abs(wide(result) - product)
            # The long double product has an error of its own.
            allowed += (0.5 if gated else 0) * ulp_of(product, dtype) + np.abs(product) * 2.0**-62
            worst = int((errors - allowed).argmax())
            assert (errors <= allowed).all(), (dtype, gated, digits[worst], errors[worst])


def test_bits_of_the_operations_one_by_one(act, device):
    """float32 and float64 round after each operation. 16-bit types round in float after each
    operation, and the last result to the element's type."""
    for names, dtype in itertools.product(SETS, (torch.float32, torch.float64)):
        x, operands = drawn((67, 5), names, dtype, device)
        with untouched(x, *operands.values()):
            assert_same_bits(fused(act, x, **operands), one_by_one(act, x, **operands))


@two_acts
@sets
def test_absent_operands_are_neutral_ones(act, dtype, device, names):
    """An absent scale or gate counts as 1, an absent bias or residual as -0.0."""
    x, operands = drawn((33, 20), names, dtype, device)
    neutral = {"scale": 1.0, "bias": -0.0, "residual": -0.0, "gate": 1.0}
    full = {
        name: operands.get(name, x.new_full(x.shape if name in INPUTS[2:] else x.shape[-1:], v))
        for name, v in neutral.items()
    }
    assert_same_bits(fused(act, x, **operands), fused(act, x, **full))


@acts
def test_special_values(act, dtype, device):
    """Infinities, NaNs and zeros are those of the separate operations; every NaN is canonical."""
    special = torch.tensor([math.inf, -math.inf, math.nan, 0.0, -0.0, 1.0], dtype=dtype)
    x, scale, bias, gate = (t.reshape(-1).to(device) for t in torch.meshgrid(*[special] * 4))
    result = fused(act, x, scale=scale, bias=bias, gate=gate)
    number = torch.float64 if dtype == torch.float64 else torch.float32
    z = x.to(number) * scale.to(number) + bias.to(number)
    expected = (act.op(z) * gate.to(number)).to(dtype)
    # float32's formula may round differently.
    close(result, expected, equal_nan=True, rtol=2 * torch.finfo(dtype).eps, atol=0)
    assert torch.equal(result.signbit()[~result.isnan()], expected.signbit()[~result.isnan()])
    nan = result[result.isnan()].view(FORMATS[dtype].integer)
    assert len(nan) and (nan == FORMATS[dtype].nan).all()


@acts
def test_zero_times_a_large_gate(act, dtype, device):
    """The constant with which a 16-bit formula breaks ties near zero does not reach the result."""
    x = torch.tensor([0.0, -0.0], dtype=dtype, device=device)
    gate = torch.full_like(x, torch.finfo(dtype).max)
    expected = (act.op(x.double()) * gate.double()).to(dtype)
    result = fused(act, x, gate=gate)
    close(result, expected, rtol=2 * torch.finfo(dtype).eps, atol=0)
    assert torch.equal(result.signbit(), expected.signbit())


def test_a_tiny_constant(device):
    """threshold's `value` may be smaller than the constant that breaks ties, and must be kept."""
    x = torch.zeros(5, dtype=torch.bfloat16, device=device)
    gate = torch.full_like(x, 2.0**100)
    result = torch.ops.fastact.fused_threshold(x, gate=gate, threshold=0.5, value=2.0**-110)
    assert (result == 2.0**-10).all()


# ---- layouts


def test_packed_halves_are_glus(device):
    """The gate of torch.glu is the second half; the gate of vLLM's silu_and_mul is the first
    half."""
    x = values(5, 6, dtype=torch.float64, device=device)
    fastact = torch.ops.fastact
    close(fastact.sigmoid_and_mul(x, gate_first=False), torch.nn.functional.glu(x))
    close(fastact.silu_and_mul(x), torch.nn.functional.silu(x[:, :3]) * x[:, 3:])


@pytest.mark.parametrize("dim", (0, 1, 2, -1, -2))
def test_glu(dim, dtype, device):
    """Has the bits of sigmoid_and_mul, and ATen's values and shapes, along any dimension."""
    fastact = torch.ops.fastact
    x = values(4, 6, 8, dtype=dtype, device=device)
    result = fastact.glu(x, dim)
    packed = fastact.sigmoid_and_mul(x.movedim(dim, -1), gate_first=False)
    assert_same_bits(result, packed.movedim(-1, dim))
    exact = torch.nn.functional.glu(x.double(), dim)
    torch.testing.assert_close(result.double(), exact, rtol=4 * torch.finfo(dtype).eps, atol=1e-30)
    assert_same_bits(fastact.glu(x, dim, out=torch.empty_like(result)), result)
    if dtype == torch.float64:
        leaf = x.clone().requires_grad_()
        assert torch.autograd.gradcheck(lambda t: fastact.glu(t, dim), leaf)
        assert torch.autograd.gradgradcheck(lambda t: fastact.glu(t, dim), leaf)


def test_errors_of_glu(device):
    fastact, x = torch.ops.fastact, values(3, 5, device=device)
    for arguments, kind, text in (
        ((x,), RuntimeError, "self's dimension -1 to have an even size, but got 5"),
        ((x, 2), IndexError, "dim to be from -2 to 1, but got 2"),
        ((x[0, 0],), RuntimeError, "self to have a dimension of two halves, but got a 0-D tensor"),
    ):
        error = error_of(fastact.glu, *arguments)
        assert type(error) is kind and first_line(error) == f"fastact::glu: expected {text}"


def test_errors_of_packed_halves(device):
    fastact = torch.ops.fastact
    for shape, text in (((3, 5), "to have an even size, but got 5"), ((), "but got a 0-D tensor")):
        error = error_of(fastact.silu_and_mul, values(*shape, device=device))
        assert type(error) is RuntimeError and text in first_line(error)
        assert first_line(error).startswith("fastact::silu_and_mul: expected self")
    with pytest.raises(NotImplementedError, match="expected self to be float32"):
        fastact.silu_and_mul(values(4, device=device).int())
    with pytest.raises((RuntimeError, ValueError), match="expected lambd to be at least 0"):
        fastact.softshrink_and_mul(values(4, device=device), lambd=-1.0)
    x = values(4, 6, device=device)
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        fastact.silu_and_mul(x.clone().requires_grad_(), out=torch.empty_like(x[:, :3]))


# Size of a large result in bytes. Each of two threads writes more than 16 MiB, the size from which
# kernels use non-temporal stores.
LARGE = 33 << 20


def many_values(*shape, dtype, device):
    """Returns values that repeat with a prime period. Drawing all of them takes seconds."""
    n = math.prod(shape)
    return values(65537, dtype=dtype, device=device).repeat(n // 65537 + 1)[:n].view(shape)


@two_acts
def test_large_tensors(act, dtype, device):
    """Tensors that fit no cache, computed by several threads, have the bits of small pieces."""
    n = LARGE // dtype.itemsize + 37
    x, residual, gate = (many_values(n, dtype=dtype, device=device) for _ in range(3))
    for operands in ({"residual": residual}, {"residual": residual, "gate": gate}):
        result = fused(act, x, **operands)
        for start in (0, n // 2 + 1, n - 1000):
            piece = slice(start, start + 1000)
            own = {name: t[piece].clone() for name, t in operands.items()}
            assert_same_bits(result[piece], fused(act, x[piece].clone(), **own))


@pytest.mark.parametrize("columns", (4096, 4099, 32))
@pytest.mark.parametrize("element", (torch.float32, torch.bfloat16), ids=str)
def test_large_rows(device, element, columns):
    """Tensors that fit no cache, with scale and bias, and with rows aligned to cache lines and
    not."""
    rows = LARGE // (columns * element.itemsize) + 300
    x, residual = (many_values(rows, columns, dtype=element, device=device) for _ in range(2))
    vectors = {name: values(columns, dtype=element, device=device) for name in ("scale", "bias")}
    result = torch.ops.fastact.fused_relu(x, residual=residual, **vectors)
    for start in (0, rows // 2 - 1, rows - 3):
        piece = slice(start, start + 3)
        own = torch.ops.fastact.fused_relu(
            x[piece].clone(), residual=residual[piece].clone(), **vectors
        )
        assert_same_bits(result[piece], own)
    one = torch.ops.fastact.fused_relu(x.flatten()[1:], residual=residual.flatten()[1:])
    assert_same_bits(
        one[-100:], torch.ops.fastact.fused_relu(x, residual=residual).flatten()[-100:]
    )
    again = x.clone()
    torch.ops.fastact.fused_relu_(again, residual=residual, **vectors)
    assert_same_bits(again, result)


# ---- derivatives


def smooth(act, shape, names, device="cpu", dtype=torch.float64):
    """Returns leaves for which z avoids kinks: scale is 1, bias and residual are 0."""
    x = smooth_values(act, *shape, device=device, dtype=dtype)
    operands = {}
    for name in names:
        size = shape[-1:] if name in ("scale", "bias") else shape
        t = torch.ones(size) if name == "scale" else torch.zeros(size)
        if name == "gate":
            t = torch.randn(size)
        operands[name] = t.to(dtype).to(device).requires_grad_()
    return x, operands


def gradients_of(act, tensors, names, g, dim=-1, composed=False):
    """Returns the gradients of all tensors: in one pass if there is a kernel; with `composed`, by
    separate operators, which can be differentiated again."""
    leaves = [t.detach().requires_grad_() for t in tensors]
    result = fused(act, leaves[0], dim=dim, **dict(zip(names, leaves[1:])))
    found = torch.autograd.grad(result, leaves, g, create_graph=composed)
    return {n: t.detach() for n, t in zip(("self", *names), found)}


GRADIENT_LAYOUTS = {
    # shape, dim, how the tensors lie
    "rows": ((70, 33), -1, lambda t: t),
    "long_rows": ((3, 4500), -1, lambda t: t),
    "vector": ((9,), -1, lambda t: t),
    "narrow_rows": ((500, 3), -1, lambda t: t),
    "short_rows": ((70, 200), -1, lambda t: t),
    "small_images": ((3, 90, 3, 4), 1, lambda t: t),
    "batch": ((3, 4, 1, 20), -1, lambda t: t),
    "channels": ((5, 6, 7, 9), 1, lambda t: t),
    "large_images": ((2, 3, 70, 61), 1, lambda t: t),
    "channels_last": ((5, 6, 7, 9), 1, lambda t: t.to(memory_format=torch.channels_last)),
    "transposed": ((20, 31), 0, lambda t: t.t().contiguous().t()),
    "half": ((37, 20), -1, lambda t: torch.cat((t, t), 1)[:, 20:]),
    "every_second": ((9, 20), -1, lambda t: t.repeat_interleave(2, 1)[:, ::2]),
}


@pytest.mark.kernels
def test_gradients_of_16_bits_within_0_51_ulp(act, half, device):
    """The exact result is the slope at z (for gate, the value) times the incoming gradient and
    gate. Next to a zero of the slope, the error is in ULP of 1/64 of the other factors."""
    n = 4000
    x, operands = drawn((n, 2), INPUTS, half, device)
    x = x * (2.0 ** torch.linspace(-12, 6, n)).to(half).to(device)[:, None]
    operands["residual"] = operands["residual"] * 0.5
    g = values(n, 2, dtype=half, device=device)
    tensors = [x, *operands.values()]
    found = gradients_of(act, tensors, INPUTS, g)
    gate = operands.pop("gate")
    z = argument(x, **operands)
    whole = np.zeros(z.numel(), np.longdouble)
    with np.errstate(all="ignore"):
        value = act.derivative(LongDouble, wide(z), 0) + whole
        # A function of the result, if the activation saves the result.
        at = value if act.saves == "result" else wide(z)
        slope = act.derivative(LongDouble, at, 1) + whole
    product = wide(g) * wide(gate)
    scale = wide(operands["scale"].expand(n, 2))
    for name, exact, size in (
        ("gate", wide(g) * value, 0),
        ("residual", product * slope, product / 64),
        ("self", product * slope * scale, product * scale / 64),
    ):
        ulp = ulp_of(np.maximum(np.abs(exact), np.abs(size)), half)
        errors = np.abs(wide(found[name]) - exact) / ulp
        # Neither the result nor the slope exceeds the type's range.
        fits = np.maximum(np.abs(exact), np.abs(slope)) < torch.finfo(half).max
        worst = int(np.where(fits, errors, 0).argmax())
        assert fits.mean() > 0.7
        assert errors[worst] <= 0.51, (name, errors[worst], wide(z)[worst], exact[worst])


def test_a_backward_pass_is_one_kernel(device):
    """Otherwise it only converts sums to their types."""
    calls = []

    class Record(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            calls.append(function._schema.name)
            return function(*arguments, **(keywords or {}))

    shapes = ((8, 6), (6,), (8, 6), (8, 6))
    x, bias, gate, g = (torch.randn(*s, device=device, requires_grad=True) for s in shapes)
    result = torch.ops.fastact.fused_silu(x, bias=bias, gate=gate)
    with Record():
        torch.autograd.grad(result, (x, bias, gate), g)
    assert calls[0] == "fastact::_fused_silu_backward"
    assert set(calls[1:]) <= {"aten::_to_copy", "aten::detach"}


def with_preactivation(act, x, **operands):
    op = getattr(torch.ops.fastact, f"_fused_{act.name}_with_preactivation")
    return op(x, *(operands.get(name) for name in INPUTS), *act.parameters.values())


@two_acts
@sets
def test_the_result_and_z(act, dtype, device, names):
    """One call returns both. z is rounded to the type once."""
    x, operands = drawn((67, 37), names, dtype, device)
    for lay in (lambda t: t, lambda t: t.t().contiguous().t() if t.dim() == 2 else t):
        own = {name: lay(t) for name, t in operands.items()}
        with untouched(x, *own.values()):
            result, z = with_preactivation(act, lay(x), **own)
        assert_same_bits(result, fused(act, x, **operands))
        assert_same_bits(z, argument(x, **operands).to(dtype))
        assert z.stride() == result.stride() == lay(x).stride()


def test_the_result_and_z_of_any_layout(dtype, device):
    """Images, float32 vectors, and layouts for which z is composed of other operators."""
    (act,) = (a for a in ACTIVATIONS if a.name == "gelu")
    x = values(2, 5, 4, 7, dtype=dtype, device=device)
    wide = torch.float32 if dtype.itemsize == 2 else dtype
    bias = values(5, 1, 1, dtype=wide, device=device)
    for t in (x, x.to(memory_format=torch.channels_last), x[..., ::2], x[..., :1]):
        for residual in (t, values(7, dtype=dtype, device=device)[: t.shape[-1]]):
            result, z = with_preactivation(act, t, bias=bias, residual=residual)
            assert_same_bits(result, fused(act, t, bias=bias, residual=residual))
            exact = t.double() + bias.double() + residual.double()
            eps = torch.finfo(dtype).eps
            close(z.double(), exact, rtol=2 * eps, atol=2 * eps * exact.abs().max().item())
    with pytest.raises(RuntimeError, match="expected gate to have self's type"):
        with_preactivation(act, x, gate=x.int())


def test_the_result_and_z_of_operands_that_lie_otherwise(device):
    """Operands of self's size in another memory order, expanded, or with an arbitrary stride."""
    (act,) = (a for a in ACTIVATIONS if a.name == "gelu")
    x, image = values(4, 3, device=device), values(1, 10, 4, 4, device=device)
    for self, operands in (
        (x, {"bias": values(3, 4, device=device).t()}),
        (x, {"bias": values(3, device=device).expand(4, 3)}),
        (image[:, :5], {"residual": values(1, 5, 4, 4, device=device)}),
        (values(9, device=device)[::2], {"bias": values(9, device=device)[::2]}),
    ):
        result, z = with_preactivation(act, self, **operands)
        assert_same_bits(result, fused(act, self, **operands))
        assert_same_bits(z, argument(self, **operands))
        leaves = [t.detach().requires_grad_() for t in (self, *operands.values())]
        ours = fused(act, leaves[0], **dict(zip(operands, leaves[1:])))
        for gradient in torch.autograd.grad(ours.sum(), leaves):
            assert gradient.isfinite().all()


def test_a_nan_of_z_is_the_canonical_nan(dtype, device):
    """In one pass, and for operands for which z is computed separately."""
    (act,) = (a for a in ACTIVATIONS if a.name == "gelu")
    x = torch.tensor([math.inf, math.nan, 1.0, math.nan], dtype=dtype, device=device)
    residual = torch.tensor([-math.inf, 1.0, math.nan, math.nan], dtype=dtype, device=device)
    for t in (x, residual):
        t.view(FORMATS[dtype].integer)[t.isnan()] -= 1  # another payload
    for self in (x, x.expand(2, 4)):
        for operands in ({"residual": residual}, {"residual": residual, "gate": x}):
            _, z = with_preactivation(act, self, **operands)
            assert (z.view(FORMATS[dtype].integer) == FORMATS[dtype].nan).all()


def test_a_forward_pass_that_saves_z_is_one_kernel(device):
    calls = []

    class Record(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            calls.append(function._schema.name)
            return function(*arguments, **(keywords or {}))

    shapes = ((8, 6), (6,), (8, 6))
    x, bias, residual = (torch.randn(*s, device=device, requires_grad=True) for s in shapes)
    with Record():
        result = torch.ops.fastact.fused_silu(x, bias=bias, residual=residual)
    assert set(calls) - {"aten::detach"} == {"fastact::_fused_silu_with_preactivation"}
    assert len([c for c in calls if c.startswith("fastact")]) == 1
    g = torch.randn(8, 6, device=device)
    found = torch.autograd.grad(result, (x, bias, residual), g)
    z = x.double() + bias.double() + residual.double()
    (slope,) = torch.autograd.grad(torch.nn.functional.silu(z), z, g.double())
    for a, b in zip(found, (slope, slope.sum(0), slope)):
        close(a.double(), b, rtol=1e-5, atol=1e-5)


def test_a_sum_that_is_nan_is_the_one_nan(dtype, device):
    x, vector = values(6, 40, dtype=dtype, device=device), values(40, dtype=dtype, device=device)
    g = torch.ones_like(x)
    g[0], g[1] = math.inf, -math.inf  # the sum itself is NaN
    leaves = [t.requires_grad_() for t in (x, vector)]
    result = torch.ops.fastact.fused_leaky_relu(x, bias=vector)
    found = torch.autograd.grad(result, leaves, g)[1]
    assert found.dtype == dtype
    assert (found.view(FORMATS[dtype].integer) == FORMATS[dtype].nan).all()


def test_sums_do_not_depend_on_threads_or_columns():
    """The gradients of scale and bias have the same bits for any number of threads, and alone or
    among other columns."""
    (act,) = (a for a in ACTIVATIONS if a.name == "gelu")
    names = ("scale", "bias")
    for shape, dim in (((3000, 130), -1), ((40, 5, 60, 70), 1)):
        tensors = [torch.randn(shape), torch.randn(shape[dim]), torch.randn(shape[dim])]
        g = torch.randn(shape)
        before = torch.get_num_threads()
        try:
            results = []
            for threads in (1, 2, 3):
                torch.set_num_threads(threads)
                results.append(gradients_of(act, tensors, names, g, dim))
        finally:
            torch.set_num_threads(before)
        own = [t.narrow(dim if t.dim() > 1 else 0, 2, 3).contiguous() for t in (*tensors, g)]
        alone = gradients_of(act, own[:3], names, own[3], dim)
        for name in names:
            for result in results[1:]:
                assert_same_bits(result[name], results[0][name])
            assert_same_bits(alone[name], results[0][name][2:5])
            assert results[0][name].abs().max() > 1


def in_groups(sums):
    """Adds 256 groups at a time, one after another, until one is left. `sums` has shape [groups,
    channels]."""
    while True:
        whole = -(-len(sums) // 256) * 256
        padded = np.zeros((whole, sums.shape[1]))
        padded[: len(sums)] = sums
        total = np.zeros((whole // 256, sums.shape[1]))
        for i in range(256):
            total += padded[i::256]
        sums = total
        if len(sums) == 1:
            return sums[0]


def sums_of_rows(numbers):
    rows, columns = numbers.shape
    padded = np.zeros((-(-rows // 32) * 32, columns), numbers.dtype)
    padded[:rows] = numbers
    total = np.zeros((len(padded) // 32, columns), numbers.dtype)
    for i in range(32):
        total += padded[i::32]
    return in_groups(total.astype(np.float64))


def sums_of_images(numbers):
    images, channels, size = numbers.shape
    chunks = -(-size // 4096)
    padded = np.zeros((images, channels, chunks * 4096), numbers.dtype)
    padded[..., :size] = numbers
    blocks = padded.reshape(images, channels, chunks, 4, 4, 256)
    lanes = np.zeros((images, channels, chunks, 4, 256), numbers.dtype)
    for i in range(4):
        lanes += blocks[..., i, :]
    while lanes.shape[-1] > 1:
        half = lanes.shape[-1] // 2
        lanes = lanes[..., :half] + lanes[..., half:]
    of_chunks = np.zeros((images, channels, chunks))
    for i in range(4):
        of_chunks += lanes[..., i, 0]
    return in_groups(of_chunks.transpose(0, 2, 1).reshape(-1, channels))


@pytest.mark.parametrize(
    "shape",
    ((70, 33), (9, 300), (8200, 3), (8300, 64), (530_000, 2), (4101, 2056), (3, 5, 49),
     (9, 3, 100), (2, 3, 1030), (2, 2, 9000), (270, 2, 33), (1, 4, 4096), (9, 130, 1600),
     (3, 700, 6), (5, 2, 258), (4, 1), (5000, 1), (2, 1, 3000)),
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("number", (torch.float32, torch.float64), ids=dtype_name)
def test_the_order_of_sums(device, shape, number):
    """Compares with the order in docs/reference/fused.md, computed by NumPy. relu's slope is 1
    here, so bias's gradient is a sum of incoming gradients, and scale's a sum of their products
    with self. float64 also shows the last steps."""
    torch.manual_seed(0)
    g = torch.randn(shape, dtype=number)
    x = torch.rand(shape, dtype=number) + 0.5
    ones = torch.ones(shape[1], dtype=number)
    tensors = [t.to(device) for t in (x, ones, ones)]
    found = gradients_of(RELU, tensors, ("scale", "bias"), g.to(device), dim=1)
    sums = sums_of_rows if len(shape) == 2 else sums_of_images
    if shape[1] == 1:
        g, x, sums = g.view(1, 1, -1), x.view(1, 1, -1), sums_of_images
    for name, numbers in (("bias", g.numpy()), ("scale", (g * x).numpy())):
        expected = torch.from_numpy(sums(numbers)).to(number)
        assert_same_bits(found[name].cpu(), expected)


# ---- what PyTorch does with operators


def test_compiled_autograd(device, fresh_compiler):
    """One graph has two sets of operands: the backward pass of one reads self, of the other z."""
    (act,) = (a for a in REPRESENTATIVES if a.name == "selu")
    cases = [
        smooth(act, (6, 8), names, device, torch.float32)
        for names in (("bias", "gate"), ("bias", "residual"))
    ]
    wanted = [t for x, operands in cases for t in (x, *operands.values())]

    def loss():
        return sum(fused(act, x, **operands).sum() for x, operands in cases)

    expected = torch.autograd.grad(loss(), wanted)
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="aot_eager")):
        loss().backward()
    for t, gradient in zip(wanted, expected):
        close(t.grad, gradient)


def test_compiled_autograd_of_gradients_of_gradients(device, fresh_compiler):
    """z, which the kernel writes, has its own autograd node."""
    (act,) = (a for a in ACTIVATIONS if a.name == "silu")
    cases = []
    for names in (("bias", "residual"), ("scale", "bias", "residual")):
        x, operands = smooth(act, (6, 8), names, device, torch.float32)
        if "scale" in names:
            operands["scale"] = operands["scale"].detach()
        cases.append((x, operands, [t for t in (x, *operands.values()) if t.requires_grad]))
    wanted = [t for *_, leaves in cases for t in leaves]

    def squares():
        return sum(
            t.square().sum()
            for x, operands, leaves in cases
            for t in torch.autograd.grad(fused(act, x, **operands).sum(), leaves, create_graph=True)
        )

    expected = torch.autograd.grad(squares(), wanted)
    loss = squares()
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="aot_eager")):
        loss.backward()
    for t, gradient in zip(wanted, expected):
        close(t.grad, gradient)


def test_torchscript(device):
    def function(x, bias, gate):
        # type: (Tensor, Tensor, Optional[Tensor]) -> Tensor
        return torch.ops.fastact.fused_silu(x, bias=bias, gate=gate, dim=1)

    x, bias = values(2, 3, 4, device=device), values(3, device=device)
    scripted = torch.jit.script(function)
    for gate in (None, values(2, 3, 4, device=device)):
        expected = torch.ops.fastact.fused_silu(x, None, bias, None, gate, dim=1)
        assert_same_bits(scripted(x, bias, gate), expected)


def test_schemas():
    for act in ACTIVATIONS:
        schema = str(getattr(torch.ops.fastact, f"fused_{act.name}").default._schema)
        optional = "".join(f", Tensor? {name}=None" for name in INPUTS)
        assert schema.startswith(f"fastact::fused_{act.name}(Tensor self{optional}")
        assert schema.endswith(", int dim=-1) -> Tensor")
        out = str(getattr(torch.ops.fastact, f"fused_{act.name}").out._schema)
        assert out.endswith(", int dim=-1, Tensor(a!) out) -> Tensor(a!)")
        written = str(getattr(torch.ops.fastact, f"fused_{act.name}_").default._schema)
        assert written == schema.replace("(Tensor self", "_(Tensor(a!) self").replace(
            "-> Tensor", "-> Tensor(a!)"
        )
        numbers = "".join(f", float {n}" for n in parameters_of(act))
        halves = getattr(torch.ops.fastact, f"{act.name}_and_mul")
        text = re.sub(r"=[-.\d]+", "", str(halves.default._schema))
        assert text == (
            f"fastact::{act.name}_and_mul(Tensor self{numbers}, *, bool gate_first=True) -> Tensor"
        )
        for op in (halves.default, halves.out):
            assert op.tags == [torch.Tag.pt2_compliant_tag]


# ---- out= and errors


def in_place(act, x, dim=-1, **operands):
    op = getattr(torch.ops.fastact, f"fused_{act.name}_")
    return op(x, **operands, **parameters_of(act), dim=dim)


def test_in_place_where_no_derivative_is_wanted(device, fresh_compiler):
    """The call overwrites what derivatives need, so it raises an error and leaves self
    unchanged."""
    (act,) = (a for a in ACTIVATIONS if a.name == "selu")
    x, bias = values(4, 3, device=device), values(3, device=device)
    expected = fused(act, x, bias=bias)
    wanted = bias.clone().requires_grad_()
    start = "fastact::fused_selu_: expected no derivative to be wanted, .* but got "
    with untouched(x):
        with pytest.raises(RuntimeError, match=start + "bias that requires grad"):
            in_place(act, x, bias=wanted)
        with pytest.raises(RuntimeError, match=start + "self that requires grad"):
            in_place(act, x.requires_grad_())
        x.requires_grad_(False)
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(bias, torch.ones_like(bias))
            with pytest.raises(RuntimeError, match=start + "bias with a tangent"):
                in_place(act, x, bias=dual)
        with pytest.raises(RuntimeError, match="to broadcast to self's shape .4, 3., but got the"):
            in_place(act, x, residual=values(2, 4, 3, device=device))
        functional = torch.func.functionalize(lambda x: in_place(act, x.clone(), bias=bias))
        assert_same_bits(functional(x), expected)
        compiled = torch.compile(
            lambda x: in_place(act, x.clone(), bias=bias), fullgraph=True, backend="aot_eager"
        )
        assert_same_bits(compiled(x), expected)
    with torch.no_grad():
        assert_same_bits(in_place(act, x.clone(), bias=wanted), expected)
    with torch.inference_mode():
        assert_same_bits(in_place(act, x, bias=bias), expected)


@pytest.mark.parametrize("names", SETS, ids=lambda names: "+".join(names) or "none")
def test_backward_operator_for_every_mask(device, names):
    """Each gradient has its operand's shape, its own memory, and bits that do not depend on the
    mask."""
    x, operands = drawn((5, 66), names, torch.float32, device)
    g = values(5, 66, device=device)
    inputs = [operands.get(name) for name in INPUTS]
    op = torch.ops.fastact._fused_silu_backward
    possible = [True, *(t is not None for t in inputs)]
    alone = [
        op(g, x, *inputs, output_mask=[i == j for j in range(5)])[i] if there else None
        for i, there in enumerate(possible)
    ]
    for mask in itertools.product((False, True), repeat=5):
        if any(wanted and not there for wanted, there in zip(mask, possible)):
            continue
        result = op(g, x, *inputs, output_mask=mask)
        for wanted, found, expected, operand in zip(mask, result, alone, (x, *inputs)):
            assert wanted or found is None
            if wanted:
                assert found.shape == operand.shape
                assert_same_bits(found, expected)
        found = [t.data_ptr() for t in result if t is not None]
        assert len(set(found)) == len(found)


def test_errors(device):
    (act,) = (a for a in ACTIVATIONS if a.name == "selu")
    x, vector = values(4, 3, device=device), values(3, device=device)
    other = "cpu" if device == "cuda" else "meta"
    for arguments, operands, kind, text in (
        (x.int(), {}, NotImplementedError, "expected self to be float32"),
        (
            x,
            {"bias": vector.double()},
            RuntimeError,
            "expected bias to have self's type Float, but",
        ),
        (x.half(), {"bias": vector.double()}, RuntimeError, "self's type Half or to be Float, but"),
        (x.half(), {"gate": x}, RuntimeError, "expected gate to have self's type Half, but got Fl"),
        (x, {"residual": x.to(other)}, RuntimeError, "on the same device, but got residual on"),
        (x, {"scale": values(5), "dim": 0}, RuntimeError, "expected scale to have 1 element or 4"),
        (x, {"dim": 2}, IndexError, "expected dim to be from -2 to 1, but got 2"),
    ):
        error = error_of(fused, act, arguments, **operands)
        assert type(error) is kind and text in first_line(error), error
        assert first_line(error).startswith("fastact::fused_selu: expected ")
    assert isinstance(error_of(fused, act, x, residual=values(5, device=device)), RuntimeError)
    with pytest.raises(RuntimeError, match="overlap|more than one element"):
        fused(act, x, out=x[:1].expand(4, 3))
    with pytest.raises(RuntimeError, match="single memory location|overlap"):
        storage = values(20, device=device)
        fused(act, storage[:12], out=storage[4:16])
    for name in ("scale", "bias", "residual", "gate"):
        storage = values(20, device=device)
        with untouched(storage), pytest.raises(RuntimeError, match="single memory location"):
            fused(act, x.view(-1), **{name: storage[:12]}, out=storage[4:16])
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        fused(act, x.clone().requires_grad_(), out=torch.empty_like(x))
    with pytest.raises((RuntimeError, ValueError), match="expected lambd to be at least 0"):
        torch.ops.fastact.fused_softshrink(x, lambd=-1.0)
    with pytest.raises(
        ValueError, match="fastact::_fused_selu_backward: expected scale, whose gradient is"
    ):
        mask = [False, True, False, False, False]
        torch.ops.fastact._fused_selu_backward(x, x, *(None,) * 4, output_mask=mask)


@pytest.mark.parametrize("create_graph", (False, True))
@pytest.mark.parametrize("name", ("residual", "gate"))
def test_a_sum_is_rounded_once(name, create_graph, device):
    """bfloat16 cannot represent 1.51171875. 100 times this number is 151.171875; with rounded
    terms, the sum would be 151.5."""
    x, half = torch.full((100, 4), 1.5, device=device, dtype=torch.bfloat16), torch.bfloat16
    operands = {
        "residual": torch.zeros(100, 4, device=device, dtype=half),
        "gate": torch.full((100, 4), 1.5, device=device, dtype=half),
    }
    operands[name] = operands[name][0].clone().requires_grad_()
    y = torch.ops.fastact.fused_relu(x, **operands)
    (sum_,) = torch.autograd.grad(
        y, operands[name], torch.full_like(x, 1.0078125), create_graph=create_graph
    )
    assert sum_.tolist() == [151.0] * 4


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16), ids=str)
def test_gradients_on_meta_have_the_types_of_the_operands(dtype):
    x, operands = drawn((5, 64), ("scale", "bias", "residual", "gate"), dtype, "cpu")
    for vector_dtype in {dtype, torch.float32}:
        for vector in ("scale", "bias"):
            operands[vector] = operands[vector].to(vector_dtype)
        real = (x, x, *(operands[name] for name in INPUTS))
        mask = [True] * 5
        op = torch.ops.fastact._fused_silu_backward
        expected = op(*real, output_mask=mask)
        found = op(*(t.to("meta") for t in real), output_mask=mask)
        for a, b in zip(found, expected, strict=True):
            assert (a.shape, a.dtype, a.stride()) == (b.shape, b.dtype, b.stride())


# ---- the same bits everywhere


def test_digests(device):
    """Compares digests of values and gradients, on every device."""
    recorded = json.loads(fused_digests.RECORD.read_text())
    found = fused_digests.digests(device)
    assert set(found) == set(recorded)
    for key, parts in found.items():
        assert set(parts) == {"values", "gradients"}
        assert parts == recorded[key], key


@pytest.mark.slow
@pytest.mark.kernels
def test_instruction_sets_agree():
    """Runs each instruction set in its own process."""
    script = "import fused_digests; fused_digests.main([])"
    for name in build_info()["cpu instruction sets"].split():
        environment = {"FASTACT_CPU_ISA": name, "PYTHONPATH": str(Path(__file__).parent)}
        report = json.loads(run_python("-c", script, environment=environment))
        assert report["cpu instruction set in use"] == name
        assert report["digests"] == json.loads(fused_digests.RECORD.read_text()), name


# ---- a GPU


def test_a_gpu_gives_the_cpus_bits(act, cuda, dtype):
    for shape in ((65, 129), (64, 128), (3, 4096)):
        for names in SETS:
            for wide_vectors in (False, True):
                if wide_vectors and dtype.itemsize != 2:
                    continue
                x, operands = drawn(shape, names, dtype, "cpu", wide_vectors)
                on_gpu = {name: t.cuda() for name, t in operands.items()}
                result = fused(act, x.cuda(), **on_gpu)
                assert_same_bits(result.cpu(), fused(act, x, **operands))


def off_the_boundary(t):
    """Returns the same numbers, one element after a packet boundary."""
    return torch.cat((t.flatten()[:1], t.flatten()))[1:].view(t.shape)


# shape, dim, how the tensors lie
TAKEN = {n: layout for n, layout in GRADIENT_LAYOUTS.items() if n != "every_second"}
LAYOUTS_ON_A_GPU = TAKEN | {
    "less_than_a_packet": ((3,), -1, lambda t: t),
    "packets": ((70, 128), -1, lambda t: t),
    "ragged": ((65, 129), -1, lambda t: t),
    "three": ((1111, 3), -1, lambda t: t),
    "many_groups": ((32 * 257 + 5, 16), -1, lambda t: t),
    "wide": ((40, 2056), -1, lambda t: t),
    "small_images": ((6, 33, 7, 7), 1, lambda t: t),
    "pixels": ((40, 5, 1, 3), 1, lambda t: t),
    "images_in_packets": ((3, 5, 64, 64), 1, lambda t: t),
    "one_image": ((1, 3, 33, 35), 1, lambda t: t),
    "channels_last_of_64": ((3, 64, 9, 9), 1, lambda t: t.to(memory_format=torch.channels_last)),
    "channels_last_of_3": ((3, 3, 31, 33), 1, lambda t: t.to(memory_format=torch.channels_last)),
    "half_in_packets": ((37, 64), -1, lambda t: torch.cat((t, t), 1)[:, 64:]),
    "half_of_channels": ((5, 6, 8, 8), 1, lambda t: torch.cat((t, t), 1)[:, 6:]),
    "unaligned": ((33, 64), -1, off_the_boundary),
    "unaligned_images": ((3, 4, 40, 40), 1, off_the_boundary),
    # Large enough that a thread adds several packets.
    "many_rows": ((4101, 2056), -1, lambda t: t),
    "many_images": ((8, 130, 40, 40), 1, lambda t: t),
    "half_of_many": ((4101, 2056), -1, lambda t: torch.cat((t, t), 1)[:, 2056:]),
    "half_of_many_channels": ((8, 130, 40, 40), 1, lambda t: torch.cat((t, t), 1)[:, 130:]),
}


def gpu_operands(layout, dtype, wide_vectors):
    """Returns tensors, and copies with the same layouts on a GPU."""
    shape, dim, lay = LAYOUTS_ON_A_GPU[layout]
    vector = torch.float32 if wide_vectors and dtype.itemsize == 2 else dtype
    torch.manual_seed(0)
    full = {n: torch.randn(shape).to(dtype) for n in ("self", "residual", "gate", "grad_output")}
    vectors = {n: torch.randn(shape[dim]).to(vector) for n in ("scale", "bias")}
    on_cpu = {n: lay(t) for n, t in full.items()} | vectors
    on_gpu = {n: lay(t.cuda()) for n, t in full.items()} | {n: t.cuda() for n, t in vectors.items()}
    return on_cpu, on_gpu, dim


@two_acts
@pytest.mark.parametrize("layout", LAYOUTS_ON_A_GPU)
@pytest.mark.parametrize("wide_vectors", (False, True), ids=("same_type", "float32_vectors"))
def test_a_gpu_gives_the_cpus_bits_of_layouts(act, cuda, dtype, layout, wide_vectors):
    """Tests values, gradients and sums. Computes gradients twice."""
    on_cpu, on_gpu, dim = gpu_operands(layout, dtype, wide_vectors)
    for names in SETS:
        tensors = [[side[n] for n in ("self", *names)] for side in (on_cpu, on_gpu)]
        values = [fused(act, t[0], dim=dim, **dict(zip(names, t[1:]))) for t in tensors]
        assert_same_bits(values[1].cpu(), values[0])
        expected = gradients_of(act, tensors[0], names, on_cpu["grad_output"], dim)
        for _ in range(2):
            with untouched(*tensors[1], on_gpu["grad_output"]):
                found = gradients_of(act, tensors[1], names, on_gpu["grad_output"], dim)
            for name, gradient in expected.items():
                assert_same_bits(found[name].cpu(), gradient)


@two_acts
@pytest.mark.parametrize("layout", LAYOUTS_ON_A_GPU)
@pytest.mark.parametrize("wide_vectors", (False, True), ids=("same_type", "float32_vectors"))
def test_a_gpu_gives_the_cpus_bits_of_z(act, cuda, dtype, layout, wide_vectors):
    """And of the result beside it."""
    on_cpu, on_gpu, dim = gpu_operands(layout, dtype, wide_vectors)
    shape = [1] * on_cpu["self"].dim()
    shape[dim] = -1
    for side in (on_cpu, on_gpu):
        side |= {n: side[n].view(shape) for n in ("scale", "bias")}
    for names in SETS:
        expected, found = (
            with_preactivation(act, side["self"], **{n: side[n] for n in names})
            for side in (on_cpu, on_gpu)
        )
        for a, b in zip(found, expected, strict=True):
            assert_same_bits(a.cpu(), b)
            assert a.stride() == b.stride()


@pytest.mark.parametrize("layout", ("ragged", "images_in_packets", "channels_last_of_64"))
def test_a_gpu_gives_the_cpus_gradients(act, cuda, dtype, layout):
    """Tests every activation."""
    on_cpu, on_gpu, dim = gpu_operands(layout, dtype, wide_vectors=False)
    for names in (("scale", "bias"), ("residual", "gate"), INPUTS):
        found, expected = (
            gradients_of(act, [side[n] for n in ("self", *names)], names, side["grad_output"], dim)
            for side in (on_gpu, on_cpu)
        )
        for name, gradient in expected.items():
            assert_same_bits(found[name].cpu(), gradient)


def test_a_pass_over_a_gpus_memory(cuda):
    """A backward pass calls only one operator, if its kernel supports the layouts."""
    for layout in ("packets", "images_in_packets", "channels_last_of_3", "half_in_packets"):
        _, tensors, dim = gpu_operands(layout, torch.bfloat16, wide_vectors=False)
        leaves = {n: t.detach().requires_grad_() for n, t in tensors.items() if n != "grad_output"}
        x = leaves.pop("self")
        result = torch.ops.fastact.fused_silu(x, **leaves, dim=dim)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            torch.autograd.grad(result, (x, *leaves.values()), tensors["grad_output"])
        called = {event.key for event in profile.key_averages()}
        assert "fastact::_fused_silu_backward" in called
        assert not {"aten::mul", "aten::sum", "aten::add"} & called


def test_gradients_of_tensors_on_two_devices(cuda):
    x, g = torch.randn(3, 4, device=cuda), torch.randn(3, 4)
    mask = [True, False, False, False, False]
    backward = torch.ops.fastact._fused_silu_backward
    with torch.no_grad():
        for incoming, own in ((g, x), (x, g)):
            error = error_of(backward, incoming, own, *(None,) * 4, output_mask=mask)
            assert "expected grad_output to be on self's device" in str(error)


def test_a_cuda_graph_captures_it(cuda):
    x, bias = values(64, 128, device=cuda), values(128, device=cuda)
    fastact = torch.ops.fastact
    expected = fastact.fused_gelu(x, bias=bias)
    out = torch.empty_like(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fastact.fused_gelu(x, bias=bias, out=out)
    out.zero_()
    graph.replay()
    assert_same_bits(out, expected)


def test_a_cuda_graph_captures_gradients(cuda):
    _, tensors, dim = gpu_operands("many_groups", torch.bfloat16, wide_vectors=False)
    mask = [True] * 5
    arguments = (tensors["grad_output"], *(tensors[n] for n in ("self", *INPUTS)))
    backward = torch.ops.fastact._fused_gelu_backward
    with torch.no_grad():
        expected = [t.clone() for t in backward(*arguments, output_mask=mask)]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = backward(*arguments, output_mask=mask)
        for t in captured:
            t.zero_()
        graph.replay()
    for found, t in zip(captured, expected):
        assert_same_bits(found, t)


@pytest.mark.parametrize("columns", (64, 1000, 4104))
def test_gradients_of_many_rows(cuda, dtype, columns):
    (act,) = (a for a in ACTIVATIONS if a.name == "silu")
    x, g = (values((1 << 24) // columns + 5, columns, dtype=dtype) for _ in range(2))
    vectors = [values(columns, dtype=dtype) for _ in range(2)]
    names = ("scale", "bias")
    expected = gradients_of(act, (x, *vectors), names, g)
    there = [t.to(cuda) for t in (x, *vectors)]
    for name, t in gradients_of(act, there, names, g.to(cuda)).items():
        assert_same_bits(t, expected[name])


@pytest.mark.parametrize("channels", (-1, 1), ids=("rows", "channels"))
def test_vectors_and_sums_beyond_31_bits(cuda, channels):
    """Tests values and gradients in the last rows, and sums. All sums are integers in float32."""
    if torch.cuda.get_device_properties(0).total_memory < 60 << 30:
        pytest.skip("expected 60 GiB of memory on the GPU")
    shape = ((1 << 21) + 33, 1024) if channels == -1 else ((1 << 11) + 1, 256, 64, 64)
    x = torch.ones(1, dtype=torch.bfloat16, device=cuda).expand(shape).contiguous()
    assert x.numel() > 1 << 31
    x[-1] = -3
    vector = torch.arange(shape[channels], device=cuda, dtype=torch.float32) % 3
    leaves = [t.requires_grad_() for t in (x, vector)]
    result = torch.ops.fastact.fused_relu(x, bias=vector, dim=channels)
    for i in (0, shape[0] // 2, -2, -1):
        own = torch.ops.fastact.fused_relu(x[i : i + 1 or None].detach(), bias=vector, dim=channels)
        assert_same_bits(result[i : i + 1 or None].detach(), own.detach())
    g = torch.ones(1, dtype=torch.bfloat16, device=cuda).expand(shape).contiguous()
    found = torch.autograd.grad(result, leaves, g)
    per_row = math.prod(shape) // shape[0] // shape[channels]
    assert (found[1] == (shape[0] - 1) * per_row).all()
    assert (found[0][:-1] == 1).all() and (found[0][-1] == 0).all()


def test_offsets_beyond_31_bits(cuda):
    if torch.cuda.get_device_properties(0).total_memory < 40 << 30:
        pytest.skip("expected 40 GiB of memory on the GPU")
    n = (1 << 31) + 1024
    x = torch.arange(1024, device=cuda).to(torch.bfloat16).repeat(n // 1024)
    result, z = with_preactivation(RELU, x, residual=x)
    expected = with_preactivation(RELU, x[:1024], residual=x[:1024])
    for start in (0, n - 1024, (1 << 30), (1 << 31) - 1024):
        for a, b in zip((result, z), expected):
            assert_same_bits(a[start : start + 1024], b)
    assert_same_bits(torch.ops.fastact.fused_relu(x, residual=x), result)
