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


@pytest.mark.parametrize("strict", (False, True))
@pytest.mark.parametrize("kind", (Functional, InPlaceOnView, Out))
def test_export_save_load_run(act, device, tmp_path, kind, strict):
    module = kind(act).to(device)
    batch = torch.export.Dim("batch", min=2)
    program = torch.export.export(
        module, (values(3, 4, device=device),), dynamic_shapes={"x": {0: batch}}, strict=strict
    )
    program = program.run_decompositions()
    assert f"fastact.{act.name}.default" in targets(program)
    torch.export.save(program, tmp_path / "program.pt2")
    loaded = torch.export.load(tmp_path / "program.pt2")
    for n in (3, 7):
        x = values(n, 4, device=device)
        assert_same_bits(program.module()(x), module(x))
        assert_same_bits(loaded.module()(x), module(x))


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
for folder in sys.argv[2:]:
    x, expected = torch.load(folder + "/data.pt")
    actual = torch.export.load(folder + "/program.pt2").module()(x)
    print(torch.equal(actual, expected))
"""


@pytest.mark.slow
def test_saved_programs_run_in_another_process(tmp_path):
    """Tests all programs in one process, because starting it takes most of the time."""
    folders = []
    for act in REPRESENTATIVES:
        module, x = Functional(act), values(3, 4)
        folders.append(tmp_path / act.id)
        folders[-1].mkdir()
        torch.export.save(torch.export.export(module, (x,)), folders[-1] / "program.pt2")
        torch.save((x, module(x).detach()), folders[-1] / "data.pt")
    printed = run_python("-c", RUN_SAVED, library_path(), *folders)
    assert printed.split() == ["True"] * len(REPRESENTATIVES)
