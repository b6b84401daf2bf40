"""relu_sum and selu_sum: values, layouts, gradients, vmap, out= and error messages."""

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.func import vmap

from oracle import every_16_bit_value, rounded, wide
from support import (
    LAYOUTS,
    assert_same_bits,
    error_of,
    first_line,
    make,
    no_vmap_fallback,
    untouched,
    values,
)
from test_registration import geometry
from test_special_values import specials

fastact = torch.ops.fastact
OPS = {"relu": fastact.relu_sum, "selu": fastact.selu_sum}
ATEN = {"relu": torch.relu, "selu": torch.selu}
# The error bounds of selu_sum as powers of two: the error of f(x) relative to |f(x)|, and the
# rounding error of the sum in the compute type, relative to the sum. float64 rounds only once.
ERRORS = {
    torch.bfloat16: (-16, -24),
    torch.float16: (-20, -24),
    torch.float32: (-28, -53),
    torch.float64: (-51, -63),
}
close = torch.testing.assert_close
names = pytest.mark.parametrize("name", OPS)


def selu(x):
    scale = np.longdouble("1.0507009873554804934193349852946")
    scale_alpha = np.longdouble("1.7580993408473768599402175208123")
    return np.where(x < 0, scale_alpha * np.expm1(np.minimum(x, 0)), scale * x)


def assert_exact(name, result, x, y):
    """Asserts that relu_sum is the correctly rounded sum, and that selu_sum is within its bound."""
    x, y = torch.broadcast_tensors(x.cpu(), y.cpu())
    if name == "relu":  # the float64 sum, rounded again, is correctly rounded in float32
        exact = wide(torch.relu(x.double()) + y.double())
        assert_same_bits(result.cpu(), rounded(exact, x.dtype).reshape(x.shape))
        return
    with np.errstate(all="ignore"):
        f = selu(wide(x))
        f[f > torch.finfo(torch.float32 if x.itemsize == 2 else torch.float64).max] = np.inf
        exact = f + wide(y)
        of_f, of_sum = (2.0**power for power in ERRORS[x.dtype])
        of_sum = max(of_sum, np.finfo(np.longdouble).eps)
        lost = np.abs(f) * of_f + np.abs(exact) * of_sum
        lost[~np.isfinite(exact)] = 0
    low, high = (wide(rounded(end, x.dtype)) for end in (exact - lost, exact + lost))
    actual = wide(result)
    nan = np.isnan(exact)
    assert np.array_equal(np.isnan(actual), nan)
    assert ((low <= actual) & (actual <= high))[~nan].all()


def pair(*shapes, dtype=torch.float64, device="cpu"):
    """Returns leaf tensors without values near zero, where the derivatives jump."""
    tensors = []
    for shape in shapes:
        x = values(*shape, dtype=dtype, device=device)
        tensors.append(torch.where(x.abs() < 0.2, 0.5, x).requires_grad_())
    return tensors


# ---- values


@names
def test_values(device, dtype, name):
    for n in (0, 1, 7, 1025, 70000):
        x, y = values(n, dtype=dtype, device=device), values(n, dtype=dtype, device=device)
        with untouched(x, y):
            assert_exact(name, OPS[name](x, y), x, y)


@names
def test_special_values(device, dtype, name):
    x = specials(dtype, device)
    assert_exact(name, OPS[name](x[:, None], x), x[:, None], x)


@names
def test_every_16_bit_input(device, half, name):
    """The other operand has all magnitudes, or is -f(x): then only the error of f(x) is left."""
    x = every_16_bit_value(half).to(device)
    for y in (x.flip(0), x.roll(20000), -getattr(fastact, name)(x)):
        assert_exact(name, OPS[name](x, y), x, y)


@names
def test_cancellation(device, dtype, name):
    x = values(100000, dtype=dtype, device=device)
    y = -getattr(fastact, name)(x)
    assert_exact(name, OPS[name](x, y), x, y)


# ---- layouts


@names
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_match_torch_add(device, dtype, layout, name):
    x = make(layout, dtype, device)
    contiguous = values(*x.shape, dtype=dtype, device=device)
    for a, b in ((x, make(layout, dtype, device, seed=1)), (x, contiguous), (contiguous, x)):
        result = OPS[name](a, b)
        assert_exact(name, result, a, b)
        if x.numel():
            assert geometry(result) == geometry(torch.add(a, b))


@names
def test_broadcasting_and_promotion_match_torch_add(device, name):
    for a, b in (
        ((3, 1), (4,)),
        ((), (2, 3)),
        ((2, 3), ()),
        ((1, 5, 1), (2, 1, 3)),
        ((0, 1), (4,)),
    ):
        x, y = values(*a, device=device), values(*b, device=device)
        result = OPS[name](x, y)
        assert_exact(name, result, x, y)
        assert geometry(result) == geometry(torch.add(x, y))
        assert OPS[name](x.half(), y.double()).dtype == torch.add(x.half(), y.double()).dtype


@names
@pytest.mark.parametrize("layout", LAYOUTS)
def test_meta(layout, name):
    x = make(layout).to("meta")
    y = torch.empty(x.shape[-1:], dtype=torch.float64, device="meta")
    for a, b in ((x, x), (x, y), (y, x)):
        result, theirs = OPS[name](a, b), torch.add(a, b)
        assert result.is_meta and result.shape == theirs.shape and result.dtype == theirs.dtype
        if x.numel():
            assert geometry(result) == geometry(theirs)


# ---- derivatives


@names
@pytest.mark.parametrize("shapes", (((4, 3), (4, 3)), ((4, 1), (3,)), ((3,), (2, 3))), ids=str)
def test_gradients(device, shapes, name):
    tensors = pair(*shapes, device=device)
    assert gradcheck(OPS[name], tensors, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(OPS[name], tensors, check_fwd_over_rev=True, check_batched_grad=True)


@names
def test_gradients_match_pytorch(device, dtype, name):
    x, y = pair((5, 3), (3,), dtype=dtype, device=device)
    for wanted in ((x, y), (x,), (y,)):
        ours, theirs = OPS[name](x, y), ATEN[name](x) + y
        g = values(5, 3, dtype=dtype, device=device)
        for a, b in zip(*(torch.autograd.grad(z, wanted, g) for z in (ours, theirs))):
            close(a, b, check_dtype=True)


@names
def test_forward_mode(device, name):
    x, y = (t.detach() for t in pair((5, 3), (3,), device=device))
    for tangents in ((x.cos(), y.cos()), (x.cos(), None), (None, y.cos())):
        results = []
        for f in (OPS[name], lambda a, b: ATEN[name](a) + b):
            with forward_ad.dual_level():
                duals = (
                    t if d is None else forward_ad.make_dual(t, d) for t, d in zip((x, y), tangents)
                )
                results.append(forward_ad.unpack_dual(f(*duals)).tangent)
        close(*results)


@names
def test_the_tangent_of_other_is_copied(device, name):
    x, y = (t.detach() for t in pair((4,), (4,), device=device))
    tangent = torch.ones_like(y)
    with forward_ad.dual_level():
        result = OPS[name](x, forward_ad.make_dual(y, tangent))
        result.mul_(3)
        assert torch.equal(forward_ad.unpack_dual(result).tangent, torch.full_like(y, 3))
    assert torch.equal(tangent, torch.ones_like(y))


@names
def test_vmap(device, name):
    x, y = values(4, 3, 5, device=device), values(5, 4, device=device)
    with no_vmap_fallback():
        both = vmap(OPS[name], in_dims=(0, 1))(x, y)
        one = vmap(OPS[name], in_dims=(0, None))(x, y[:, 0])
    assert_same_bits(both, torch.stack([OPS[name](x[i], y[:, i]) for i in range(4)]))
    assert_same_bits(one, OPS[name](x, y[:, 0]))


@names
def test_opcheck(device, name):
    torch.library.opcheck(OPS[name].default, pair((4, 3), (3,), device=device))


# ---- out= and errors


@names
def test_out(device, dtype, name):
    x, y = values(4, 3, dtype=dtype, device=device), values(3, dtype=dtype, device=device)
    expected = OPS[name](x, y)
    for out in (torch.empty_like(expected), torch.empty_like(expected.t()).t(), expected.new()):
        assert OPS[name](x, y, out=out) is out
        assert_same_bits(out, expected)
    with pytest.warns(UserWarning, match="resized"):
        assert OPS[name](x, y, out=expected.new_empty(2)).shape == (4, 3)
    assert OPS[name](x, y, out=x) is x
    assert_same_bits(x, expected)


@names
def test_errors(device, name):
    x = values(4, 3, device=device)
    for bad, kind, text in (
        (x.int(), NotImplementedError, "expected other to be float32"),
        (x.cfloat(), NotImplementedError, "but got ComplexFloat"),
        (x.to("meta"), RuntimeError, "on the same device, but got self on"),
    ):
        error = error_of(OPS[name], x, bad)
        assert type(error) is kind and text in first_line(error)
        assert first_line(error).startswith(f"fastact::{name}_sum: expected ")
    assert type(error_of(OPS[name], x, x.t())) is type(error_of(torch.add, x, x.t()))
    for out, text in (
        (x.int(), "can be cast to, but got Int"),
        (x.to("meta"), "expected out to be on"),
        (x[:1].expand(4, 3), "internal overlap|more than one element"),
    ):
        with pytest.raises(RuntimeError, match=text):
            OPS[name](x, x, out=out)
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        OPS[name](*pair((3,), (3,), device=device), out=torch.empty(3, device=device))
