"""logsumexp: errors against MPFR, bits that depend on the row alone, ATen's semantics, derivatives,
and every way to call it."""

import itertools
import math

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functionalize, jvp, vmap

# isort: off
import gmpy2
from rows import FINITE, LENGTHS, kinds_of_rows, moved, rows_of
from support import DTYPES, LAYOUTS, assert_same_bits, error_of, first_line, make
# isort: on

fastact = torch.ops.fastact


def wide(dtype):
    return torch.float64 if dtype == torch.float64 else torch.float32


def gradient(x, g, dim=-1):
    """Returns the gradient for g, one number for each row."""
    return fastact._logsumexp_backward(x, g.to(wide(x.dtype)).unsqueeze(dim), dim)


def exact(row):
    with gmpy2.context(gmpy2.get_context(), precision=300):
        return gmpy2.log(sum(gmpy2.exp(gmpy2.mpfr(float(x))) for x in row))


# ---- Numbers


@pytest.mark.parametrize("n", (1, 2, 7, 128, 1000, 5000))
@pytest.mark.kernels
def test_errors(n, dtype):
    """1 ULP of the larger of the largest magnitude and log n, plus the rounding to 16 bits."""
    eps = torch.finfo(wide(dtype)).eps
    for kind, row in kinds_of_rows(n, dtype).items():
        if kind in FINITE and row.isfinite().all():
            found, y = fastact.logsumexp(row, 0).item(), exact(row.tolist())
            rounding = abs(float(y)) * torch.finfo(dtype).eps / 2 if dtype.itemsize == 2 else 0
            bound = max(float(row.abs().max()), math.log(n), 1e-37) * eps + rounding
            assert abs(float(gmpy2.mpfr(found) - y)) <= bound, kind


def test_special_values(dtype, device):
    inf, nan = torch.inf, torch.nan
    for n in (2, 40, 300, 2000):
        x = torch.randn(5, n, device=device).to(dtype)
        x[0] = -inf
        x[1, n // 2] = inf
        x[2, 0], x[2, 1] = inf, nan
        x[3, n - 1] = nan
        x[4, 1:] = -inf
        y = fastact.logsumexp(x, 1)
        assert y[:4].tolist() == pytest.approx([-inf, inf, nan, nan], nan_ok=True)
        assert_same_bits(y[4], x[4, 0])
        torch.testing.assert_close(y, torch.logsumexp(x, 1), equal_nan=True)
        assert gradient(x, torch.ones(5, device=device))[:4].isnan().all()


@pytest.mark.parametrize("n", (3, 40, 2000))
def test_infinity_beside_any_number(n, dtype, device):
    """Exponentials relative to 0 would overflow."""
    top = torch.finfo(dtype).max
    numbers = torch.cat(
        (torch.linspace(-3000, 3000, 2000), torch.tensor([-top, top, 0, -torch.inf]))
    )
    chosen = torch.randint(len(numbers), (200, n), generator=torch.Generator().manual_seed(n))
    x = numbers.to(device, dtype)[chosen.to(device)]
    x[torch.arange(200, device=device), chosen[:, 0].to(device) % n] = torch.inf
    assert fastact.logsumexp(x, 1).eq(torch.inf).all()


# ---- Bits


@pytest.mark.parametrize("n", LENGTHS)
def test_bits_depend_on_the_row_alone(n, dtype, device):
    x = rows_of(n, dtype).to(device)
    g = torch.randn(x.shape[0], device=device)
    y, by_x = fastact.logsumexp(x, 1), gradient(x, g)
    for i in range(0, x.shape[0], 3):
        assert_same_bits(fastact.logsumexp(x[i], 0), y[i])
        assert_same_bits(gradient(x[i], g[i]), by_x[i])
    assert_same_bits(fastact.logsumexp(x.repeat(40, 1), 1), y.repeat(40))
    assert_same_bits(gradient(x.repeat(40, 1), g.repeat(40)), by_x.repeat(40, 1))
    assert_same_bits(fastact.logsumexp(moved(x), 1), y)
    assert_same_bits(gradient(moved(x), g), by_x)
    columns = x.t().contiguous()
    assert_same_bits(fastact.logsumexp(columns, 0), y)
    assert_same_bits(gradient(columns, g, 0).t(), by_x)
    padded = torch.nn.functional.pad(x, (0, 700), value=-torch.inf)
    assert_same_bits(fastact.logsumexp(padded, 1), y)


@pytest.mark.parametrize("n", (*LENGTHS, 20000, 300000))
def test_gpu_bits_are_cpu_bits(n, dtype, cuda):
    x = rows_of(n, dtype)
    g = torch.randn(x.shape[0])
    on_gpu = x.to(cuda)
    for there in (on_gpu, moved(on_gpu)):
        assert_same_bits(fastact.logsumexp(there, 1), fastact.logsumexp(x, 1))
        assert_same_bits(gradient(there, g.to(cuda)), gradient(x, g))
        assert_same_bits(fastact._sum(there, 1), fastact._sum(x, 1))


def test_threads_share_a_long_row(dtype):
    x = torch.randn(1, 200_000).to(dtype)
    y, by_x = fastact.logsumexp(x, 1), gradient(x, torch.ones(1))
    torch.set_num_threads(1)
    try:
        assert_same_bits(fastact.logsumexp(x, 1), y)
        assert_same_bits(gradient(x, torch.ones(1)), by_x)
    finally:
        torch.set_num_threads(2)


@pytest.mark.parametrize("half", (torch.bfloat16, torch.float16))
def test_sixteen_bits_are_float32_rounded_once(half, device):
    for n in (3, 77, 3000):
        x = torch.stack([kinds_of_rows(n, half)[kind] for kind in FINITE]).to(device)
        g = torch.randn(len(FINITE), device=device)
        assert_same_bits(fastact.logsumexp(x, 1), fastact.logsumexp(x.float(), 1).to(half))
        assert_same_bits(gradient(x, g), gradient(x.float(), g).to(half))


# ---- Semantics


def test_dims_and_layouts(device):
    for layout in LAYOUTS:
        x = make(layout, device=device)
        rank = max(x.dim(), 1)
        for count in range(rank + 1):
            for dims in itertools.combinations(range(rank), count):
                for keepdim in (False, True):
                    # Without dimensions, ATen's version depends on the shape.
                    given = dims or tuple(range(x.dim()))
                    expected = torch.logsumexp(x, given, keepdim)
                    found = fastact.logsumexp(x, [d - rank for d in dims[::-1]], keepdim)
                    torch.testing.assert_close(found, expected)


def test_out(dtype, device):
    x = torch.randn(4, 6, device=device).to(dtype)
    for dims in ([1], [0, 1]):
        for keepdim in (False, True):
            expected = fastact.logsumexp(x, dims, keepdim)
            out = torch.empty(0, dtype=dtype, device=device)
            assert fastact.logsumexp.out(x, dims, keepdim, out=out) is out
            assert_same_bits(out, expected)
    wider = torch.empty(4, dtype=torch.float64, device=device)
    fastact.logsumexp.out(x, 1, out=wider)
    assert_same_bits(wider, fastact.logsumexp(x, 1).double())
    for bad in (torch.empty(4, dtype=torch.int64, device=device), wider.requires_grad_()):
        before = bad.detach().clone()
        assert error_of(lambda: fastact.logsumexp.out(x, 1, out=bad))
        assert torch.equal(bad.detach(), before)


def test_no_elements(device):
    for shape, dim in (((2, 0), 1), ((0, 2), 1), ((0,), 0)):
        x = torch.zeros(shape, device=device, requires_grad=True)
        y = fastact.logsumexp(x, dim)
        assert_same_bits(y, torch.logsumexp(x, dim))
        assert torch.autograd.grad(y.sum(), x)[0].shape == shape


def test_errors_of_arguments(device):
    x = torch.ones(2, 3, device=device)
    name, backward = "fastact::logsumexp: expected", "fastact::logsumexp_backward: expected"
    calls = {
        f"{name} dim to be from -2 to 1, but got 2": lambda: fastact.logsumexp(x, 2),
        f"{name} each dim once, but got [0, -2]": lambda: fastact.logsumexp(x, [0, -2]),
        f"{name} self to be float32, float64, bfloat16 or float16, but got Long": (
            lambda: fastact.logsumexp(x.long(), 1)
        ),
        f"{backward} grad_output to be Float, but got Double": (
            lambda: fastact._logsumexp_backward(x, x[:, :1].double(), 1)
        ),
        f"{backward} grad_output to have the shape [2, 1], but got [2, 3]": (
            lambda: fastact._logsumexp_backward(x, x, 1)
        ),
    }
    for message, call in calls.items():
        assert first_line(error_of(call)) == message


# ---- Derivatives and transforms


@pytest.mark.parametrize("shape", ((6,), (4, 3)))
def test_derivatives(shape, device):
    x = torch.randn(shape, dtype=torch.float64, device=device, requires_grad=True)
    for dims in ([-1], list(range(len(shape)))):
        call = lambda x, dims=dims: fastact.logsumexp(x, dims)  # noqa: E731
        gradcheck(call, x, check_forward_ad=True, check_batched_grad=True)
        gradgradcheck(call, x, check_fwd_over_rev=True)


def test_forward_mode_in_every_type(dtype, device):
    x, t = torch.randn(2, 5, 9, device=device).to(dtype)
    _, tangent = jvp(lambda x: fastact.logsumexp(x, 1), (x,), (t,))
    expected = (torch.softmax(x.double(), 1) * t.double()).sum(1)
    tolerance = torch.finfo(dtype).eps * 8
    torch.testing.assert_close(tangent.double(), expected, rtol=tolerance, atol=tolerance)


def test_vmap(device):
    x = torch.randn(3, 4, 5, device=device)
    for in_dim in range(3):
        rest = [d for d in range(3) if d != in_dim]
        found = vmap(lambda t: fastact.logsumexp(t, 1), in_dims=in_dim)(x)
        assert_same_bits(found, fastact.logsumexp(x.permute(in_dim, *rest), 2))
    scalars = vmap(lambda t: fastact.logsumexp(t, 0))(x[0, 0])
    assert_same_bits(scalars, fastact.logsumexp(x[0, 0][:, None], 1))
    outs = torch.empty(3, 4, device=device)
    vmap(lambda t, out: fastact.logsumexp.out(t, 1, out=out))(x, outs)
    assert_same_bits(outs, fastact.logsumexp(x, 2))


def test_functionalize(device):
    x = torch.randn(3, 4, device=device)
    write = functionalize(lambda x: fastact.logsumexp.out(x, 1, out=torch.zeros(3, device=device)))
    assert_same_bits(write(x), fastact.logsumexp(x, 1))


def test_opcheck(device):
    x = torch.randn(3, 4, device=device, requires_grad=True)
    g = torch.randn(3, 1, device=device, requires_grad=True)
    for op, arguments in (
        (fastact.logsumexp, (x, [0, 1])),
        (fastact._logsumexp, (x, 1)),
        (fastact._logsumexp_backward, (x, g, 1)),
        (fastact._sum, (x, 1)),
    ):
        torch.library.opcheck(op.default, arguments)


def test_meta():
    x = torch.empty(3, 4, 5, device="meta", dtype=torch.bfloat16)
    for dims, keepdim, shape in (([1], False, (3, 5)), ([0, 2], True, (1, 4, 1))):
        y = fastact.logsumexp(x, dims, keepdim)
        assert (y.shape, y.dtype) == (shape, torch.bfloat16)


@pytest.mark.parametrize("dtype", DTYPES)
def test_compile(dtype, device, fresh_compiler):
    """With aot_eager, which runs the traced operators."""
    call = torch.compile(
        lambda x: fastact.logsumexp(x, 1), backend="aot_eager", fullgraph=True, dynamic=True
    )
    for rows in (3, 8):
        x = torch.randn(rows, 40, device=device).to(dtype).requires_grad_()
        for f in (call, lambda x: fastact.logsumexp(x, 1)):
            y = f(x)
            results = (y.detach(), torch.autograd.grad(y.sum(), x)[0])
            if f is call:
                found = results
        for ours, expected in zip(found, results):
            assert_same_bits(ours, expected)


def test_autocast(device):
    x = torch.randn(3, 4, device=device).bfloat16()
    with torch.autocast(device, dtype=torch.bfloat16):
        assert fastact.logsumexp(x, 1).dtype == torch.logsumexp(x, 1).dtype
