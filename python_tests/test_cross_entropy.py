"""cross_entropy: errors against MPFR, bits that depend on the row alone, PyTorch's semantics,
derivatives, and every way to call it."""

import itertools

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad, vmap
from torch.nn import functional as F

import fastact as package

# isort: off
import gmpy2
from rows import FINITE, LENGTHS, kinds_of_rows, moved, rows_of
from support import DTYPES, assert_same_bits, error_of, first_line
# isort: on

fastact = torch.ops.fastact
TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3}
REDUCTIONS = ("none", "mean", "sum")


def wide(dtype):
    return torch.float64 if dtype == torch.float64 else torch.float32


def targets(x, dim=1):
    """Returns a class for each row."""
    generator = torch.Generator().manual_seed(x.numel())
    shape = [size for d, size in enumerate(x.shape) if d != dim % x.dim()]
    return torch.randint(0, x.shape[dim], shape, generator=generator).to(x.device)


def losses(x, target, dim=1):
    return fastact._cross_entropy(x, target.unsqueeze(dim), dim).squeeze(dim)


def gradient(x, target, g, dim=1):
    rows = target.unsqueeze(dim), g.to(wide(x.dtype)).unsqueeze(dim)
    return fastact._cross_entropy_backward(x, *rows, dim)


def exact(row, target):
    """Returns the loss and softmax - onehot in 300 bits."""
    with gmpy2.context(gmpy2.get_context(), precision=300):
        x = [gmpy2.mpfr(value) for value in row]
        others = sum(
            (gmpy2.exp(v - x[target]) for i, v in enumerate(x) if i != target), gmpy2.mpfr(0)
        )
        p = [gmpy2.exp(v - x[target]) / (1 + others) for v in x]
        p[target] = -others / (1 + others)
        return gmpy2.log1p(others), p


def ulps(found, y, dtype):
    """Returns the error in ULP. Below the normal numbers, an ULP is constant."""
    info = torch.finfo(dtype)
    exponent = max(float(abs(y)), info.smallest_normal)
    ulp = 2.0 ** (gmpy2.get_exp(gmpy2.mpfr(exponent)) - 1) * info.eps
    return float(abs(gmpy2.mpfr(found) - y)) / ulp


# ---- Numbers


@pytest.mark.parametrize("n", (2, 7, 128, 1000))
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
@pytest.mark.kernels
def test_errors(n, dtype):
    """Of losses and of gradients, also where the softmax at the target is close to 1."""
    kinds = {k: row for k, row in kinds_of_rows(n, dtype).items() if k in FINITE}
    for kind, row in kinds.items():
        if not row.isfinite().all():
            continue
        for target in {0, n // 2, int(row.argmax()), int(row.argmin())}:
            x, index = row[None], torch.tensor([target])
            loss, p = exact(row.tolist(), target)
            assert ulps(losses(x, index).item(), loss, dtype) <= 2.5, (kind, target)
            found = gradient(x, index, torch.ones(1))[0].tolist()
            assert max(ulps(a, b, dtype) for a, b in zip(found, p)) <= 5, (kind, target)


def test_special_values(dtype, device):
    inf, nan = torch.inf, torch.nan
    for n in (3, 40, 300, 2000):
        x = torch.randn(6, n, device=device).to(dtype)
        x[0] = -inf
        x[1, n // 2] = inf
        x[2, 0] = nan
        x[3, 1:] = -inf  # the target is certain
        x[4, 0] = -inf  # the target is impossible
        target = torch.zeros(6, dtype=torch.int64, device=device)
        y = losses(x, target)
        assert y[:3].isnan().all() and y[3:5].tolist() == [0, inf] and not y[3].signbit()
        g = torch.ones(6, device=device)
        by_x = gradient(x, target, g)
        assert by_x[:3].isnan().all() and not by_x[3:].isnan().any()
        assert not by_x[3].any() and by_x[4, 0] == -1
        assert not gradient(x, target, 0 * g).any()  # padding


def test_duplicates_of_the_target(dtype, device):
    """Elements that equal the target's count as other classes."""
    x = torch.tensor([[2.0, 2.0, 1.0, 2.0]], device=device).to(dtype)
    target = torch.tensor([1], device=device)
    p = torch.softmax(x.double(), 1)
    p[0, 1] -= 1
    found = gradient(x, target, torch.ones(1, device=device))
    torch.testing.assert_close(found.double(), p, rtol=TOLERANCE[dtype], atol=0)


# ---- Bits


@pytest.mark.parametrize("n", LENGTHS)
def test_bits_depend_on_the_row_alone(n, dtype, device):
    x = rows_of(n, dtype).to(device)
    target, g = targets(x), torch.randn(len(x), device=device)
    y, by_x = losses(x, target), gradient(x, target, g)
    for i in range(0, len(x), 3):
        assert_same_bits(losses(x[i : i + 1], target[i : i + 1])[0], y[i])
        assert_same_bits(gradient(x[i : i + 1], target[i : i + 1], g[i : i + 1])[0], by_x[i])
    many = x.repeat(40, 1), target.repeat(40)
    assert_same_bits(losses(*many), y.repeat(40))
    assert_same_bits(gradient(*many, g.repeat(40)), by_x.repeat(40, 1))
    assert_same_bits(losses(moved(x), target), y)
    assert_same_bits(gradient(moved(x), target, g), by_x)
    columns = x.t().contiguous()
    assert_same_bits(losses(columns, target, 0), y)
    assert_same_bits(gradient(columns, target, g, 0).t(), by_x)


@pytest.mark.parametrize("n", (*LENGTHS, 50257, 300000))
def test_gpu_bits_are_cpu_bits(n, dtype, cuda):
    x = rows_of(n, dtype)
    target, g = targets(x), torch.randn(len(x))
    on_gpu = x.to(cuda), target.to(cuda)
    assert_same_bits(losses(*on_gpu), losses(x, target))
    assert_same_bits(gradient(*on_gpu, g.to(cuda)), gradient(x, target, g))
    assert_same_bits(gradient(moved(on_gpu[0]), on_gpu[1], g.to(cuda)), gradient(x, target, g))
    finite = x[: len(FINITE)], target[: len(FINITE)]
    weight = torch.rand(n).to(dtype)
    there = [t.to(cuda) for t in (*finite, weight)]
    for reduction in range(3):
        assert_same_bits(
            fastact.cross_entropy(*there, reduction),
            fastact.cross_entropy(*finite, weight, reduction),
        )


def test_losses_of_many_rows_have_one_order(device):
    """The sum depends on the losses alone, not on the shape or the number of threads."""
    x = torch.randn(5000, 7, device=device)
    target = targets(x)
    mean = fastact.cross_entropy(x, target)
    cube = x.view(50, 100, 7).permute(0, 2, 1)
    assert_same_bits(fastact.cross_entropy(cube, target.view(50, 100)), mean)
    torch.set_num_threads(1)
    try:
        assert_same_bits(fastact.cross_entropy(x, target), mean)
    finally:
        torch.set_num_threads(2)


@pytest.mark.parametrize("half", (torch.bfloat16, torch.float16))
def test_sixteen_bits_are_float32_rounded_once(half, device):
    for n in (3, 77, 3000):
        x = torch.stack([kinds_of_rows(n, half)[kind] for kind in FINITE]).to(device)
        target, g = targets(x), torch.randn(len(x), device=device)
        assert_same_bits(losses(x, target), losses(x.float(), target))
        finite = losses(x, target).isfinite()
        found, expected = gradient(x, target, g), gradient(x.float(), target, g).to(half)
        assert_same_bits(found[finite], expected[finite])
        for reduction in (1, 2):
            given = x[finite], target[finite], None, reduction
            single = fastact.cross_entropy(given[0].float(), *given[1:])
            assert_same_bits(fastact.cross_entropy(*given), single.to(half))


# ---- Semantics


SHAPES = ((5,), (6, 5), (3, 5, 2), (2, 5, 2, 3), (2, 5, 0), (0, 5))


def test_no_classes(device):
    """As PyTorch, whose kernels do not take such indices unless all are ignored."""
    x = torch.zeros(4, 0, device=device, requires_grad=True)
    ignored = torch.full((4,), -100, device=device)
    for target in (torch.zeros(4, 0, device=device), ignored):
        for reduction, expected in (("mean", torch.nan), ("sum", 0.0)):
            found = package.functional.cross_entropy(x, target, reduction=reduction)
            torch.testing.assert_close(found.item(), expected, equal_nan=True)
            assert torch.autograd.grad(found, x)[0].shape == (4, 0)


def test_the_type_of_probabilities(device):
    for logits, probabilities in itertools.product(DTYPES, DTYPES):
        x = torch.randn(3, 5, device=device).to(logits)
        target = torch.rand(3, 5, device=device).to(probabilities)
        found, expected = (f(x, target) for f in (fastact.cross_entropy, F.cross_entropy))
        torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ("indices", "bytes", "probabilities"))
def test_as_pytorch(shape, kind, dtype, device):
    dim = min(len(shape) - 1, 1)
    x = torch.randn(shape, device=device).to(dtype).requires_grad_()
    if kind == "probabilities":
        target = torch.softmax(torch.randn(shape, device=device), dim).to(dtype)
    else:
        target = targets(x, dim)
        if target.dim() and target.numel():
            target.view(-1)[0] = 9
        target = target.byte() if kind == "bytes" else target
    for reduction, smoothing, weighs in itertools.product(REDUCTIONS, (0.0, 0.1), (False, True)):
        options = {"reduction": reduction, "label_smoothing": smoothing}
        if kind != "probabilities":
            options["ignore_index"] = 9
        if weighs:
            options["weight"] = torch.rand(5, device=device).to(dtype)
        found = package.functional.cross_entropy(x, target, **options)
        # PyTorch's version of some options does not take bytes.
        given = target.long() if kind == "bytes" else target
        expected = F.cross_entropy(x, given, **options)
        close = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype], "equal_nan": True}
        torch.testing.assert_close(found, expected, **close)
        g = torch.randn_like(found)
        ours, theirs = (torch.autograd.grad(y, x, g)[0] for y in (found, expected))
        torch.testing.assert_close(ours, theirs, **close)


def test_ignored_rows_change_nothing(dtype, device):
    """Padding of any content, in front or behind."""
    x = torch.randn(6, 40, device=device).to(dtype)
    target = targets(x)
    padding = torch.full((3, 40), torch.nan, device=device).to(dtype)
    ignored = torch.full((3,), -100, device=device)
    both = torch.cat([padding, x, padding]), torch.cat([ignored, target, ignored])
    for reduction, smoothing in itertools.product((1, 2), (0.0, 0.1)):
        plain, leaf = (t.clone().requires_grad_() for t in (x, both[0]))
        options = None, reduction, -100, smoothing
        expected = fastact.cross_entropy(plain, target, *options)
        found = fastact.cross_entropy(leaf, both[1], *options)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)
        found.backward()
        expected.backward()
        assert_same_bits(leaf.grad[3:9], plain.grad)
        assert not leaf.grad[:3].any() and not leaf.grad[9:].any()
    nothing = fastact.cross_entropy(padding, ignored)
    assert nothing.isnan()  # as in PyTorch


def test_legacy_arguments_and_the_module(device):
    x, target = torch.randn(4, 5, device=device), torch.arange(4, device=device)
    for average, reduce in itertools.product((None, True, False), (None, True, False)):
        found = package.functional.cross_entropy(x, target, None, average, -100, reduce)
        expected = F.cross_entropy(x, target, None, average, -100, reduce)
        torch.testing.assert_close(found, expected)
    weight = torch.rand(5, device=device)
    options = {"weight": weight, "ignore_index": 2, "reduction": "sum", "label_smoothing": 0.2}
    ours, theirs = (n.CrossEntropyLoss(**options) for n in (package.nn, torch.nn))
    torch.testing.assert_close(ours(x, target), theirs(x, target))
    assert_same_bits(torch.jit.script(ours)(x, target), ours(x, target))
    package.replace_(theirs)
    assert type(theirs) is torch.nn.CrossEntropyLoss


def test_errors_of_arguments(device):
    x, target = torch.ones(2, 3, device=device), torch.zeros(2, dtype=torch.int64, device=device)
    call = fastact.cross_entropy
    name = "fastact::cross_entropy: expected"
    calls = {
        f"{name} target to have the shape [2], or self's [2, 3], but got [3]": (
            lambda: call(x, target.new_zeros(3))
        ),
        f"{name} indices in int64 or uint8, but got Int": lambda: call(x, target.int()),
        f"{name} target with self's shape to be floating-point probabilities, but got Long": (
            lambda: call(x, x.long())
        ),
        f"{name} no ignore_index for probabilities, but got 1": lambda: call(x, x, None, 1, 1),
        f"{name} weight to have the shape [3], but got [2]": lambda: call(x, target, x[:, 0]),
        f"{name} weight to have self's type Float, but got Double": (
            lambda: call(x, target, x[0].double())
        ),
        f"{name} reduction to be 0, 1 or 2, but got 3": lambda: call(x, target, None, 3),
        f"{name} label_smoothing to be from 0 to 1, but got 1.5": (
            lambda: call(x, target, None, 1, -100, 1.5)
        ),
        f"{name} self to be float32, float64, bfloat16 or float16, but got Long": (
            lambda: call(x.long(), target)
        ),
        f"{name} self to have a dimension of classes, but got a 0-dimensional tensor": (
            lambda: call(x[0, 0], target)
        ),
    }
    for message, wrong in calls.items():
        assert first_line(error_of(wrong)) == message
    if device == "cpu":
        for index in (3, -1):
            error = error_of(lambda index=index: call(x, target + index))
            assert type(error) is IndexError
            wanted = f"{name} target to be from 0 to 2, or ignore_index, but got {index}"
            assert first_line(error) == wanted


# ---- Derivatives and transforms


@pytest.mark.parametrize("shape", ((5,), (4, 5), (2, 5, 2)))
def test_derivatives(shape, device):
    dim = min(len(shape) - 1, 1)
    x = torch.randn(shape, dtype=torch.float64, device=device, requires_grad=True)
    target = targets(x, dim)
    if target.dim():
        target.view(-1)[0] = -100
    weight = torch.rand(5, dtype=torch.float64, device=device)
    for reduction in range(3):
        call = lambda x, r=reduction: fastact.cross_entropy(x, target, weight, r)  # noqa: E731
        gradcheck(call, x, check_forward_ad=True, check_batched_grad=True)
        gradgradcheck(call, x, check_fwd_over_rev=True)


def test_vmap(device):
    x = torch.randn(3, 4, 5, device=device)
    target = torch.stack([targets(each) for each in x])
    found = vmap(fastact.cross_entropy)(x, target)
    assert_same_bits(found, torch.stack([fastact.cross_entropy(*each) for each in zip(x, target)]))
    assert_same_bits(vmap(fastact.cross_entropy, (0, None))(x, target[0])[0], found[0])
    each = vmap(grad(fastact.cross_entropy))(x, target)
    for i in range(3):
        leaf = x[i].clone().requires_grad_()
        fastact.cross_entropy(leaf, target[i]).backward()
        assert_same_bits(each[i], leaf.grad)


def test_opcheck(device):
    x = torch.randn(3, 4, device=device, requires_grad=True)
    target = targets(x)
    g = torch.randn(3, 1, device=device, requires_grad=True)
    for op, arguments in (
        (fastact.cross_entropy, (x, target)),
        (fastact._cross_entropy, (x, target[:, None], 1)),
        (fastact._cross_entropy_backward, (x, target[:, None], g, 1)),
    ):
        torch.library.opcheck(op.default, arguments)


@pytest.mark.parametrize("dtype", DTYPES)
def test_compile(dtype, device, fresh_compiler):
    """With aot_eager, which runs the traced operators."""
    call = torch.compile(fastact.cross_entropy, backend="aot_eager", fullgraph=True, dynamic=True)
    for rows in (3, 8):
        x = torch.randn(rows, 40, device=device).to(dtype).requires_grad_()
        target = targets(x)
        results = []
        for f in (call, fastact.cross_entropy):
            y = f(x, target)
            results.append((y.detach(), *torch.autograd.grad(y, x)))
        for found, expected in zip(*results):
            assert_same_bits(found, expected)


def test_compile_for_any_number_of_classes(device, fresh_compiler):
    x, target = torch.randn(6, 5, device=device), torch.arange(6, device=device) % 5
    for tensor in (x, target):
        for dim in range(tensor.dim()):
            torch._dynamo.mark_dynamic(tensor, dim)
    call = lambda x, t: fastact.cross_entropy(x, t, None, 1, -100, 0.1)  # noqa: E731
    compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, target), call(x, target))


def test_autocast(device):
    x, target = torch.randn(3, 4, device=device).bfloat16(), torch.arange(3, device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        found, expected = (f(x, target) for f in (fastact.cross_entropy, F.cross_entropy))
    assert found.dtype == expected.dtype
