"""fastact.nn: modules that replace those of torch.nn."""

import copy
import inspect
import pickle
import re
import sys

import pytest
import torch

from op_table import OPERATORS
from support import REPOSITORY, assert_same_bits, values
from test_functional import function_of, numbers_of, takes_inplace

import fastact  # isort: skip

sys.path.append(str(REPOSITORY / "scripts" / "codegen"))

EVERY_ACTIVATION = True
nn = fastact.nn
MODULES = {name.lower(): name for name in nn.__all__}

by_operator = pytest.mark.parametrize("act", OPERATORS, ids=lambda act: act.name)


def class_of(act):
    """Returns the class of an activation: SELU for selu, LogSigmoid for log_sigmoid."""
    return getattr(nn, MODULES[act.name.replace("_", "")])


def pytorchs(kind):
    return getattr(torch.nn, kind.__name__, None)


def module_of(act, **options):
    """Returns a module with a row's parameters, or None if no constructor accepts them."""
    numbers = numbers_of(act, function_of(act))
    return None if numbers is None else class_of(act)(**numbers, **options)


def test_computes_what_the_function_computes(act, dtype):
    module = module_of(act)
    if module is None:
        pytest.skip("torch.nn has no such parameter")
    x = values(257, dtype=dtype)
    assert_same_bits(module(x), act.op(x))
    if takes_inplace(class_of(act)):
        y = x.clone()
        assert module_of(act, inplace=True)(y) is y
        assert_same_bits(y, act.op(x))


@by_operator
def test_stands_in_place_of_pytorchs(act):
    """The constructor, repr and state_dict are PyTorch's, and isinstance() is true."""
    ours, theirs = class_of(act), pytorchs(class_of(act))
    if theirs is None:
        assert not takes_inplace(ours) or repr(ours(inplace=True)).endswith("inplace=True)")
        pytest.skip("PyTorch has no module of this name")
    assert issubclass(ours, theirs)
    assert inspect.signature(ours) == inspect.signature(theirs)
    numbers = numbers_of(act, function_of(act)) or {}
    for options in ({}, {"inplace": True}) if takes_inplace(ours) else ({},):
        assert repr(ours(**numbers, **options)) == repr(theirs(**numbers, **options))
    assert ours(**numbers).state_dict() == theirs(**numbers).state_dict() == {}
    documented = ours.__doc__
    assert documented != theirs.__doc__ and "Largest error in ULP" in documented


@by_operator
@pytest.mark.parametrize("copied", (copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))))
def test_is_copied_and_pickled(act, copied):
    module = class_of(act)(**(numbers_of(act, function_of(act)) or {}))
    again = copied(module)
    assert type(again) is type(module) and again is not module
    assert repr(again) == repr(module)
    x = values(33)
    assert_same_bits(again(x), module(x))


@by_operator
def test_is_scripted_saved_and_loaded(act, tmp_path):
    module = class_of(act)(**(numbers_of(act, function_of(act)) or {}))
    x = values(33)
    path = tmp_path / "module.pt"
    torch.jit.script(module).save(path)
    loaded = torch.jit.load(path)
    assert_same_bits(loaded(x), module(x))
    assert f"fastact::{act.name}(" in str(loaded.inlined_graph)


def test_is_exported_and_compiled(act, fresh_compiler):
    module = class_of(act)(**(numbers_of(act, function_of(act)) or {}))
    x = values(33)
    exported = torch.export.export(module, (x,))
    assert f"fastact.{act.name}.default" in exported.graph_module.code
    assert_same_bits(exported.module()(x), module(x))
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    assert_same_bits(compiled(x), module(x))


@pytest.mark.parametrize(
    ("name", "numbers"), (("Softplus", (1, 20)), ("Threshold", (0, 1)), ("ELU", (1,)))
)
def test_whole_numbers_are_scripted(name, numbers):
    module = getattr(nn, name)(*numbers)
    x = values(33)
    assert_same_bits(torch.jit.script(module)(x), module(x))


def test_prelu_is_pytorchs_with_its_weight():
    assert inspect.signature(nn.PReLU) == inspect.signature(torch.nn.PReLU)
    ours, theirs = nn.PReLU(3, init=0.5), torch.nn.PReLU(3, init=0.125)
    assert repr(ours) == repr(theirs) == "PReLU(num_parameters=3)"
    assert list(ours.state_dict()) == ["weight"]
    ours.load_state_dict(theirs.state_dict())
    x = values(4, 3, 5)
    assert_same_bits(ours(x), torch.ops.fastact.prelu(x, theirs.weight))
    ours(x).sum().backward()
    assert ours.weight.grad.shape == (3,)
    assert nn.PReLU(2, dtype=torch.bfloat16).weight.dtype == torch.bfloat16
    for copied in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours)), torch.jit.script(ours)):
        assert_same_bits(copied(x), ours(x))


def test_a_model_trains():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), nn.SELU(), nn.PReLU(8), nn.QuickGELU())
    before = [p.clone() for p in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(values(16, 4)).square().mean().backward()
    optimizer.step()
    assert all(not torch.equal(a, b) for a, b in zip(before, model.parameters()))


def test_own_modules_with_parameters_are_as_pytorchs():
    """Adds to catalogue.json an activation with a parameter that PyTorch lacks."""
    import python_package

    act = python_package.Activation("elu", [python_package.Parameter("alpha", 1.5)])
    act.pytorch, act.module, act.takes_inplace = None, "Own", True
    scope = {"torch": torch, "Tensor": torch.Tensor, "functional": fastact.functional}
    exec(python_package.module(act), scope)
    module = scope["Own"](0.5)
    assert repr(module) == "Own(alpha=0.5)"
    assert repr(scope["Own"](inplace=True)) == "Own(alpha=1.5, inplace=True)"
    x = values(33)
    assert_same_bits(module(x), torch.ops.fastact.elu(x, 0.5))
    assert re.search(
        r"alpha: float = 1\.5, inplace: bool = False", str(inspect.signature(module.__init__))
    )
