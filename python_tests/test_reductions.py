"""sum, mean and var_mean: errors against exact arithmetic, bits that depend on the row alone,
ATen's semantics, derivatives, and every way to call them."""

import itertools
import math
from fractions import Fraction

import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.func import functionalize, grad, jvp, vmap

# isort: off
from rows import FINITE, LENGTHS, kinds_of_rows, moved, rows_of
from support import DTYPES, LAYOUTS, assert_same_bits, error_of, first_line, make
# isort: on

fastact = torch.ops.fastact


# Each takes a tensor, dimensions and keepdim. They look up the operators when they are called,
# because a build may lack them.
REDUCTIONS = {
    "sum": lambda x, dim, keepdim=False: fastact.sum(x, dim, keepdim),
    "mean": lambda x, dim, keepdim=False: fastact.mean(x, dim, keepdim),
    "var": lambda x, dim, keepdim=False: fastact.var_mean(x, dim, keepdim=keepdim)[0],
}
THEIRS = {
    "sum": torch.sum,
    "mean": torch.mean,
    "var": lambda x, dim, keepdim=False: torch.var(x, dim, keepdim=keepdim),
}
every_reduction = pytest.mark.parametrize("name", REDUCTIONS)


def wide(dtype):
    return torch.float64 if dtype == torch.float64 else torch.float32


def exact_reductions(row):
    """Returns the exact results for finite elements, and the sum of the magnitudes."""
    x = [Fraction(value) for value in row.tolist()]
    total, n = sum(x), len(x)
    squares = sum((value - total / n) ** 2 for value in x)
    exact = {"sum": total, "mean": total / n}
    if n > 1:
        exact["var"] = squares / (n - 1)
    return exact, sum(map(abs, x))


# ---- Numbers


@pytest.mark.parametrize("n", (1, 2, 7, 128, 1000, 5000))
@pytest.mark.kernels
def test_errors(n, dtype, device):
    """The errors in ops/forms/reductions.h, followed by the rounding to 16 bits."""
    info, rows = torch.finfo(dtype), kinds_of_rows(n, dtype)
    unit = Fraction(torch.finfo(wide(dtype)).eps) / 2
    tiny = Fraction(torch.finfo(wide(dtype)).tiny)
    rows["one differs"] = torch.full((n,), 1.25, dtype=dtype)
    rows["one differs"][n // 3] += info.eps
    for kind, row in rows.items():
        if not row.isfinite().all():
            continue
        exact, magnitudes = exact_reductions(row)
        additions = 11 + math.ceil(math.log2(math.ceil(n / 1024)))
        error_of_mean = (additions + 1) * unit * magnitudes / n
        bounds = {"sum": additions * unit * magnitudes, "mean": error_of_mean}
        bounds["var"] = (additions + 5) * unit * (exact.get("var", 0) + error_of_mean**2)
        for name, value in exact.items():
            bound = bounds[name] + tiny * unit
            if dtype.itemsize == 2:
                bound += max(abs(value), Fraction(info.tiny)) * Fraction(info.eps) / 2
            found = REDUCTIONS[name](row.to(device), 0).item()
            if math.isinf(found):
                assert abs(value) > info.max, (kind, name)
            else:
                assert abs(Fraction(found) - value) <= bound, (kind, name)


def test_special_values(dtype, device):
    inf, nan = torch.inf, torch.nan
    for n in (2, 40, 300, 2000):
        x = torch.randn(6, n, device=device).to(dtype)
        x[0, 0], x[1, n // 2] = inf, nan
        x[2, 0], x[2, 1] = inf, -inf
        x[3], x[4] = -inf, -0.0
        for name, reduce in REDUCTIONS.items():
            y, expected = reduce(x, 1), THEIRS[name](x.double(), 1).to(dtype)
            torch.testing.assert_close(y, expected, equal_nan=True)
            one_nan = fastact.relu(torch.full_like(y, nan))
            assert_same_bits(y[y.isnan()], one_nan[y.isnan()])
            assert not y[4].signbit()


def test_overflow(device):
    """PyTorch adds squares in float64 on a CPU."""
    squares = torch.tensor([1e19, -1e19], device=device).repeat(20)
    assert [t.item() for t in fastact.var_mean(squares, 0)] == [torch.inf, 0]
    sums = torch.full((2,), 3e38, device=device)
    assert fastact.sum(sums, 0).item() == fastact.mean(sums, 0).item() == torch.inf
    assert fastact.var_mean(sums, 0)[0].isnan()


def test_a_variance_without_freedom(device):
    """n <= correction, as in PyTorch."""
    x = torch.randn(2, 3, device=device)
    for n, correction in itertools.product((1, 2, 3), (0, 1, 2, 2.5, 5)):
        ours = fastact.var_mean(x[:, :n], 1, correction=correction)[0]
        theirs = torch.var(x[:, :n], 1, correction=correction)
        torch.testing.assert_close(ours, theirs, equal_nan=True)


# ---- Bits


@every_reduction
@pytest.mark.parametrize("n", LENGTHS)
def test_bits_depend_on_the_row_alone(n, name, dtype, device):
    x, reduce = rows_of(n, dtype).to(device), REDUCTIONS[name]
    y = reduce(x, 1)
    for i in range(0, x.shape[0], 3):
        assert_same_bits(reduce(x[i], 0), y[i])
    assert_same_bits(reduce(x.repeat(40, 1), 1), y.repeat(40))
    assert_same_bits(reduce(moved(x), 1), y)
    assert_same_bits(reduce(x.t().contiguous(), 0), y)
    if name == "sum":
        assert_same_bits(reduce(torch.nn.functional.pad(x, (0, 700)), 1), y)
    if name == "mean":
        assert_same_bits(fastact.var_mean(x, 1)[1], y)


@every_reduction
@pytest.mark.parametrize("n", (*LENGTHS, 20000, 300000))
def test_gpu_bits_are_cpu_bits(n, name, dtype, cuda):
    x, reduce = rows_of(n, dtype), REDUCTIONS[name]
    for there in (x.to(cuda), moved(x.to(cuda))):
        assert_same_bits(reduce(there, 1), reduce(x, 1))


@every_reduction
def test_threads_share_a_long_row(name, dtype):
    x = torch.randn(1, 200_000).to(dtype)
    y = REDUCTIONS[name](x, 1)
    torch.set_num_threads(1)
    try:
        assert_same_bits(REDUCTIONS[name](x, 1), y)
    finally:
        torch.set_num_threads(2)


@every_reduction
@pytest.mark.parametrize("half", (torch.bfloat16, torch.float16))
def test_sixteen_bits_are_float32_rounded_once(name, half, device):
    for n in (3, 77, 3000):
        x = torch.stack([kinds_of_rows(n, half)[kind] for kind in FINITE]).to(device)
        rounded = REDUCTIONS[name](x.float(), 1).to(half)
        # Leaky ReLU with this slope returns its input, with FastAct's NaN.
        assert_same_bits(REDUCTIONS[name](x, 1), fastact.leaky_relu(rounded, 1.0))


def test_both_ways_to_the_variance_have_the_same_bits(dtype, device):
    """var_mean calls one operator if no derivative is needed, and otherwise two."""
    for n in LENGTHS:
        x = rows_of(n, dtype).to(device)
        for ours, theirs in zip(
            fastact.var_mean(x, 1), fastact.var_mean(x.requires_grad_(), 1), strict=True
        ):
            assert_same_bits(ours, theirs.detach())


# ---- Semantics


@every_reduction
def test_dims_and_layouts(name, device):
    for layout in LAYOUTS:
        x = make(layout, dtype=torch.float64, device=device)
        rank = max(x.dim(), 1)
        for count in range(rank + 1):
            for dims in itertools.combinations(range(rank), count):
                for keepdim in (False, True):
                    given = dims or tuple(range(x.dim()))
                    expected = THEIRS[name](x, given, keepdim)
                    found = REDUCTIONS[name](x, [d - rank for d in dims[::-1]], keepdim)
                    torch.testing.assert_close(found, expected, equal_nan=True)


@every_reduction
def test_the_order_of_several_dimensions(name, device):
    x, reduce = torch.randn(7, 5, 300, device=device), REDUCTIONS[name]
    assert_same_bits(reduce(x, [2, 0]), reduce(x.permute(1, 0, 2).reshape(5, -1), 1))


def test_no_dims(device):
    x = torch.randn(2, 3, device=device)
    for name in ("sum", "mean"):
        torch.testing.assert_close(getattr(fastact, name)(x), getattr(torch, name)(x))
    for ours, theirs in zip(fastact.var_mean(x), torch.var_mean(x), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_dtype(device):
    """self is converted before the reduction."""
    integers = torch.arange(6, device=device).view(2, 3) + 2**24
    halves = torch.randn(2, 300, device=device).bfloat16()
    for name in ("sum", "mean"):
        ours = getattr(fastact, name)
        assert_same_bits(ours(integers, 1, dtype=torch.float32), ours(integers.float(), 1))
        assert_same_bits(ours(halves, dtype=torch.float64), ours(halves.double()))
        out = torch.empty(0, device=device)
        expected = ours(integers.float(), 1)
        assert_same_bits(ours.out(integers, 1, dtype=torch.float32, out=out), expected)
        x = halves.clone().requires_grad_()
        (by_x,) = torch.autograd.grad(ours(x, 1, dtype=torch.float64).sum(), x)
        assert by_x.dtype == torch.bfloat16


@pytest.mark.parametrize("name", ("sum", "mean"))
def test_out(name, dtype, device):
    x, reduce = torch.randn(4, 6, device=device).to(dtype), getattr(fastact, name)
    for dims in ([1], [0, 1]):
        for keepdim in (False, True):
            expected = reduce(x, dims, keepdim)
            out = torch.empty(0, dtype=dtype, device=device)
            assert reduce.out(x, dims, keepdim, out=out) is out
            assert_same_bits(out, expected)
    wider = torch.empty(4, dtype=torch.float64, device=device)
    reduce.out(x, 1, out=wider)
    assert_same_bits(wider, reduce(x, 1).double())
    for bad in (torch.empty(4, dtype=torch.int64, device=device), wider.requires_grad_()):
        before = bad.detach().clone()
        assert error_of(lambda: reduce.out(x, 1, out=bad))
        assert torch.equal(bad.detach(), before)


@every_reduction
def test_no_elements(name, device):
    for shape, dim in (((2, 0), 1), ((0, 2), 1), ((0,), 0)):
        x = torch.zeros(shape, device=device, requires_grad=True)
        y = REDUCTIONS[name](x, dim)
        torch.testing.assert_close(y, THEIRS[name](x, dim), equal_nan=True)
        assert torch.autograd.grad(y.sum(), x)[0].shape == shape


def test_errors_of_arguments(device):
    x = torch.ones(2, 3, device=device)
    calls = {
        "fastact::sum: expected dim to be from -2 to 1, but got 2": lambda: fastact.sum(x, 2),
        "fastact::mean: expected each dim once, but got [0, -2]": lambda: fastact.mean(x, [0, -2]),
        "fastact::sum: expected self to be float32, float64, bfloat16 or float16, but got Long": (
            lambda: fastact.sum(x.long(), 1)
        ),
        "fastact::var_mean: expected dim to be from -2 to 1, but got -3": (
            lambda: fastact.var_mean(x, -3)
        ),
    }
    for message, call in calls.items():
        assert first_line(error_of(call)) == message


# ---- Derivatives and transforms


@every_reduction
@pytest.mark.parametrize("shape", ((6,), (4, 3)))
def test_derivatives(shape, name, device):
    x = torch.randn(shape, dtype=torch.float64, device=device, requires_grad=True)
    for dims in ([-1], list(range(len(shape)))):
        call = lambda x, dims=dims: REDUCTIONS[name](x, dims)  # noqa: E731
        gradcheck(call, x, check_forward_ad=True, check_batched_grad=True)
        gradgradcheck(call, x, check_fwd_over_rev=True)


def test_both_results_of_var_mean_have_derivatives(device):
    x = torch.randn(4, 3, dtype=torch.float64, device=device, requires_grad=True)
    gradcheck(lambda x: fastact.var_mean(x, 1, correction=0.5), x, check_forward_ad=True)
    for reduce in (
        lambda x: fastact.var_mean(x, 1)[1].sum(),
        lambda x: REDUCTIONS["var"](x, 1).sum(),
    ):
        theirs = torch.autograd.grad(reduce(x), x)[0]
        torch.testing.assert_close(grad(reduce)(x.detach()), theirs)
        each = vmap(grad(lambda x: reduce(x[None])))(x.detach())
        torch.testing.assert_close(each, theirs)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x.detach(), torch.ones_like(x))
        for result in fastact.var_mean(dual, 1):
            assert forward_ad.unpack_dual(result).tangent is not None


@every_reduction
def test_gradients_in_every_type(name, dtype, device):
    x, g = torch.randn(5, 9, device=device).to(dtype), torch.randn(5, device=device).to(dtype)
    (ours,), (theirs,) = (
        torch.autograd.grad(reduce(leaf, 1), leaf, g.to(leaf.dtype))
        for reduce, leaf in (
            (REDUCTIONS[name], x.clone().requires_grad_()),
            (THEIRS[name], x.double().requires_grad_()),
        )
    )
    assert ours.dtype == dtype
    tolerance = torch.finfo(dtype).eps * 2
    torch.testing.assert_close(ours.double(), theirs, rtol=tolerance, atol=tolerance)


def test_gradients_of_a_variance_without_freedom(device):
    x = torch.randn(2, 3, dtype=torch.float64, device=device, requires_grad=True)
    for correction in (3, 4, 1e39):
        ours, theirs = (
            torch.autograd.grad(f.var_mean(x, 1, correction=correction)[0].sum(), x)[0]
            for f in (fastact, torch)
        )
        torch.testing.assert_close(ours, theirs, equal_nan=True)


@pytest.mark.parametrize("name", ("sum", "mean"))
def test_gradients_need_the_shape_alone(name, device):
    """So the input may change, and no memory is kept, as in PyTorch."""
    leaf, saved = torch.randn(3, 400, device=device, requires_grad=True), []
    x = leaf * 1

    def pack(tensor):
        saved.append(tensor.untyped_storage().nbytes())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = getattr(fastact, name)(x, [0, 1])
    assert sum(saved) <= 16
    x.relu_()
    (by_leaf,) = torch.autograd.grad(y, leaf)
    (theirs,) = torch.autograd.grad(getattr(torch, name)(leaf), leaf)
    torch.testing.assert_close(by_leaf, theirs)


@every_reduction
def test_forward_mode_in_every_type(name, dtype, device):
    x, t = torch.randn(2, 5, 9, device=device).to(dtype)
    _, tangent = jvp(lambda x: REDUCTIONS[name](x, 1), (x,), (t,))
    _, expected = jvp(lambda x: THEIRS[name](x, 1), (x.double(),), (t.double(),))
    tolerance = torch.finfo(dtype).eps * 16
    torch.testing.assert_close(tangent.double(), expected, rtol=tolerance, atol=tolerance)


@every_reduction
def test_vmap(name, device):
    x, reduce = torch.randn(3, 4, 5, device=device), REDUCTIONS[name]
    for in_dim in range(3):
        rest = [d for d in range(3) if d != in_dim]
        found = vmap(lambda t: reduce(t, 1), in_dims=in_dim)(x)
        assert_same_bits(found, reduce(x.permute(in_dim, *rest), 2))
    scalars = vmap(lambda t: reduce(t, 0))(x[0, 0])
    assert_same_bits(scalars, reduce(x[0, 0][:, None], 1))


def test_vmap_of_operators_with_two_results(device):
    x = torch.randn(3, 4, 5, device=device)
    found = vmap(lambda t: fastact._var_mean(t, 1.0, 1))(x)
    for ours, theirs in zip(found, fastact._var_mean(x, 1.0, 2), strict=True):
        assert_same_bits(ours, theirs)


def test_functionalize(device):
    x = torch.randn(3, 4, device=device)
    write = functionalize(lambda x: fastact.sum.out(x, 1, out=torch.zeros(3, device=device)))
    assert_same_bits(write(x), fastact.sum(x, 1))


def test_opcheck(device):
    x = torch.randn(3, 4, device=device, requires_grad=True)
    for op, arguments in (
        (fastact.sum, (x, [0, 1])),
        (fastact.mean, (x, [1])),
        (fastact.var_mean, (x, [1])),
        (fastact._mean, (x, 1)),
        (fastact._var, (x, 1.0, 1)),
        (fastact._var_mean, (x.detach(), 1.0, 1)),
    ):
        torch.library.opcheck(op.default, arguments)


def test_meta():
    x = torch.empty(3, 4, 5, device="meta", dtype=torch.bfloat16)
    for reduce in REDUCTIONS.values():
        for dims, keepdim, shape in (([1], False, (3, 5)), ([0, 2], True, (1, 4, 1))):
            y = reduce(x, dims, keepdim)
            assert (y.shape, y.dtype) == (shape, torch.bfloat16)


@every_reduction
@pytest.mark.parametrize("dtype", DTYPES)
def test_compile(name, dtype, device, fresh_compiler):
    """With aot_eager, which runs the traced operators."""
    eager = lambda x: REDUCTIONS[name](x, 1)  # noqa: E731
    call = torch.compile(eager, backend="aot_eager", fullgraph=True, dynamic=True)
    for rows in (3, 8):
        x = torch.randn(rows, 40, device=device).to(dtype).requires_grad_()
        found, expected = (
            (y.detach(), torch.autograd.grad(y.sum(), x)[0]) for y in (call(x), eager(x))
        )
        for ours, theirs in zip(found, expected, strict=True):
            assert_same_bits(ours, theirs)


def test_export(device):
    class Network(torch.nn.Module):
        def forward(self, x):
            return fastact.sum(x, 1), *fastact.var_mean(x, [0, 1])

    x = torch.randn(3, 4, device=device)
    program = torch.export.export(Network(), (x,), dynamic_shapes=({0: torch.export.Dim.AUTO},))
    more = torch.randn(7, 4, device=device)
    for ours, theirs in zip(program.module()(more), Network()(more), strict=True):
        assert_same_bits(ours, theirs)


def test_autocast(device):
    x = torch.randn(3, 4, device=device).bfloat16()
    with torch.autocast(device, dtype=torch.bfloat16):
        for name, reduce in REDUCTIONS.items():
            for input in (x, x.half(), x.double()):
                assert reduce(input, 1).dtype == THEIRS[name](input, 1).dtype
        assert fastact.sum(x, 1, dtype=torch.bfloat16).dtype == torch.bfloat16
