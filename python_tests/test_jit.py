"""TorchScript: script, trace, freeze, save and load, each with backward."""

import pytest
import torch

from op_table import REPRESENTATIVES
from support import assert_same_bits, error_of, library_path, run_python, smooth_values, values

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

# More runs than the profiling executor needs until it specializes.
RUNS = 4


def literals(act):
    return "".join(f", {number!r}" for number in act.parameters.values())


class Scripted:
    """The operators of a row with its parameters as literals, because TorchScript functions cannot
    capture numbers."""

    def __init__(self, act):
        op, numbers = f"torch.ops.fastact.{act.name}", literals(act)
        source = f"""
def op(x):
    return {op}(x{numbers})

def op_(x):
    return {op}_(x{numbers})

def out(x, out):
    return {op}(x{numbers}, out=out)

def ladder(grad, x):
    return {op}_backward(grad, x{numbers})
"""
        unit = torch.jit.CompilationUnit(source)
        self.op, self.op_, self.out, self.ladder = unit.op, unit.op_, unit.out, unit.ladder


def functional(ops):
    op = ops.op

    def f(x):
        return op(x * 1) * 2

    return f


def in_place(ops):
    op_ = ops.op_

    def f(x):
        y = x * 1
        op_(y)
        return y * 2

    return f


def in_place_on_view(ops):
    op_ = ops.op_

    def f(x):
        y = x * 1
        op_(y[1:])
        return y * 2

    return f


forms = pytest.mark.parametrize(
    "form", (functional, in_place, in_place_on_view), ids=lambda f: f.__name__
)


def script(form, act):
    """Returns a form of calls, scripted and eager."""
    return torch.jit.script(form(Scripted(act))), form(act)


def scripted_block(act, device):
    """Returns a layer followed by the activation, scripted and eager."""

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)

    class Model(Layer):
        def forward(self, x):
            return act.op(self.layer(x)) * 2

    model, layer = Model().to(device), Layer().to(device)
    layer.load_state_dict(model.state_dict())
    scripted = torch.jit.script(layer)
    scripted.define(f"""
def forward(self, x):
    return torch.ops.fastact.{act.name}(self.layer(x){literals(act)}) * 2
""")
    return scripted, model


def assert_same_with_backward(ours, theirs, act, device, *shape):
    for _ in range(RUNS):
        x = smooth_values(act, *shape, dtype=torch.float32, device=device)
        y, expected = ours(x), theirs(x)
        torch.testing.assert_close(y, expected)
        for a, b in zip(*(torch.autograd.grad((r * r).sum(), x) for r in (y, expected))):
            torch.testing.assert_close(a, b)


@forms
def test_script(act, device, form):
    assert_same_with_backward(*script(form, act), act, device, 3, 4)


@forms
def test_trace(act, device, form):
    function = form(act)
    traced = torch.jit.trace(function, values(3, 4, device=device))
    assert_same_with_backward(traced, function, act, device, 3, 4)


def test_scripted_out_and_backward_operators(act, device):
    def form(ops):
        out, backward = ops.out, ops.ladder

        def f(g, x):
            y = torch.empty_like(x)
            out(x, y)
            return backward(g, x) + y

        return f

    g, x = values(5, device=device), values(5, device=device)
    scripted, eager = script(form, act)
    for _ in range(RUNS):
        assert_same_bits(scripted(g, x), eager(g, x))


def test_module_saved_loaded_frozen_traced(act, device, tmp_path):
    scripted, model = scripted_block(act, device)
    path = tmp_path / "model.pt"
    scripted.save(path)
    loaded = torch.jit.load(path)
    traced = torch.jit.trace(model, values(3, 4, device=device))
    for variant in (scripted, loaded, traced):
        assert f"fastact::{act.name}" in str(variant.inlined_graph)
        assert_same_with_backward(variant, model, act, device, 3, 4)
    for variant in (scripted, loaded):
        frozen = torch.jit.freeze(variant.eval())
        optimized = torch.jit.optimize_for_inference(variant.eval())
        for _ in range(RUNS):
            x = values(3, 4, device=device)
            torch.testing.assert_close(frozen(x), model(x))
            torch.testing.assert_close(optimized(x), model(x))


def test_parameters_get_gradients(act, device):
    scripted, model = scripted_block(act, device)
    for _ in range(RUNS):
        x = values(3, 4, device=device)
        ours = torch.autograd.grad(scripted(x).sum(), list(scripted.parameters()))
        theirs = torch.autograd.grad(model(x).sum(), list(model.parameters()))
        for a, b in zip(ours, theirs):
            torch.testing.assert_close(a, b)


def test_second_order_through_script(act, device):
    scripted, function = script(functional, act)

    def second(f, x):
        (first,) = torch.autograd.grad((f(x) * x).sum(), x, create_graph=True)
        return torch.autograd.grad((first * first).sum(), x)[0]

    for _ in range(RUNS):
        x = smooth_values(act, 4, device=device)
        torch.testing.assert_close(second(scripted, x), second(function, x))


def test_script_does_not_reorder_mutation(act, device):
    """Dead-code elimination and common subexpressions must see that the in-place form writes."""

    def form(ops):
        op, op_ = ops.op, ops.op_

        def f(x):
            y = x * 1
            before = op(y)
            op_(y)
            after = op(y)
            return before - after

        return f

    scripted, eager = script(form, act)
    x = values(5, device=device)
    for _ in range(RUNS):
        assert_same_bits(scripted(x), eager(x))


RUN_SAVED = """
import sys, torch
torch.ops.load_library(sys.argv[1])
for folder in sys.argv[2:]:
    x, expected = torch.load(folder + "/data.pt")
    print(torch.equal(torch.jit.load(folder + "/model.pt")(x), expected))
"""


def test_archives_run_in_another_process(tmp_path):
    """Tests all archives in one process, because starting it takes most of the time."""
    folders = []
    for act in REPRESENTATIVES:
        scripted, model = scripted_block(act, "cpu")
        x = values(3, 4)
        folders.append(tmp_path / act.id)
        folders[-1].mkdir()
        scripted.save(folders[-1] / "model.pt")
        torch.save((x, model(x).detach()), folders[-1] / "data.pt")
    printed = run_python("-c", RUN_SAVED, library_path(), *folders)
    assert printed.split() == ["True"] * len(REPRESENTATIVES)


LOAD_ONLY = """
import sys, torch
for archive in sys.argv[1:]:
    try:
        torch.jit.load(archive)
    except RuntimeError as error:
        print(str(error).replace("\\n", " "))
"""


def test_archives_without_the_library_say_so(tmp_path):
    archives = [tmp_path / f"{act.id}.pt" for act in REPRESENTATIVES]
    for act, archive in zip(REPRESENTATIVES, archives):
        scripted_block(act, "cpu")[0].save(archive)
    printed = run_python("-c", LOAD_ONLY, *archives).splitlines()
    assert len(printed) == len(REPRESENTATIVES)
    for act, line in zip(REPRESENTATIVES, printed):
        assert f"Unknown builtin op: fastact::{act.name}" in line


def test_error_in_script_names_the_operator(act):
    scripted, _ = script(functional, act)
    error = error_of(scripted, torch.ones(3, dtype=torch.int32))
    assert f"fastact::{act.name}: expected" in str(error)
