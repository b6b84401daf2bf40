"""override_aten() in compiled code: Inductor's kernels contain FastAct's formulas."""

import math
import re

import pytest
import torch
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.testing import CompileCounterWithBackend
from torch._functorch.aot_autograd import make_boxed_func
from torch._inductor import compile_fx
from torch._inductor.utils import run_and_get_code
from torch.nn import functional as F

import fastact
from fastact import _aten
from support import assert_same_bits, make, package_path, run_python

pytestmark = pytest.mark.usefixtures("fresh_compiler")

FUNCTIONS = {
    "relu": F.relu,
    "selu": F.selu,
    "elu": F.elu,
    "elu, alpha": lambda x: F.elu(x, 0.7),
    "elu, in place": lambda x: F.elu(x * 1, inplace=True),
    "celu": lambda x: F.celu(x, 0.3),
    "leaky_relu": F.leaky_relu,
    "hardtanh": F.hardtanh,
    "relu6": F.relu6,
    "threshold": lambda x: F.threshold(x, 0.1, 0.2),
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "silu": F.silu,
    "silu, in place": lambda x: F.silu(x * 1, inplace=True),
    "gelu": F.gelu,
    "gelu, tanh": lambda x: F.gelu(x, approximate="tanh"),
    "mish": F.mish,
    "softplus": lambda x: F.softplus(x, 2, 10),
    "logsigmoid": F.logsigmoid,
    "softshrink": F.softshrink,
    "hardshrink": F.hardshrink,
    "prelu": lambda x: F.prelu(x, x.new_full((1,), 0.25)),
    "rrelu": F.rrelu,
}


@pytest.fixture(scope="module", autouse=True)
def loaded():
    fastact.override_aten().undo()


@pytest.fixture
def special():
    """Returns numbers of all magnitudes, and special values."""
    numbers = torch.cat([torch.randn(300) * 10.0**power for power in range(-6, 3)])
    others = [0.0, -0.0, math.inf, -math.inf, math.nan, 3.0, -3.0, 6.0, 0.5, -0.5, 1e-42, -89.0]
    return torch.cat([numbers, torch.tensor(others)])


class Traced:
    """A backend that traces like Inductor, and runs the graphs with eager kernels."""

    def __init__(self):
        self.calls = []

    def __call__(self, module, inputs):
        def run(graph, _):
            self.calls += [str(n.target) for n in graph.graph.nodes if n.op == "call_function"]
            return make_boxed_func(graph)

        table = compile_fx.select_decomp_table()
        return aot_autograd(fw_compiler=run, decompositions=table)(module, inputs)

    def operators(self):
        """Returns the names of the called FastAct operators."""
        found = [name.removeprefix("fastact.") for name in self.calls if "fastact" in name]
        return [name.removesuffix(".default") for name in found]


def every(xs):
    return [function(x) for function, x in zip(FUNCTIONS.values(), xs, strict=True)]


def values_and_gradients(function, x, grad):
    """Returns the value and gradient of each activation, each with its own leaf."""
    leaves = [x.clone().requires_grad_() for _ in FUNCTIONS]
    results = function(leaves)
    return [y.detach() for y in results] + list(
        torch.autograd.grad(results, leaves, [grad] * len(results))
    )


def assert_bits_of_eager(found, expected):
    """Asserts eager's bits. In 16-bit types, Inductor's conversion decides which NaN a NaN is."""
    for name, a, b in zip([*FUNCTIONS] * 2, found, expected, strict=True):
        nan = torch.isnan(b)
        assert torch.equal(torch.isnan(a), nan), name
        if b.dtype.itemsize == 2:
            a, b = a.masked_fill(nan, 0), b.masked_fill(nan, 0)
        try:
            assert_same_bits(a, b)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


def test_every_type_is_replaced():
    for dtype in _aten.DTYPES:
        call = _aten.stand_in(torch.ops.aten.silu.default, (torch.ones(1, dtype=dtype),), {})
        assert call.name == "silu" and call.why_unfit(call.tensors) is None
    assert {*_aten.DTYPES} == {torch.float32, torch.float64, torch.bfloat16, torch.float16}


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
def test_every_operator_is_replaced(dtype, device, special):
    """Values and gradients have the bits of the override, and no operator is decomposed."""
    x = special.to(dtype).to(device)
    grad = torch.randn_like(x)
    traced = Traced()
    with fastact.override_aten():
        expected = values_and_gradients(every, x, grad)
        found = values_and_gradients(torch.compile(every, backend=traced, fullgraph=True), x, grad)
    assert_bits_of_eager(found, expected)
    composed = {"alias", "mul", "full", "clone", "detach", "getitem", "sum", "view", "new_full"}
    others = {name.split(".")[1] for name in traced.calls if name.startswith("aten.")}
    assert others <= composed, others - composed
    names = set(traced.operators())
    assert {"selu", "selu_backward", "celu_backward", "gelu_tanh_backward", "softshrink",
            "hardshrink_backward", "_prelu_backward"} <= names  # fmt: skip


def test_gradients_of_prelu(device):
    """Tests the gradient of the weight, too."""
    leaves = [make("contiguous", device=device), torch.linspace(-1, 1, 4, device=device)]
    leaves = [t.requires_grad_() for t in leaves]
    traced = Traced()

    def gradients(prelu):
        return torch.autograd.grad(prelu(*leaves).square().sum(), leaves)

    with fastact.override_aten():
        found = gradients(torch.compile(F.prelu, backend=traced, fullgraph=True))
        for a, b in zip(found, gradients(F.prelu)):
            assert_same_bits(a, b)
    assert traced.operators() == ["_prelu", "_prelu_backward", "_prelu_weight_backward"]


def test_what_an_override_leaves_is_pytorchs(device):
    """Tests parameters that FastAct refuses or that are not finite, mixed types, and integers."""
    x = make("contiguous", device=device)

    def f(x):
        yes = x > 0
        return [
            F.hardtanh(x, 0.0, math.inf), F.softplus(x, 1.0, math.inf),
            torch.ops.aten.silu_backward(x.double(), x), F.relu(x.to(torch.int32)),
            torch.sigmoid(yes), torch.tanh(x.to(torch.complex64)),
        ]  # fmt: skip

    expected = f(x)
    traced = Traced()
    with fastact.override_aten():
        found = torch.compile(f, backend=traced, fullgraph=True)(x)
    # Some versions of torch decompose silu_backward with sigmoid.
    assert set(traced.operators()) <= {"sigmoid"}
    torch.testing.assert_close(found, expected)


def test_results_lie_as_without_an_override(device):
    """Tests every layout of the input."""
    layouts = ("channels_last", "transposed", "every_second_column", "expanded_middle", "empty")
    inputs = [make(layout, device=device) for layout in layouts]

    def f(inputs):
        return [F.silu(x) for x in inputs] + [F.hardtanh(x) for x in inputs]

    compiled = torch.compile(f, backend=Traced(), fullgraph=True)
    before = compiled(inputs)
    with fastact.override_aten():
        for theirs, ours in zip(before, compiled(inputs)):
            assert theirs.stride() == ours.stride()


def test_beginning_and_ending():
    """Code with and without override is compiled once, and each call uses the right one."""
    x = torch.tensor([-89.0, -math.inf, 0.3])
    counter = CompileCounterWithBackend(Traced())
    compiled = torch.compile(lambda x: F.mish(x) + F.silu(x), backend=counter, fullgraph=True)

    def eager():
        return torch.ops.aten.mish(x) + torch.ops.aten.silu(x)

    for _ in range(3):
        theirs = compiled(x)
        with fastact.override_aten():
            ours = compiled(x)
            assert_same_bits(ours, eager())
            with fastact.override_aten():
                assert_same_bits(compiled(x), ours)
        assert not torch.equal(ours, theirs)
    assert counter.frame_count == 2
    torch.ops.fastact_aten.begin()  # like a C++ program
    assert_same_bits(compiled(x), ours)
    torch.ops.fastact_aten.end()
    torch.testing.assert_close(compiled(x), theirs, rtol=0, atol=0, equal_nan=True)
    assert counter.frame_count == 2


def test_a_backward_pass_belongs_to_its_forward_pass():
    """Both passes are compiled together, so an override that ends in between changes neither."""
    x = torch.linspace(-9, 9, 400, requires_grad=True)
    compiled = torch.compile(F.mish, backend=Traced(), fullgraph=True)
    with fastact.override_aten():
        (expected,) = torch.autograd.grad(F.mish(x).sum(), x)
        y = compiled(x).sum()
    assert_same_bits(torch.autograd.grad(y, x)[0], expected)
    (theirs,) = torch.autograd.grad(compiled(x).sum(), x)
    assert not torch.equal(theirs, expected)


@pytest.mark.slow
def test_inductors_kernels(device, special):
    """In one graph with all activations in float32 and bfloat16, no operator is called."""
    x = special.to(device)
    half = x.bfloat16()
    grad, half_grad = torch.randn_like(x), torch.randn_like(half)

    def both(function):
        return [
            values_and_gradients(function, x, grad),
            values_and_gradients(function, half, half_grad),
        ]

    compiled = torch.compile(every, fullgraph=True)
    with fastact.override_aten():
        expected = both(every)
        found, code = run_and_get_code(both, compiled)
    if device == "cpu":
        assert not re.findall(r"ops\.(?:fastact|aten)\.(\w+)", "\n".join(code))
    for a, b in zip(found, expected):
        assert_bits_of_eager(a, b)


CACHED = """
import sys, torch, fastact
import torch._inductor.config
from torch._dynamo.utils import counters
torch._inductor.config.cpp_cache_precompile_headers = False  # one takes longer than these kernels
F = torch.nn.functional
x = torch.tensor([-89.0, -float("inf"), 0.3, 2.0], requires_grad=True)
if sys.argv[1] == "on":
    fastact.override_aten()
def f(x):
    return F.mish(x) * F.silu(x * 2)
ours = lambda x: fastact.functional.mish(x) * fastact.functional.silu(x * 2)
results = [torch.compile(f)(x), ours(x)]
gradients = [torch.autograd.grad(y.sum(), x)[0] for y in results]
print(*(torch.equal(a.nan_to_num(7), b.nan_to_num(7)) for a, b in (results, gradients)))
print(bool(counters["aot_autograd"]["autograd_cache_hit"]))
"""


@pytest.mark.newest
@pytest.mark.slow
def test_caches_know(tmp_path):
    """Processes share a cache. Each has its own kernels, and the third finds those of the first."""

    def run(state):
        return run_python("-c", CACHED, state, environment={
            "PYTHONPATH": str(package_path().parent), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path),
        }).split()  # fmt: skip

    assert run("off") == ["False", "False", "False"]
    assert run("on") == ["True", "True", "False"]
    assert run("off") == ["False", "False", "True"]


@pytest.mark.slow
def test_a_package_keeps_the_formulas_of_its_override(tmp_path):
    """AOTInductor compiles under an override; the package runs without one."""

    class Network(torch.nn.Module):
        def forward(self, x):
            return F.silu(x)

    x = torch.tensor([-100.0, -89.0, -3.3, 1.0] * 8)
    program = torch.export.export(Network(), (x,))
    with fastact.override_aten():
        path = torch._inductor.aoti_compile_and_package(
            program, package_path=str(tmp_path / "silu.pt2")
        )
    found = torch._inductor.aoti_load_package(path)(x)
    assert_same_bits(found, torch.ops.fastact.silu(x))
    assert not torch.equal(found, F.silu(x))
