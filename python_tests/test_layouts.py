"""Layouts of results: those of PyTorch's operator of the same name. Meta and fake tensors, with
numbers or symbols as sizes, have the layouts of the kernels' results."""

import functools
import itertools
import random

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.nn import functional

from op_table import OPERATORS, TOP_ORDER
from support import LAYOUTS, assert_same_bits, error_of, first_line, make, values

EVERY_ACTIVATION = True
# f(n, c, h, w) makes a tensor; the layouts in which operands of one shape may differ.
WAYS = {
    "contiguous": values,
    "channels_last": lambda *shape: values(*shape).contiguous(memory_format=torch.channels_last),
    "permuted": lambda n, c, h, w: values(w, c, n, h).permute(2, 1, 3, 0),
    "expanded": lambda n, c, h, w: values(c, 1, w).expand(n, c, h, w),
    "expanded_scalar": lambda *shape: values().expand(shape),
    "every_second_column": lambda n, c, h, w: values(n, c, h, 2 * w)[..., ::2],
}
SHAPES = ((2, 3, 4, 5), (2, 1, 4, 5), (2, 3, 1, 1))

# PyTorch's own functions, for activations whose row in the oracle table has other functions.
THEIRS = {
    "relu6": functional.relu6,
    "hardtanh": functional.hardtanh,
    "log_sigmoid": functional.logsigmoid,
}
# The layouts of x and of the incoming gradient for which PyTorch's gradient is contiguous, because
# several operators, or one that is not elementwise, compute it.
THEIRS_IS_CONTIGUOUS = {
    "squared_relu": lambda x, g: "expanded" in x,
    "log_sigmoid": lambda x, g: "expanded" in g,
    "tanhshrink": lambda x, g: "expanded" in g,
}

# One activation whose results have self's layout, and one whose results do not. Layouts depend on
# nothing else.
BY_LEADER = tuple(act for act in OPERATORS if act.name in ("relu", "selu"))
leaders = pytest.mark.parametrize("act", BY_LEADER, ids=lambda act: act.name)
orders = pytest.mark.parametrize("order", range(TOP_ORDER + 1))


def gradient(function, x, g):
    x = x.detach().requires_grad_()
    return torch.autograd.grad(function(x), x, g)[0]


def strides(t, act):
    """Returns strides to compare. Without dimensions of size 1 where PyTorch composes the
    gradient."""
    return [
        s for s, n in zip(t.stride(), t.shape) if n != 1 or act.name not in THEIRS_IS_CONTIGUOUS
    ]


def theirs(act):
    function = THEIRS.get(act.name)
    return act.aten if function is None else lambda x: function(x, *act.parameters.values())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_and_gradients_lie_as_in_pytorch(act, shape):
    for way, other in itertools.product(WAYS, repeat=2):
        x, g = WAYS[way](*shape), WAYS[other](*shape)
        assert act.op(x).stride() == act.aten(x).stride()
        if not (act.is_pytorchs or act.name in THEIRS_IS_CONTIGUOUS):
            continue
        if act.name not in THEIRS_IS_CONTIGUOUS:
            assert act.ladder(g, x).stride() == act.aten_backward(g, x).stride(), (way, other)
        result = gradient(act.op, x, g)
        assert_same_bits(result, gradient(act.op, x.contiguous(), g.contiguous()))
        if not THEIRS_IS_CONTIGUOUS.get(act.name, lambda *ways: False)(way, other):
            expected = gradient(theirs(act), x, g)
            assert strides(result, act) == strides(expected, act), (way, other)


def test_gradients_of_in_place_calls_lie_as_in_pytorch(act):
    if act.is_composed:
        return
    for way, other in itertools.product(WAYS, repeat=2):
        x, g = WAYS[way](2, 3, 4, 5), WAYS[other](2, 3, 4, 5)
        if act.name == "leaky_relu" and not act.result_suffices:
            continue  # PyTorch has none
        ours, expected = (gradient(lambda x: f(x * 1), x, g) for f in (act.op_, act.aten_))
        assert ours.stride() == expected.stride(), (way, other)


@pytest.mark.parametrize("weights", (1, 3))
def test_prelu_lies_as_in_pytorch(weights):
    w = values(weights).requires_grad_()
    for way, other in itertools.product(WAYS, repeat=2):
        x, g = WAYS[way](2, 3, 4, 5).requires_grad_(), WAYS[other](2, 3, 4, 5)
        for a, b in zip(
            *(
                (y, *torch.autograd.grad(y, (x, w), g))
                for y in (torch.ops.fastact.prelu(x, w), torch.prelu(x, w))
            )
        ):
            assert a.stride() == b.stride(), (way, other)


# ---- Meta and fake tensors


def meta(t):
    return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta")


def lies(t):
    return t.shape, t.stride(), t.dtype


def operands(order, shape=(2, 3, 4, 5)):
    """Returns gradients and self in every combination of layouts."""
    ways = [way(*shape) for way in WAYS.values()]
    return itertools.product(ways, repeat=order + 1)


def broadcast_operands(order):
    """Returns operands of several shapes, some permuted."""
    shapes = [(3, 4, 5), (4, 1), (3, 1, 5), (), (0, 4, 1)]
    tensors = [values(*s) for s in shapes[:4]] + [values(5, 4, 3).permute(2, 1, 0)]
    tensors += [values(5, 3).t()[:, None], values(1, 5, 4).transpose(1, 2)]
    return itertools.product(tensors, repeat=order + 1)


@leaders
@orders
def test_meta_lies_as_the_cpu(act, order):
    for tensors in itertools.chain(operands(order), broadcast_operands(order)):
        assert lies(act.ladder(*map(meta, tensors))) == lies(act.ladder(*tensors))


def test_second_derivative_of_an_expanded_gradient():
    g, x = torch.ones(()).expand(4, 5), torch.randn(5, 4).t()
    selu_double_backward = torch.ops.fastact.selu_double_backward
    assert selu_double_backward(g, g, x).stride() == (1, 4)
    assert selu_double_backward(*map(meta, (g, g, x))).stride() == (1, 4)


def outcome(function, *tensors):
    """Returns the result's layout, or the error message."""
    error = error_of(function, *tensors)
    return lies(function(*tensors)) if error is None else first_line(error)


@leaders
@pytest.mark.parametrize("layout", LAYOUTS)
def test_meta_does_in_every_layout_what_the_cpu_does(act, layout):
    """Tests all forms, including out= that is resized or rejected."""
    x = make(layout)
    like_x = torch.empty_strided(x.shape, x.stride())
    g, other = values(*x.shape), torch.empty(0)
    for real in ((x,), (g, x), (x, g), (x, g, x), (g, g, g, x)):
        assert lies(act.ladder(*map(meta, real))) == lies(act.ladder(*real))
    for function, *real in (
        (act.op_, like_x),
        (act.out, x, other),
        (act.out, x, other.double()),
        (act.out, g, like_x),
        (act.grad_input, g, x, other),
        (act.grad_input, x, g, other.double()),
        (act.grad_input, g, g, like_x),
    ):
        on_meta = [meta(t) for t in real]
        assert outcome(function, *on_meta) == outcome(function, *real)
        assert lies(on_meta[-1]) == lies(real[-1])


@leaders
@pytest.mark.parametrize("fake", (False, True))
def test_out_that_overlaps_is_refused_on_meta(act, fake):
    def outcomes(device):
        base, x = torch.empty(40, device=device), torch.empty(10, device=device)
        column = torch.empty(10, 1, device=device).expand(10, 4)
        yield outcome(act.op_, column)
        yield outcome(act.out, base.view(10, 4), column)
        yield outcome(act.grad_input, base.view(10, 4), base.view(10, 4), column)
        yield outcome(act.out, base[:10], base[1:11])
        yield outcome(act.grad_input, base[:10], x, base[1:11])
        yield outcome(act.grad_input, x, base[:10], base[1:11])
        yield outcome(act.grad_input, base[0].double(), base[:10], base[1:11])
        yield outcome(act.out, base[:10], base[10:20])
        yield outcome(act.out, base[:10], base[:10])

    expected = list(outcomes("cpu"))
    assert sum("unsupported operation" in str(said) for said in expected) == 7
    if fake:
        with FakeTensorMode():
            assert list(outcomes("cpu")) == expected
    else:
        assert list(outcomes("meta")) == expected


def fake_of(mode, dynamic):
    def convert(t):
        context = None
        if dynamic:
            context = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC] * t.dim())
        return mode.from_tensor(t, symbolic_context=context)

    return convert


def numbers(t):
    """Returns a fake tensor's layout for the sizes of the original."""
    return tuple(map(int, t.shape)), tuple(map(int, t.stride())), t.dtype


@leaders
@orders
@pytest.mark.parametrize("dynamic", (False, True), ids=("numbers", "symbols"))
def test_fake_tensors_lie_as_real_ones(act, order, dynamic):
    cases = [*operands(order), *operands(order, (2, 1, 4, 5)), *broadcast_operands(order)]
    mixed = [(t[0].to(torch.bfloat16), *t[1:]) for t in operands(order) if order > 0]
    cases = random.Random(order).sample(cases, min(len(cases), 20))
    cases += random.Random(order).sample(mixed, min(len(mixed), 8))
    convert = functools.cache(fake_of(FakeTensorMode(shape_env=ShapeEnv()), dynamic))
    for real in cases:
        result, expected = act.ladder(*map(convert, real)), act.ladder(*real)
        assert (numbers(result), result.device) == (lies(expected), expected.device)


@leaders
@pytest.mark.parametrize("way", WAYS)
def test_out_of_symbolic_size_is_resized_as_real_ones(act, way):
    x, out = WAYS[way](2, 3, 4, 5), torch.empty(0)
    convert = fake_of(FakeTensorMode(shape_env=ShapeEnv()), dynamic=True)
    result = act.out(convert(x), convert(out))
    assert numbers(result) == lies(act.out(x, out))
    column = values(4, 1).expand(4, 5)
    for function, *real in ((act.op_, column), (act.out, values(4, 5), column)):
        expected = error_of(function, *real)
        assert expected is not None
        assert first_line(error_of(function, *map(convert, real))) == first_line(expected)


@leaders
def test_unbacked_sizes(act):
    """Sizes depend on the data, so the operator must not query them."""

    class OfSomeRows(torch.nn.Module):
        def forward(self, x):
            rows = x[x[:, 0] > 0]
            return act.ladder(torch.ones(()).expand_as(rows), rows.t().contiguous().t(), rows * 2)

    x = values(6, 4)
    result = torch.export.export(OfSomeRows(), (x,)).module()(x)
    assert result.stride() == OfSomeRows()(x).stride()
    assert_same_bits(result, OfSomeRows()(x))


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_derivatives_of_channels_last(device):
    """Inductor relies on the strides of Meta's results."""
    fastact = torch.ops.fastact

    def f(g, x):
        return [
            2 * y
            for y in (
                fastact.selu_double_backward(g, g, x),
                fastact.selu_triple_backward(g, g, g, x),
                fastact.relu_backward(x.contiguous(), x),
                fastact.selu_backward(g.bfloat16(), x),
            )
        ]

    g = torch.ones((), device=device).expand(2, 3, 4, 5)
    x = values(2, 3, 4, 5, device=device).contiguous(memory_format=torch.channels_last)
    for ours, expected in zip(torch.compile(f, dynamic=True)(g, x), f(g, x)):
        assert ours.stride() == expected.stride()
        assert_same_bits(ours, expected)
