"""clamped_swiglu: compares values and gradients with exact results, and tests compilers and errors.
test_combinations.py tests what it shares with other operators.

The oracle is the definition in long double, with limits rounded to the compute type.
"""

import itertools

import numpy as np
import pytest
import torch
from torch._inductor.utils import run_and_get_code
from torch._subclasses import FakeTensorMode

from oracle import every_16_bit_value, ulp_of, wide
from support import (
    assert_same_bits,
    build_info,
    error_of,
    first_line,
    run_python,
    values,
)
from test_registration import geometry
from test_special_values import specials

fastact = torch.ops.fastact
close = torch.testing.assert_close
PARAMETERS = ((7.0, 1.702), (6.9, 1.0), (float("inf"), 1.702), (0.3, 5.0), (30.0, 0.5))
# The bounds in ops/forms/clamped_swiglu.h, in ULP: value, derivatives.
BOUNDS = {
    torch.bfloat16: (0.51, 0.51),
    torch.float16: (0.51, 0.51),
    torch.float32: (2.5, 0.51),
    torch.float64: (3.0, 10.0),
}
parameters = pytest.mark.parametrize("limit, alpha", PARAMETERS)


def halves(x, gate_first=True, interleaved=False):
    """Returns the gate and the linear part."""
    a, b = (x[..., ::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)
    return (a, b) if gate_first else (b, a)


def composed(x, y, limit, alpha):
    """Computes the operator with PyTorch's operators."""
    c = torch.clamp(x, max=limit)
    return c * torch.sigmoid(alpha * c) * (torch.clamp(y, -limit, limit) + 1)


def exact(x, y, limit, alpha):
    """Returns the value, its derivatives, c s(alpha c), and the floor of the error bound, as long
    double arrays."""
    limit = np.longdouble(limit if x.dtype == torch.float64 else np.float32(limit))
    reached = np.nan if np.isinf(limit) else limit
    dtype, x, y = x.dtype, wide(x), wide(y)
    with np.errstate(all="ignore"):
        c, m = np.minimum(x, limit), np.clip(y, -limit, limit) + 1
        w = np.longdouble(alpha) * c
        s, rest = 1 / (1 + np.exp(-w)), 1 / (1 + np.exp(w))
        gate = np.where(c == -np.inf, -np.longdouble(0), c * s)
        steep = np.where(np.isinf(w), 0, w * rest)
        by_gate = np.where(x >= reached, 0, s * (1 + steep) * m)
        by_linear = np.where(np.abs(y) >= reached, 0, gate)
        # Where terms cancel, the float64 bound is in ULP of 1/16, times m.
        floor = np.abs(m) / 16 if dtype == torch.float64 else 0
        return gate * m, by_gate, by_linear, gate, floor


def assert_within(actual, expected, bound, floor=0):
    """Asserts that finite results are within the bound, and that all others equal the exact
    results."""
    found, dtype = wide(actual), actual.dtype
    with np.errstate(all="ignore"):
        largest = np.longdouble(torch.finfo(dtype).max)
        inside = np.isfinite(expected) & (np.abs(expected) < largest)
        scale = ulp_of(np.maximum(np.abs(expected), floor), dtype)
        errors = (np.abs(found - expected) / scale)[inside]
        assert errors.size == 0 or errors.max() <= bound, errors.max()
        beyond = np.abs(expected) > largest * 1.01
        assert np.array_equal(found[beyond], np.sign(expected[beyond]) * np.inf)
    assert np.array_equal(np.isnan(found), np.isnan(expected))


def pairs(dtype, count=200_000):
    """Returns gates and linear parts: numbers of every size, and more of ordinary size."""
    if dtype.itemsize == 2:
        x = every_16_bit_value(dtype)
        x = x[~x.isnan()]
        torch.manual_seed(1)
        near = [torch.randn(len(x)) * 3, torch.randn(len(x)) * 12, x.flip(0).float()]
        return torch.cat([x] * 3), torch.cat(near).to(dtype)
    torch.manual_seed(1)
    x = torch.cat((torch.randn(count) * 3, torch.randn(count) * 40)).double()
    return (x + torch.randn(2 * count).double() * 1e-5).to(dtype), values(2 * count, dtype=dtype)


def backward(g, x, y, limit, alpha):
    return fastact._clamped_swiglu_backward(g, x, y, limit, alpha)


# ---- numbers


@parameters
def test_values_are_within_their_bound(device, dtype, limit, alpha):
    x, y = pairs(dtype)
    result = fastact._clamped_swiglu(x.to(device), y.to(device), limit, alpha)
    value, _, _, gate, _ = exact(x, y, limit, alpha)
    # The product's first factor is not subnormal.
    normal = ~(np.abs(gate) < torch.finfo(torch.float32).tiny) | (gate == 0)
    if dtype == torch.float64:
        normal = ~(np.abs(gate) < torch.finfo(dtype).tiny) | (gate == 0)
    kept = torch.from_numpy(normal)
    assert kept.float().mean() > 0.4
    assert_within(result.cpu()[kept], value[normal], BOUNDS[dtype][0])


@parameters
def test_gradients_are_within_their_bound(device, dtype, limit, alpha):
    x, y = pairs(dtype)
    g = torch.ones_like(x)
    by_gate, by_linear = backward(*(t.to(device) for t in (g, x, y)), limit, alpha)
    _, first, second, _, floor = exact(x, y, limit, alpha)
    assert_within(by_gate.cpu(), first, BOUNDS[dtype][1], floor)
    assert_within(by_linear.cpu(), second, BOUNDS[dtype][1])


def test_special_values(device, dtype):
    x = specials(dtype, device)
    x = x[~x.isnan()]
    x, y = x.repeat_interleave(len(x)), x.repeat(len(x))
    result = fastact._clamped_swiglu(x, y, 7.0, 1.702)
    value, _, _, gate, _ = exact(x, y, 7.0, 1.702)
    tiny = np.abs(gate) < torch.finfo(dtype if dtype == torch.float64 else torch.float32).tiny
    kept = torch.from_numpy(~tiny | (gate == 0))
    assert_within(result.cpu()[kept], value[kept.numpy()], BOUNDS[dtype][0])
    zero = torch.tensor([-0.0], dtype=dtype, device=device)
    assert torch.signbit(fastact._clamped_swiglu(zero, zero + 1)).item()


def test_nan_is_the_one_nan(device, dtype):
    """A NaN in either half gives the canonical NaN. A gradient beyond its limit is 0 even then."""
    integer = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    nan = torch.full((3,), float("nan"), dtype=dtype).view(integer)
    nan[1] |= 1  # another payload; below, another sign
    nan[2] |= torch.iinfo(integer).min
    nan, one = nan.view(dtype).to(device), torch.ones(3, dtype=dtype, device=device)
    canonical = fastact.silu(nan)
    for x, y in ((nan, one), (one, nan), (nan, nan)):
        assert_same_bits(fastact._clamped_swiglu(x, y), canonical)
        for gradient in backward(one, x, y, 7.0, 1.702):
            assert_same_bits(gradient, canonical)
    by_gate, by_linear = backward(one, 9 * one, nan, 7.0, 1.702)
    assert_same_bits(by_gate, torch.zeros_like(one))
    assert_same_bits(by_linear, canonical)


def test_beyond_a_limit_gradients_are_zero(device, dtype):
    far = torch.tensor([7.5, float("inf")], dtype=dtype, device=device)
    g = torch.full_like(far, float("inf"))
    by_gate, by_linear = backward(g, far, -far, 7.0, 1.702)
    for gradient in (by_gate, by_linear):
        assert_same_bits(gradient, torch.zeros_like(far))
    at = torch.full_like(far, 7.0)  # also at the limit itself, like hardtanh
    for gradient in (*backward(at, at, at, 7.0, 1.702), *backward(at, at, -at, 7.0, 1.702)):
        assert_same_bits(gradient, torch.zeros_like(far))
    infinite = torch.full_like(far, float("inf"))  # no limit
    by_gate, by_linear = backward(at, infinite, at, float("inf"), 1.702)
    assert_same_bits(by_gate, 8 * at)
    assert_same_bits(by_linear, infinite)


BITS = """
import os, hashlib, torch
torch.ops.load_library(os.environ["FASTACT_LIBRARY"])
fastact, found = torch.ops.fastact, hashlib.sha256()
for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
    torch.manual_seed(0)
    for n in (1, 7, 16, 33, 128, 513, 4099):
        g, x = ((torch.randn(3, k * n) * 5).to(dtype) for k in (1, 2))
        for options in ({}, {"gate_first": False}, {"interleaved": True}):
            y = fastact.clamped_swiglu(x, 6.9, 1.3, **options)
            found.update(y.contiguous().view(torch.uint8).numpy().tobytes())
            leaf = x.clone().requires_grad_()
            fastact.clamped_swiglu(leaf, 6.9, 1.3, **options).backward(g)
            found.update(leaf.grad.contiguous().view(torch.uint8).numpy().tobytes())
print(found.hexdigest())
"""


@pytest.mark.slow
@pytest.mark.kernels
def test_instruction_sets_agree():
    sets = build_info()["cpu instruction sets"].split()
    found = {run_python("-c", BITS, environment={"FASTACT_CPU_ISA": name}) for name in sets}
    assert len(found) == 1


@parameters
def test_cuda_gives_the_bits_of_the_cpu(cuda, dtype, limit, alpha):
    x, y = pairs(dtype)
    there = (x.cuda(), y.cuda())
    ours, theirs = (fastact._clamped_swiglu(*t, limit, alpha) for t in ((x, y), there))
    assert_same_bits(theirs.cpu(), ours)
    for a, b in zip(backward(x, x, y, limit, alpha), backward(there[0], *there, limit, alpha)):
        assert_same_bits(b.cpu(), a)
    strided = [t[: len(t) // 2 * 2].view(-1, 2) for t in (x, y)]
    for options in ({}, {"interleaved": True}):
        packed = torch.cat(strided, -1)
        found = fastact.clamped_swiglu(packed.cuda(), limit, alpha, **options)
        assert_same_bits(found.cpu(), fastact.clamped_swiglu(packed, limit, alpha, **options))


# ---- packed tensors


def test_layouts_of_others(device):
    """gpt-oss, transformers and vLLM's kernel interleave the parts. In halves, the gate comes
    first."""
    x = values(5, 8, dtype=torch.float64, device=device)
    gate, linear = x[..., ::2].clamp(max=7.0), x[..., 1::2].clamp(-7.0, 7.0)
    gpt_oss = gate * torch.sigmoid(1.702 * gate) * (linear + 1)
    close(fastact.clamped_swiglu(x, interleaved=True), gpt_oss)
    close(fastact.clamped_swiglu(x), composed(x[:, :4], x[:, 4:], 7.0, 1.702))


# ---- derivatives


def test_fake_and_meta_gradients_have_the_strides_of_real_ones(device):
    layouts = {
        "dense": lambda: values(3, 4, device=device),
        "transposed": lambda: values(4, 3, device=device).t(),
        "row": lambda: values(4, device=device),
        "column": lambda: values(3, 1, device=device),
        "expanded": lambda: values(1, 4, device=device).expand(3, 4),
    }
    for names in itertools.product(layouts, repeat=3):
        tensors = [layouts[name]() for name in names]
        mode = FakeTensorMode()
        fake = [mode.from_tensor(t) for t in tensors]
        with mode:
            there = fastact._clamped_swiglu_backward(*fake, 7.0, 1.702)
        meta = [torch.empty_strided(t.shape, t.stride(), device="meta") for t in tensors]
        meta = fastact._clamped_swiglu_backward(*meta, 7.0, 1.702)
        here = fastact._clamped_swiglu_backward(*tensors, 7.0, 1.702)
        for found in (there, meta):
            strides = [[geometry(t)[:3] for t in pair] for pair in (found, here)]
            assert strides[0] == strides[1], names


def test_both_gradients_come_from_one_kernel():
    x = values(4, 6).requires_grad_()
    with torch.profiler.profile() as profile:
        fastact.clamped_swiglu(x).sum().backward()
    names = [event.name for event in profile.events()]
    assert names.count("fastact::_clamped_swiglu_backward") == 1
    assert "aten::sigmoid" not in names
    y = values(3, 1).requires_grad_()
    g = x.detach()[:3]
    (ours,) = torch.autograd.grad(fastact._clamped_swiglu(g, y), y, torch.ones_like(g))
    assert ours.shape == y.shape


def test_composed_gradients_agree(device, dtype):
    """Gradients are composed where there is no kernel: on meta tensors and under create_graph."""
    x = values(40, 60, dtype=dtype, device=device).requires_grad_()
    y = fastact.clamped_swiglu(x)
    g = torch.ones_like(y)
    (by_kernel,) = torch.autograd.grad(y, x, g, retain_graph=True)
    (by_composition,) = torch.autograd.grad(y, x, g, create_graph=True)
    assert by_composition.dtype == dtype and by_composition.requires_grad
    close(by_kernel, by_composition.detach())
    meta = [t.to("meta") for t in (g, *halves(x.detach()))]
    for gradient in backward(*meta, 7.0, 1.702):
        assert gradient.shape == g.shape and gradient.dtype == dtype


@pytest.mark.newest
@pytest.mark.slow
def test_a_compiler_calls_it(device, fresh_compiler):
    x = values(64, 64, device=device)

    def function(x):
        return fastact.clamped_swiglu(x * 2) + 1

    result, (code,) = run_and_get_code(torch.compile(function, fullgraph=True), x)
    assert "torch.ops.fastact._clamped_swiglu.default(" in code
    assert_same_bits(result, function(x))


def test_autocast_and_export(device):
    x = values(4, 6, device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        assert fastact.clamped_swiglu(x).dtype == torch.float32
        assert fastact.clamped_swiglu(x.bfloat16()).dtype == torch.bfloat16

    class Block(torch.nn.Module):
        def forward(self, x):
            return torch.ops.fastact.clamped_swiglu(x, 7.0, interleaved=True)

    exported = torch.export.export(Block(), (x,))
    assert_same_bits(exported.module()(x), Block()(x))
    scripted = torch.jit.trace(Block(), (x,))
    assert_same_bits(scripted(x), Block()(x))


# ---- errors


@pytest.mark.parametrize(
    "shape, options, text",
    (
        ((3, 5), {}, "self's last dimension to have an even size, but got 5"),
        ((), {}, "self to have a last dimension, of two halves, but got a 0-D tensor"),
        ((4,), {"limit": 0.0}, "limit to be above 0, but got 0"),
        ((4,), {"limit": -1.0}, "limit to be above 0, but got -1"),
        ((4,), {"limit": float("nan")}, "limit to be above 0, but got nan"),
        ((4,), {"alpha": float("nan")}, "alpha to be from 0.5 to 1024, but got nan"),
        ((4,), {"alpha": 0.25}, "alpha to be from 0.5 to 1024, but got 0.25"),
        ((4,), {"alpha": float("inf")}, "alpha to be from 0.5 to 1024, but got inf"),
    ),
)
def test_errors(device, shape, options, text):
    error = error_of(fastact.clamped_swiglu, values(*shape, device=device), **options)
    assert type(error) is RuntimeError
    assert first_line(error) == f"fastact::clamped_swiglu: expected {text}"


def test_errors_of_types_and_results(device):
    x = values(4, 6, device=device)
    error = error_of(fastact.clamped_swiglu, x.int())
    assert type(error) is NotImplementedError
    assert first_line(error) == (
        "fastact::clamped_swiglu: expected self to be float32, float64, bfloat16 or float16, "
        "but got Int"
    )
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        fastact.clamped_swiglu(x.clone().requires_grad_(), out=torch.empty_like(x[:, :3]))
    with pytest.raises(RuntimeError, match="expected limit to be above 0"):
        backward(x, x, x, -1.0, 1.702)
    with pytest.raises(RuntimeError, match="expected out to be on"):
        fastact.clamped_swiglu(x, out=torch.empty(4, 3, device="meta"))


def test_schemas():
    arguments = (
        "Tensor self, float limit=7., float alpha=1.702, *, bool gate_first=True, "
        "bool interleaved=False"
    )
    overloads = {
        "default": f"({arguments}) -> Tensor",
        "out": f"({arguments}, Tensor(a!) out) -> Tensor(a!)",
    }
    for overload, text in overloads.items():
        found = getattr(fastact.clamped_swiglu, overload)._schema
        name = "fastact::clamped_swiglu" + ("" if overload == "default" else ".out")
        assert str(found) == str(torch._C.parse_schema(name + text))
