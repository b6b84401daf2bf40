"""torch.compile: formulas inlined into Inductor's kernels have the eager operators' bits. Also
tests which operators are called instead."""

import importlib
import json
import math
import re
import shutil
import uuid
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.utils import counters
from torch._functorch.aot_autograd import make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor import cpu_vec_isa
from torch._inductor.utils import run_and_get_code
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from op_table import ACTIVATIONS, SUFFIXES
from oracle import LongDouble, ulp_of, wide
from selection import in_latin_square
from support import (
    DTYPES,
    NIGHTLY,
    assert_same_bits,
    dtype_name,
    package_path,
    python,
    run_python,
    values,
)
from test_fused import INPUTS, SETS, drawn, fused

import fastact  # isort: skip
from fastact import _inductor  # isort: skip
import torch._inductor.lowering  # isort: skip  # and so FastAct's, before a test imports parts of it

pytestmark = pytest.mark.usefixtures("fresh_compiler")
ops = torch.ops.fastact
# Each activation once, with default parameters.
USUAL = [act for act in ACTIVATIONS if act.defaults is None]


def every_input(dtype):
    """Returns all inputs of 16-bit types, every 1021st of float32 (every 61st in the nightly run,
    more than 2^26), and random and special float64 inputs."""
    if dtype.itemsize == 2:
        return torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(dtype)
    if dtype == torch.float32:
        return torch.arange(0, 1 << 32, 61 if NIGHTLY else 1021).to(torch.int32).view(dtype)
    special = [0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e-310, -1e-310, 1e300, -1e300]
    return torch.cat([torch.randn(1 << 18, dtype=dtype) * 8, torch.tensor(special, dtype=dtype)])


def calls(code):
    """Returns the calls of FastAct's operators in generated code."""
    return re.findall(r"ops\.fastact\.(\w+)\.default\(", "\n".join(code))


@pytest.fixture
def inlined(act):
    """Returns a table row without unusual parameters, for which operators are called."""
    if act.defaults is not None:
        pytest.skip("with unusual parameters the operator is called")
    return act


def compiled(function, *args, **settings):
    """Returns the results of the compiled function, and the generated code."""
    return run_and_get_code(torch.compile(function, fullgraph=True, **settings), *args)


def assert_inlined(function, *args, **settings):
    """Asserts that no operator is called, and that the bits are those of eager."""
    results, code = compiled(function, *args, **settings)
    assert not calls(code), calls(code)
    expected = function(*args)
    assert_same_bits(results, expected)
    assert results.stride() == expected.stride()


@pytest.fixture
def rounds_as_eager():
    """Makes Inductor round each operator's 16-bit operands and results."""
    with torch._inductor.config.patch(emulate_precision_casts=True):
        yield


def assert_rounded_once(dtype, device):
    """Asserts that 16-bit f(a * b) * c, with separate and fused operators, and c * f'(a * b) are
    within 0.51 ULP of the exact result; a * b is exact in float32. Near a zero of f' terms cancel,
    and the bound is 2^-20 c. A GPU's approximate values add the tie-breaking constant times c, and
    float16 tanhshrink is within 0.58 ULP. Each activation takes each of the three forms with one of
    two types, and each type with one or two forms."""
    on_gpu = device == "cuda"
    tie = {torch.bfloat16: 2.0**-134, torch.float16: 2.0**-40}[dtype] * on_gpu
    forms = (
        lambda act, a, b, c: act.op(a * b) * c,
        lambda act, a, b, c: fused(act, a * b, gate=c),
        lambda act, a, b, c: act.ladder(c, a * b),
    )
    half = (torch.bfloat16, torch.float16).index(dtype)
    cases = [
        (i, act)
        for i in range(len(forms))
        for k, act in enumerate(USUAL)
        if in_latin_square(2, i, k, half)
    ]

    def f(a, b, c):
        return [forms[i](act, a, b, c) for i, act in cases]

    a, b, c = (values(1 << 12, dtype=dtype) for _ in range(3))
    a[:8] = 0.0
    c[:2] = torch.tensor([1e4, -1e4])
    results, code = compiled(f, *(x.to(device) for x in (a, b, c)))
    assert not calls(code)
    z, factor = wide(a) * wide(b), wide(c)
    for (i, act), result in zip(cases, results, strict=True):
        order = int(i == 2)
        exact = act.derivative(LongDouble, z, order) * factor
        near = np.abs(exact) < float(torch.finfo(dtype).max)
        is_wide = on_gpu and act.name == "tanhshrink" and dtype == torch.float16
        nearest = 0.58 if is_wide and i == 0 else 0.51
        near_zero = 2.0**-20 if order else tie
        allowed = nearest * ulp_of(exact, dtype) + near_zero * np.abs(factor)
        errors = (np.abs(wide(result) - exact) / allowed)[near]
        worst = errors.argmax()
        assert errors[worst] <= 1, (act.id, order, errors[worst], z[near][worst])


def between(function):
    """Puts the function between two operations that change no bit, so that it has neighbours."""

    def f(keep, zero, x, *others):
        return torch.where(keep, function(torch.where(keep, x, zero), *others), zero)

    return f


# ---- Bits


@pytest.mark.slow
@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize("order", range(3))
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_name)
def test_same_bits_as_the_operators(dtype, order):
    x = every_input(dtype).cuda()
    keep, zero = torch.ones_like(x, dtype=torch.bool), torch.zeros((), dtype=dtype, device="cuda")
    gradients = [torch.linspace(-2, 2, len(x)).to(dtype).cuda() for _ in range(order)]
    for act in ACTIVATIONS:
        function = between(lambda x, *g: act.ladder(*g, x))  # noqa: B023
        result, code = compiled(function, keep, zero, x, *gradients)
        assert_same_bits(result, function(keep, zero, x, *gradients))
        # Other rows of the operator may have unusual parameters.
        assert act.id != act.name or not calls(code), act.id
        torch._dynamo.reset()


@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize("order", (1, 2))
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_name)
def test_same_bits_from_the_result(dtype, order):
    """Tests the operators that backward calls after an in-place operator."""
    for name in ("selu", "elu", "celu", "leaky_relu"):
        op = getattr(ops, name + SUFFIXES[order])
        y = every_input(dtype).cuda()
        gradients = [torch.linspace(-2, 2, len(y)).to(dtype).cuda() for _ in range(order)]
        keep, zero = torch.ones_like(y, dtype=torch.bool), torch.zeros_like(y[0])
        function = between(lambda y, *g: op(*g, y, is_result=True))  # noqa: B023
        assert_inlined(function, keep, zero, y, *gradients)
        torch._dynamo.reset()


@pytest.mark.usefixtures("cuda", "rounds_as_eager")
def test_same_bits_of_prelu(dtype):
    x, g = (values(8, 5, 16, 16, dtype=dtype, device="cuda") for _ in range(2))
    weight = torch.linspace(-0.5, 0.5, 5, dtype=dtype, device="cuda")

    def gradient_of_input(g, x, weight):
        return torch.func.vjp(lambda x: ops.prelu(x * 2, weight), x)[1](g)[0]

    assert_inlined(lambda x, weight: ops.prelu(x * 2, weight) * 2, x, weight)
    assert_inlined(gradient_of_input, g, x, weight)


PARAMETERS = (
    ("elu", (0.5, 1.5, 2.0)),
    ("elu", (16.0, 0.0625, 16.0)),
    ("celu", (0.001,)),
    ("celu", (7.5,)),
    ("softplus", (2.0, 20.0)),
    ("softplus", (0.5, -3.0)),
    ("leaky_relu", (0.2,)),
    ("leaky_relu", (1e-20,)),
    ("hardtanh", (-3.0, 0.1)),
    ("hardtanh", (-1.0, 0.0)),
    ("threshold", (-1.0, -7.0)),
    ("softshrink", (0.1,)),
    ("hardshrink", (0.0,)),
)
# With these parameters the operators are called on a GPU.
UNUSUAL = (
    ("elu", (100.0, 1.0, 1.0)),
    ("celu", (1e-8,)),
    ("softplus", (1e10, 20.0)),
    ("leaky_relu", (0.0,)),
    ("leaky_relu", (-0.5,)),
    ("hardtanh", (-math.inf, math.inf)),
)


@pytest.mark.usefixtures("cuda", "rounds_as_eager")
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_name)
def test_parameters(dtype):
    x = values(1 << 16, dtype=dtype, device="cuda")
    g = values(1 << 16, dtype=dtype, device="cuda")
    for name, parameters in PARAMETERS:
        op, backward = getattr(ops, name), getattr(ops, name + "_backward")
        assert_inlined(lambda x: op(x * 2, *parameters) * 2, x)  # noqa: B023
        assert_inlined(lambda x, g: backward(g * 2, x * 2, *parameters) * 2, x, g)  # noqa: B023
        torch._dynamo.reset()


@pytest.mark.usefixtures("cuda")
def test_unusual_parameters_are_called():
    x = values(1 << 10, device="cuda")
    for name, parameters in (("elu", (1e30, 1.0, 1.0)), ("leaky_relu", (-0.1,)), ("celu", (-1.0,))):
        result, code = compiled(lambda x: getattr(ops, name)(x * 2, *parameters) * 2, x)  # noqa: B023
        assert calls(code)
        assert_same_bits(result, getattr(ops, name)(x * 2, *parameters) * 2)


# ---- What is fused


@pytest.mark.usefixtures("cuda")
def test_one_kernel(inlined):
    x, y = (values(64, 256, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    _, code = compiled(lambda x, y: inlined.op(x * 2 + y) * y, x, y)
    assert sum(line.count("@triton.jit") for line in code) == 1 and not calls(code)


@pytest.mark.usefixtures("cuda")
def test_alone_it_is_called(act):
    """Without neighbours the operator's own kernel is called, because it runs at copy speed."""
    x = values(64, 64, device="cuda")
    result, code = compiled(lambda x: (act.op(x @ x).view(-1), act.op(x)), x)
    assert len(calls(code)) == 2
    assert_same_bits(result[1], act.op(x))


@pytest.mark.usefixtures("cuda")
def test_a_convolutions_bias_is_added_with_it(act):
    x, weight, bias = (
        values(*shape, device="cuda") for shape in ((2, 8, 4, 4), (8, 8, 1, 1), (8,))
    )
    _, code = compiled(lambda x: act.op(torch.conv2d(x, weight, bias)), x)
    assert not calls(code)


@pytest.mark.parametrize("has_bias", (False, True))
@pytest.mark.parametrize("device", ("cpu", "meta"))
def test_who_adds_a_convolutions_bias(device, has_bias):
    """On a GPU Inductor adds the bias in a fused sum. On a CPU the convolution adds it."""
    is_alone = importlib.import_module("fastact._inductor.lowerings").is_alone
    graph = torch.fx.Graph()
    x, weight, bias = map(graph.placeholder, ("x", "weight", "bias"))
    arguments = (x, weight, bias if has_bias else None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    convolution = graph.call_function(torch.ops.aten.convolution.default, arguments)
    convolution.meta["val"] = torch.empty(1, device=device)
    relu = graph.call_function(ops.relu.default, (convolution,))
    graph.output(relu)
    assert is_alone(relu) == (device == "cpu" or not has_bias)
    after = graph.call_function(torch.ops.aten.convolution.default, (relu, *arguments[1:]))
    after.meta["val"] = convolution.meta["val"]
    assert is_alone(relu) == (device == "cpu" or not has_bias)


# Functions of f(x) and x that round f(x) before they use it, and functions that do not.
ROUNDED = {
    "result": lambda y, x: y,
    "view": lambda y, x: y.view(-1),
    "selection": lambda y, x: torch.where(x > 0, y.t().clone(), x),
    "part": lambda y, x: torch.cat([x, y]),
    "greatest": lambda y, x: y.amax(-1),
    "also used": lambda y, x: (y * 2, y.view(-1)),
    "matrix product": lambda y, x: y @ x,
    "written": lambda y, x: (x.copy_(y), y * 2)[1],
    "maximum": lambda y, x: torch.maximum(y, x),
    "negated": lambda y, x: -y,
    "called": lambda y, x: ops.silu_backward(y, y.float()),
    "no lowering": lambda y, x: ops.silu_triple_backward(y, y, y, x),
    "no lowering of Inductor's": lambda y, x: torch.digamma(y),
}
NOT_ROUNDED = {
    "product": lambda y, x: y * x,
    "view": lambda y, x: y.view(-1) + 1,
    "selection": lambda y, x: torch.where(x > 0, y, x).square(),
    "sum": lambda y, x: y.sum(-1),
    "conversion": lambda y, x: y.float(),
    "activation": lambda y, x: ops.silu(y),
}


def rounds(use):
    """Returns whether the lowering rounds an activation's result, given its use."""
    is_rounded = importlib.import_module("fastact._inductor.lowerings").is_rounded
    x = torch.zeros(3, 3, dtype=torch.bfloat16)
    graph = make_fx(lambda x: use(ops.hardswish(x), x))(x).graph
    (node,) = graph.find_nodes(op="call_function", target=ops.hardswish.default)
    return is_rounded(node)


@pytest.mark.parametrize("use", ROUNDED)
def test_what_is_rounded(use):
    assert rounds(ROUNDED[use])


@pytest.mark.parametrize("use", NOT_ROUNDED)
def test_what_is_not_rounded(use):
    assert not rounds(NOT_ROUNDED[use])


@pytest.mark.usefixtures("rounds_as_eager")
def test_with_precision_casts_everything_is_rounded():
    assert all(map(rounds, (ROUNDED | NOT_ROUNDED).values()))


@pytest.mark.usefixtures("cuda")
def test_any_strides_will_do(act):
    """Operands of a called operator are not copied, and its result has the strides of eager."""
    x = values(4, 8, 16, 16, device="cuda").to(memory_format=torch.channels_last)
    for view in (lambda x: x, lambda x: x[:, ::2], lambda x: x.transpose(1, 3)):
        result, code = compiled(lambda x: act.op(view(x)), x)  # noqa: B023
        assert "@triton.jit" not in "".join(code)
        assert_same_bits(result, act.op(view(x)))
        assert result.stride() == act.op(view(x)).stride()
        torch._dynamo.reset()


@pytest.mark.usefixtures("cuda")
def test_mixed_types_are_called(act):
    g, x = values(64, device="cuda"), values(64, device="cuda", dtype=torch.bfloat16)
    result, code = compiled(lambda g, x: act.ladder(g * 2, x * 2), g, x)
    assert calls(code)
    assert_same_bits(result, act.ladder(g * 2, x * 2))


# ---- Programs


class Network(torch.nn.Module):
    """Contains two gated layers, an activation in a residual branch, and one before a reduction."""

    def __init__(self, width=64):
        super().__init__()
        self.up = torch.nn.Linear(width, 2 * width)
        self.down = torch.nn.Linear(width, width)

    def forward(self, x):
        a, b = self.up(x).chunk(2, -1)
        h = fastact.functional.silu(a) * b
        h = fastact.functional.gelu(self.down(h) + x)
        h = fastact.functional.mish(h, inplace=True)
        return h.mean(-1) + fastact.functional.tanh(h).sum(-1)


def gradients(network, x):
    loss = network(x).square().sum()
    return [loss, *torch.autograd.grad(loss, list(network.parameters()))]


@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize("mode", ("default", "reduce-overhead", "max-autotune-no-cudagraphs"))
def test_training(mode):
    """Trains a network whose reductions are Inductor's. The results are close to eager, and no
    operator is called."""
    network = Network().cuda().double()  # the order of reductions matters less in float64
    x = values(32, 64, dtype=torch.float64, device="cuda")
    optimized = torch.compile(network, fullgraph=True, mode=mode)
    for _ in range(3):  # the second call records a CUDA graph
        found = gradients(optimized, x)
        torch.testing.assert_close(found, gradients(network, x), rtol=1e-4, atol=1e-4)


class Blocks(torch.nn.Module):
    """Contains activations after views of matrix products and after a batch norm."""

    def __init__(self, gelu, relu):
        super().__init__()
        self.gelu, self.relu = gelu, relu
        self.down, self.up = torch.nn.Linear(24, 6), torch.nn.Linear(6, 24)
        self.norm, self.convolution = torch.nn.BatchNorm2d(6), torch.nn.Conv2d(6, 6, 3)

    def forward(self, x):
        y = self.down(self.gelu(self.up(x))).permute(0, 3, 1, 2)
        return self.convolution(self.relu(self.norm(y))).sum()


def test_training_saves_what_it_saves_with_pytorchs():
    """Training saves as many bytes, and the results of matrix products themselves: a saved view
    would be copied to the memory format of the next convolution."""
    saved = []

    def record(module, example_inputs):
        results = next(n for n in module.graph.nodes if n.op == "output").args[0]
        saved.append([tuple(n.meta["val"].shape) for n in results if hasattr(n, "meta")])
        return make_boxed_func(module)

    backend = aot_autograd(
        fw_compiler=record,
        bw_compiler=lambda module, _: make_boxed_func(module),
        partition_fn=min_cut_rematerialization_partition,
    )
    for library in (torch.nn.functional, fastact.functional):
        torch.manual_seed(0)
        network = Blocks(library.gelu, library.relu)
        torch.compile(network, backend=backend, fullgraph=True)(torch.randn(4, 5, 5, 6)).backward()
        # The product needs silu(a), which is computed from a again.
        a, b = (torch.randn(7, 8, requires_grad=True) for _ in range(2))
        torch.compile(lambda a, b, f=library.silu: (f(a) * b).sum(), backend=backend)(a, b)
    assert saved[:2] == saved[2:]
    assert (100, 24) in saved[2]
    assert saved[3].count((7, 8)) == 2


@pytest.mark.usefixtures("cuda", "rounds_as_eager")
def test_autocast_and_dynamic_shapes(act):
    def f(x, w):
        with torch.autocast("cuda", torch.bfloat16):
            return act.op((x @ w) * 2) * 2

    optimized = torch.compile(f, fullgraph=True, dynamic=True)
    w = values(32, 48, device="cuda")
    for rows in (3, 64, 1000):
        x = values(rows, 32, device="cuda")
        assert_same_bits(optimized(x, w), f(x, w))


@pytest.mark.slow
@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16), ids=dtype_name)
def test_what_is_between_is_not_rounded(dtype):
    """Like PyTorch's own operators, unless PyTorch's setting requires rounding."""
    assert_rounded_once(dtype, "cuda")


@pytest.mark.slow
@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16), ids=dtype_name)
def test_what_is_also_written_has_the_bits_of_eager(dtype):
    """Tests a result of the graph, or a selection from one, that a neighbour uses, too."""
    x = every_input(dtype).cuda()
    for act in ACTIVATIONS:

        def f(x):
            y = act.op(x)  # noqa: B023
            return y, torch.where(x > 1, y, x), y * 0.5

        (written, selected, _), code = compiled(f, x)
        y = act.op(x)
        assert_same_bits(written, y)
        assert_same_bits(selected, torch.where(x > 1, y, x))
        assert act.id != act.name or not calls(code), act.id
        torch._dynamo.reset()


@pytest.mark.usefixtures("cuda")
def test_a_sum_takes_the_short_code():
    """Uses an activation with the same arithmetic on any GPU."""
    kernels = json.loads((package_path() / "_inductor" / "assembly.json").read_text())["ieee"]
    short, value = (
        repr(kernels["kernels"][f"hardswish__{form}__bfloat16__defaults"]["assembly"])
        for form in ("unrounded", 0)
    )
    x = values(64, 256, dtype=torch.bfloat16, device="cuda")
    for function, expected, other in (
        (lambda x: ops.hardswish(x).sum(-1), short, value),
        (lambda x: ops.hardswish(x * 2), value, short),
    ):
        _, code = compiled(function, x)
        assert expected in "".join(code) and other not in "".join(code)


def calls_formula(name, dtype, is_rounded, code):
    """Returns whether generated code calls an activation's formula, with or without the steps that
    prepare the rounding."""
    element = {torch.bfloat16: "BFloat16", torch.float16: "Float16"}[dtype]
    rounded = "true" if is_rounded else "false"
    call = rf"evaluate<fastact::families::{name}, fastact::{element}, 0, {rounded}[,>]"
    return re.search(call, "".join(code)) is not None


# The activations whose formula for unrounded results is shorter.
SHORT = {"relu", "leaky_relu", "relu6", "hardtanh", "hardswish", "softsign", "softshrink",
         "hardshrink", "sigmoid"}  # fmt: skip


@pytest.mark.parametrize("isa", ("avx2", "avx512"))
@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16), ids=dtype_name)
def test_a_cpus_short_code_is_exact_enough(vectors, dtype, isa):
    """All 16-bit values are within 0.005 ULP of the exact value, and 0 where that is 0. The sign of
    hardswish's zeros shows that its formula is the shorter one."""
    if isa not in processor_isas():
        pytest.skip("the processor has no AVX-512")
    acts = [act for act in ACTIVATIONS if act.defaults is None and act.name in SHORT]
    x = every_input(dtype)

    def f(x):
        return [act.op(x).float() for act in acts]

    with torch._inductor.config.patch("cpp.simdlen", 256 if isa == "avx2" else 512):
        results, code = compiled(f, x)
    assert not calls(code) and {act.name for act in acts} == SHORT
    assert all(calls_formula(name, dtype, False, code) for name in SHORT)
    finite = torch.isfinite(x)
    for act, y in zip(acts, results):
        exact = act.derivative(LongDouble, wide(x[finite]), 0)
        errors = np.abs(wide(y[finite]) - exact) / ulp_of(exact, dtype)
        worst = errors.argmax()
        assert errors[worst] <= 0.005, (act.id, errors[worst], x[finite][worst])
        assert (y[finite].numpy()[exact == 0] == 0).all(), act.id
        ends, expected = y[~finite].to(dtype), act.op(x[~finite])
        torch.testing.assert_close(ends, expected, rtol=0, atol=0, equal_nan=True)
        if act.name == "hardswish":
            assert torch.signbit(y[(x <= -3) & finite]).all()


@pytest.mark.newest
@pytest.mark.slow
def test_a_cpus_sum_takes_the_short_code(vectors):
    """A written result uses the whole formula, or Inductor's own operations."""
    x = values(64, 256, dtype=torch.bfloat16)
    for name in ("hardswish", "relu6"):
        op = getattr(ops, name)
        _, short = compiled(lambda x: op(x).sum(-1), x)  # noqa: B023
        _, written = compiled(lambda x: op(x * 2), x)  # noqa: B023
        assert calls_formula(name, x.dtype, False, short)
        assert not calls_formula(name, x.dtype, False, written)
        assert calls_formula(name, x.dtype, True, written) == (name == "hardswish")


def test_which_kernel_serves_parameters():
    """A kernel for ordinary parameters is used only for parameters within its bounds."""
    operators = importlib.import_module("fastact._inductor.operators")
    names = [f"elu__0__float32__{kind}" for kind in ("defaults", "any", "ordinary")]
    bounds = {"elu__0__float32": [("0.5", "2.0")] * 3}

    def kind(*parameters):
        call = operators.Call("elu", 0, parameters)
        return operators.chosen(call, torch.float32, names, bounds).split("__")[-1]

    assert kind(1.0, 1.0, 1.0) == "defaults"
    for outside in ((0.25, 1.0, 1.0), (1.0, 4.0, 1.0), (1.0, 1.0, -1.0)):
        assert kind(*outside) == "any"
    names.remove("elu__0__float32__any")
    assert kind(0.7, 1.0, 1.0) == "ordinary"


def test_a_tiny_constant_is_no_tie(device):
    """threshold's `value` may be smaller than the constant that breaks ties near zero."""

    def f(x, gate):
        return torch.ops.fastact.threshold(x + x, 0.5, 2.0**-110) * gate

    x = torch.zeros(64, dtype=torch.bfloat16, device=device)
    result, code = compiled(f, x, torch.full_like(x, 2.0**100))
    assert not calls(code)
    assert (result == 2.0**-10).all()


@pytest.mark.usefixtures("cuda", "rounds_as_eager")
def test_precision_casts(inlined):
    """With rounding as in eager, the whole expression has eager's bits."""
    x, y = (values(1 << 14, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    assert_inlined(lambda x, y: inlined.op(x * 1.5 + y) * y + 0.25, x, y)


@pytest.mark.usefixtures("cuda")
def test_freezing(inlined, monkeypatch):
    monkeypatch.setattr("torch._inductor.config.freezing", True)
    network = torch.nn.Linear(32, 32).cuda().eval()
    x = values(16, 32, device="cuda")
    with torch.no_grad():
        result, code = compiled(lambda x: inlined.op(network(x) * 2) * 2, x)
        assert not calls(code)
        torch.testing.assert_close(result, inlined.op(network(x) * 2) * 2)


@pytest.mark.slow
@pytest.mark.usefixtures("cuda")
def test_aot_inductor_package(act, tmp_path):
    """The AOTInductor package contains the code of the formula."""

    class Model(torch.nn.Module):
        def forward(self, x, y):
            return act.op(x * y) * y

    args = tuple(values(64, 65, device="cuda") for _ in range(2))
    package = torch._inductor.aoti_compile_and_package(
        torch.export.export(Model(), args), package_path=str(tmp_path / "model.pt2")
    )
    assert_same_bits(torch._inductor.aoti_load_package(package)(*args), Model()(*args))


# ---- CPUs


NEWEST = pytest.mark.newest


@pytest.fixture
def vectors():
    """Skips unless Inductor compiles for vectors that the package has formulas for."""
    cpu = importlib.import_module("fastact._inductor.vectors")
    if not cpu._is_inlined():
        pytest.skip("Inductor compiles for neither AVX2 nor AVX-512 here")
    return cpu


def processor_isas():
    """Returns the instruction sets that Inductor can compile for, by its names."""
    return [str(isa) for isa in cpu_vec_isa.valid_vec_isa_list()]


def assert_bits_of_eager(found, expected):
    """Asserts eager's bits. In 16-bit types, Inductor's conversion from float32 determines NaNs."""
    nan = torch.isnan(expected)
    assert torch.equal(torch.isnan(found), nan)
    if expected.dtype.itemsize == 2:
        found, expected = found.masked_fill(nan, 0), expected.masked_fill(nan, 0)
    assert_same_bits(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "order"),
    [
        # With the newest torch, each activation is tested in every dtype and order. With the other
        # torch, it is tested in one of these cases, because the formulas are the same.
        pytest.param(dtype, order, marks=() if (i, order) in ((0, 1), (2, 0), (3, 0)) else NEWEST)
        for i, dtype in enumerate(DTYPES)
        for order in range(3)
    ],
)
def test_a_cpu_has_the_operators_bits(vectors, dtype, order):
    """The length is no multiple of a vector."""
    x = torch.cat([every_input(dtype), torch.ones(3, dtype=dtype)])
    x = x[:: 1 if dtype.itemsize == 2 or NIGHTLY else 37]
    keep, zero = torch.ones_like(x, dtype=torch.bool), torch.zeros((), dtype=dtype)
    gradients = [torch.linspace(-2, 2, len(x)).to(dtype) for _ in range(order)]
    place = order + DTYPES.index(dtype)
    acts = [act for k, act in enumerate(USUAL) if in_latin_square(3, k, place)]

    def every(keep, zero, x, *gradients):
        return [between(lambda x, *g: act.ladder(*g, x))(keep, zero, x, *gradients)  # noqa: B023
                for act in acts]  # fmt: skip

    results, code = compiled(every, keep, zero, x, *gradients)
    assert not calls(code)
    for act, result, expected in zip(acts, results, every(keep, zero, x, *gradients)):
        try:
            assert_bits_of_eager(result, expected)
        except AssertionError as error:
            raise AssertionError(f"{act.id}: {error}") from error


@pytest.mark.slow
@pytest.mark.newest
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_name)
def test_a_cpu_held_to_avx2(vectors, dtype):
    """Tests the AVX2 code on a CPU with AVX-512, whose own code the other tests compile."""
    if "avx512" not in processor_isas():
        pytest.skip("the processor has no AVX-512")
    acts = [act for k, act in enumerate(USUAL) if in_latin_square(2, k, DTYPES.index(dtype))]
    x, g = values(1003, dtype=dtype), torch.linspace(-2, 2, 1003).to(dtype)
    keep, zero = torch.ones_like(x, dtype=torch.bool), torch.zeros((), dtype=dtype)

    def every(keep, zero, x, g):
        return [between(lambda x, *g: act.ladder(*g, x))(keep, zero, x, *gradients)  # noqa: B023
                for act in acts for gradients in ((), (g,))] + [
                between(lambda x: fused(act, x, bias=g, gate=x))(keep, zero, x)  # noqa: B023
                for act in USUAL if act.name in ("silu", "relu")]  # fmt: skip

    with torch._inductor.config.patch("cpp.simdlen", 256):
        assert str(cpu_vec_isa.pick_vec_isa()) == "avx2"
        results, code = compiled(every, keep, zero, x, g)
    assert not calls(code)
    for result, expected in zip(results, every(keep, zero, x, g)):
        assert_bits_of_eager(result, expected)


def test_a_cpu_with_parameters(vectors):
    """Compiles all parameters in one function, with float32, float64 and a 16-bit type in turn."""
    inputs = [values(1003, dtype=dtype) for dtype in DTYPES]
    for x in inputs:
        x[:2] = torch.tensor([0.0, -0.0])
    keep = torch.ones_like(inputs[0], dtype=torch.bool)
    zeros = [torch.zeros((), dtype=dtype) for dtype in DTYPES]
    cases = [(i, case) for k, case in enumerate(PARAMETERS + UNUSUAL) for i in (0, 1, 2 + k % 2)]
    from_result = [getattr(ops, f"{name}_backward") for name in ("selu", "elu", "leaky_relu")]

    def every(keep, zeros, inputs):
        return [
            between(lambda x: getattr(ops, name)(x, *parameters))(keep, zeros[i], inputs[i])  # noqa: B023
            for i, (name, parameters) in cases
        ] + [
            between(lambda y: op(y, y, is_result=True))(keep, zeros[0], inputs[0])  # noqa: B023
            for op in from_result
        ]

    results, code = compiled(every, keep, zeros, inputs)
    assert not calls(code)
    expected = every(keep, zeros, inputs)
    cases += [(0, (str(op), "is_result")) for op in from_result]
    for (i, case), found, wanted in zip(cases, results, expected, strict=True):
        try:
            assert_bits_of_eager(found, wanted)
        except AssertionError as error:
            raise AssertionError(f"{case}, {DTYPES[i]}: {error}") from error


@pytest.mark.slow
def test_what_a_cpu_writes_has_the_operators_bits(vectors):
    """A result that is written is rounded by the formula, or is Inductor's own operations. Between
    two operations, as above, it would be neither."""
    cases = [
        *((name, ()) for name in ("relu", "relu6", "hardtanh", "hardshrink", "silu", "mish")),
        *(("leaky_relu", (slope,)) for slope in (0.01, 0.1, 0.7)),
        ("threshold", (0.5, -1.5)),
    ]
    inputs = [every_input(dtype) for dtype in (torch.bfloat16, torch.float16)]

    def every(keep, inputs):
        return [
            getattr(ops, name)(torch.where(keep, x, -x), *parameters)
            for x in inputs
            for name, parameters in cases
        ]

    keep = torch.ones(1 << 16, dtype=torch.bool)
    results, code = compiled(every, keep, inputs)
    assert not calls(code)
    for i, (found, expected) in enumerate(zip(results, every(keep, inputs), strict=True)):
        try:
            assert_bits_of_eager(found, expected)
        except AssertionError as error:
            raise AssertionError(f"{cases[i % len(cases)]}: {error}") from error


def in_other_conditions(function, *args, **settings):
    """Asserts that the bits are those of eager with other settings of Inductor."""
    with torch._inductor.config.patch(settings):
        results, code = compiled(function, *args)
    assert not calls(code)
    for result, expected in zip(results, function(*args), strict=True):
        assert_bits_of_eager(result, expected)


def assorted(half, single, double):
    """Contains formulas that change bits if products and sums are contracted, if they are
    reordered, or if zeros have no sign."""
    return [ops.silu(half), ops.gelu(single), ops.celu_backward(single, single),
            ops.tanhshrink(double)]  # fmt: skip


@pytest.fixture
def assorted_inputs():
    inputs = [values(1 << 12, dtype=dtype) for dtype in (torch.bfloat16, *DTYPES[:2])]
    for x in inputs:
        x[:4] = torch.tensor([0.0, -0.0, torch.inf, -torch.inf])
    return inputs


@pytest.mark.newest
@pytest.mark.slow
def test_a_cpu_with_options_that_change_bits(vectors, assorted_inputs):
    """Compiles without a precompiled header, which would take longer than this kernel."""
    settings = {"cpp.enable_floating_point_contract_flag": "fast",
                "cpp.enable_unsafe_math_opt_flag": True,
                "cpp_cache_precompile_headers": False}  # fmt: skip
    in_other_conditions(assorted, *assorted_inputs, **settings)


# Inductor asks for the kind of the compiler once in a process.
WITH_CLANG = """
import sys
import torch
import fastact
import torch._inductor.lowering
from fastact._inductor import vectors
from test_inductor import assert_bits_of_eager, assorted, compiled
torch._inductor.config.cpp_cache_precompile_headers = False
inputs = torch.load(sys.argv[1])
if not vectors._is_inlined():
    sys.exit("skipped")
results, code = compiled(assorted, *inputs)
assert "evaluate<" in code[0]
for result, expected in zip(results, assorted(*inputs), strict=True):
    assert_bits_of_eager(result, expected)
print("passed")
"""


@pytest.mark.newest
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("clang++") is None, reason="there is no clang++")
def test_a_cpu_with_clang(vectors, assorted_inputs, tmp_path):
    torch.save(assorted_inputs, tmp_path / "inputs.pt")
    environment = {"CXX": "clang++", "PYTHONPATH": str(package_path().parent),
                   "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}  # fmt: skip
    done = python("-c", WITH_CLANG, tmp_path / "inputs.pt",
                  environment=environment, cwd=Path(__file__).parent)  # fmt: skip
    if done.stderr.rstrip().endswith("skipped"):
        pytest.skip("Inductor cannot compile with this clang++, or it is too old")
    assert done.returncode == 0 and done.stdout.rstrip().endswith("passed"), done.stderr


def test_old_compilers_and_packages_of_sources_call(vectors, monkeypatch):
    """Old compilers do not accept the headers, and a source package contains only Inductor's own
    headers."""
    assert vectors._accepts_headers("g++")
    monkeypatch.setattr(vectors, "_OLDEST_GCC", 1000)
    vectors._accepts_headers.cache_clear()
    assert not vectors._accepts_headers("g++")
    _, code = compiled(lambda x: ops.silu(x) * 2, values(64))
    assert calls(code) == ["silu"]
    monkeypatch.undo()
    vectors._accepts_headers.cache_clear()
    torch._dynamo.reset()
    with torch._inductor.config.patch("aot_inductor.package_cpp_only", True):
        assert not vectors._is_inlined()
    assert vectors._is_inlined()


@pytest.mark.newest
@pytest.mark.slow
@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16), ids=dtype_name)
def test_a_cpu_does_not_round_what_is_between(vectors, dtype):
    assert_rounded_once(dtype, "cpu")


@pytest.mark.slow
@pytest.mark.usefixtures("rounds_as_eager")
@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16), ids=dtype_name)
def test_a_cpu_with_precision_casts(vectors, dtype):
    x, y = (values(1003, dtype=dtype) for _ in range(2))
    half = (torch.bfloat16, torch.float16).index(dtype)
    acts = [act for k, act in enumerate(USUAL) if in_latin_square(2, k, half)]
    if not torch.equal(torch.compile(lambda x, y: x * 1.5 + y)(x, y), x * 1.5 + y):
        pytest.skip("this torch ignores emulate_precision_casts on CPUs")

    def f(x, y):
        return [act.op(x * 1.5 + y) * y + 0.25 for act in acts]

    results, code = compiled(f, x, y)
    assert not calls(code)
    for result, expected in zip(results, f(x, y)):
        assert_bits_of_eager(result, expected)


@pytest.mark.slow
def test_a_cpu_trains(vectors):
    network = Network()
    x = values(32, 64)
    found = gradients(torch.compile(network, fullgraph=True), x)
    torch.testing.assert_close(found, gradients(network, x), rtol=1e-4, atol=1e-4)


def test_a_cpu_alone(vectors):
    """For few elements, a call takes longer than Inductor's loop. Tests each type with one
    activation; test_a_cpu_has_the_operators_bits() tests all of them."""
    inputs = [values(64, 64, dtype=dtype) for dtype in DTYPES]

    def f(*inputs):
        return [op((x @ x).view(-1)) for op, x in
                zip((ops.relu, ops.gelu, ops.gelu, ops.selu), inputs)]  # fmt: skip

    results, code = compiled(f, *inputs)
    assert not calls(code)
    for result, expected in zip(results, f(*inputs), strict=True):
        assert_bits_of_eager(result, expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_name)
@pytest.mark.parametrize("name", ["relu", "selu"])
def test_a_cpu_alone_calls(vectors, name, dtype):
    """For many elements the operator's own kernel is faster. It is also called if their number is
    unknown."""
    op = getattr(ops, name)
    x = values(*((1 << 8, 1 << 8) if dtype.itemsize == 2 else (1 << 11, 1 << 11)), dtype=dtype)
    for operand, settings in ((x, {}), (values(64, 64, dtype=dtype), {"dynamic": True})):
        result, code = compiled(op, operand, **settings)
        assert calls(code) == [name]
        assert_same_bits(result, op(operand))
        torch._dynamo.reset()


def package_of(function, args, path, **settings):
    class Model(torch.nn.Module):
        def forward(self, *args):
            return function(*args)

    program = torch.export.export(Model(), args, **settings)
    return torch._inductor.aoti_compile_and_package(program, package_path=str(path))


WITHOUT_FASTACT = """
import sys
import torch
package, operands, result = sys.argv[1:]
torch.save(torch._inductor.aoti_load_package(package)(*torch.load(operands)), result)
"""


@pytest.mark.newest
@pytest.mark.slow
def test_a_cpu_package_holds_the_code(vectors, tmp_path):
    """The AOTInductor package runs without FastAct."""

    def f(x, y):
        return ops.gelu(x * y) * y

    args = tuple(values(64, 65) for _ in range(2))
    package = package_of(f, args, tmp_path / "model.pt2")
    torch.save(args, tmp_path / "operands.pt")
    run_python("-c", WITHOUT_FASTACT, package, tmp_path / "operands.pt", tmp_path / "result.pt")
    assert_same_bits(torch.load(tmp_path / "result.pt"), f(*args))


# ---- Fused operators


@pytest.fixture
def inlining(device, request):
    """Returns a device into whose kernels Inductor inlines."""
    if device == "cpu":
        request.getfixturevalue("vectors")
    return device


def with_special_values(tensors, share=0.05):
    """Replaces some elements of each tensor by zeros, infinities, NaNs, tiny and large numbers."""
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e-40, 3e4, -3e4])
    for t in tensors:
        places = torch.rand(t.shape) < share
        chosen = special[torch.randint(len(special), t.shape)].to(t.dtype)
        t.copy_(torch.where(places.to(t.device), chosen.to(t.device), t))


def assert_all_inlined(function, *args):
    """Asserts that no operator is called, and that all results have eager's bits and strides."""
    results, code = compiled(function, *args)
    assert not calls(code), calls(code)
    for i, (found, expected) in enumerate(zip(results, function(*args), strict=True)):
        assert found.stride() == expected.stride(), i
        assert_same = assert_same_bits if found.is_cuda else assert_bits_of_eager
        try:
            assert_same(found, expected)
        except AssertionError as error:
            raise AssertionError(f"result {i}: {error}") from error


@pytest.mark.slow
def test_fused_operators(inlining, dtype):
    """Tests each activation with all operands and two of the types, one with each set of operands,
    and a float32 scale."""
    acts = [act for k, act in enumerate(USUAL) if in_latin_square(2, k, DTYPES.index(dtype))]
    (silu,) = (act for act in USUAL if act.name == "silu")
    x, operands = drawn((67, 17), INPUTS, dtype, inlining)
    if dtype.itemsize == 2:
        operands["scale"] = operands["scale"].float()
    with_special_values([x, *operands.values()])
    x[0, 1], x[1, 1], operands["scale"][1] = 0.0, -0.0, 2.0
    operands["bias"][1], operands["residual"][:2, 1] = -0.0, -0.0  # z is 0 or -0
    keep, zero = torch.ones_like(x, dtype=torch.bool), torch.zeros((), dtype=dtype, device=inlining)

    def every(keep, zero, x, *tensors):
        given = dict(zip(INPUTS, tensors))
        cases = [(act, given) for act in acts]
        cases += [(silu, {name: given[name] for name in names}) for names in SETS]
        return [
            between(lambda x: fused(act, x, **operands))(keep, zero, x)  # noqa: B023
            for act, operands in cases
        ]

    assert_all_inlined(every, keep, zero, x, *operands.values())


def test_fused_operators_along_channels(inlining):
    """Tests dim=1 in both memory formats, and a gate that broadcasts."""
    (silu,) = (act for act in ACTIVATIONS if act.name == "silu")
    scale, bias = (values(5, device=inlining) for _ in range(2))
    keep = torch.ones((), dtype=torch.bool, device=inlining)
    cases = []
    for dtype in (torch.float32, torch.bfloat16):
        tensors = [values(2, 5, 7, 9, dtype=dtype, device=inlining) for _ in range(2)]
        others = (
            values(2, 5, 1, 1, dtype=dtype, device=inlining),
            torch.zeros_like(tensors[0][0, 0, 0, 0]),
        )
        last = [t.to(memory_format=torch.channels_last) for t in tensors]
        cases += [(*tensors, *others), (*last, *others)]

    def every(keep, scale, bias, cases):
        results = []
        for x, residual, gate, zero in cases:
            operands = {"scale": scale, "bias": bias, "residual": residual, "gate": gate, "dim": 1}
            results.append(between(lambda x: fused(silu, x, **operands))(keep, zero, x))  # noqa: B023
        return results

    assert_all_inlined(every, keep, scale, bias, cases)


def test_two_halves(inlining):
    """Tests <activation>_and_mul, whose halves are views."""
    x = values(33, 2 * 19, device=inlining)
    with_special_values([x])
    keep, zero = torch.ones((), dtype=torch.bool, device=inlining), torch.zeros_like(x[0, 0])

    def f(keep, zero, x):
        return [
            between(lambda x: ops.silu_and_mul(x, gate_first=first))(keep, zero, x)  # noqa: B023
            for first in (True, False)
        ]

    assert_all_inlined(f, keep, zero, x)


@pytest.mark.usefixtures("rounds_as_eager")
def test_fused_operators_with_precision_casts(inlining):
    tensors = [values(1003, dtype=dtype, device=inlining)
               for dtype in (torch.bfloat16, torch.float16) for _ in range(2)]  # fmt: skip
    names = ("silu", "gelu", "leaky_relu")
    acts = [act for act in ACTIVATIONS if act.name in names and act.defaults is None]

    def f(*tensors):
        pairs = tensors[:2], tensors[2:]
        return [x * 1.5 + y for x, y in pairs] + [
            fused(act, x * 1.5 + y, residual=y, gate=x + y) * y + 0.25
            for act in acts for x, y in pairs
        ]  # fmt: skip

    own, *_ = compiled(f, *tensors)
    if not all(map(torch.equal, own[:2], f(*tensors)[:2])):
        pytest.skip("this torch ignores emulate_precision_casts on CPUs")
    torch._dynamo.reset()
    assert_all_inlined(f, *tensors)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16), ids=dtype_name)
def test_gradients_of_fused_operators(inlining, dtype):
    """The gradients of self, gate and, in float32, residual have the bits of eager. In 16-bit types
    eager saves the rounded sum with the residual."""
    acts = [act for act in ACTIVATIONS if act.name in ("silu", "selu", "gelu", "tanh")]
    names = ("gate", "residual") if dtype == torch.float32 else ("gate",)
    count = 1 + len(names)
    tensors = [values(67, 17, dtype=dtype, device=inlining) for _ in range(count * len(acts))]
    tensors = [t.requires_grad_() for t in tensors]
    incoming = [values(67, 17, dtype=dtype, device=inlining) for _ in acts]
    keep = torch.ones((), dtype=torch.bool, device=inlining)
    zero = torch.zeros((), dtype=dtype, device=inlining)

    def f(*tensors):
        results = []
        for i, act in enumerate(acts):
            x, *others = tensors[i * count : (i + 1) * count]
            operands = dict(zip(names, others))
            results.append(between(lambda x: fused(act, x, **operands))(keep, zero, x))  # noqa: B023
        return results

    def results_of(function):
        results = function(*tensors)
        return [*results, *torch.autograd.grad(results, tensors, incoming)]

    found, code = run_and_get_code(results_of, torch.compile(f, fullgraph=True))
    assert not calls(code), calls(code)
    for result, expected in zip(found, results_of(f), strict=True):
        assert_same_bits(result.detach(), expected.detach())


def test_a_fused_operator_alone(inlining):
    """On a GPU the operator is called. On a CPU Inductor's loop is faster without new memory."""
    (silu,) = (act for act in ACTIVATIONS if act.name == "silu")
    x, gate = (values(64, 64, device=inlining) for _ in range(2))
    result, code = compiled(lambda x, gate: fused(silu, x, gate=gate), x, gate)
    assert calls(code) == (["_fused_silu"] if inlining == "cuda" else [])
    assert_same_bits(result, fused(silu, x, gate=gate))
    x, gate = values(1 << 13, 1, device=inlining), values(1 << 10, device=inlining)
    result, code = compiled(lambda x, gate: fused(silu, x, gate=gate), x, gate)
    assert calls(code) == ["_fused_silu"]
    assert_same_bits(result, fused(silu, x, gate=gate))


@pytest.mark.usefixtures("cuda")
def test_a_fused_operator_is_in_one_kernel():
    (silu,) = (act for act in ACTIVATIONS if act.name == "silu")
    x, operands = drawn((64, 256), INPUTS, torch.bfloat16, "cuda")

    def f(x, *tensors):
        return fused(silu, x * 2, **dict(zip(INPUTS, tensors))) * 2

    _, code = compiled(f, x, *operands.values())
    assert sum(line.count("@triton.jit") for line in code) == 1 and not calls(code)


# ---- Caches, and other torches


CACHED = """
import torch
import fastact
from torch._dynamo.utils import counters
x = torch.linspace(-4, 4, 256, device="cuda", dtype=torch.bfloat16)
y = torch.compile(lambda x: torch.ops.fastact.silu(x * 2) * 2)(x)
ops = torch.ops.fastact
silu, relu = (torch.equal(y, f(x * 2) * 2) for f in (ops.silu, ops.relu))
print(silu, relu, counters["inductor"]["fxgraph_cache_hit"])
"""


@pytest.mark.usefixtures("cuda")
def test_caches_know_the_formulas(tmp_path):
    """Two builds share a cache, and the second one never uses the first one's code: its SiLU is a
    ReLU."""
    other = tmp_path / "other" / "fastact"
    shutil.copytree(package_path(), other, ignore=shutil.ignore_patterns("__pycache__", "lib"))
    (other / "lib").symlink_to(package_path() / "lib")
    file = other / "_inductor" / "assembly.json"
    assembly = json.loads(file.read_text())
    for kernels in (assembly["ieee"]["kernels"], assembly["fast"]["kernels"]):
        kernels["silu__0__bfloat16__defaults"] = assembly["ieee"]["kernels"][
            "relu__0__bfloat16__defaults"
        ]
    file.write_text(json.dumps(assembly))

    def run(package):
        return run_python("-c", CACHED, environment={
            "PYTHONPATH": str(package.parent),
            "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"),
            "TRITON_CACHE_DIR": str(tmp_path / "triton"),
        }).split()  # fmt: skip

    assert run(package_path()) == ["True", "False", "0"]
    assert run(other) == ["False", "True", "0"]
    assert run(package_path()) == ["True", "False", "1"]


def test_every_key_has_the_digest(monkeypatch):
    """Every cache key contains the digest of the inlinable code for all devices."""
    lowerings = importlib.import_module("fastact._inductor.lowerings")

    def hits():
        counters.clear()
        torch._dynamo.reset()
        torch.compile(lambda x: x * 3 + 1)(torch.ones(7))
        return counters["inductor"]["fxgraph_cache_hit"]

    hits()
    assert hits() == 1
    for part in ((lowerings.vectors, "file_digest"), (lowerings, "_sources")):
        build = str(uuid.uuid4())
        monkeypatch.setattr(*part, lambda build=build: build)
        assert hits() == 0
    assert hits() == 1


class Gpus:
    """Simulates GPUs and the results of their arithmetic comparisons."""

    def __init__(self, monkeypatch):
        self.lowerings = importlib.import_module("fastact._inductor.lowerings")
        self.said, self.used, self.current = "not compared yet", [], 0
        assembly = self.lowerings.assembly
        library = SimpleNamespace(
            gelu=self.used.append,
            build_info=lambda: f"cuda: 13.0\ncuda arithmetic in use: {self.said}",
        )
        monkeypatch.setattr(assembly, "_found", {})
        monkeypatch.setattr(assembly, "is_built", lambda: True)
        fake = SimpleNamespace(
            ops=SimpleNamespace(fastact=library),
            utils=torch.utils,
            bfloat16=torch.bfloat16,
            zeros=lambda *size, dtype, device: device,
            cuda=SimpleNamespace(is_initialized=lambda: True, current_device=lambda: self.current),
        )
        monkeypatch.setattr(assembly, "torch", fake)
        self.assembly = assembly


def found(device, what):
    return f"device {device} (compute capability 9.0): {what}"


FAST = "fast, as all 7 results are IEEE's (1.0 ms)"
SLOW = "IEEE for gelu bfloat16, as not all 7 results but 5 are IEEE's (1.0 ms)"
FAILED = "IEEE, as the comparison with it failed: cudaErrorLaunchOutOfResources"


def test_an_arithmetic_is_remembered_once_it_is_known(monkeypatch):
    """The arithmetic used while a GPU cannot compare, as in a capture, is not remembered."""
    gpus = Gpus(monkeypatch)
    assert [gpus.assembly.arithmetic(1) for _ in range(2)] == ["ieee", "ieee"]
    gpus.said = found(0, FAST)  # for another GPU
    assert gpus.assembly.arithmetic(1) == "ieee"
    gpus.said = "; ".join((found(0, SLOW), found(1, FAST), found(11, FAILED)))
    assert [gpus.assembly.arithmetic(device) for device in (0, 1, 11)] == ["ieee", "fast", "ieee"]
    assert gpus.used == ["cuda:1"] * 3 + ["cuda:0", "cuda:1", "cuda:11"]
    gpus.said = "not compared yet"
    assert [gpus.assembly.arithmetic(device) for device in (0, 1, 11)] == ["ieee", "fast", "ieee"]
    assert len(gpus.used) == 6


@pytest.mark.parametrize("name", ("IEEE", "fast"))
def test_an_arithmetic_by_the_environment(monkeypatch, name):
    gpus = Gpus(monkeypatch)
    gpus.said = f"{name}, as FASTACT_CUDA_MATH says"
    assert gpus.assembly.arithmetic(3) == name.lower()


@pytest.mark.parametrize("key", ("val", "example_value"))
def test_cache_keys_have_the_arithmetic_of_the_compiled_gpus(monkeypatch, key):
    """The current GPU's arithmetic does not matter."""
    gpus = Gpus(monkeypatch)
    gpus.said = f"{found(0, SLOW)}; {found(1, FAST)}; {found(2, FAST)}"
    # A fake tensor would otherwise start its GPU, which this machine may not have.
    monkeypatch.setattr(torch._subclasses.fake_tensor, "init_gpu_context", lambda device: None)
    with FakeTensorMode():
        tensors = {place: torch.empty(3, device=place) for place in ("cpu", "cuda:0", "cuda:1")}
    digest = gpus.lowerings.digest

    def in_a_key(place, inputs=()):
        graph = torch.fx.Graph()
        graph.placeholder("x").meta[key] = (tensors[place], 3)
        graph.output(None)
        module = torch.fx.GraphModule({}, graph)
        return torch._inductor.codecache.FxGraphHashDetails(module, inputs, {}, []).fastact

    for gpus.current in (0, 1):
        assert in_a_key("cpu") == digest([])
        assert in_a_key("cuda:0") == digest([0])
        assert in_a_key("cuda:1") == digest([1])
        assert in_a_key("cuda:0", [tensors["cuda:1"], 3]) == digest([0, 1])
    gpus.assembly._found.clear()
    before = digest([0])
    gpus.assembly._found.clear()
    gpus.said = found(0, FAST)
    assert digest([0]) != before


def test_other_interfaces(monkeypatch):
    """If Inductor lacks functions of the lowerings, operators are called, and a line says so."""
    lowering = importlib.import_module("torch._inductor.lowering")
    monkeypatch.setattr(_inductor, "status", None)
    monkeypatch.delattr(lowering, "fallback_handler")
    _inductor.register()
    assert _inductor.status.startswith("calls the operators"), _inductor.status


@pytest.mark.slow
def test_import_leaves_inductor_alone():
    """`import fastact` does not import Inductor, which may not be used."""
    script = "import sys, fastact; print('torch._inductor.lowering' in sys.modules)"
    found = run_python("-c", script, environment={"PYTHONPATH": str(package_path().parent)})
    assert found.strip() == "False"
