"""add_rms_norm and add_layer_norm: the bits of an addition followed by the norm, derivatives, and
every way to call them."""

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import functionalize, grad, vmap

import fastact as package

# isort: off
from rows import kinds_of_rows, moved
from support import assert_same_bits, error_of, first_line, no_vmap_fallback, untouched
# isort: on

fastact = torch.ops.fastact
NORMS = {"rms_norm": 1, "layer_norm": 2}
every_norm = pytest.mark.parametrize("name", NORMS)


def inputs_of(name, *shape, dtype=torch.float32, device="cpu", seed=0):
    """Returns an input, a residual, a weight and, for layer_norm, a bias."""
    generator = torch.Generator().manual_seed(seed)
    shapes = (shape, shape, *[shape[-1:]] * NORMS[name])
    make = lambda size: torch.randn(size, generator=generator, dtype=torch.float64)  # noqa: E731
    return [make(size).to(device, dtype) for size in shapes]


def ours(name, x, residual, *vectors, dims=1):
    shape = x.shape[x.dim() - dims :]
    return getattr(fastact, f"add_{name}")(x, residual, shape, *vectors)


def one_after_the_other(name, x, residual, *vectors, dims=1):
    total = x + residual
    return getattr(fastact, name)(total, x.shape[x.dim() - dims :], *vectors), total


def assert_both(actual, expected):
    for a, b in zip(actual, expected, strict=True):
        assert_same_bits(a.detach(), b.detach())


@every_norm
@pytest.mark.parametrize("threads", (1, 2))
@pytest.mark.kernels
def test_bits_are_those_of_an_addition_and_a_norm(name, threads, dtype, device):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for shape in ((1, 1), (3, 7), (70, 33), (40, 257), (9, 1024), (2, 3, 5000), (1, 140000)):
            x, residual, *vectors = inputs_of(name, *shape, dtype=dtype, device=device)
            for given in (vectors, vectors[:1], []):
                with untouched(x, residual, *given):
                    results = ours(name, x, residual, *given)
                assert all(t.is_contiguous() for t in results)
                assert_both(results, one_after_the_other(name, x, residual, *given))
    finally:
        torch.set_num_threads(before)


@every_norm
def test_special_rows(name, dtype, device):
    for row in kinds_of_rows(300, dtype).values():
        x = row.to(device).expand(3, 300).contiguous()
        residual = torch.zeros_like(x)
        norm, total = ours(name, x, residual)
        expected, _ = one_after_the_other(name, x, residual)
        assert_same_bits(norm, expected)
        assert torch.equal(total.nan_to_num(7), x.nan_to_num(7))  # any NaN


@every_norm
def test_layouts_and_shapes(name, dtype, device):
    x, residual, *vectors = inputs_of(name, 6, 8, dtype=dtype, device=device)
    expected = ours(name, x, residual, *vectors)
    views = (lambda t: t, moved, lambda t: t.t().contiguous().t())
    for a in views:
        for b in views:
            results = ours(
                name, a(x), b(residual), *(torch.stack((v, v), -1)[:, 0] for v in vectors)
            )
            assert all(t.is_contiguous() for t in results)
            assert_both(results, expected)
    both = [v.expand(6, 8).contiguous() for v in vectors]
    assert_both(
        ours(name, x, residual, *both, dims=2),
        one_after_the_other(name, x, residual, *both, dims=2),
    )
    for shape in ((0, 3), (3, 0)):
        empty = torch.empty(shape, dtype=dtype, device=device)
        assert all(t.shape == shape for t in ours(name, empty, empty))


@every_norm
def test_float32_vectors(name, device):
    x, residual, *_ = inputs_of(name, 6, 8, dtype=torch.bfloat16, device=device)
    _, _, *vectors = inputs_of(name, 6, 8, device=device)
    results = ours(name, x, residual, *vectors)
    assert [t.dtype for t in results] == [torch.bfloat16] * 2
    assert_both(results, one_after_the_other(name, x, residual, *vectors))


@every_norm
def test_gradients(name, dtype, device):
    """Those of the two operators. Either result may be used alone."""
    tensors = inputs_of(name, 40, 9, dtype=dtype, device=device)
    g = torch.randn(2, 40, 9, device=device).to(dtype)
    for used in ((0, 1), (0,), (1,)):
        gradients = []
        for call in (ours, one_after_the_other):
            leaves = [t.clone().requires_grad_() for t in tensors]
            results = call(name, *leaves)
            chosen = [results[i] for i in used]
            gradients.append(
                torch.autograd.grad(chosen, leaves, [g[i] for i in used], allow_unused=True)
            )
        for a, b in zip(*gradients, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                assert_same_bits(a, b)
    with torch.no_grad():
        expected = ours(name, *tensors)
    assert_both(ours(name, *(t.requires_grad_() for t in tensors)), expected)


@every_norm
def test_transforms(name, device):
    x, residual, *vectors = inputs_of(name, 4, 6, device=device)
    expected = ours(name, x, residual, *vectors)
    call = lambda a, b: ours(name, a, b, *vectors)  # noqa: E731
    with no_vmap_fallback():
        assert_both(vmap(call)(x, residual), expected)
        assert_both(vmap(call, (0, None))(x, residual[0]), call(x, residual[:1].expand(4, 6)))
    assert_both(functionalize(call)(x, residual), expected)
    by_x = grad(lambda a: call(a, residual)[0].square().sum())(x)
    leaf = x.clone().requires_grad_()
    call(leaf, residual)[0].square().sum().backward()
    torch.testing.assert_close(by_x, leaf.grad)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        tangents = [forward_ad.unpack_dual(t).tangent for t in call(dual, residual)]
        of_two = one_after_the_other(name, dual, residual, *vectors)
        assert_both(tangents, [forward_ad.unpack_dual(t).tangent for t in of_two])


@every_norm
def test_opcheck(name, device):
    x, residual, *vectors = inputs_of(name, 3, 4, device=device)
    torch.library.opcheck(
        getattr(fastact, f"_add_{name}").default, (x, residual, *vectors, 1e-5, -1)
    )
    leaves = [t.requires_grad_() for t in (x, residual, *vectors)]
    op = getattr(fastact, f"add_{name}").default
    torch.library.opcheck(op, (*leaves[:2], (4,), *leaves[2:]))


@every_norm
@pytest.mark.parametrize("backend", ("aot_eager", pytest.param("inductor", marks=pytest.mark.slow)))
@pytest.mark.parametrize("trains", (False, True))
def test_compile(name, backend, trains, device, fresh_compiler):
    call = lambda *tensors: ours(name, *tensors)  # noqa: E731
    compiled = torch.compile(call, fullgraph=True, dynamic=True, backend=backend)
    for rows in (3, 40):
        tensors = inputs_of(name, rows, 50, device=device)
        leaves = [t.requires_grad_(trains) for t in tensors]
        results, expected = compiled(*leaves), call(*leaves)
        assert_both(results, expected)
        if trains:
            g = torch.randn_like(expected[0])
            of_eager = torch.autograd.grad(expected, leaves, (g, g))
            for a, b in zip(torch.autograd.grad(results, leaves, (g, g)), of_eager, strict=True):
                assert_same_bits(a, b)


@every_norm
def test_autocast_is_that_of_the_norm(name, cuda):
    x, residual, *vectors = inputs_of(name, 6, 8, dtype=torch.bfloat16, device=cuda)
    with torch.autocast("cuda"):
        norm, total = ours(name, x, residual, *vectors)
        assert ours(name, x.t(), residual.t())[1].is_contiguous()
        with pytest.raises(RuntimeError, match=f"fastact::add_{name}: expected residual to have"):
            ours(name, x, residual.float())
    assert (norm.dtype, total.dtype) == (torch.float32, torch.bfloat16)


@every_norm
def test_functions(name, device):
    x, residual, *vectors = inputs_of(name, 6, 8, device=device)
    function = getattr(package.functional, f"add_{name}")
    expected = ours(name, x, residual, *vectors)
    assert_both(function(x, residual, (8,), *vectors), expected)

    def scripted(x, residual, weight):
        # type: (Tensor, Tensor, Tensor) -> Tuple[Tensor, Tensor]
        return torch.ops.fastact.add_rms_norm(x, residual, [8], weight)

    if name == "rms_norm":
        assert_both(torch.jit.script(scripted)(x, residual, vectors[0]), expected)


@every_norm
def test_errors_of_arguments(name, device):
    x, residual, *vectors = inputs_of(name, 2, 3, device=device)
    cases = [
        (lambda: ours(name, x, residual[:1]), RuntimeError,
         "expected residual to have the shape of input, [2, 3], but got [1, 3]"),
        (lambda: ours(name, x, residual.double()), RuntimeError,
         "expected residual to have the type of input, Float, but got Double"),
        (lambda: ours(name, x, residual.to("meta")), RuntimeError,
         f"expected residual to be on the device of input, {x.device}, but got meta"),
        (lambda: ours(name, x, residual, vectors[0][:2]), RuntimeError,
         "expected weight to have the shape [3], but got [2]"),
        (lambda: ours(name, x, residual, dims=0), RuntimeError,
         "expected normalized_shape to have at least one dimension, but got []"),
        (lambda: ours(name, x.int(), residual.int()), NotImplementedError,
         "expected self to be float32, float64, bfloat16 or float16, but got Int"),
    ]  # fmt: skip
    for call, kind, message in cases:
        error = error_of(call)
        assert type(error) is kind, error
        assert first_line(error) == f"fastact::add_{name}: {message}"
