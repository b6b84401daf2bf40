"""fastact.replace_ and restore_: FastAct's modules replace those of known classes."""

import copy
import pickle
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrize

import fastact
from fastact import _replace
from support import assert_same_bits, values


class OwnForward(nn.GELU):
    def forward(self, x):
        return super().forward(x) * 2


class Named(nn.SiLU):
    """A subclass that keeps SiLU's forward."""


class Calls(nn.Module):
    """Its forward must not run while modules are replaced."""

    def __init__(self):
        super().__init__()
        self.act, self.calls = nn.SELU(), 0

    def forward(self, x):
        self.calls += 1
        return F.gelu(self.act(x))


def test_modules():
    model = nn.Sequential(Calls(), nn.PReLU(8), nn.Softplus(2, 5), Named(), OwnForward())
    x, state = values(4, 8), copy.deepcopy(model.state_dict())
    kinds = list(map(type, model.modules()))
    before, f = model(x), fastact.functional
    report = fastact.replace_(model)
    assert model[0].calls == 1
    assert report.replaced == {
        "0.act": "fastact.nn.SELU", "1": "fastact.nn.PReLU", "2": "fastact.nn.Softplus",
    }  # fmt: skip
    assert report.left == {
        "3": "its class is a subclass of SiLU", "4": "its class is a subclass of GELU",
    }  # fmt: skip
    assert "0.act: fastact.nn.SELU" in str(report).splitlines()
    y = f.softplus(f.prelu(F.gelu(f.selu(x)), model[1].weight), 2, 5)
    assert_same_bits(model(x), 2 * F.gelu(F.silu(y)))
    assert model.state_dict().keys() == state.keys()
    model.load_state_dict(state)
    assert fastact.replace_(model).replaced == {}
    assert fastact.restore_(model) == 3 and fastact.restore_(model) == 0
    assert list(map(type, model.modules())) == kinds
    assert_same_bits(model(x), before)


def test_a_class_that_only_has_the_name_of_one_of_torchs():
    members = {"__module__": nn.GELU.__module__, "forward": lambda self, x: 2 * x}
    model = nn.Sequential(type("GELU", (nn.GELU,), members)())
    assert fastact.replace_(model).replaced == {}
    assert_same_bits(model(torch.ones(3)), torch.full((3,), 2.0))


def test_modules_that_were_fastacts_stay():
    model = nn.Sequential(fastact.nn.SELU(), nn.SELU())
    fastact.replace_(model)
    assert fastact.restore_(model) == 1
    assert [type(m) for m in model] == [fastact.nn.SELU, nn.SELU]


def test_hooks_are_called_and_own_forwards_stay():
    model, x, seen = nn.Sequential(nn.SELU(), nn.Tanh()), values(4), []
    model[0].register_forward_hook(lambda *_: seen.append(1))
    model[1].forward = lambda x: x + 1
    report = fastact.replace_(model)
    assert_same_bits(model(x), fastact.functional.selu(x) + 1)
    assert seen == [1] and report.left == {"1": "its forward is set on the object"}


class Twice(nn.Module):
    def forward(self, weight):
        return weight * 2


@pytest.mark.parametrize("first", ("parametrization", "replace_"))
@pytest.mark.parametrize("undone", ("restore_", "parametrization"))
def test_parametrizations(first, undone):
    """Parametrizations are added before or after, and removed before or after."""
    model, x = nn.Sequential(nn.PReLU(8)), values(4, 8)
    x.requires_grad_()

    def parametrizes():
        parametrize.register_parametrization(model[0], "weight", Twice())

    for step in sorted(("parametrization", "replace_"), key=lambda step: step != first):
        fastact.replace_(model) if step == "replace_" else parametrizes()
    assert_same_bits(model(x), fastact.functional.prelu(x, torch.full((8,), 0.5)))
    model(x).sum().backward()
    assert model[0].parametrizations.weight.original.grad.abs().sum() > 0
    for step in sorted(("parametrization", "restore_"), key=lambda step: step != undone):
        if step == "restore_":
            assert fastact.restore_(model) == 1
        else:
            parametrize.remove_parametrizations(model[0], "weight")
        assert torch.equal(model[0].weight, torch.full((8,), 0.5))
    assert type(model[0]) is nn.PReLU


# Classes of timm and transformers, and what each computes.
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
def test_other_libraries_activations(library, name, monkeypatch):
    """Uses fakes with the classes' names, because these libraries are not installed."""
    function = OTHERS[library][name]
    kind = type(name, (nn.Module,), {"forward": lambda self, x: function(x), "inplace": False})
    kind.__module__ = library
    parts = library.split(".")
    for i in range(len(parts)):
        part = ".".join(parts[: i + 1])
        monkeypatch.setitem(sys.modules, part, type(sys)(part))
    setattr(sys.modules[library], name, kind)
    model, x = nn.Sequential(kind()), values(100)
    before = model(x)
    assert list(fastact.replace_(model).replaced) == ["0"]
    for copied in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.testing.assert_close(copied(x), before)
        assert isinstance(copied[0], kind) and type(copied[0]) is not kind
        assert fastact.restore_(copied) == 1 and type(copied[0]) is kind
    if name == "Swish":
        model[0].inplace = True
        fastact.replace_(model)
        assert model(x) is x


@pytest.mark.parametrize("library", OTHERS)
def test_installed_libraries_activations(library):
    """Every class of the table that the installed version has computes the same as before."""
    module = sys.modules.get(library) or pytest.importorskip(library)
    tried = 0
    for name in _replace._OTHERS[library]:
        kind = getattr(module, name, None)
        if kind is None or kind.__module__ != library:
            continue
        model, x = nn.Sequential(kind()), values(100)
        before = model(x)
        assert list(fastact.replace_(model).replaced) == ["0"], name
        torch.testing.assert_close(model(x), before, rtol=1e-5, atol=1e-5)
        tried += 1
    assert tried > 3


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_the_graph_has_the_operators_by_name(tmp_path, fresh_compiler):
    model, x = nn.Sequential(nn.Mish(), nn.GELU("tanh")).eval(), values(4, 8)
    fastact.replace_(model)
    expected = model(x)
    scripted = torch.jit.script(model)
    assert "fastact::gelu_tanh" in str(scripted.inlined_graph)
    assert_same_bits(scripted(x), expected)
    program = torch.export.export(model, (x,))
    targets = [str(n.target) for n in program.graph.nodes if n.op == "call_function"]
    assert sum(t.startswith("fastact.") for t in targets) == 2
    torch.save(model, tmp_path / "model.pt")
    assert type(torch.load(tmp_path / "model.pt", weights_only=False)[0]) is fastact.nn.Mish


def test_no_module():
    with pytest.raises(TypeError, match="fastact.replace_: expected a torch.nn.Module, but got"):
        fastact.replace_(torch.ones(3))
