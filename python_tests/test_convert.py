"""fastact.convert: FastAct's operators in exported programs and in TorchScript."""

import io

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import fastact
from support import assert_same_bits, first_line, run_python, values
from test_override_compiled import FUNCTIONS

pytestmark = [
    pytest.mark.usefixtures("fresh_compiler"),
    pytest.mark.filterwarnings("ignore:.*torch.jit"),
]


def names(program):
    """Returns the FastAct operators of a program."""
    targets = [str(n.target) for n in program.graph.nodes if n.op == "call_function"]
    return [t.split(".")[1] for t in targets if t.startswith("fastact.")]


def export(model, *args, **settings):
    return torch.export.export(model, args, **settings)


class Every(nn.Module):
    def forward(self, x):
        return [function(x) for function in FUNCTIONS.values()]


class Network(nn.Module):
    """Contains batch norm, a residual sum, a gate, an in-place form and a written buffer."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.last = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.Linear(4, 4)
        self.register_buffer("count", torch.zeros(()))
        for parameter in self.parameters():
            nn.init.normal_(parameter)

    def forward(self, x):
        self.count += 1
        y = F.mish(self.norm(self.conv(x)))
        y = F.mish(F.mish(y + x) * 2, inplace=True) * x
        return F.tanh(self.last(y.mean((2, 3)))), F.relu(self.count)


class ClampedSwiglu(nn.Module):
    """Written as in gpt-oss."""

    def forward(self, x):
        gate, up = x[..., ::2], x[..., 1::2]
        gate, up = gate.clamp(max=7.0), up.clamp(min=-7.0, max=7.0)
        return (up + 1) * (gate * torch.sigmoid(gate * 1.702))


def saved_and_loaded(program):
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return torch.export.load(file)


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
def test_every_activation_is_renamed(dtype):
    """The bits are those of an override, and only rrelu remains PyTorch's."""
    x = values(7, 5, dtype=dtype)
    program = export(Every(), x)
    new = fastact.convert(program)
    left = [str(n.target) for n in new.graph.nodes if n.op == "call_function"]
    activations = {name.split(",")[0] for name in FUNCTIONS} | {"log_sigmoid"}
    assert {t.split(".")[1] for t in left if t.startswith("aten.")} & activations == {"rrelu"}
    with fastact.override_aten():
        expected = program.module()(x)
    for name, found, wanted in zip(FUNCTIONS, new.module()(x), expected, strict=True):
        # An override computes relu6 and rrelu with operators of other names.
        if name != "rrelu":
            assert_same_bits(found, wanted)


class Rows(nn.Module):
    def forward(self, x):
        in_float = F.softmax(x, -1, dtype=torch.float32)
        return F.softmax(x, 1), x.log_softmax(0), in_float, F.softmin(x, 1)


@pytest.mark.parametrize("decomposes", (False, True))
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
def test_rows_are_renamed(dtype, decomposes):
    x, ours = values(7, 5, dtype=dtype), torch.ops.fastact
    program = export(Rows(), x)
    if decomposes:
        program = program.run_decompositions()
    new = fastact.convert(program)
    assert names(new) == ["softmax", "softmax", "log_softmax", "softmax"]
    in_float = ours.softmax(x, -1, torch.float32)
    expected = (ours.softmax(x, 1), ours.log_softmax(x, 0), in_float, ours.softmax(-x, 1))
    for found, theirs, wanted in zip(new.module()(x), program.module()(x), expected, strict=True):
        assert found.dtype == theirs.dtype
        assert_same_bits(found, wanted)


@pytest.mark.parametrize("strict", (False, True))
def test_a_network(strict):
    """Converts a network that was saved, loaded or decomposed. The original does not change."""
    model = Network().eval()
    sizes = {"x": {0: torch.export.Dim("batch", min=2, max=64)}}
    program = export(model, values(2, 4, 128, 64), dynamic_shapes=sizes, strict=strict)
    text, old = str(program), [n.target for n in program.graph.nodes]
    new = fastact.convert(program)
    assert str(program) == text and [n.target for n in program.graph.nodes] == old
    assert names(new) == ["fused_mish", "fused_mish", "fused_mish", "tanh", "relu"], names(new)
    others = [new, saved_and_loaded(new), new.run_decompositions()]
    assert all("tanh" in names(other) for other in others)
    modules = [other.module() for other in others]
    for size in (2, 5):
        x = values(size, 4, 128, 64)
        expected = program.module()(x)
        for module in modules:
            torch.testing.assert_close(module(x)[0], expected[0], rtol=1e-4, atol=1e-4)
    for module in modules:
        before = module.count.item()
        module(x)
        assert module.count.item() == before + 1


def test_gradients():
    """A program that was not decomposed can be trained."""
    model, x = Network().eval(), values(2, 4, 128, 64)
    program = export(model, x)
    results = []
    for each in (program, fastact.convert(program)):
        module = each.module()
        module(x)[0].square().sum().backward()
        results.append({name: p.grad for name, p in module.named_parameters()})
    assert results[0].keys() == results[1].keys()
    for name, theirs in results[0].items():
        torch.testing.assert_close(results[1][name], theirs, rtol=1e-3, atol=1e-3)


def test_the_clamped_swiglu():
    x = values(64, 2 * 1024)
    new = fastact.convert(export(ClampedSwiglu(), x))
    assert names(new) == ["_clamped_swiglu"]
    exact = ClampedSwiglu()(x.double())
    torch.testing.assert_close(new.module()(x).double(), exact, rtol=1e-5, atol=1e-5)


def test_a_program_without_activations_and_one_that_was_converted():
    program = export(nn.Linear(3, 3), values(2, 3))
    assert names(fastact.convert(program)) == []
    once = fastact.convert(export(nn.Sequential(nn.Linear(3, 3), nn.SiLU()), values(2, 3)))
    twice = fastact.convert(once)
    assert names(once) == names(twice) == ["silu"]
    x = values(4, 3)[:2]
    assert_same_bits(twice.module()(x), once.module()(x))


class Preserved(nn.Module):
    """Has submodules whose inputs and results are inside a fused operator or are the result."""

    def __init__(self):
        super().__init__()
        self.norm, self.act, self.drop = nn.BatchNorm2d(4), nn.Mish(), nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(self.act(self.norm(x)))


def test_preserved_submodules():
    model, x = Preserved().eval(), values(2, 4, 128, 64)
    program = export(model, x, preserve_module_call_signature=("norm", "act"))
    new = fastact.convert(program)
    assert names(new) == ["fused_mish"]
    assert new.graph_signature.user_outputs == program.graph_signature.user_outputs
    for other in (new, saved_and_loaded(new), new.run_decompositions()):
        torch.testing.assert_close(other.module()(x), model(x), rtol=1e-4, atol=1e-4)


PACKAGE = """
import sys, torch
if sys.argv[1] == "with":
    torch.ops.load_library(sys.argv[2])
try:
    model = torch._inductor.aoti_load_package(sys.argv[3])
    x, expected = torch.load(sys.argv[4])
    print(torch.equal(model(x), expected))
except RuntimeError as error:
    print("Could not find schema for fastact::silu." in str(error))
"""


@pytest.mark.slow
def test_a_package_has_the_operators_by_name(tmp_path):
    """AOTInductor calls operators that it does not fuse, for example with an unknown size."""
    from support import library_path

    model, x = nn.SiLU(), values(64)
    sizes = ({0: torch.export.Dim("n", min=2)},)
    program = fastact.convert(export(model, x, dynamic_shapes=sizes))
    path = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "m.pt2"))
    torch.save((x, fastact.functional.silu(x)), tmp_path / "data.pt")
    for library in ("with", "without"):
        printed = run_python("-c", PACKAGE, library, library_path(), path, tmp_path / "data.pt")
        assert printed.split() == ["True"]


# ---- TorchScript


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x):
        return F.mish(x + F.mish(self.norm(x)))


def test_script_modules():
    """convert() and `python -m fastact optimize` give the same result, with and without a
    sample."""
    x = values(2, 4, 128, 64)
    module = torch.jit.script(Residual().eval())
    text = str(module.graph)
    for sample, count in (((), 1), ((x,), 2)):
        new = fastact.convert(module, sample)
        assert str(new.graph).count("fastact::fused_mish") == count
        torch.testing.assert_close(new(x), module(x), rtol=1e-4, atol=1e-4)
    assert str(module.graph) == text


class Stateful(nn.Module):
    """Returns complex numbers, too."""

    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.zeros(()))
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x, times: int = 2):
        self.n += 1
        y = F.mish(self.norm(x)) * times
        return y, torch.complex(y, y), torch.rand(()) * 0


def test_a_script_module_and_random_numbers_keep_their_state():
    x = values(2, 4, 128, 64)
    module = torch.jit.script(Stateful().eval())
    torch.manual_seed(4)
    new = fastact.convert(module, (x,))
    drawn = torch.rand(())
    torch.manual_seed(4)
    assert drawn == torch.rand(())
    assert new.n == module.n == 0 and "fastact::fused_mish" in str(new.graph)
    for ours, theirs in zip(new(x), module(x)):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_a_script_module_whose_results_strides_would_change_is_left():
    """The operands have different strides, so that a view of the result would be another one."""

    class Gated(nn.Module):
        def forward(self, g, x):
            return g * F.mish(x)

    module = torch.jit.script(Gated().eval())
    for operands in (
        (values(256, 256), values(256, 256).t()),
        (values(256, 256).t(), values(2, 256, 256)),  # the first one broadcasts
    ):
        new = fastact.convert(module, operands)
        ours, theirs = new(*operands), module(*operands)
        assert torch.equal(ours, theirs) and ours.stride() == theirs.stride()
        assert "fused" not in str(new.graph)
    operands = values(256, 256), values(256, 256)
    assert "fused_mish" in str(fastact.convert(module, operands).graph)


def test_errors():
    program = export(nn.SiLU(), values(3))

    class Branch(nn.Module):
        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda x: F.silu(x), lambda x: F.mish(x), (x,))

    for arguments, kind, text in (
        ((nn.SiLU(),), TypeError, "expected a torch.export.ExportedProgram or a torch.jit.Script"),
        ((None,), TypeError, "but got NoneType"),
        (
            (program, (values(3),)),
            ValueError,
            "expected no sample, because an ExportedProgram has shapes",
        ),
        ((export(Branch(), values(3)),), ValueError, "but got: it calls cond"),
        ((torch.jit.script(Residual()),), ValueError, "expected a module in inference mode, but"),
    ):
        with pytest.raises(kind) as error:
            fastact.convert(*arguments)
        line = first_line(error.value)
        assert line.startswith("fastact.convert: expected ") and text in line
