"""PReLU: the bits of values and gradients, autocast, errors, schemas, export and TorchScript.
test_combinations.py tests what it shares with other operators."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch.func import grad, vmap

from op_table import ACTIVATIONS
from oracle import FORMATS, every_16_bit_value, rounded, wide
from support import (
    LAYOUTS,
    assert_same_bits,
    build_info,
    error_of,
    first_line,
    library_path,
    make,
    run_python,
    untouched,
    values,
)
from test_special_values import specials

fastact = torch.ops.fastact
prelu = lambda x, w: fastact.prelu(x, w)  # noqa: E731
WEIGHTS = (0.25, 0.0, -0.0, -1.5, 0.1, 1.0, 3e-3, 1e4, 2.0**-20, float("inf"), float("nan"))
close = torch.testing.assert_close


def channels_of(x):
    return x.shape[1] if x.dim() > 1 else 1


def weight_for(x, kind):
    """Returns a weight with one element or one per channel, with x's type and device."""
    count = channels_of(x) if kind == "channels" else 1
    w = torch.linspace(-0.5, 1.1, count, dtype=torch.float64).to(x.dtype).to(x.device)
    return w[0] if kind == "zero_dim" else w


def broadcast(w, x):
    shape = [1] * x.dim()
    if x.dim() > 1:
        shape[1] = w.numel()
    return w.reshape(shape).expand(x.shape)


def exact(x, w):
    """Returns f, rounded once, in x's shape."""
    full = broadcast(w, x)
    a, b = wide(x), wide(full)
    if x.dtype == torch.float64:
        # A float64 product that is zero, infinite or NaN is used as it is.
        product = [
            float(Fraction(p) * Fraction(q)) if math.isfinite(p * q) and p * q else p * q
            for p, q in zip(a.astype(float).tolist(), b.astype(float).tolist())
        ]
        product = np.array(product, dtype=np.longdouble)
    else:
        with np.errstate(all="ignore"):
            product = a * b  # exact: at most 48 digits
    y = rounded(np.where(a > 0, a, product), x.dtype)
    return y.reshape(x.shape).to(x.device)


def away_from_zero(*shape, device="cpu"):
    x = torch.randn(shape, dtype=torch.float64)
    return torch.where(x.abs() < 0.2, x.sign() * 0.2 + x, x).to(device).requires_grad_()


def leaf(t):
    return t.detach().clone().requires_grad_()


kinds = pytest.mark.parametrize("kind", ("channels", "one", "zero_dim"))


# ---- values


@pytest.mark.parametrize("weight", WEIGHTS)
def test_every_16_bit_input(device, half, weight):
    x = every_16_bit_value(half).to(device)
    w = torch.tensor([weight], dtype=torch.float64).to(half).to(device)
    assert_same_bits(fastact.prelu(x, w), exact(x, w))
    grid = x[:65536:257].reshape(1, -1)
    assert_same_bits(
        fastact.prelu(x.reshape(256, 256), grid[0]), exact(x.reshape(256, 256), grid[0])
    )


@pytest.mark.parametrize("weight", WEIGHTS)
def test_special_values(device, dtype, weight):
    x = specials(dtype, device)
    w = torch.tensor(weight, dtype=torch.float64).to(dtype).to(device)
    y = fastact.prelu(x, w)
    assert_same_bits(y, exact(x, w))
    nan = y.isnan()
    theirs = torch.prelu(x, w)
    assert torch.equal(nan, theirs.isnan())
    assert_same_bits(y[~nan], theirs[~nan])


@kinds
def test_values_are_pytorchs(device, dtype, kind):
    for shape in ((), (7,), (5, 3), (2, 3, 1025), (2, 3, 33, 65), (1, 70000), (3, 1, 4)):
        x = values(*shape, dtype=dtype, device=device)
        w = weight_for(x, kind)
        assert_same_bits(fastact.prelu(x, w), torch.prelu(x, w))


# ---- gradients


@kinds
@pytest.mark.parametrize("layout", ("contiguous", "channels_last", "permuted", "zero_dim", "empty"))
def test_gradients(device, dtype, layout, kind):
    x = make(layout, dtype, device)
    x, w = leaf(x), leaf(weight_for(x, kind))
    y = fastact.prelu(x, w)
    g = values(*x.shape, dtype=dtype, device=device)
    by_x, by_w = torch.autograd.grad(y, (x, w), g)
    full, below = broadcast(w, x).detach(), x.detach() <= 0
    assert_same_bits(by_x, torch.where(below, g * full, g))
    assert by_w.shape == w.shape and by_w.dtype == dtype
    elementwise = torch.where(below, g * x.detach(), 0)
    assert_same_bits(fastact._prelu_weight_backward(g, x.detach()), elementwise)
    theirs = torch.autograd.grad(torch.prelu(x, w), (x, w), g)
    close(by_x, theirs[0])
    close(by_w, theirs[1])


@pytest.mark.parametrize("weight", WEIGHTS)
def test_gradients_of_every_16_bit_input(device, half, weight):
    """Gradients are correctly rounded, for incoming gradients of 1 and others."""
    x = every_16_bit_value(half).to(device)
    w = torch.tensor(weight, dtype=torch.float64).to(half).to(device)
    for g in (1.0, -0.7, 2.0**-12):
        g = torch.tensor(g, dtype=torch.float64).to(half).to(device).expand(x.shape)
        a, b, c = wide(x), wide(g), wide(w.expand(x.shape))
        with np.errstate(all="ignore"):
            slope = np.where(c == 0, 0, b * c) + np.longdouble(0)
            by_x = np.where(np.isnan(a), a, np.where(a > 0, b, slope))
            by_w = np.where(np.isnan(a), a, np.where(a >= 0, np.longdouble(0), a * b))
        assert_same_bits(fastact._prelu_backward(g, w, x).cpu(), rounded(by_x, half))
        assert_same_bits(fastact._prelu_weight_backward(g, x).cpu(), rounded(by_w, half))


def test_special_gradients(device, dtype):
    """A zero derivative gives +0 for any gradient. The derivative at NaN is NaN."""
    nan, inf = float("nan"), float("inf")

    def t(*numbers):
        return torch.tensor(numbers, dtype=dtype, device=device)

    x, w = t(1, 1, -1, -1, 0, nan, nan), t(nan, 0, 0, 2, 2, 2, 0)
    by_x = fastact._prelu_backward(t(inf, -2, inf, inf, 3, 1, 1), w, x)
    assert torch.equal(by_x[:5], t(inf, -2, 0, inf, 6))
    by_w = fastact._prelu_weight_backward(t(nan, inf, 3, -1, inf, 1, 0), x)
    assert_same_bits(by_w[:5], t(0, 0, -3, 1, 0))
    mixed = fastact._prelu_weight_double_backward(t(nan, 2, 3, 1, 2, 1, 0), w, x)
    assert_same_bits(mixed[:5], t(0, 0, 0, 2, 4))
    canonical = torch.full((2,), FORMATS[dtype].nan, dtype=FORMATS[dtype].integer, device=device)
    for result in (by_x, by_w, mixed):
        assert torch.equal(result[5:].view(FORMATS[dtype].integer), canonical)


@pytest.mark.parametrize("low", (torch.bfloat16, torch.float16))
def test_autocast_is_pytorchs(device, low):
    x, w = leaf(values(3, 4, device=device)), leaf(values(4, device=device))
    for a, b in ((x, w), (x.to(low), w), (x.double(), w.double())):
        with torch.autocast(device, low):
            ours, theirs = fastact.prelu(a, b), torch.prelu(a, b)
        assert_same_bits(ours, theirs)
        for p, q in zip(*(torch.autograd.grad(y.sum(), (x, w)) for y in (ours, theirs))):
            close(p, q, check_dtype=True)


# ---- errors


def t(*shape, dtype=torch.float32, device="cpu"):
    return torch.ones(shape, dtype=dtype, device=device)


ERRORS = {
    "two_dimensional_weight": (lambda d: (t(2, 3, device=d), t(1, 3, device=d)), "2 dimensions"),
    "two_dimensional_one": (lambda d: (t(2, 3, device=d), t(1, 1, device=d)), "2 dimensions"),
    "wrong_count": (lambda d: (t(2, 3, device=d), t(4, device=d)), "1 or 3 elements"),
    "wrong_count_of_vector": (lambda d: (t(5, device=d), t(5, device=d)), "1 or 1 elements"),
    "no_weight": (lambda d: (t(2, 3, device=d), t(0, device=d)), "but got 0"),
    "no_weight_of_empty": (lambda d: (t(0, device=d), t(0, device=d)), "but got 0"),
    "scalar": (lambda d: (t(device=d), t(3, device=d)), "for a 0-dimensional self"),
    "types": (lambda d: (t(2, 3, device=d), t(3, dtype=torch.double, device=d)), "but got Double"),
    "types_of_scalar": (lambda d: (t(3, device=d), t(dtype=torch.half, device=d)), "but got Half"),
    "integers": (lambda d: (t(2, 3, device=d).int(), t(3, device=d).int()), "but got Int"),
    "bool": (lambda d: (t(2, 3, device=d).bool(), t(3, device=d).bool()), "but got Bool"),
    "complex": (lambda d: (t(3, device=d).cfloat(), t(1, device=d).cfloat()), "but got Complex"),
    "devices": (lambda d: (t(2, 3, device=d), t(3, device="meta")), "weight on meta"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(device, case):
    arguments, text = ERRORS[case]
    x, w = arguments(device)
    with untouched(x) if case == "devices" else untouched(x, w):
        ours, theirs = error_of(fastact.prelu, x, w), error_of(torch.prelu, x, w)
    assert type(ours) is type(theirs) is not type(None)
    assert first_line(ours).startswith("fastact::prelu: expected ") and text in first_line(ours)


@pytest.mark.parametrize("case", sorted(set(ERRORS) - {"devices"}))
def test_meta_raises_the_same(case):
    arguments, _ = ERRORS[case]
    expected = error_of(fastact.prelu, *arguments("cpu"))
    error = error_of(fastact.prelu, *arguments("meta"))
    assert type(error) is type(expected) and first_line(error) == first_line(expected)


def test_sparse_tensors():
    x, w = values(2, 3), values(3)
    for call in (fastact.prelu, torch.prelu):
        assert isinstance(error_of(call, x.to_sparse(), w), NotImplementedError)
        assert isinstance(error_of(call, x, w.to_sparse()), RuntimeError)


# ---- registration


def test_schemas():
    found = {
        str(s)
        for s in torch._C._jit_get_all_schemas()
        if s.name.startswith(("fastact::prelu", "fastact::_prelu"))
    }
    assert found == {
        "fastact::prelu(Tensor self, Tensor weight) -> Tensor",
        "fastact::_prelu(Tensor weight, Tensor self) -> Tensor",
        "fastact::_prelu_backward(Tensor grad_output, Tensor weight, Tensor self) -> Tensor",
        "fastact::_prelu_weight_backward(Tensor grad_output, Tensor self) -> Tensor",
        "fastact::_prelu_weight_double_backward"
        "(Tensor grad_grad_input, Tensor grad_output, Tensor self) -> Tensor",
    }
    assert "prelu" not in {act.name for act in ACTIVATIONS}
    assert torch.Tag.pt2_compliant_tag in fastact.prelu.default.tags
    for part in ("_prelu", "_prelu_backward", "_prelu_weight_backward"):
        tags = getattr(fastact, part).default.tags
        assert torch.Tag.pt2_compliant_tag in tags and torch.Tag.pointwise in tags


@pytest.mark.parametrize("requires_grad", (False, True))
def test_opcheck(device, requires_grad):
    g, x = (away_from_zero(4, 3, device=device).requires_grad_(requires_grad) for _ in range(2))
    w = away_from_zero(3, device=device).requires_grad_(requires_grad)
    for op, tensors in (
        (fastact.prelu, (x, w)),
        (fastact._prelu, (w, x)),
        (fastact._prelu_backward, (g, w, x)),
        (fastact._prelu_weight_backward, (g, x)),
        (fastact._prelu_weight_double_backward, (g, w, x)),
    ):
        torch.library.opcheck(op.default, tensors)


# ---- torch.func


def test_vmap_takes_each_sample_for_itself(device):
    """In a batch of vectors or scalars, each sample has one weight."""
    w = values(1, device=device)
    for shape in ((5, 3), (5,)):
        x = values(*shape, device=device)
        assert_same_bits(
            vmap(prelu, (0, None))(x, w), fastact.prelu(x.reshape(-1), w).reshape(shape)
        )
    error = error_of(vmap(prelu, (0, None)), values(5, 3, device=device), values(3, device=device))
    assert "1 or 1 elements" in str(error)


# ---- compilers


class Block(torch.nn.Module):
    """A module that uses prelu like a network."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([0.25, -0.5, 0.0]))

    def forward(self, x):
        return torch.ops.fastact.prelu(x * 2, self.weight).sin()


@pytest.mark.usefixtures("fresh_compiler")
def test_transforms_inside_compile(device):
    x, w = values(3, 4, device=device), values(4, device=device)

    def f(x, w):
        return grad(lambda w: vmap(prelu, (0, None))(x[:, None], w).sum())(w)

    close(torch.compile(f, fullgraph=True, backend="aot_eager")(x, w), f(x, w))


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("strict", (False, True))
def test_export(device, tmp_path, strict):
    block, x = Block().to(device), values(2, 3, 4, device=device)
    batch = torch.export.Dim("batch", min=2)
    program = torch.export.export(block, (x,), dynamic_shapes={"x": {0: batch}}, strict=strict)
    program = program.run_decompositions()
    assert any("fastact" in str(n.target) for n in program.graph.nodes)
    torch.export.save(program, tmp_path / "program.pt2")
    loaded = torch.export.load(tmp_path / "program.pt2").module()
    for n in (2, 5):
        x = values(n, 3, 4, device=device)
        assert_same_bits(loaded(x), block(x))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_torchscript_saved_and_run_elsewhere(device, tmp_path):
    block = Block().to(device)
    scripted, x = torch.jit.script(block), values(2, 3, 4, device=device)
    traced = torch.jit.trace(block, x)
    for module in (scripted, traced):
        for _ in range(4):
            leaf_x = leaf(x)
            y, expected = module(leaf_x), block(leaf_x)
            assert_same_bits(y, expected)
            a, b = (torch.autograd.grad(r.sum(), (leaf_x, *m.parameters()))
                    for r, m in ((y, module), (expected, block)))  # fmt: skip
            close(a, b)
    scripted.save(tmp_path / "block.pt")
    torch.save((x, block(x).detach()), tmp_path / "data.pt")
    run_python("-c", f"""
import torch
torch.ops.load_library({str(library_path())!r})
x, expected = torch.load({str(tmp_path / "data.pt")!r})
assert torch.equal(torch.jit.load({str(tmp_path / "block.pt")!r})(x), expected)
""")  # fmt: skip


# ---- the same bits

BITS = """
import os, hashlib, torch
torch.ops.load_library(os.environ["FASTACT_LIBRARY"])
fastact, found = torch.ops.fastact, hashlib.sha256()
for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
    torch.manual_seed(0)
    for n in (1, 7, 15, 16, 17, 33, 127, 128, 129, 511, 513, 1025):
        g, w, x = ((torch.randn(3, 2 * n) * 3).to(dtype) for _ in range(3))
        for s in (slice(0, n), slice(n, None), slice(0, None, 2)):
            for c in (w[:, s], w[:, :1], w[:1, s], w[:1, :1]):
                for y in (
                    fastact._prelu(c, x[:, s]),
                    fastact._prelu_backward(g[:, s], c, x[:, s]),
                    fastact._prelu_weight_backward(c, x[:, s]),
                    fastact._prelu_weight_double_backward(g[:, s], c, x[:, s]),
                ):
                    found.update(y.contiguous().view(torch.uint8).numpy().tobytes())
print(found.hexdigest())
"""


@pytest.mark.slow
@pytest.mark.kernels
def test_instruction_sets_agree():
    sets = build_info()["cpu instruction sets"].split()
    found = {run_python("-c", BITS, environment={"FASTACT_CPU_ISA": name}) for name in sets}
    assert len(found) == 1


@pytest.mark.parametrize("columns", (1, 5, 64, 127, 128, 600, 70000))
def test_expanded_operands_like_whole_ones(device, dtype, columns):
    """Tests short and long rows, dense and strided, with operands expanded along either
    dimension."""
    x = values(4, 2 * columns, dtype=dtype, device=device)
    w, g = values(4, 1, dtype=dtype, device=device), values(columns, dtype=dtype, device=device)
    for rows in (x[:, :columns], x[:, ::2], x[:, columns:]):
        whole = [t.expand(rows.shape).contiguous() for t in (g, w, rows)]
        assert_same_bits(fastact._prelu_backward(g, w, rows), fastact._prelu_backward(*whole))
        assert_same_bits(fastact._prelu(w, rows), fastact._prelu(*whole[1:]))
        assert_same_bits(fastact.relu_backward(w, rows), fastact.relu_backward(*whole[1:]))


# ---- GPU


@pytest.mark.parametrize("layout", LAYOUTS)
def test_cuda_gives_the_bits_of_the_cpu(cuda, dtype, layout):
    """Tests the value and the elementwise gradients, but not the sum in the gradient of the
    weight."""
    x = make(layout, dtype)
    g = make(layout, dtype, seed=1)
    for kind in ("channels", "one"):
        w = broadcast(weight_for(x, kind), x)
        for part, tensors in (
            (fastact._prelu, (w, x)),
            (fastact._prelu_backward, (g, w, x)),
            (fastact._prelu_weight_backward, (g, x)),
            (fastact._prelu_weight_double_backward, (g, w, x)),
        ):
            assert_same_bits(part(*(t.to(cuda) for t in tensors)).cpu(), part(*tensors))


def test_cuda_every_pair_of_specials(cuda, dtype):
    x = specials(dtype, "cpu")
    w, x = x[:, None], x[None]
    assert_same_bits(fastact._prelu(w.to(cuda), x.to(cuda)).cpu(), fastact._prelu(w, x))


def test_cuda_and_cpu_tensors_do_not_mix(cuda):
    x, w = values(2, 3), values(3)
    for tensors in ((x.to(cuda), w), (x, w.to(cuda)), (x.to(cuda), w[0])):
        ours, theirs = error_of(fastact.prelu, *tensors), error_of(torch.prelu, *tensors)
        assert type(ours) is type(theirs) is RuntimeError
        assert "expected all tensors to be on the same device" in str(ours)
