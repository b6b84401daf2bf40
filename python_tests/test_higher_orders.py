"""Derivatives of orders 4 to 6, which use ATen's operators, compared with mpmath."""

import functools
import itertools
import math

import mpmath
import pytest
import torch
from torch._dynamo import compiled_autograd
from torch.func import grad, jacfwd, jvp, vjp, vmap

from op_table import ACTIVATIONS, OPERATORS, SUFFIXES
from oracle import Multiprecision
from support import Calls, no_vmap_fallback

pytestmark = pytest.mark.newest

EVERY_ACTIVATION = True
ORDERS = (4, 5, 6)
TOLERANCE = 1e-12
# Smaller values may be 0: PyTorch's sigmoid is 0 before its result is subnormal.
VANISHING = 1e-300
# Near zero, ordinary sizes, and both tails, where e^x underflows.
SIZES = (
    1e-9, 1e-3, 0.1, 0.31, 0.75, 1.0, 1.4, 2.1, 3.3, 4.9, 7.7, 12.1, 16.9, 19.7, 25.0, 36.3,
    38.1, 51.0, 90.0, 171.0, 343.0, 690.0, 711.0, 1e3, 1e5, 1e12,
)  # fmt: skip
POINTS = [sign * size for size in SIZES for sign in (1.0, -1.0)]
POINTS += (torch.randn(40, generator=torch.Generator().manual_seed(0)) * 4).tolist()


def points(act, dtype=torch.float64, largest=math.inf):
    """Returns the points that the type can represent, without kinks."""
    x = torch.tensor([x for x in POINTS if abs(x) <= largest], dtype=torch.float64).to(dtype)
    return x[~torch.isin(x, torch.tensor(act.kinks, dtype=dtype)) & x.isfinite()]


ROWS = {act.id: act for act in ACTIVATIONS}


@functools.cache
def exact(row, x):
    """Returns the derivatives of orders 3 to 7 at a float, from the row's third derivative or
    value."""
    act = ROWS[row]
    first = 0 if act.takes_output else 3
    with mpmath.workprec(120):
        series = mpmath.taylor(
            lambda t: act.derivative(Multiprecision, t, first), x, 7 - first, chop=False
        )
        return {k: series[k - first] * mpmath.factorial(k - first) for k in range(3, 8)}


def by_result(act, form):
    """Returns true if the derivatives are polynomials of the result, which cancel near its
    limit."""
    return act.takes_output or form == "in_place" and not act.in_place_keeps_input


def assert_exact(ours, act, order, x, form="functional", tolerance=TOLERANCE):
    """Asserts a relative error: to the derivative, near its zeros to the neighbouring orders, and
    for derivatives from a result to the derivative's largest value."""
    assert ours.shape == x.shape and ours.dtype == x.dtype
    tiny, huge = max(torch.finfo(x.dtype).smallest_normal, VANISHING), torch.finfo(x.dtype).max
    worst = 0.0
    wanted = [exact(act.id, v) for v in x.tolist()]
    whole = max(abs(e[order]) for e in wanted) if by_result(act, form) else 0
    for v, y, e in zip(x.tolist(), ours.tolist(), wanted):
        if abs(e[order]) > huge:
            assert y == math.copysign(math.inf, e[order]), v
            continue
        size = max(whole, tiny, *(abs(e[k]) for k in (order - 1, order, order + 1)))
        error = max(abs(mpmath.mpf(y) - e[order]) - tiny, 0) / size
        assert error <= tolerance, (v, y, float(e[order]), float(error))
        worst = max(worst, float(error))
    return worst


def reverse(f):
    """Returns the elementwise f' in reverse mode."""
    return lambda x: vjp(f, x)[1](torch.ones_like(x))[0]


def forward(f):
    """Returns the elementwise f' in forward mode."""
    return lambda x: jvp(f, (x,), (torch.ones_like(x),))[1]


FORMS = {
    "functional": lambda act: act.op,
    "in_place": lambda act: lambda x: act.op_(x * 1.0),
}
forms = pytest.mark.parametrize("form", FORMS)


@forms
def test_nested_backward(act, device, form):
    x = points(act).to(device).requires_grad_()
    y = FORMS[form](act)(x)
    for order in range(1, max(ORDERS) + 1):
        (y,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        if order in ORDERS:
            worst = assert_exact(y, act, order, x, form)
            print(f"{act.id} {form}, order {order}: {worst:.1e} at most")


MIXTURES = (
    *itertools.product((forward, reverse), repeat=4),
    *(mode * order for mode in ((forward,), (reverse,)) for order in ORDERS[1:]),
    *((forward, reverse) * 3, (reverse, forward) * 3)[:2],
)


@pytest.mark.parametrize("act", OPERATORS, ids=lambda act: act.id)
def test_mixtures_of_modes(act, device):
    x = points(act)[::3].to(device)
    for modes in MIXTURES:
        f = act.op
        for mode in modes:
            f = mode(f)
        assert_exact(f(x), act, len(modes), x)


@pytest.mark.parametrize("act", OPERATORS, ids=lambda act: act.id)
def test_vmap(act, device):
    x = points(act)[::3].to(device)
    with no_vmap_fallback():
        for modes in ((grad,) * 4, (jacfwd,) * 4, (grad, jacfwd, jacfwd, grad, grad)):
            f = act.op
            for mode in modes:
                f = mode(f)
            assert_exact(vmap(f)(x), act, len(modes), x)
        # Batches at a level inside the derivatives.
        f = lambda x: vmap(act.op)(x)  # noqa: E731
        for _ in range(4):
            f = reverse(f)
        assert_exact(f(x), act, 4, x)


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16, torch.float16), ids=str)
def test_narrower_types_are_computed_in_wider_ones(act, device, dtype):
    """They lose one rounding only, except for polynomials of an already rounded result."""
    x = points(act, dtype, largest=100).to(device).requires_grad_()
    factor = 20 if by_result(act, "functional") else 0.51
    y = act.op(x)
    for order in range(1, max(ORDERS) + 1):
        (y,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        if order in ORDERS:
            assert_exact(y, act, order, x, tolerance=factor * torch.finfo(dtype).eps)


def test_mixed_types_promote(act, device):
    gradients = [torch.ones(5, dtype=torch.bfloat16, device=device) for _ in range(3)]
    for dtype in (torch.float32, torch.float64, torch.float16):
        x = points(act)[8:13].to(dtype).to(device).requires_grad_()
        y = act.ladder(*gradients, x)
        (slope,) = torch.autograd.grad(y, x, torch.ones_like(y))
        assert slope.dtype == dtype and y.dtype == torch.promote_types(dtype, torch.bfloat16)


@forms
def test_infinities_and_nan(act, device, form):
    x = torch.tensor([math.inf, -math.inf, 1e300, -1e300, math.nan], dtype=torch.float64)
    x = x.to(device).requires_grad_()
    y = FORMS[form](act)(x)
    for order in range(1, max(ORDERS) + 1):
        (y,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        if order in ORDERS:
            far = [float(exact(act.id, v)[order]) for v in (1e5, -1e5)]
            limits = [v if math.isinf(v) else 0.0 for v in far]
            assert y[:4].tolist() == limits * 2 and y[4].isnan()


def test_three_derivatives_cost_what_their_operators_do(act, device):
    """No ATen operator computes, and D_3 saves only its operands."""
    x = points(act)[8:13].to(device).requires_grad_()
    one = torch.ones_like(x)
    y = act.op(x)
    with Calls() as calls:
        for _ in range(2):
            (y,) = torch.autograd.grad(y, x, one, create_graph=True)
        (y,) = torch.autograd.grad(y, x, one)
    # If the result is saved, autograd detaches it and adds its gradient.
    own = {name for name in calls.names if name not in ("aten::detach", "aten::add.Tensor")}
    assert own == {f"fastact::{act.name}{suffix}" for suffix in SUFFIXES[1:]}
    leaves = [torch.randn_like(x).requires_grad_() for _ in range(4)]
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        act.ladder(*leaves)
    assert [id(t) for t in kept] == [id(t) for t in leaves]


# Derivatives by a formula, and from the result.
COMPILED = [act for act in ACTIVATIONS if act.name in ("silu", "sigmoid")]
compiled = pytest.mark.parametrize("act", COMPILED, ids=lambda act: act.id)
compiled_whole = functools.partial(torch.compile, fullgraph=True, backend="aot_eager")


@compiled
@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_transforms(act, device):
    """Compiles the fourth derivative in one graph, and the fifth one as the graph's backward."""
    f = act.op
    for _ in range(4):
        f = reverse(f)
    x = points(act)[8:20].to(device).requires_grad_()
    y = compiled_whole(f)(x)
    assert_exact(y, act, 4, x)
    assert_exact(torch.autograd.grad(y.sum(), x)[0], act, 5, x)


@compiled
@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_forward_mode(act, device):
    x = points(act)[8:20].to(device)
    f = forward(reverse(reverse(reverse(act.op))))
    assert_exact(compiled_whole(f)(x), act, 4, x)


@compiled
@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_autograd(act, device):
    x = points(act)[8:20].to(device).requires_grad_()
    y = act.op(x)
    for _ in range(3):
        (y,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    with compiled_autograd._enable(compiled_whole):
        y.sum().backward()
    assert_exact(x.grad, act, 4, x)
