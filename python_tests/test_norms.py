"""RMSNorm and LayerNorm: errors against MPFR, bits that depend on the row alone, ATen's semantics,
derivatives, and every way to call them."""

import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.func import functionalize, jvp, vjp, vmap
from torch.nn import functional as F

import fastact as package
from fastact._digests.rows import norm_gradient

# isort: off
from rows import LENGTHS, exact_norm, kinds_of_rows, largest_error, moved, padded, rows_of
from support import DTYPES, LAYOUTS, assert_same_bits, error_of, first_line, make
from support import no_vmap_fallback, untouched
# isort: on

fastact = torch.ops.fastact
EPS = 1e-5
# Name: which of weight and bias it takes.
FORMS = {"rms_norm": 1, "layer_norm": 2}
MODULES = {"rms_norm": "RMSNorm", "layer_norm": "LayerNorm"}  # of fastact.nn
TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}

every_norm = pytest.mark.parametrize("name", FORMS)


def vectors(name, shape, dtype=torch.float32, device="cpu", seed=0):
    """Returns a weight and, for layer_norm, a bias."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(FORMS[name], *shape, generator=generator, dtype=torch.float64)
    return [vector.to(device, dtype) for vector in numbers]


def ours(name, x, *vectors, dims=1, eps=EPS):
    return getattr(fastact, name)(x, x.shape[x.dim() - dims :], *vectors, eps=eps)


def theirs(name, x, *vectors, dims=1, eps=EPS):
    return getattr(F, name)(x, x.shape[x.dim() - dims :], *vectors, eps=eps)


def composed(name, x, weight, bias=None, eps=EPS):
    """Returns the norm of rows, composed of elementwise operators and means."""
    c = x - x.mean(-1, keepdim=True) if name == "layer_norm" else x
    y = c * torch.rsqrt((c * c).mean(-1, keepdim=True) + eps) * weight
    return y if bias is None else y + bias


def backward(name, x, g, weight):
    """Returns the gradient of the input along the last dimension."""
    return norm_gradient(name, x, g, weight, EPS, -1)


def statistics(name, x, dim=-1):
    """Returns the statistics that the operator of the gradient takes."""
    if name == "rms_norm":
        return []
    weight = torch.ones(x.shape[dim], dtype=x.dtype, device=x.device)
    _, *found = fastact._layer_norm_without_bias_with_statistics(x, weight, EPS, dim)
    return found


def finite_rows(n, dtype):
    """Returns rows of finite elements whose squares are finite, by kind."""
    kinds = kinds_of_rows(n, dtype)
    rows = {kind: kinds[kind] for kind in ("normal", "wide", "far", "equal", "dominated", "zeros")}
    generator = torch.Generator().manual_seed(n)
    if dtype != torch.float16:
        rows["farther"] = (1e5 + torch.randn(n, generator=generator)).to(dtype)
    rows["small"] = (torch.randn(n, generator=generator) * 1e-4).to(dtype)
    return rows


# ---- Errors


@every_norm
@pytest.mark.parametrize("n", (2, 7, 128, 1000, 5000))
@pytest.mark.kernels
def test_errors(name, n, dtype):
    """As ops/forms/rms_norm.h and ops/forms/layer_norm.h state. The latter's is of the larger of 1
    and |z|, so there is no weight."""
    bound = {"rms_norm": 2.0, "layer_norm": 6.0}[name] if dtype.itemsize >= 4 else 0.51
    weight = vectors("rms_norm", (n,), dtype) if name == "rms_norm" else []
    for kind, row in finite_rows(n, dtype).items():
        exact = exact_norm(name, row, *weight, eps=EPS)
        error = largest_error(ours(name, row, *weight), exact, least=float(name == "layer_norm"))
        assert error <= bound, (kind, error)


@every_norm
@pytest.mark.parametrize("mean, deviation", ((0, 3), (1000, 0.1), (1e5, 1)))
@pytest.mark.kernels
def test_errors_of_many_rows(name, mean, deviation):
    """In float32, against float64. The largest errors are rare."""
    for n, rows in ((2, 20_000), (16, 10_000), (768, 1000), (5000, 150)):
        generator = torch.Generator().manual_seed(n)
        normal = torch.randn(rows, n, generator=generator, dtype=torch.float64)
        x = (mean + normal * deviation).float()
        weight = vectors("rms_norm", (n,))[0] if name == "rms_norm" else torch.ones(n)
        exact = composed(name, x.double(), weight.double(), eps=torch.tensor(EPS).double())
        least = 1.0 if name == "layer_norm" else 2.0**-125
        unit = torch.exp2(torch.frexp(exact.abs().clamp(min=least)).exponent - 24.0)
        error = (ours(name, x, weight) - exact).abs() / unit
        assert error.max() <= {"rms_norm": 2, "layer_norm": 6}[name], (n, error.max())


@every_norm
def test_special_values(name, dtype, device):
    """As ATen on a CPU: see the headers. ATen's RMSNorm on a GPU returns NaN for a row with an
    infinity."""
    for n in (1, 5, 1030):
        weight = vectors(name, (n,), dtype)
        for kind, row in kinds_of_rows(n, dtype).items():
            result = ours(name, row.to(device), *(w.to(device) for w in weight)).cpu()
            expected = theirs(name, row, *weight)
            assert torch.equal(result.isnan(), expected.isnan()), (n, kind)
            nan = fastact.relu(torch.full_like(result, torch.nan))  # the library's NaN
            assert_same_bits(result[result.isnan()], nan[result.isnan()])


def test_products_that_overflow(dtype):
    """x and weight are large, but the result is not; so are tiny ones; and a weight is infinite."""
    if dtype in (torch.float64, torch.float16):
        pytest.skip("other numbers overflow")
    x = torch.full((1, 4), 5e18, dtype=dtype)
    torch.testing.assert_close(
        ours("rms_norm", x, torch.full((4,), 1e20, dtype=dtype)), x * 0 + 1e20
    )
    huge = torch.tensor([[2e38, 1, 1, 1]], dtype=dtype)  # the squares overflow
    assert torch.equal(ours("rms_norm", huge, torch.full((4,), 2, dtype=dtype)), x * 0)
    tiny = ours("rms_norm", x * 0 + 1e-15, torch.full((4,), 1e-28, dtype=dtype), eps=0.0)
    torch.testing.assert_close(tiny * 2.0**90, x * 0 + 1e-28 * 2.0**90)
    infinite = torch.full((4,), torch.inf, dtype=dtype)
    assert torch.equal(ours("rms_norm", x, infinite), x * 0 + torch.inf)


# ---- Bits


@every_norm
@pytest.mark.parametrize("n", LENGTHS)
def test_bits_depend_on_the_row_alone(name, n, dtype, device):
    """Not on the batch, the place in it, strides, alignment, and the number of threads."""
    x, g = rows_of(n, dtype).to(device), rows_of(n, dtype, seed=1).to(device)
    weight = vectors(name, (n,), dtype, device)
    expected, gradient = ours(name, x, *weight), backward(name, x, g, weight[0])
    for i in (0, 2, 6):
        assert_same_bits(ours(name, x[i], *weight), expected[i])
        assert_same_bits(backward(name, x[i], g[i], weight[0]), gradient[i])
    many = x.repeat(40, 1)
    assert_same_bits(ours(name, many, *weight), expected.repeat(40, 1))
    assert_same_bits(backward(name, many, g.repeat(40, 1), weight[0]), gradient.repeat(40, 1))
    torch.set_num_threads(1)
    try:
        assert_same_bits(ours(name, many, *weight), expected.repeat(40, 1))
    finally:
        torch.set_num_threads(2)
    apart = [moved(w.expand(2, n))[0] for w in weight]
    for view in (moved(x), x.t().contiguous().t(), padded(x, 1), padded(x, 3)):
        assert_same_bits(ours(name, view, *weight), expected)
        assert_same_bits(ours(name, view, *apart), expected)
        assert_same_bits(backward(name, view, moved(g), apart[0]), gradient)


@every_norm
def test_threads_share_a_long_row(name, dtype):
    """Two threads compute fewer rows than there are threads. The last part of each row is short."""
    x, g = rows_of(100257, dtype)[:1], rows_of(100257, dtype, seed=1)[:1]
    weight = vectors(name, (100257,), dtype)
    torch.set_num_threads(1)
    try:
        expected, gradient = ours(name, x, *weight), backward(name, x, g, weight[0])
    finally:
        torch.set_num_threads(2)
    assert_same_bits(ours(name, x, *weight), expected)
    assert_same_bits(backward(name, x, g, weight[0]), gradient)


@every_norm
def test_sixteen_bits_are_float32_rounded_once(name, half, device):
    """Also if weight and bias are float32."""
    for n in (5, 128, 1500):
        x = torch.stack(list(finite_rows(n, half).values())).to(device)
        weight = vectors(name, (n,), half, device)
        wide = [w.float() for w in weight]
        expected = ours(name, x.float(), *wide).to(half)
        assert_same_bits(ours(name, x, *weight), expected)
        assert_same_bits(ours(name, x, *wide), expected)
        assert_same_bits(ours(name, x * torch.nan, *wide), ours(name, x * torch.nan, *weight))
        g = torch.randn_like(x)
        gradient = backward(name, x.float(), g.float(), wide[0]).to(half)
        assert_same_bits(backward(name, x, g, weight[0]), gradient)


def weight_gradients(name, x, g, *weight):
    leaves = [w.detach().requires_grad_() for w in weight]
    return torch.autograd.grad(ours(name, x, *leaves), leaves, g)


def weight_gradients_of_func(name, x, g, *weight):
    _, gradients = vjp(lambda *w: ours(name, x, *w), *weight)
    return gradients(g)[0]


@every_norm
def test_gradients_of_weight_and_bias(name, dtype, device):
    """Their bits depend on the rows and their order; they are sums in the type of the kernels that
    are rounded once. So rows with a gradient of 0 at the end change nothing."""
    for rows, n in ((1, 1), (300, 1), (300, 33), (70, 1000)):
        x = torch.randn(rows, n, dtype=torch.float64).to(dtype).to(device)
        g = torch.randn(rows, n, dtype=torch.float64).to(dtype).to(device)
        weight = vectors(name, (n,), dtype, device)
        expected = weight_gradients(name, x, g, *weight)
        for view in (moved, lambda t: t.t().contiguous().t(), lambda t: padded(t, 1)):
            for a, b in zip(weight_gradients(name, view(x), view(g), *weight), expected):
                assert_same_bits(a, b)
        longer = F.pad(x, (0, 0, 0, 50), value=1), F.pad(g, (0, 0, 0, 50))
        for a, b in zip(weight_gradients(name, *longer, *weight), expected):
            assert_same_bits(a, b)
        leaves = [w.double().requires_grad_() for w in weight]
        exact = torch.autograd.grad(theirs(name, x.double(), *leaves), leaves, g.double())
        for a, b in zip(expected, exact):
            unit = rows**0.5 * TOLERANCE[dtype]
            torch.testing.assert_close(a.double(), b, rtol=unit, atol=unit)
        if dtype.itemsize == 2:
            wide = [w.float() for w in weight]
            for a, b in zip(weight_gradients(name, x.float(), g.float(), *wide), expected):
                assert_same_bits(a.to(dtype), b)


def test_gradients_of_the_bias_alone(dtype, device):
    """They are sums of g in the same order, whether or not the weight needs a gradient. NaN in x
    does not change them."""
    x, g = torch.randn(2, 300, 33, dtype=torch.float64, device=device).to(dtype)
    weight, bias = vectors("layer_norm", (33,), dtype, device)
    _, expected = weight_gradients("layer_norm", x, g, weight, bias)
    leaf = bias.clone().requires_grad_()
    for dense in (g, moved(g)):
        result = ours("layer_norm", x, weight, leaf)
        assert_same_bits(torch.autograd.grad(result, leaf, dense)[0], expected)
    x[1, 2] = torch.nan
    by_weight, by_bias = weight_gradients("layer_norm", x, g, weight, bias)
    assert_same_bits(by_bias, expected)
    assert by_weight.isnan().all()


@every_norm
@pytest.mark.parametrize("n", (*LENGTHS, 20000, 300000))
def test_gpu_bits_are_cpu_bits(name, n, dtype, cuda):
    x, g = rows_of(n, dtype), rows_of(n, dtype, seed=1)
    weight = vectors(name, (n,), dtype)
    there = [w.to(cuda) for w in weight]
    apart = [moved(w.expand(2, n))[0] for w in there]
    y, gradient = ours(name, x, *weight), backward(name, x, g, weight[0])
    sums = weight_gradients(name, x[:4], g[:4], *weight)
    for view in (lambda t: t, moved, lambda t: padded(t, 1), lambda t: t.t().contiguous().t()):
        on_gpu, g_on_gpu = view(x.to(cuda)), view(g.to(cuda))
        for vectors_there in (there, apart, [padded(w[None], 1)[0] for w in there]):
            assert_same_bits(ours(name, on_gpu, *vectors_there), y)
            assert_same_bits(backward(name, on_gpu, g_on_gpu, vectors_there[0]), gradient)
        for a, b in zip(weight_gradients(name, on_gpu[:4], g_on_gpu[:4], *there), sums):
            assert_same_bits(a, b)
    assert_same_bits(ours(name, x.to(cuda).repeat(7, 1), *there), y.repeat(7, 1))
    if name == "layer_norm":
        assert_same_bits(ours(name, x.to(cuda), *there[:1]), ours(name, x, *weight[:1]))
        assert_same_bits(ours(name, x.to(cuda)), ours(name, x))


# ---- ATen's semantics


@every_norm
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_and_shapes(name, layout, device):
    x = make(layout, device=device)
    for dims in range(1, x.dim() + 1):
        shape = x.shape[x.dim() - dims :]
        every = vectors(name, shape, device=device)
        for given in ([], every[:1], every, [None, *every[1:]]):
            with untouched(x):
                result = ours(name, x, *given, dims=dims)
            expected = theirs(name, x, *given, dims=dims)
            torch.testing.assert_close(result, expected, rtol=2e-5, atol=1e-5)
            assert result.is_contiguous()
            out = torch.empty(0, device=device)
            getattr(fastact, name).out(x, shape, *given, eps=EPS, out=out)
            assert_same_bits(out, result)


@every_norm
def test_out(name, dtype, device):
    op = getattr(fastact, name)
    x = rows_of(40, dtype).to(device)
    weight = vectors(name, (40,), dtype, device)
    expected = ours(name, x, *weight)
    out = torch.zeros(40, 12, dtype=dtype, device=device).t()
    assert op.out(x, (40,), *weight, eps=EPS, out=out) is out
    assert out.stride() == (1, 12)
    assert_same_bits(out.contiguous(), expected)
    for dims in (1, 2):
        cube = x.view(3, 4, 40)[..., :8]
        few = vectors(name, cube.shape[3 - dims :], dtype, device)
        wide = torch.zeros(3, 4, 16, dtype=torch.float64, device=device)[..., ::2]
        op.out(cube, cube.shape[3 - dims :], *few, eps=EPS, out=wide)
        assert_same_bits(wide.contiguous(), ours(name, cube, *few, dims=dims).double())
    same = x.clone()
    op.out(same, (40,), *weight, eps=EPS, out=same)
    assert_same_bits(same, expected)
    if dtype.itemsize == 2:  # float32 vectors: the result has the input's type, then out's
        wide = torch.empty(12, 40, device=device)
        op.out(x, (40,), *(w.float() for w in weight), eps=EPS, out=wide)
        assert_same_bits(wide, expected.float())
    cube, few = x.view(3, 4, 40), vectors(name, (4, 40), dtype, device)
    untouched_out = torch.empty(3, 3, dtype=dtype, device=device)
    for bad in (torch.ones(4, 40, dtype=torch.complex64, device=device), few[0][:2]):
        assert error_of(lambda: op.out(cube, (4, 40), bad, eps=EPS, out=untouched_out))
    leaf = cube.clone().requires_grad_()
    assert error_of(lambda: op.out(leaf, (4, 40), *few, eps=EPS, out=untouched_out))
    assert untouched_out.shape == (3, 3)
    gradient = torch.empty_like(x)
    operands = (x, x, weight[0], *statistics(name, x))
    getattr(fastact, f"_{name}_backward").grad_input(*operands, EPS, -1, grad_input=gradient)
    assert_same_bits(gradient, backward(name, x, x, weight[0]))


def test_default_eps(dtype):
    """That of the type in which the kernels compute, as in PyTorch."""
    x = torch.full((1, 4), 1e-3, dtype=dtype)
    eps = torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).eps
    assert_same_bits(fastact.rms_norm(x, (4,)), ours("rms_norm", x, eps=eps))
    torch.testing.assert_close(fastact.rms_norm(x, (4,)), F.rms_norm(x, (4,)))
    assert_same_bits(fastact.layer_norm(x, (4,)), ours("layer_norm", x, eps=1e-5))


@every_norm
def test_no_elements(name, device):
    for shape in ((0, 3), (3, 0), (0,)):
        x = torch.zeros(shape, device=device, requires_grad=True)
        weight = [w.requires_grad_() for w in vectors(name, shape[-1:], device=device)]
        result = ours(name, x, *weight)
        assert result.shape == shape
        for a, leaf in zip(torch.autograd.grad(result.sum(), (x, *weight)), (x, *weight)):
            assert torch.equal(a, torch.zeros_like(leaf))


def test_errors_of_arguments(device):
    x = torch.zeros(2, 3, device=device)
    w = torch.ones(3, device=device)
    cases = [
        (lambda: fastact.rms_norm(x, (2,)), RuntimeError, "fastact::rms_norm: expected the last "
         "dimensions of input to be [2], but got [2, 3]"),
        (lambda: fastact.layer_norm(x, ()), RuntimeError, "fastact::layer_norm: expected "
         "normalized_shape to have at least one dimension, but got []"),
        (lambda: fastact.layer_norm(x, (1, 2, 3)), RuntimeError, "fastact::layer_norm: expected "
         "the last dimensions of input to be [1, 2, 3], but got [2, 3]"),
        (lambda: fastact.rms_norm(x, (3,), w[:2]), RuntimeError, "fastact::rms_norm: expected "
         "weight to have the shape [3], but got [2]"),
        (lambda: fastact.layer_norm(x, (3,), w, w[:1]), RuntimeError, "fastact::layer_norm: "
         "expected bias to have the shape [3], but got [1]"),
        (lambda: fastact.layer_norm(x, (3,), w.double()), RuntimeError, "fastact::layer_norm: "
         "expected weight to have the type of self, Float, but got Double"),
        (lambda: fastact.rms_norm(x.int(), (3,)), NotImplementedError, "fastact::rms_norm: "
         "expected self to be float32, float64, bfloat16 or float16, but got Int"),
        (lambda: fastact.layer_norm(x, (3,), w.to("meta")), RuntimeError, "fastact::layer_norm: "
         "expected all tensors to be on the same device, but got weight on meta and self on "
         + str(x.device)),
        (lambda: fastact._rms_norm(x, w[:2], EPS, 1), RuntimeError, "fastact::rms_norm: expected "
         "weight to broadcast to the shape of self, [2, 3], but got [2]"),
        (lambda: fastact._layer_norm_without_bias(x, w, EPS, 2), IndexError,
         "fastact::layer_norm: expected dim to be from -2 to 1, but got 2"),
        (lambda: fastact.layer_norm.out(x, (3,), out=x.int()), RuntimeError, "fastact::layer_norm: "
         "expected out to be of a type that result type Float can be cast to, but got Int"),
    ]  # fmt: skip
    for call, kind, message in cases:
        error = error_of(call)
        assert type(error) is kind and first_line(error) == message, error


# ---- Derivatives


@every_norm
@pytest.mark.parametrize("shape", ((6,), (4, 2)))
def test_derivatives_of_orders_one_and_two(name, shape, device):
    x = torch.randn(3, 4, 6 if len(shape) == 1 else 2, dtype=torch.float64, device=device)
    weight = vectors(name, shape, torch.float64, device)
    tensors = [t.requires_grad_() for t in (x, *weight)]

    def call(x, *weight):
        return ours(name, x, *weight, dims=len(shape), eps=1e-2)

    check = {"check_forward_ad": True, "check_batched_grad": True}
    assert gradcheck(call, tensors, **check, check_batched_forward_grad=True)
    assert gradgradcheck(call, tensors, check_fwd_over_rev=True, check_rev_over_rev=True)
    assert gradcheck(call, tensors[:1], **check)


@every_norm
@pytest.mark.parametrize("dim", (0, 1))
def test_kernels_of_any_dim_with_any_weight(name, dim, device):
    """The operators with kernels normalize any dimension, and their vectors broadcast."""
    x = torch.randn(4, 3, 2, dtype=torch.float64, device=device)
    for shape in ((2,), (3, 1), (4, 1, 1), (), (1, 3, 2)):
        inputs = [x.requires_grad_()]
        inputs += [v.requires_grad_() for v in vectors(name, shape, torch.float64, device)]

        def call(*inputs):
            return getattr(fastact, f"_{name}")(*inputs, 1e-2, dim)

        last = ours(name, x.movedim(dim, -1), eps=1e-2).movedim(-1, dim) * inputs[1]
        expected = last + inputs[2] if name == "layer_norm" else last
        torch.testing.assert_close(call(*inputs), expected)
        assert gradcheck(call, inputs, check_forward_ad=True)
        assert gradgradcheck(call, inputs)


@every_norm
def test_third_order(name, device):
    """Against PyTorch's elementwise operators. F.layer_norm's third order is wrong (torch 2.15)."""

    def third(call):
        x = torch.linspace(-1, 2, 12, dtype=torch.float64, device=device).view(3, 4)
        leaves = [x.cos().requires_grad_()]
        leaves += [v.requires_grad_() for v in vectors(name, (4,), torch.float64, device)]
        result = call(name, *leaves)
        for _ in range(3):
            grads = torch.autograd.grad(result.sin().sum(), leaves[:2], create_graph=True)
            result = grads[0] * grads[1].cos()
        return result.detach()

    torch.testing.assert_close(third(ours), third(composed))


@every_norm
def test_forward_mode_in_every_type(name, dtype, device):
    x, t = torch.randn(2, 3, 5, dtype=torch.float64, device=device).to(dtype)
    primals = (x, *vectors(name, (5,), dtype, device))
    tangents = (t, *vectors(name, (5,), dtype, device, seed=1))
    _, actual = jvp(lambda *p: ours(name, *p), primals, tangents)
    doubles = [tuple(each.double() for each in group) for group in (primals, tangents)]
    _, wanted = jvp(lambda *p: theirs(name, *p), *doubles)
    assert actual.dtype == dtype
    tolerance = 64 * torch.finfo(dtype).eps
    torch.testing.assert_close(actual.double(), wanted, rtol=tolerance, atol=tolerance)
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(*pair) for pair in zip(primals, tangents)]
        assert_same_bits(forward_ad.unpack_dual(ours(name, *duals)).tangent, actual)


@every_norm
def test_vmap(name, device):
    x, g = torch.randn(2, 4, 3, 5, device=device)
    weight = vectors(name, (5,), device=device)
    many = [torch.randn(4, 5, device=device) for _ in weight]
    with no_vmap_fallback():
        for in_dim in range(2):
            parts = [ours(name, part, *weight) for part in x.unbind(in_dim)]
            assert_same_bits(vmap(lambda t: ours(name, t, *weight), in_dim)(x), torch.stack(parts))
        parts = [ours(name, *each) for each in zip(x, *many)]
        assert_same_bits(vmap(lambda *each: ours(name, *each))(x, *many), torch.stack(parts))
        parts = [ours(name, x[0], *each) for each in zip(*many)]
        assert_same_bits(vmap(lambda *each: ours(name, x[0], *each))(*many), torch.stack(parts))
        parts = [backward(name, *each) for each in zip(x, g, many[0])]
        gradients = vmap(lambda *each: backward(name, *each))(x, g, many[0])
        assert_same_bits(gradients, torch.stack(parts))
        out = torch.empty_like(x)
        op = getattr(fastact, name).out
        vmap(lambda t, out: op(t, (5,), *weight, eps=EPS, out=out))(x, out)
        assert_same_bits(out, ours(name, x, *weight))
        vmap(lambda t, out: op(t, (3, 5), eps=EPS, out=out))(x, out)
        assert_same_bits(out, ours(name, x, dims=2))
        with torch.no_grad():
            gradient = vmap(lambda *w: weight_gradients_of_func(name, x[0], g[0], *w))(*many)
        expected = [weight_gradients(name, x[0], g[0], *each)[0] for each in zip(*many)]
        torch.testing.assert_close(gradient, torch.stack(expected))
    kernel = getattr(fastact, f"_{name}")
    large = [torch.ones(4, 3, 5, device=device)] * len(weight)
    error = error_of(lambda: vmap(lambda t: kernel(t, *large, EPS, 0))(x[:, 0]))
    wanted = f"fastact::{name}: expected weight to have at most 1 dimensions, but got 3"
    assert first_line(error) == wanted


@every_norm
def test_functionalize(name, device):
    x = torch.randn(3, 4, device=device)
    op = getattr(fastact, name).out
    write = functionalize(lambda x: op(x, (4,), eps=EPS, out=torch.zeros_like(x)))
    assert_same_bits(write(x), ours(name, x))


@every_norm
def test_opcheck(name, device):
    x = torch.randn(3, 4, device=device, requires_grad=True)
    weight = [w.requires_grad_() for w in vectors(name, (4,), device=device)]
    checks = [
        (getattr(fastact, f"_{name}"), (x, *weight, EPS, 1)),
        (
            getattr(fastact, f"_{name}_backward"),
            (x, x.detach(), weight[0], *statistics(name, x.detach()), EPS, 1),
        ),
        (getattr(fastact, name), (x, (4,), *weight, EPS)),
        (fastact._layer_norm_without_bias, (x, weight[0], EPS, 1)),
        (fastact._layer_norm_without_bias_with_statistics, (x, weight[0], EPS, 1)),
    ]
    if name == "layer_norm":
        checks.append((fastact._layer_norm_with_statistics, (x, *weight, EPS, 1)))
    for op, arguments in checks:
        torch.library.opcheck(op.default, arguments)


@every_norm
def test_meta_and_symbols(name):
    meta = ours(name, torch.empty(3, 4, device="meta").t())
    assert meta.shape == (4, 3) and meta.is_contiguous()
    sizes = {0: torch.export.Dim("rows", min=2)}
    module = getattr(package.nn, MODULES[name])(9)
    graph = torch.export.export(module, (torch.randn(5, 9),), dynamic_shapes=(sizes,))
    x = torch.randn(7, 9)
    assert_same_bits(graph.module()(x).detach(), module(x).detach())


@every_norm
@pytest.mark.parametrize("backend", ("aot_eager", pytest.param("inductor", marks=pytest.mark.slow)))
def test_compile(name, backend, device, fresh_compiler):
    """test_norm_gradients.py compiles more calls."""

    def call(x, *weight):
        return ours(name, x * 2, *weight) + 1

    x = torch.randn(30, 50, device=device, requires_grad=True)
    weight = [w.requires_grad_() for w in vectors(name, (50,), device=device)]
    compiled = torch.compile(call, fullgraph=True, dynamic=True, backend=backend)
    result = compiled(x, *weight)
    assert_same_bits(result.detach(), call(x, *weight).detach())
    g = torch.randn_like(result)
    gradients = torch.autograd.grad(result, (x, *weight), g)
    expected = torch.autograd.grad(call(x, *weight), (x, *weight), g)
    for a, b in zip(gradients, expected, strict=True):
        assert_same_bits(a, b)


@every_norm
@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
def test_compile_with_an_unknown_number_of_rows(name, device, fresh_compiler):
    w = torch.ones(5, device=device, requires_grad=True)
    x = torch.randn(4, 5, device=device, requires_grad=True)
    mask = torch.tensor([True, False, True, True], device=device)

    def call(x, mask, w):
        return ours(name, x[mask], w).sin().sum()

    compiled = torch.compile(call, fullgraph=True, dynamic=True, backend="aot_eager")
    actual = torch.autograd.grad(compiled(x, mask, w), (x, w))
    for a, b in zip(actual, torch.autograd.grad(call(x, mask, w), (x, w))):
        torch.testing.assert_close(a, b)


@every_norm
def test_autocast(name, device):
    """As ATen: in float32 on a GPU; on a CPU, the operators are on no list. torch 2.11's list for
    GPUs lacks RMSNorm."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    in_float32 = device == "cuda" and not has_kernel(f"aten::{name}", "AutocastCUDA")
    x = torch.randn(3, 4, device=device)
    for dtype in DTYPES:
        weight = vectors(name, (4,), dtype, device)
        with torch.autocast(device, torch.bfloat16):
            result = ours(name, x.to(dtype), *weight)
            expected = theirs(name, x.to(dtype), *weight)
        if in_float32 and dtype.itemsize == 2:
            expected = expected.float()
        assert result.dtype == expected.dtype, dtype


@every_norm
def test_functions_and_modules(name, device):
    x = torch.randn(3, 4, 5, device=device)
    shape = (4, 5)
    weight = vectors(name, shape, device=device)
    expected = ours(name, x, *weight, dims=2)
    function = getattr(package.functional, name)
    assert_same_bits(function(x, shape, *weight, eps=EPS), expected)
    module = getattr(package.nn, MODULES[name])(shape, eps=EPS, device=device)
    for parameter, value in zip(module.parameters(), weight, strict=True):
        parameter.data.copy_(value)
    original = getattr(torch.nn, type(module).__name__)
    assert isinstance(module, original)
    assert repr(module) == repr(original(shape, eps=EPS))
    assert_same_bits(module(x).detach(), expected)
    assert_same_bits(torch.jit.script(module)(x).detach(), expected)
    plain = getattr(package.nn, MODULES[name])(
        shape, eps=EPS, elementwise_affine=False, device=device
    )
    assert_same_bits(plain(x), ours(name, x, dims=2))


def test_replace_leaves_norms():
    """Only activations are replaced."""
    norms = [torch.nn.LayerNorm(4), torch.nn.RMSNorm(4), torch.nn.GroupNorm(2, 4)]
    norms += [getattr(torch.nn, f"InstanceNorm{dimensions}d")(4) for dimensions in (1, 2, 3)]
    model = torch.nn.Sequential(*norms, torch.nn.GELU())
    assert package.replace_(model).replaced == {"6": "fastact.nn.GELU"}
