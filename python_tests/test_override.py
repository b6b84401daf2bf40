"""libfastact_aten.so: PyTorch's own operators with FastAct's kernels instead of ATen's.

The bits are FastAct's. Everything else is compared with the same call without an override.
"""

import itertools
import math
import threading
import warnings
from dataclasses import dataclass

import pytest
import torch

import fastact
from op_table import ACTIVATIONS, Activation
from support import (
    LAYOUTS,
    assert_same_bits,
    error_of,
    first_line,
    library_path,
    make,
    package_path,
    python,
    run_python,
    smooth_values,
    values,
)


@dataclass(frozen=True)
class Pair:
    """An activation of FastAct, and PyTorch's operators of the same name."""

    act: Activation

    @property
    def id(self):
        return self.act.id

    @property
    def aten_name(self):
        return {"gelu_tanh": "gelu"}.get(self.act.name, self.act.name)

    @property
    def options(self):
        numbers = dict(self.act.parameters)
        return {"approximate": "tanh"} if self.act.name == "gelu_tanh" else numbers

    def aten(self, x):
        return getattr(torch.ops.aten, self.aten_name)(x, **self.options)

    @property
    def aten_(self):
        packet = getattr(torch.ops.aten, self.aten_name + "_", None)
        return packet and (lambda x: packet(x, **self.options))

    @property
    def aten_out(self):
        overload = getattr(getattr(torch.ops.aten, self.aten_name), "out", None)
        return overload and (lambda x, out: overload(x, **self.options, out=out))

    def aten_backward(self, grad, x):
        return self.act.aten_backward(grad, x)


# PyTorch composes these activations of other operators. It lacks some others.
COMPOSED = {"softsign", "tanhshrink"}
EVERY = [
    pair
    for pair in map(Pair, ACTIVATIONS)
    if pair.act.name not in COMPOSED and hasattr(torch.ops.aten, pair.aten_name)
]
every = pytest.mark.parametrize("pair", EVERY, ids=lambda pair: pair.id)
OTHER_TYPES = (torch.int64, torch.uint8, torch.bool, torch.complex64, torch.float8_e4m3fn)


@pytest.fixture(scope="module", autouse=True)
def loaded():
    """Loads the library. Operators are replaced only inside `with` blocks."""
    fastact.override_aten().undo()
    assert fastact.overridden_aten_kernels() == ()


@pytest.fixture
def special():
    """Returns numbers of all magnitudes, and special values."""
    numbers = torch.cat([torch.randn(500) * 10.0**power for power in range(-6, 3)])
    others = [0.0, -0.0, math.inf, -math.inf, math.nan, 3.0, -3.0, 6.0, 0.5, -0.5, 1e-42]
    return torch.cat([numbers.double(), torch.tensor(others, dtype=torch.float64)])


def gradient(function, x, grad):
    leaf = x.detach().clone().requires_grad_()
    return torch.autograd.grad(function(leaf), leaf, grad)[0]


def in_place(function):
    return lambda x: function(x * 1)


def replaced(event_list):
    """Counts the calls of FastAct's operators in a profile, by name."""
    return {e.key: e.count for e in event_list if e.key.startswith("fastact::")}


# --- Bits ---


@every
def test_bits_are_fastacts(pair, device, dtype, special):
    x = special.to(dtype).to(device)
    grad = torch.randn_like(x)
    act, out = pair.act, torch.empty_like(x)
    with fastact.override_aten():
        assert_same_bits(pair.aten(x), act.op(x))
        if pair.aten_:
            assert_same_bits(pair.aten_(x.clone()), act.op(x))
        if pair.aten_out:
            assert_same_bits(pair.aten_out(x, out), act.op(x))
        assert_same_bits(gradient(pair.aten, x, grad), gradient(act.op, x, grad))


@every
def test_bits_of_a_gradient_in_place(pair, device, special):
    """ATen's in-place form saves what it saves without an override: the result or a copy."""
    if not pair.aten_:
        return
    x = special.float().to(device)
    grad = torch.randn_like(x)
    theirs = error_of(gradient, in_place(pair.aten_), x, grad)
    with fastact.override_aten():
        error = error_of(gradient, in_place(pair.aten_), x, grad)
        assert (type(error), str(error)) == (type(theirs), str(theirs))
        if error is None:
            found = gradient(in_place(pair.aten_), x, grad)
    if error is None and pair.act.has_is_result and not pair.act.result_suffices:
        # ATen computes the gradient from a result that does not determine it, so ATen's bits stay.
        assert_same_bits(found, gradient(in_place(pair.aten_), x, grad))
    elif error is None:
        assert_same_bits(found, gradient(in_place(pair.act.op_), x, grad))


def test_bits_of_prelu(device, dtype, special):
    x = special.to(dtype).to(device)[:4500].reshape(10, 9, 50)
    weight = torch.randn(9, dtype=torch.float64).to(dtype).to(device)
    grad = torch.randn_like(x)

    def both(prelu):
        tensors = [t.clone().requires_grad_() for t in (x, weight)]
        y = prelu(*tensors)
        return y.detach(), *torch.autograd.grad(y, tensors, grad)

    ours = both(torch.ops.fastact.prelu)
    with fastact.override_aten():
        for found, expected in zip(both(torch.prelu), ours):
            assert_same_bits(found, expected)


def test_scalars_of_any_kind_reach_fastact(device):
    """Integers, and booleans where PyTorch accepts them, are numbers, too."""
    x = values(100, device=device)
    with fastact.override_aten():
        for number in (2, 2.0, True):
            ours = torch.ops.fastact.elu(x, float(number))
            assert_same_bits(torch.ops.aten.elu(x, number), ours)


def test_derivatives_of_higher_order(device):
    """ATen's formulas for higher orders call replaced operators."""
    for pair in EVERY:
        x = smooth_values(pair.act, 8, device=device)

        def third(function, x=x):
            y = function(x)
            for _ in range(3):
                (y,) = torch.autograd.grad(y.sum(), x, create_graph=True, materialize_grads=True)
            return y.detach()

        theirs = error_of(third, pair.aten)
        with fastact.override_aten():
            assert type(error_of(third, pair.aten)) is type(theirs)
        if theirs is None:
            expected = third(pair.aten)
            with fastact.override_aten():
                # ATen's gradient of celu computes 1 / alpha in float.
                error = 1e-6 if pair.act.name == "celu" else 1e-9
                torch.testing.assert_close(third(pair.aten), expected, rtol=error, atol=error)


# --- Semantics: those of the same call without an override ---


def geometry(t):
    return t.shape, t.stride(), t.dtype, t.device, t.storage_offset(), t._is_view()


@every
def test_results_lie_as_atens(pair, device):
    for layout in LAYOUTS:
        x = make(layout, device=device)
        grad = torch.randn_like(x)
        orders = [grad, grad.contiguous(), grad.transpose(0, -1).contiguous().transpose(0, -1)]
        if x.dim() == 0:
            orders = [grad]
        calls = [lambda: pair.aten(x)]
        if pair.aten_out:
            calls.append(lambda: pair.aten_out(x, x.new_empty(0)))
        calls += [lambda g=g: gradient(pair.aten, x, g) for g in orders]
        before = [geometry(call()) for call in calls]
        with fastact.override_aten():
            for call, expected in zip(calls, before):
                assert geometry(call()) == expected, layout


def test_results_of_prelu_lie_as_atens(device):
    for layout in LAYOUTS:
        x = make(layout, device=device)
        weight = torch.randn(x.shape[1] if x.dim() > 1 else 1, device=device)

        def all_of(x=x, weight=weight):
            tensors = [t.detach().clone().requires_grad_() for t in (x, weight)]
            y = torch.prelu(*tensors)
            kernel = torch.ops.aten._prelu_kernel
            w = weight.reshape([-1 if i == 1 else 1 for i in range(x.dim())])
            return (
                y, *torch.autograd.grad(y.sum(), tensors), kernel(x, w),
                *torch.ops.aten._prelu_kernel_backward(torch.ones_like(x), x, w),
            )  # fmt: skip

        expected = [geometry(t) for t in all_of()]
        with fastact.override_aten():
            assert [geometry(t) for t in all_of()] == expected, layout


def assert_outcomes_are_atens(calls):
    """Makes each call with and without an override: the same error, or a close result of the same
    kind. `calls` maps names to functions."""

    def outcome(call):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            error = error_of(call)
            return (type(error), first_line(error)) if error else call()

    for case, call in calls.items():
        expected = outcome(call)
        with fastact.override_aten():
            found = outcome(call)
        if isinstance(expected, tuple):
            assert found == expected, case
        else:
            assert (found.layout, found.dtype) == (expected.layout, expected.dtype), case
            if found.layout == torch.strided and not found.is_nested:
                torch.testing.assert_close(found, expected, equal_nan=True)


def tensors_of_other_kinds(x):
    """Returns tensors that FastAct has no kernels for. Some exist on the CPU only."""
    tensors = {dtype: x.to(dtype) for dtype in OTHER_TYPES}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tensors["sparse"] = x.to_sparse()
        tensors["sparse csr"] = x.to_sparse_csr()
        tensors["quantized"] = torch.quantize_per_tensor(x.cpu(), 0.1, 0, torch.quint8)
        tensors["meta"] = x.to("meta")
        if not x.is_cuda:
            tensors["mkldnn"] = x.to_mkldnn()
            tensors["nested"] = torch.nested.nested_tensor([x, x[:2]])
    return tensors


@every
def test_errors_and_other_types_are_atens(pair, device):
    x = torch.ones(4, 6, device=device)
    in_place_, out = pair.aten_ or pair.aten, pair.aten_out or (lambda x, out: pair.aten(x))
    calls = {
        "overlap": lambda: in_place_(x[:1].expand(4, 6)),
        "partial overlap": lambda: out(x.view(-1)[:10], x.view(-1)[2:12]),
        "type of out": lambda: out(x, torch.empty(4, 6, dtype=torch.int32)),
        "wider out": lambda: out(x, torch.empty(4, 6, dtype=torch.float64)),
        "a leaf": lambda: in_place_(x.clone().requires_grad_()),
        "shapes": lambda: pair.aten_backward(torch.ones(5, 7, device=device), x),
        "types": lambda: pair.aten_backward(torch.ones(4, 6, device=device).half(), x),
    }
    for name, other in tensors_of_other_kinds(x).items():
        calls[name] = lambda other=other: pair.aten(other)

    def outcome(call):
        x.fill_(1.0)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                result = call()
            except Exception as error:
                return None, (type(error), first_line(error))
        return result, [str(w.message).split("(Triggered")[0] for w in caught]

    for name, call in calls.items():
        expected, expected_words = outcome(call)
        with fastact.override_aten():
            found, words = outcome(call)
        assert words == expected_words, name
        assert (found is None) == (expected is None)
        if found is not None:
            assert (found.layout, found.dtype) == (expected.layout, expected.dtype), name
            if found.layout == torch.strided and not (found.is_nested or found.is_quantized):
                torch.testing.assert_close(found, expected, equal_nan=True)


def test_a_result_that_overwrites_the_input(dtype, device):
    """log_sigmoid_forward computes two results from the input, and `output` may be the input."""
    x = values(7, 5, dtype=dtype, device=device)
    for layout in (lambda t: t, lambda t: t.t(), lambda t: t[1:, ::2], lambda t: t[0]):

        def outcome(overwrites):
            self = layout(x.clone())
            output = self if overwrites else torch.empty_like(self)
            buffer = torch.empty(0, dtype=dtype, device=device)
            torch.ops.aten.log_sigmoid_forward.output(self, output=output, buffer=buffer)
            return output, buffer

        aten = outcome(False)
        with fastact.override_aten():
            expected, found = outcome(False), outcome(True)
        for separate, overwritten, theirs in zip(expected, found, aten):
            assert_same_bits(overwritten, separate)
            torch.testing.assert_close(overwritten, theirs)


def test_a_log_sigmoid_gradient_that_broadcasts_is_pytorchs(device):
    aten = torch.ops.aten
    x, g = values(1 << 14, device=device), values(2, 1 << 14, device=device)
    buffer = aten.log_sigmoid_forward(x)[1]
    expected = aten.log_sigmoid_backward(g, x, buffer)
    with fastact.override_aten():
        assert_same_bits(aten.log_sigmoid_backward(g, x, buffer), expected)
        # With equal shapes, FastAct computes it.
        found = aten.log_sigmoid_backward(g[0], x, buffer)
    assert_same_bits(found, torch.ops.fastact.log_sigmoid_backward(g[0], x))
    assert not torch.equal(found, expected[0])


def test_numbers_that_are_no_parameters_of_fastacts(device):
    """Parameters that are not finite, or that FastAct refuses, give ATen's results and errors."""
    aten, x = torch.ops.aten, values(50, device=device)
    calls = [
        lambda: aten.hardtanh(x, 0, math.inf),
        lambda: aten.hardtanh(x, 1, -1),
        lambda: aten.threshold(x, -math.inf, 1),
        lambda: aten.softplus(x, 1, math.inf),
        lambda: aten.elu(x, math.nan),
        lambda: aten.celu(x, 0.0),
        lambda: aten.softshrink(x, -1.0),
        lambda: aten.gelu(x, approximate="fast"),
        lambda: aten.leaky_relu_backward(x, x, -1.0, True),
        lambda: aten.elu(x, 1j),
    ]
    for call in calls:
        theirs = error_of(call)
        expected = None if theirs else call()
        with fastact.override_aten():
            ours = error_of(call)
            assert (type(ours), str(ours)) == (type(theirs), str(theirs))
            if theirs is None:
                torch.testing.assert_close(call(), expected, rtol=0, atol=0, equal_nan=True)


def test_out_is_resized_with_atens_warning(device):
    x = values(4, 6, device=device)

    def warned():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            out = torch.sigmoid(x, out=torch.empty(3, 3, device=device))
        return [str(w.message).split("(Triggered")[0] for w in caught], geometry(out)

    torch.set_warn_always(True)
    try:
        expected = warned()
        with fastact.override_aten():
            assert warned() == expected and len(expected[0]) == 1
    finally:
        torch.set_warn_always(False)


def test_autograd_keeps_what_it_kept(device):
    """Compares saved tensors, versions, and the error after a saved tensor was overwritten."""
    x = values(20, device=device).requires_grad_()

    def saved(function):
        kept = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t: kept.append((t.shape, t.dtype)) or t, lambda t: t
        ):
            y = function(x)
        node = type(y.grad_fn).__name__
        y = y.data if y.is_leaf else y.detach()
        return node, kept, x._version, y._version

    functions = [pair.aten for pair in EVERY]
    expected = [saved(f) for f in functions]
    with fastact.override_aten():
        assert [saved(f) for f in functions] == expected
        y = torch.sigmoid(x)
        y.detach().zero_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_an_override_may_end_between_forward_and_backward(device):
    for pair, size in itertools.product(EVERY, (20, 200)):
        x = values(size, dtype=torch.float64, device=device)
        leaves = [x.clone().requires_grad_() for _ in range(2)]
        with fastact.override_aten():
            y = pair.aten(leaves[0])
        z = pair.aten(leaves[1])
        z.sum().backward()
        y.sum().backward()
        torch.testing.assert_close(leaves[0].grad, leaves[1].grad)


# --- Beginning and ending ---


def is_ours(device="cpu"):
    x = torch.full((1,), 0.3, device=device)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        torch.nn.functional.silu(x)
    return replaced(profile.key_averages()) == {"fastact::silu": 1}


def test_overrides_nest_and_end():
    assert not is_ours()
    outer = fastact.override_aten()
    with fastact.override_aten() as inner:
        assert is_ours()
    assert is_ours()
    inner.undo()  # has ended already
    assert is_ours()
    outer.undo()
    assert not is_ours() and fastact.overridden_aten_kernels() == ()
    with pytest.raises(RuntimeError, match="expected an override that has begun, but there is non"):
        torch.ops.fastact_aten.end()
    with pytest.raises(ZeroDivisionError), fastact.override_aten():
        1 / 0  # noqa: B018
    assert not is_ours()


def test_an_override_that_has_ended_begins_again():
    override = fastact.override_aten()
    for _ in range(3):
        with override as same:
            assert same is override and is_ours()
        assert not is_ours()
    with override:
        with override:
            assert is_ours()
        assert is_ours()
        with pytest.raises(ZeroDivisionError), override:
            1 / 0  # noqa: B018
        assert is_ours()
    assert not is_ours()
    with override:
        override.undo()
        assert not is_ours()
        with override:
            assert is_ours()
        assert not is_ours()
    assert not is_ours()
    override.undo()
    with override, override:
        override.undo()  # ends all blocks of the override
        assert not is_ours()
    with fastact.override_aten():
        with override:
            pass
        override.undo()
        assert is_ours()
    assert not is_ours() and fastact.overridden_aten_kernels() == ()


FORK = """
import os, signal, threading, time
import torch
import fastact
from fastact import _override

# Delays a function, so that another thread can fork while this thread is inside it.
def slow(owner, name):
    function = getattr(owner, name)
    def wait(*args):
        is_inside.set()
        time.sleep(0.3)
        return function(*args)
    setattr(owner, name, wait)

is_inside = threading.Event()
if "{place}" == "load":
    slow(_override, "_load")
    work = fastact.override_aten
else:
    override = fastact.override_aten()
    slow(torch.ops.fastact_aten, "{place}")
    work = override.undo if "{place}" == "end" else fastact.override_aten
thread = threading.Thread(target=work)
thread.start()
is_inside.wait()
child = os.fork()
if child == 0:
    signal.alarm(60)
    x = torch.linspace(-9, 9, 999, dtype=torch.bfloat16)
    with fastact.override_aten():
        same = torch.equal(torch.nn.functional.mish(x), fastact.functional.mish(x))
        print(same, len(fastact.overridden_aten_kernels()) > 0, flush=True)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
thread.join()
fastact.override_aten().undo()
"""


@pytest.mark.newest
@pytest.mark.slow
@pytest.mark.parametrize("place", ("load", "begin", "end"))
def test_a_fork_while_another_thread_begins_or_ends(place):
    package = {"PYTHONPATH": str(package_path().parent)}
    found = run_python("-c", FORK.format(place=place), environment=package)
    assert found.split() == ["True", "True", "0"]


def test_the_list_is_what_calls_find():
    with fastact.override_aten():
        kernels = fastact.overridden_aten_kernels()
    assert len(set(kernels)) == len(kernels)
    on_cpu = {k.split()[0].removeprefix("aten::") for k in kernels if k.endswith("[CPU]")}
    assert {"silu", "silu_", "silu.out", "silu_backward", "silu_backward.grad_input"} <= on_cpu
    for name in on_cpu:
        assert torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "CPU"), name
    on_gpu = {k.split()[0].removeprefix("aten::") for k in kernels if k.endswith("[CUDA]")}
    assert on_gpu in (set(), on_cpu)


def test_threads(device):
    """While one thread begins and ends overrides, each result of the other threads comes from one
    library."""
    x = values(300, device=device)
    functions = [pair.aten for pair in EVERY]
    theirs = [f(x) for f in functions]
    with fastact.override_aten():
        ours = [f(x) for f in functions]
    stop, problems = threading.Event(), []

    def call():
        while not stop.is_set():
            for f, a, b in zip(functions, theirs, ours):
                y = f(x)
                if not (torch.equal(y, a) or torch.equal(y, b)):
                    problems.append(f)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(300):
        with fastact.override_aten():
            torch.sigmoid(x)
    stop.set()
    for thread in threads:
        thread.join()
    assert not problems and not torch.ops.fastact_aten.is_overriding()


# --- Ways to load ---

SAYS = """
import torch, warnings
x = torch.linspace(-3, 3, 1000)
assert torch.equal(torch.nn.functional.mish(x), torch.ops.fastact.mish(x))
assert not torch.equal(torch.nn.functional.mish(x), theirs)
print(len(torch.ops.fastact_aten.kernels()))
"""
BEFORE = "import torch; theirs = torch.nn.functional.mish(torch.linspace(-3, 3, 1000))\n"


def aten_library():
    return library_path().with_name("libfastact_aten.so")


@pytest.mark.parametrize(
    "load",
    [
        "torch.ops.load_library(path)",
        "import ctypes; ctypes.CDLL(path)",
        "torch.ops.load_library(path); torch.ops.load_library(path)",
        "torch.ops.load_library(path.replace('_aten', '')); torch.ops.load_library(path)",
    ],
)
def test_loading(load):
    """Loading one library loads the other one, without output."""
    script = f"path = {str(aten_library())!r}\n{BEFORE}{load}\n{SAYS}"
    done = python("-W", "always", "-c", script)
    assert done.returncode == 0 and int(done.stdout) > 70, done.stderr
    assert done.stderr == ""


def test_the_package_in_a_fresh_process():
    script = """
import torch, fastact
model = torch.nn.Sequential(torch.nn.SELU(), torch.nn.Mish()).eval()
model = torch.jit.freeze(torch.jit.script(model))
x = torch.linspace(-4, 4, 1000)
before = model(x)
assert fastact.overridden_aten_kernels() == ()
with fastact.override_aten():
    assert len(fastact.overridden_aten_kernels()) > 70
    ours = model(x)
    assert torch.equal(ours, torch.ops.fastact.mish(torch.ops.fastact.selu(x)))
    assert not torch.equal(ours, before)
assert torch.equal(model(x), before)
print("as it was")
"""
    printed = run_python(
        "-W", "ignore", "-c", script, environment={"PYTHONPATH": str(package_path().parent)}
    )
    assert printed == "as it was\n"


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_models_that_were_made_before(device, tmp_path):
    """Saved, scripted, traced, frozen and optimized modules give FastAct's bits."""
    network = torch.nn.Sequential(
        torch.nn.Linear(16, 16), torch.nn.SELU(), torch.nn.Linear(16, 16), torch.nn.Mish(),
        torch.nn.GELU(), torch.nn.Sigmoid(),
    ).eval().to(device)  # fmt: skip
    x = values(8, 16, device=device)
    torch.save(network, tmp_path / "network.pt")
    scripted = torch.jit.script(network)
    models = [
        network,
        torch.load(tmp_path / "network.pt", weights_only=False),
        scripted,
        torch.jit.trace(network, x),
        torch.jit.freeze(scripted),
        torch.jit.optimize_for_inference(torch.jit.freeze(scripted)),
    ]
    if device == "cuda":  # TorchScript's fuser generates its own kernels there
        models = models[:2]
    ours = torch.ops.fastact
    with torch.no_grad():
        y = network[2](ours.selu(network[0](x)))
        expected = ours.sigmoid(ours.gelu(ours.mish(y)))
        before = [model(x) for model in models]
        with fastact.override_aten():
            for model in models:
                assert_same_bits(model(x), expected)
        for model, theirs in zip(models, before):
            assert_same_bits(model(x), theirs)
            assert not torch.equal(theirs, expected)


def test_a_library_of_another_build_is_refused_by_a_sentence(tmp_path):
    """The library next to it is a libfastact.so of another version."""
    binary = library_path().read_bytes()
    assert b"version: 0.1.0\n" in binary
    other = tmp_path / "libfastact.so"
    other.write_bytes(binary.replace(b"version: 0.1.0\n", b"version: 9.1.0\n"))
    script = f"""
import torch
torch.ops.load_library({str(other)!r})
torch.ops.load_library({str(aten_library())!r})
print(hasattr(torch.ops.fastact_aten, "begin"))
"""
    done = python("-c", script)
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
    assert (
        done.stderr.startswith("fastact: expected libfastact.so of version 0.1.0 (revision ")
        and done.stderr.count("\n") == 1
    ), done.stderr
    assert "but this process has loaded another one: version: 9.1.0, revision: " in done.stderr
