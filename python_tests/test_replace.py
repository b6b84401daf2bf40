"""fastact.replace_ and restore_: FastAct's operators by name in models made without them."""

import copy
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import fastact
from support import assert_same_bits, values


class Block(nn.Module):
    """Functions, methods and modules; an activation in a submodule of its own kind."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.act = nn.SELU()

    def forward(self, x):
        y = F.gelu(self.linear(x), approximate="tanh")
        y = torch.tanh(self.act(y)) * y.sigmoid()
        return x + F.leaky_relu(y, 0.2) + F.hardtanh(y, min_val=-0.5)

    def by_hand(self, x):
        f = fastact.functional
        y = f.gelu(self.linear(x), approximate="tanh")
        y = f.tanh(f.selu(y)) * f.sigmoid(y)
        return x + f.leaky_relu(y, 0.2) + f.hardtanh(y, min_val=-0.5)


class OwnForward(nn.GELU):
    def forward(self, x):
        return super().forward(x) * 2


class Named(nn.SiLU):
    """A subclass that keeps SiLU's forward."""


class Optional(nn.Module):
    def forward(self, x, mask=None):
        y = F.gelu(x)
        return y if mask is None else y * mask


class Dropping(nn.Module):
    def forward(self, x):
        return F.dropout(F.gelu(x), 0.5, training=self.training)


class Asking(nn.Module):
    def forward(self, x):
        return F.gelu(x if isinstance(x, torch.Tensor) else x[0])


class Branching(nn.Module):
    def forward(self, x):
        return F.gelu(x) if x.sum() > 0 else F.silu(x)


class Constant(nn.Module):
    def forward(self, x):
        return F.gelu(x) + torch.tensor([1.0])


def calls(model, x):
    """How often each of FastAct's operators is called."""
    with torch.profiler.profile() as profile:
        model(x)
    names = [e.key for e in profile.key_averages() for _ in range(e.count)]
    return sorted(n.removeprefix("fastact::") for n in names if n.startswith("fastact::"))


def test_modules_and_calls(device):
    model = nn.Sequential(Block(), nn.PReLU(8), Named(), nn.Softplus(2, 5)).to(device)
    x = values(4, 8, device=device)
    before, expected = model(x), copy.deepcopy(model)
    state, types_before = copy.deepcopy(model.state_dict()), [type(m) for m in model.modules()]
    report = fastact.replace_(model)
    assert report.replaced == {
        "0": "fastact.functional.gelu, fastact.functional.tanh, fastact.functional.sigmoid, "
        "fastact.functional.leaky_relu, fastact.functional.hardtanh",
        "0.act": "fastact.nn.SELU",
        "1": "fastact.nn.PReLU",
        "2": "fastact.nn.SiLU",
        "3": "fastact.nn.Softplus",
    }
    assert report.left == {} and "0.act: fastact.nn.SELU" in str(report).splitlines()
    assert isinstance(model[0], Block) and isinstance(model[2], Named)
    f = fastact.functional
    y = f.softplus(f.silu(f.prelu(expected[0].by_hand(x), expected[1].weight)), 2, 5)
    assert_same_bits(model(x), y)
    assert model.state_dict().keys() == state.keys()
    model.load_state_dict(state)
    assert fastact.replace_(model).replaced == {}

    assert fastact.restore_(model) == 5
    assert [type(m) for m in model.modules()] == types_before
    assert_same_bits(model(x), before)
    assert fastact.restore_(model) == 0


def test_modules_that_were_fastacts_stay():
    model = nn.Sequential(fastact.nn.SELU(), nn.SELU())
    fastact.replace_(model)
    assert fastact.restore_(model) == 1
    assert [type(m) for m in model] == [fastact.nn.SELU, nn.SELU]


@pytest.mark.parametrize(
    ("module", "why"),
    [
        (OwnForward(), "its class overrides GELU's forward"),
        (Optional(), "its forward has optional arguments"),
        (Dropping(), "its forward depends on module.training"),
        (Asking(), "it asks for the type of a value"),
        (Branching(), "it cannot be traced"),
        (Constant(), "its forward makes tensors"),
        (nn.TransformerEncoderLayer(8, 2, activation="gelu"), "calls its activation itself"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_what_is_left_is_said(module, why):
    """And works as before, in training and in inference, with and without what is optional."""
    model = nn.Sequential(module).eval()
    x = values(4, 8)
    expected, attributes = model(x), set(vars(module))
    report = fastact.replace_(model)
    assert report.replaced == {} and why in report.left["0"]
    assert set(vars(module)) == attributes
    assert_same_bits(model(x), expected)


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_the_graph_has_the_operators_by_name(tmp_path, fresh_compiler):
    model = nn.Sequential(Block(), nn.Mish()).eval()
    fastact.replace_(model)
    x = values(4, 8)
    expected = model(x)
    scripted = torch.jit.script(model)
    assert "fastact::gelu_tanh" in str(scripted.inlined_graph)
    assert_same_bits(scripted(x), expected)
    program = torch.export.export(model, (x,))
    targets = [str(n.target) for n in program.graph.nodes if n.op == "call_function"]
    assert sum(t.startswith("fastact.") for t in targets) == 7
    assert_same_bits(program.module()(x), expected)
    assert_same_bits(torch.compile(model, backend="aot_eager", fullgraph=True)(x), expected)


def test_pickling(tmp_path):
    """As docs/package.md says: torch.nn's modules can be, traced ones cannot, restored ones can."""
    simple, traced, file = nn.Sequential(nn.SELU()), nn.Sequential(Block()), tmp_path / "model.pt"
    fastact.replace_(simple)
    fastact.replace_(traced)
    torch.save(simple, file)
    assert type(torch.load(file, weights_only=False)[0]) is fastact.nn.SELU
    with pytest.raises(Exception, match="not the same object|[Cc]an't pickle"):
        torch.save(traced, file)
    assert calls(copy.deepcopy(traced), values(4, 8)) == calls(traced, values(4, 8))
    fastact.restore_(traced)
    torch.save(traced, file)


def test_gradients_and_training(device):
    model = nn.Sequential(Block(), nn.GELU()).to(device)
    theirs = copy.deepcopy(model)
    fastact.replace_(model)
    x = values(4, 8, device=device)
    for m in (model, theirs):
        m(x).sum().backward()
    for p, q in zip(model.parameters(), theirs.parameters()):
        torch.testing.assert_close(p.grad, q.grad)


# Of timm's and transformers' classes, what each computes.
OTHERS = {
    "timm.layers.activations": {
        "Swish": F.silu,
        "GELUTanh": lambda x: F.gelu(x, approximate="tanh"),
        "HardSwish": F.hardswish,
    },
    "transformers.activations": {
        "NewGELUActivation": lambda x: F.gelu(x, approximate="tanh"),
        "QuickGELUActivation": lambda x: x * torch.sigmoid(1.702 * x),
        "ReLUSquaredActivation": lambda x: F.relu(x) ** 2,
        "GELUActivation": F.gelu,
    },
}


@pytest.mark.parametrize(("library", "name"), [(k, n) for k, v in OTHERS.items() for n in v])
def test_other_libraries_activations(library, name):
    """Stand-ins with their names, as these libraries are not installed for the tests."""
    function = OTHERS[library][name]
    kind = type(name, (nn.Module,), {"forward": lambda self, x: function(x)})
    kind.__module__ = library
    model, x = nn.Sequential(kind()), values(100)
    before = model(x)
    assert list(fastact.replace_(model).replaced) == ["0"]
    assert len(calls(model, x)) == 1
    torch.testing.assert_close(model(x), before)
    assert isinstance(model[0], kind) and fastact.restore_(model) == 1


@pytest.mark.parametrize("library", OTHERS)
def test_installed_libraries_activations(library):
    """Every class of the table that the installed version has computes what it did."""
    from fastact._replace import _OTHERS

    module = sys.modules.get(library) or pytest.importorskip(library)
    tried = 0
    for name in _OTHERS[library]:
        kind = getattr(module, name, None)
        if kind is None or kind.__module__ != library:
            continue
        model, x = nn.Sequential(kind()), values(100)
        before = model(x)
        assert list(fastact.replace_(model).replaced) == ["0"], name
        torch.testing.assert_close(model(x), before, rtol=1e-5, atol=1e-5)
        tried += 1
    assert tried > 3


def test_no_module():
    with pytest.raises(TypeError, match="fastact.replace_: expected a torch.nn.Module, but got"):
        fastact.replace_(torch.ones(3))
