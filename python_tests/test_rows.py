"""Softmax and log-softmax: errors against MPFR, bits that depend on the row alone, ATen's
semantics, derivatives, and every way to call them."""

import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.func import functionalize, jvp, vmap

import fastact as package
from oracle import bits

# isort: off
from rows import FINITE, LENGTHS, exact_row, kinds_of_rows, largest_error, moved, padded
from rows import rows_far_from_zero, rows_of
from support import DTYPES, LAYOUTS, assert_same_bits, error_of, first_line, make
from support import no_vmap_fallback, untouched
# isort: on

fastact = torch.ops.fastact
OPERATORS = {"softmax": torch.softmax, "log_softmax": torch.log_softmax}
BACKWARD = {name: getattr(torch.ops.aten, f"_{name}_backward_data") for name in OPERATORS}
MODULES = {"softmax": "Softmax", "log_softmax": "LogSoftmax"}  # of fastact.nn

every_operator = pytest.mark.parametrize("name", OPERATORS)


# ---- Errors


BOUNDS = {"softmax": 3.5, "log_softmax": 2.5}  # as ops/forms/softmax.h states


@every_operator
@pytest.mark.parametrize("n", (2, 128, 1000, 5000))
@pytest.mark.kernels
def test_errors(name, n, dtype):
    bound = BOUNDS[name] if dtype.itemsize >= 4 else 0.51
    op = getattr(fastact, name)
    finite = {kind: row for kind, row in kinds_of_rows(n, dtype).items() if kind in FINITE}
    for kind, row in (finite | rows_far_from_zero(n, dtype)).items():
        error = largest_error(op(row, 0), exact_row(name, row))
        assert error <= bound, (kind, error)


@every_operator
@pytest.mark.parametrize("spread", (1, 3, 10))
@pytest.mark.kernels
def test_errors_of_many_rows(name, spread):
    """In float32, against float64. The largest errors are rare."""
    for n, rows in ((2, 40_000), (16, 10_000), (1000, 1000), (4096, 300)):
        generator = torch.Generator().manual_seed(n + spread)
        x = torch.randn(rows, n, generator=generator) * spread
        wide = x.double()
        distance = wide - wide.amax(1, keepdim=True)
        others = torch.where(distance == 0, 0, distance.exp()).sum(1, keepdim=True)
        # log1p keeps the digits of the largest element's result.
        exact = distance - others.log1p() if name == "log_softmax" else torch.softmax(wide, 1)
        unit = torch.exp2(torch.frexp(exact.abs().clamp(min=2.0**-125)).exponent - 24.0)
        error = (getattr(fastact, name)(x, 1) - exact).abs() / unit
        assert error.max() <= BOUNDS[name], (n, error.max())


@every_operator
def test_special_values(name, dtype, device):
    """As ATen: a row of -infinity alone, one with +infinity and one with NaN are NaN."""
    op = getattr(fastact, name)
    for n in (1, 5, 1030):
        for kind, row in kinds_of_rows(n, dtype).items():
            row = row.to(device)
            result, theirs = op(row, 0), OPERATORS[name](row, 0)
            assert torch.equal(result.isnan(), theirs.isnan()), (n, kind)
            assert torch.equal(result.isinf(), theirs.isinf()), (n, kind)
            nan = fastact.relu(torch.full_like(result, torch.nan))  # the library's NaN
            assert_same_bits(result[result.isnan()], nan[result.isnan()])


# ---- Bits


@every_operator
@pytest.mark.parametrize("n", LENGTHS)
def test_bits_depend_on_the_row_alone(name, n, dtype, device):
    """Not on the batch, the place in it, strides, alignment, and the number of threads."""
    op, backward = getattr(fastact, name), getattr(fastact, f"{name}_backward")
    x, g = rows_of(n, dtype).to(device), rows_of(n, dtype, seed=1).to(device)
    expected = op(x, 1)
    gradient = backward(g, expected, 1)
    for i in (0, 2, 6):
        assert_same_bits(op(x[i], 0), expected[i])
        assert_same_bits(backward(g[i], expected[i], 0), gradient[i])
    many = x.repeat(40, 1)
    repeated = op(many, 1)
    assert_same_bits(repeated, expected.repeat(40, 1))
    assert_same_bits(backward(g.repeat(40, 1), repeated, 1), gradient.repeat(40, 1))
    torch.set_num_threads(1)
    try:
        assert_same_bits(op(many, -1), repeated)
    finally:
        torch.set_num_threads(2)
    for view in (moved(x), x.t().contiguous().t(), padded(x, 1), padded(x, 3)):
        assert_same_bits(op(view, 1), expected)
        assert_same_bits(op(view.t(), 0).t().contiguous(), expected)
        assert_same_bits(backward(g, moved(expected), 1), gradient)
        assert_same_bits(backward(moved(g).t(), expected.t(), 0).t().contiguous(), gradient)


@every_operator
def test_threads_share_a_long_row(name, dtype):
    """Two threads compute fewer rows than there are threads. The last part of each row is short."""
    op, backward = getattr(fastact, name), getattr(fastact, f"{name}_backward")
    x, g = rows_of(100257, dtype)[:1], rows_of(100257, dtype, seed=1)[:1]
    torch.set_num_threads(1)
    try:
        expected = op(x, 1)
        gradient = backward(g, expected, 1)
    finally:
        torch.set_num_threads(2)
    for view in (x, x.t().contiguous().t(), padded(x, 1)):
        assert_same_bits(op(view, 1), expected)
    assert_same_bits(backward(g, expected, 1), gradient)
    out = x.clone()
    getattr(fastact, name).out(out, 1, out=out)
    assert_same_bits(out, expected)


@every_operator
@pytest.mark.parametrize("length", (3, 200, 1024, 3000))
def test_minus_infinity_behind_a_row_changes_nothing(name, length, dtype, device):
    x = rows_of(length, dtype)[: len(FINITE)].to(device)
    op = getattr(fastact, name)
    for more in (1, 30, 1024, 5000):
        wide = torch.nn.functional.pad(x, (0, more), value=-torch.inf)
        assert_same_bits(op(wide, 1)[:, :length].contiguous(), op(x, 1))


@every_operator
def test_sixteen_bits_are_float32_rounded_once(name, half, device):
    for n in (5, 128, 1500):
        x = rows_of(n, half).to(device)
        nan = bits(fastact.relu(torch.full((), torch.nan, dtype=half))).item()
        expected = getattr(fastact, name)(x.float(), 1).to(half)
        actual = getattr(fastact, name)(x, 1)
        assert_same_bits(actual[: len(FINITE)], expected[: len(FINITE)])
        assert (bits(actual[len(FINITE) :].cpu())[actual[len(FINITE) :].isnan().cpu()] == nan).all()


@pytest.mark.parametrize("n", (*LENGTHS, 20000, 300000))
def test_gpu_bits_are_cpu_bits(n, dtype, cuda):
    """Over lengths, kinds of rows and layouts."""
    x, g = rows_of(n, dtype), rows_of(n, dtype, seed=1)
    for name in OPERATORS:
        op, backward = getattr(fastact, name), getattr(fastact, f"{name}_backward")
        y = op(x, 1)
        gradient = backward(g, y, 1)
        views = (lambda t: t, moved, lambda t: padded(t, 1), lambda t: t.t().contiguous().t())
        for view in views:
            on_gpu = view(x.to(cuda))
            assert_same_bits(op(on_gpu, 1), y)
            assert_same_bits(backward(view(g.to(cuda)), view(y.to(cuda)), 1), gradient)
        assert_same_bits(op(x.to(cuda).repeat(7, 1), 1), y.repeat(7, 1))
        three = x.to(cuda).view(3, 4, n).transpose(1, 2)
        assert_same_bits(op(three, 1), y.view(3, 4, n).transpose(1, 2).contiguous())


# ---- ATen's semantics


@every_operator
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_and_dims(name, layout, device):
    x = make(layout, device=device)
    for dim in range(-max(x.dim(), 1), max(x.dim(), 1)):
        with untouched(x):
            result = getattr(fastact, name)(x, dim)
        theirs = OPERATORS[name](x, dim)
        torch.testing.assert_close(result, theirs, rtol=1e-5, atol=1e-6)
        assert result.stride() == theirs.stride()
        g = torch.randn_like(theirs)
        ours = getattr(fastact, f"{name}_backward")(g, result, dim)
        wanted = BACKWARD[name](g, result, dim, x.dtype)
        torch.testing.assert_close(ours, wanted, rtol=1e-5, atol=1e-5)
        assert ours.stride() == wanted.stride()


@every_operator
def test_backward_is_close_to_aten(name, dtype, device):
    tolerance = {
        torch.float64: 1e-12,
        torch.float32: 1e-5,
        torch.bfloat16: 2e-2,
        torch.float16: 2e-3,
    }
    for n in (1, 6, 300, 2000):
        x = rows_of(n, dtype)[: len(FINITE)].to(device)
        g = torch.randn(len(x), n, dtype=torch.float64).to(dtype).to(device)
        y = getattr(fastact, name)(x, 1)
        ours = getattr(fastact, f"{name}_backward")(g, y, 1).double()
        wanted = BACKWARD[name](g.double(), y.double(), 1, torch.float64)
        scale = max(wanted[wanted.isfinite()].abs().max().item(), 1)
        torch.testing.assert_close(
            ours, wanted, rtol=tolerance[dtype], atol=tolerance[dtype] * scale, equal_nan=True
        )


@every_operator
def test_dtype_argument(name, device):
    op = getattr(fastact, name)
    x = torch.arange(6, device=device).view(2, 3)
    assert_same_bits(op(x, 1, torch.float32), op(x.float(), 1))
    assert_same_bits(op(x.half(), 1, dtype=torch.float32), op(x.float(), 1))
    assert_same_bits(op(x.float(), 1, dtype=torch.float64), op(x.double(), 1))
    leaf = x.to(torch.bfloat16).requires_grad_()
    op(leaf, 1, dtype=torch.float32)[0, 0].backward()
    assert leaf.grad.dtype == torch.bfloat16


@every_operator
def test_out(name, dtype, device):
    op = getattr(fastact, name)
    x = rows_of(40, dtype).to(device)
    expected = op(x, 1)
    out = torch.empty(0, dtype=dtype, device=device)
    assert op.out(x, 1, out=out) is out
    assert_same_bits(out, expected)
    out = torch.zeros(40, 12, dtype=dtype, device=device).t()
    pointer = out.data_ptr()
    op.out(x, 1, out=out)
    assert out.data_ptr() == pointer and out.stride() == (1, 12)
    assert_same_bits(out.contiguous(), expected)
    wide = torch.zeros(12, 80, dtype=torch.float64, device=device)[:, ::2]
    op.out(x, 1, out=wide)
    assert_same_bits(wide.contiguous(), expected.double().contiguous())
    same = x.clone()
    op.out(same, 1, out=same)
    assert_same_bits(same, expected)
    gradient = torch.empty_like(x)
    backward = getattr(fastact, f"{name}_backward")
    backward.grad_input(x, expected, 1, grad_input=gradient)
    assert_same_bits(gradient, backward(x, expected, 1))


@every_operator
def test_dimensions_that_do_not_merge(name, device):
    """Copies, for more than two dimensions besides the row's."""
    x = torch.randn(4, 6, 8, 10, device=device)[::2, ::2, ::2]
    out = torch.zeros(4, 6, 8, 10, device=device)[::2, ::2, ::2]
    for dim in range(4):
        expected = getattr(fastact, name)(x.contiguous(), dim)
        assert_same_bits(getattr(fastact, name)(x, dim), expected)
        getattr(fastact, name).out(x, dim, out=out)
        assert_same_bits(out.contiguous(), expected)


def test_errors_of_arguments(device):
    x = torch.zeros(2, 3, device=device)
    cases = [
        (lambda: fastact.softmax(x, 2), IndexError,
         "fastact::softmax: expected dim to be from -2 to 1, but got 2"),
        (lambda: fastact.log_softmax(x[0, 0], -2), IndexError,
         "fastact::log_softmax: expected dim to be from -1 to 0, but got -2"),
        (lambda: fastact.softmax(x.int(), 1), NotImplementedError, "fastact::softmax: expected "
         "self to be float32, float64, bfloat16 or float16, but got Int"),
        (lambda: fastact.softmax_backward(x, x[:1], 1), RuntimeError,
         "fastact::softmax_backward: expected grad_output to have the shape of output, [1, 3], but "
         "got [2, 3]"),
        (lambda: fastact.log_softmax_backward(x.double(), x, 1), RuntimeError,
         "fastact::log_softmax_backward: expected grad_output to have the type of output, Float, "
         "but got Double"),
        (lambda: fastact.softmax.out(x, 1, out=x.int()), RuntimeError,
         "fastact::softmax: expected out to be of a type that result type Float can be cast to, "
         "but got Int"),
        (lambda: vmap(lambda t: fastact.softmax(t, 1))(x), IndexError,
         "fastact::softmax: expected dim to be from -1 to 0, but got 1"),
    ]  # fmt: skip
    for call, kind, message in cases:
        error = error_of(call)
        assert type(error) is kind and first_line(error) == message, error
    partial = torch.zeros(7, device=device)
    error = error_of(lambda: fastact.softmax.out(partial[1:], 0, out=partial[:6]))
    assert "single memory location" in str(error)


# ---- Derivatives


@every_operator
@pytest.mark.parametrize("dim", (0, 1, -1))
def test_derivatives_of_orders_one_and_two(name, dim, device):
    op = getattr(fastact, name)
    x = torch.randn(3, 4, 2, dtype=torch.float64, device=device, requires_grad=True)
    check = {"check_forward_ad": True, "check_batched_grad": True}
    assert gradcheck(lambda t: op(t, dim), x, **check, check_batched_forward_grad=True)
    assert gradgradcheck(lambda t: op(t, dim), x, check_fwd_over_rev=True, check_rev_over_rev=True)
    g = torch.randn_like(x).requires_grad_()
    y = op(x, dim).detach().requires_grad_()
    backward = getattr(fastact, f"{name}_backward")
    assert gradcheck(lambda g, y: backward(g, y, dim), (g, y), **check)
    assert gradgradcheck(lambda g, y: backward(g, y, dim), (g, y), check_fwd_over_rev=True)


@every_operator
def test_higher_orders_are_close_to_aten(name, device):
    weights = torch.arange(12, dtype=torch.float64, device=device).view(3, 4).cos()

    def fourth(op):
        x = torch.linspace(-1, 2, 12, dtype=torch.float64, device=device).view(3, 4)
        x.requires_grad_()
        result = op(x, 1)
        for _ in range(4):
            total = (result.sin() * weights).sum()
            (result,) = torch.autograd.grad(total, x, create_graph=True)
        return result.detach()

    torch.testing.assert_close(fourth(getattr(fastact, name)), fourth(OPERATORS[name]))


@every_operator
def test_forward_mode_in_every_type(name, dtype, device):
    x, t = torch.randn(2, 3, 5, dtype=torch.float64, device=device).to(dtype)
    _, ours = jvp(lambda x: getattr(fastact, name)(x, 1), (x,), (t,))
    _, wanted = jvp(lambda x: OPERATORS[name](x, 1), (x.double(),), (t.double(),))
    assert ours.dtype == dtype
    tolerance = 8 * torch.finfo(dtype).eps
    torch.testing.assert_close(ours.double(), wanted, rtol=tolerance, atol=tolerance)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, t)
        assert_same_bits(forward_ad.unpack_dual(getattr(fastact, name)(dual, 1)).tangent, ours)


@every_operator
def test_backward_keeps_only_the_result(name):
    x = torch.randn(3, 4, requires_grad=True)
    y = getattr(fastact, name)(x, 1)
    assert y.grad_fn.name() == f"FastAct{'' if name == 'softmax' else 'Log'}SoftmaxBackward0"
    x.data.zero_()  # not saved
    (gradient,) = torch.autograd.grad(y[:, 0].sum(), x)
    g = torch.zeros(3, 4)
    g[:, 0] = 1
    assert_same_bits(gradient, getattr(fastact, f"{name}_backward")(g, y.detach(), 1))


@every_operator
@pytest.mark.parametrize("dim", (0, -1))
def test_vmap(name, dim, device):
    op, backward = getattr(fastact, name), getattr(fastact, f"{name}_backward")
    x = torch.randn(4, 3, 5, device=device)
    g = torch.randn(3, 5, device=device)
    with no_vmap_fallback():
        for in_dim in range(3):
            parts = [op(part, dim) for part in x.unbind(in_dim)]
            assert_same_bits(vmap(lambda t: op(t, dim), in_dim)(x), torch.stack(parts))
        gradients = vmap(lambda y: backward(g, y, dim))(x)
        assert_same_bits(gradients, torch.stack([backward(g, y, dim) for y in x]))
        scalars = vmap(lambda t: op(t, dim))(x[0, 0])
        assert_same_bits(scalars, torch.stack([op(t, dim) for t in x[0, 0]]))
        out = torch.empty(4, 3, 5, device=device)
        vmap(lambda t, out: op.out(t, dim, out=out))(x, out)
        assert_same_bits(out, torch.stack([op(part, dim) for part in x]))


@every_operator
def test_functionalize(name, device):
    op = getattr(fastact, name)
    x = torch.randn(3, 4, device=device)
    write = functionalize(lambda x: op.out(x, 0, out=torch.zeros_like(x)))
    assert_same_bits(write(x), op(x, 0))


@every_operator
def test_opcheck(name, device):
    x = torch.randn(3, 4, device=device, requires_grad=True)
    y = getattr(fastact, name)(x, 1).detach().requires_grad_()
    for overload, tensors in ((f"_{name}", (x,)), (name, (x,)), (f"{name}_backward", (x, y))):
        torch.library.opcheck(getattr(fastact, overload).default, (*tensors, 1))


@every_operator
def test_meta_and_symbols(name):
    op = getattr(fastact, name)
    meta = op(torch.empty(3, 4, device="meta").t(), 0)
    assert meta.shape == (4, 3) and meta.is_contiguous()
    sizes = {0: torch.export.Dim("rows", min=2), 1: torch.export.Dim("columns", min=2)}
    graph = torch.export.export(
        getattr(package.nn, MODULES[name])(-1), (torch.randn(5, 4),), dynamic_shapes=(sizes,)
    )
    value = list(graph.graph.nodes)[-1].args[0][0].meta["val"]
    assert value.dtype == torch.float32 and value.is_contiguous()
    x = torch.randn(7, 9)
    assert_same_bits(graph.module()(x), op(x, -1))


@every_operator
@pytest.mark.parametrize("backend", ("aot_eager", pytest.param("inductor", marks=pytest.mark.slow)))
def test_compile(name, backend, device, fresh_compiler):
    op = getattr(fastact, name)

    def call(x):
        return op(x * 2, 1, dtype=torch.float32) + 1

    x = torch.randn(3, 50, device=device).to(torch.bfloat16).requires_grad_()
    compiled = torch.compile(call, fullgraph=True, dynamic=True, backend=backend)
    result = compiled(x)
    assert_same_bits(result.detach(), call(x).detach())
    (gradient,) = torch.autograd.grad(result[:, 1].sum(), x)
    (expected,) = torch.autograd.grad(call(x)[:, 1].sum(), x)
    assert_same_bits(gradient, expected)


@every_operator
def test_autocast(name, device):
    """As ATen: in float32 on a GPU; on a CPU, the operators are on no list."""
    x = torch.randn(3, 4, device=device)
    for dtype in DTYPES:
        for given in (None, torch.float16):
            with torch.autocast(device, torch.bfloat16):
                ours = getattr(fastact, name)(x.to(dtype), 1, dtype=given)
                theirs = OPERATORS[name](x.to(dtype), 1, dtype=given)
            assert ours.dtype == theirs.dtype, (dtype, given)


@every_operator
def test_functions_and_modules(name, device):
    x = torch.randn(3, 4, 5, device=device)
    ours = getattr(package.functional, name)
    theirs = getattr(torch.nn.functional, name)
    expected = getattr(fastact, name)(x, 1)
    assert_same_bits(ours(x, 1), expected)
    assert_same_bits(
        ours(x.half(), dim=1, dtype=torch.float32),
        getattr(fastact, name)(x.half(), 1, torch.float32),
    )
    with pytest.warns(UserWarning, match="Implicit dimension choice"):
        implicit = ours(x)
    with pytest.warns(UserWarning, match="Implicit dimension choice"):
        torch.testing.assert_close(implicit, theirs(x))
    module = getattr(package.nn, MODULES[name])(dim=1)
    original = getattr(torch.nn, type(module).__name__)
    assert isinstance(module, original) and repr(module) == repr(original(dim=1))
    assert_same_bits(module(x), expected)
    assert_same_bits(torch.jit.script(module)(x), expected)


def test_softmin_and_softmax_2d(device):
    x = torch.randn(2, 3, 4, 5, device=device)
    assert_same_bits(package.functional.softmin(x, 1), fastact.softmax(-x, 1))
    half = package.functional.softmin(x.half(), -1, dtype=torch.float32)
    assert_same_bits(half, fastact.softmax(-x.half(), -1, torch.float32))
    torch.testing.assert_close(package.nn.Softmin(2)(x), torch.nn.Softmin(2)(x))
    module = package.nn.Softmax2d()
    for image in (x, x[0]):
        assert_same_bits(module(image), fastact.softmax(image, -3))
        torch.testing.assert_close(module(image), torch.nn.Softmax2d()(image))
    with pytest.raises(ValueError) as caught:
        module(x[0, 0])
    message = "fastact.nn.Softmax2d: expected input to be 3-D or 4-D, but got 2-D"
    assert first_line(caught.value) == message
    model = torch.nn.Sequential(torch.nn.Softmin(1), torch.nn.Softmax2d())
    report = package.replace_(model)
    assert report.replaced == {"0": "fastact.nn.Softmin", "1": "fastact.nn.Softmax2d"}
