"""torch.export: programs contain the operators, have dynamic sizes, can be saved and run
elsewhere."""

import pytest
import torch

from op_table import REPRESENTATIVES
from support import assert_same_bits, library_path, run_python, values

pytestmark = pytest.mark.usefixtures("fresh_compiler")


class Functional(torch.nn.Module):
    """A scale and the activation. A decomposed matrix product would round differently."""

    def __init__(self, act):
        super().__init__()
        self.act, self.scale = act, torch.nn.Parameter(torch.tensor([0.7, -1.3, 2.1, 0.4]))

    def forward(self, x):
        return self.act.op(x * self.scale) * 2


class InPlaceOnView(torch.nn.Module):
    """Changes half of a tensor in place."""

    def __init__(self, act):
        super().__init__()
        self.act = act

    def forward(self, x):
        y = x * 1
        self.act.op_(y[:, 1:])
        return y


class Out(torch.nn.Module):
    """Writes to a new tensor with out=."""

    def __init__(self, act):
        super().__init__()
        self.act = act

    def forward(self, x):
        y = torch.empty_like(x)
        self.act.out(x, y)
        return y


def targets(program):
    return [str(n.target) for n in program.graph.nodes if n.op == "call_function"]


class Every(torch.nn.Module):
    """Contains each form of each kind of activation."""

    def __init__(self):
        super().__init__()
        self.forms = torch.nn.ModuleList(
            kind(act) for act in REPRESENTATIVES for kind in (Functional, InPlaceOnView, Out)
        )

    def forward(self, x):
        return [form(x) for form in self.forms]


@pytest.mark.parametrize("strict", (False, True))
def test_export_save_load_run(device, tmp_path, strict):
    module = Every().to(device)
    batch = torch.export.Dim("batch", min=2)
    program = torch.export.export(
        module, (values(3, 4, device=device),), dynamic_shapes={"x": {0: batch}}, strict=strict
    )
    program = program.run_decompositions()
    for act in REPRESENTATIVES:
        of_name = [other for other in REPRESENTATIVES if other.name == act.name]
        assert targets(program).count(f"fastact.{act.name}.default") == 3 * len(of_name)
    torch.export.save(program, tmp_path / "program.pt2")
    loaded = torch.export.load(tmp_path / "program.pt2")
    for n in (3, 7):
        x = values(n, 4, device=device)
        expected = module(x)
        for results in (program.module()(x), loaded.module()(x)):
            for found, wanted in zip(results, expected, strict=True):
                assert_same_bits(found, wanted)


def test_exported_for_training(act, device):
    """Before decomposition the program can be trained, including in-place forms."""
    module = Functional(act).to(device)
    x = values(3, 4, device=device)
    exported = torch.export.export(module, (x,)).module()
    exported(x).sum().backward()
    module(x).sum().backward()
    ours = {name: p.grad for name, p in exported.named_parameters()}
    for name, p in module.named_parameters():
        torch.testing.assert_close(ours[name], p.grad)


RUN_SAVED = """
import sys, torch
torch.ops.load_library(sys.argv[1])
x, expected = torch.load(sys.argv[3])
found = torch.export.load(sys.argv[2]).module()(x)
print(*map(torch.equal, found, expected))
"""


@pytest.mark.slow
def test_saved_programs_run_in_another_process(tmp_path):
    module, x = Every(), values(3, 4)
    program, data = tmp_path / "program.pt2", tmp_path / "data.pt"
    torch.export.save(torch.export.export(module, (x,)), program)
    torch.save((x, [y.detach() for y in module(x)]), data)
    printed = run_python("-c", RUN_SAVED, library_path(), program, data)
    assert printed.split() == ["True"] * len(module.forms)
