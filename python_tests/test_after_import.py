"""The registrations that `import fastact` postpones until a part of torch is imported. They never
make an import fail, and they change torch completely or not at all."""

import importlib
import importlib.abc
import importlib.util
import sys

import pytest

from support import REPOSITORY, package_path, run_python

import fastact  # isort: skip
from fastact import _after_import, _changes, _distributed, _inductor  # isort: skip

FAULTS = REPOSITORY / "python_tests" / "registration_faults.py"
PACKAGE = {"PYTHONPATH": str(package_path().parent)}


def in_a_new_process(*arguments):
    return run_python(*arguments, environment=PACKAGE)


# ---- Registrations that fail


@pytest.mark.slow
@pytest.mark.newest
@pytest.mark.parametrize("what", ("inductor", "dtensor"))
def test_a_registration_may_fail_at_every_line(what):
    """The registration undoes its changes, and show_config() gives the reason."""
    assert int(in_a_new_process(FAULTS, what)) > 50


# Faults of torch, set up before its parts are imported. show_config() reports the error of `fail`.
DIFFERENT = {
    "an import fails": """
class Broken(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in ("fastact._inductor.vectors", "fastact._distributed.operators"):
            fail()
sys.meta_path.insert(0, Broken())
""",
    "a function fails": """
import torch._inductor.lowering, torch.distributed.tensor
torch._inductor.lowering.register_lowering = fail
torch.distributed.tensor.DTensor._op_dispatcher.sharding_propagator.register_op_strategy = fail
""",
}
SCRIPT = """
import builtins, importlib.abc, sys, warnings, torch

def fail(*args, **kwargs):
    raise builtins.{error}("simulated")

def import_torchs():
    import torch._inductor.lowering, torch.distributed.tensor

{before}
{imports}
ours = [op for op in torch._inductor.lowering.lowerings if "fastact" in str(op)]
print(len(ours), fastact.functional.relu(torch.ones(3)).sum().item())
print(fastact._inductor.status)
print(fastact._distributed.status)
fastact.show_config()
"""


@pytest.mark.newest
@pytest.mark.slow
@pytest.mark.parametrize(
    ("different", "first", "error"),
    (("an import fails", "torch", "SystemError"), ("a function fails", "fastact", "KeyError")),
)
def test_another_torch_fails_no_import(different, first, error):
    imports = ["import_torchs()", "import fastact"]
    imports = imports if first == "torch" else imports[::-1]
    script = SCRIPT.format(before=DIFFERENT[different], imports="\n".join(imports), error=error)
    lowered, inductor, dtensor, *config = in_a_new_process("-c", script).splitlines()
    assert lowered == "0 3.0"
    assert inductor.startswith("calls the operators, because this Inductor took no lowerings: ")
    assert dtensor.startswith("sharding rules for no operators, because this torch's DTensor did")
    for line, name in ((inductor, "torch.compile"), (dtensor, "DTensor")):
        assert f"{error}: " in line and "simulated" in line
        assert f"{name}: {line}" in config


@pytest.mark.newest
@pytest.mark.slow
def test_operators_are_called_without_lowerings():
    """A compiled function calls them, too, after a failed registration was undone."""
    script = """
import torch, torch._inductor.lowering as lowering
register, count = lowering.register_lowering, 0
def fail_at_last(op, *args, **kwargs):
    global count
    count += 1
    if count == 30:
        raise RuntimeError("simulated")
    return register(op, *args, **kwargs)
lowering.register_lowering = fail_at_last
import fastact
lowering.register_lowering = register
import torch._inductor.config
torch._inductor.config.cpp_cache_precompile_headers = False  # one takes longer than this kernel
x = torch.linspace(-3, 3, 1000)
def f(x):
    return fastact.functional.selu(x * 2) + 1
print(torch.equal(torch.compile(f, fullgraph=True)(x), f(x)), count, fastact._inductor.status)
"""
    found = in_a_new_process("-c", script)
    assert found.startswith("True 30 calls the operators, because "), found


@pytest.mark.parametrize("package", (_inductor, _distributed), ids=lambda p: p.__name__)
def test_a_part_of_torch_that_cannot_be_imported(package, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, package.MODULE, None)
    fastact.show_config()
    assert f": none, because {package.MODULE} cannot be imported: " in capsys.readouterr().out


# ---- Imports


class Shared(importlib.abc.MetaPathFinder):
    """A finder that loads all its modules itself, like an archive's; attributes cannot be set."""

    __slots__ = ("executed", "names")

    def __init__(self, *names):
        self.names, self.executed = names, []

    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_loader(name, self) if name in self.names else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        self.executed.append(module.__name__)

    def get_source(self, name):
        return f"# {name}"


@pytest.fixture
def shared(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", sys.meta_path[:])
    names = ("fastact_test_one", "fastact_test_other")
    sys.meta_path.append(finder := Shared(*names))
    yield finder
    for name in names:
        sys.modules.pop(name, None)


def test_any_loader(shared):
    done = []
    _after_import.after_import(shared.names[0], lambda: done.append(1))
    spec = importlib.util.find_spec(shared.names[0])  # a caller that only inspects the spec
    assert spec.loader.get_source(spec.name) == "# fastact_test_one"
    importlib.import_module(shared.names[1])
    assert not done
    module = importlib.import_module(shared.names[0])
    assert done == [1] and shared.executed == list(shared.names[::-1])
    assert module.__loader__ is shared and module.__spec__.loader is shared
    importlib.reload(module)
    assert done == [1]


def test_a_module_that_fails_is_imported_later(shared, monkeypatch):
    done = []
    _after_import.after_import(shared.names[0], lambda: done.append(1))
    with monkeypatch.context() as patch:
        patch.setattr(Shared, "exec_module", lambda self, module: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            importlib.import_module(shared.names[0])
    assert not done
    importlib.import_module(shared.names[0])
    assert done == [1]


# ---- Changes


class Base:
    @staticmethod
    def inherited():
        return "base"


class Owner(Base):
    @staticmethod
    def own():
        return "own"


def test_changes_are_made_together_or_not_at_all():
    entries = {"old": 1}
    before = dict(vars(Owner))
    for error in (None, ValueError, KeyboardInterrupt):
        try:
            with _changes.undone_on_error() as changes:
                changes.will_change(entries)
                entries.update(old=2, new=3)
                for name in ("own", "inherited"):
                    changes.make((Owner, name, staticmethod(lambda: "changed")))
                assert Owner().own() == Owner().inherited() == "changed"
                if error:
                    raise error
        except (ValueError, KeyboardInterrupt):
            assert entries == {"old": 1} and dict(vars(Owner)) == before
        else:
            assert error is None and entries == {"old": 2, "new": 3}
            assert Owner().own() == Owner().inherited() == "changed"
            entries = {"old": 1}
            Owner.own = before["own"]
            del Owner.inherited
