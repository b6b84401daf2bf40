"""fastact::optimize by the command line: inserts fused operators into TorchScript archives."""

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fastact.__main__ import main
from fusable_models import Block, Gated, SqueezeExcitation, norm
from support import assert_same_bits, values

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit", "ignore:.*isinstance")


class PreActivation(nn.Module):
    """Contains a batch norm that no convolution can absorb, and all kinds of parameters."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2, self.conv = (
            norm(4),
            norm(4, affine=False, eps=0.1),
            nn.Conv2d(4, 4, 1),
        )

    def forward(self, x):
        y = self.conv(F.elu(self.norm1(x), alpha=0.5))
        z = F.celu(self.norm2(torch.cat([x[:, :2], y[:, 2:]], 1)) + y, 0.7)
        w = F.softplus(x + z, 2.0, 10.0) * F.mish(y + z)
        return w + F.gelu(y + x, approximate="tanh") + F.logsigmoid(y).mul_(x)


class Branch(nn.Module):
    """Contains a branch with a batch norm."""

    def __init__(self):
        super().__init__()
        self.norm = norm(4)

    def forward(self, x):
        y = F.mish(self.norm(x)) if bool(x.sum() > 0) else F.selu(x + x.abs()) * x
        return F.tanh(y + x)


class Written(nn.Module):
    """Contains calls that can move before a write to the argument, and calls that cannot."""

    def forward(self, x):
        y = x + 1
        z = y + x
        h = F.mish(x)
        x.mul_(2)
        return F.tanh(z) + h * x


class Weighted(nn.Module):
    """Contains additions whose second operand has a factor, and one whose factor is 1."""

    def forward(self, x):
        y = torch.tanh(torch.add(x, x.abs(), alpha=2))
        return torch.nn.functional.mish(torch.add(x, y, alpha=1)) + torch.sub(x, y)


def optimized(model, tmp_path, *sample, scripted=True):
    """Returns the archive before and after, and the command's output."""
    made = torch.jit.script(model.eval()) if scripted else torch.jit.trace(model.eval(), sample)
    made.save(tmp_path / "in.pt")
    files = [str(tmp_path / name) for name in ("in.pt", "out.pt")]
    torch.save(sample, tmp_path / "sample.pt")
    more = ["--sample", str(tmp_path / "sample.pt")] if sample else []
    assert main(["optimize", *files, *more]) == 0
    return [torch.jit.load(file) for file in files]


def fused_nodes(module):
    kinds = [n.kind() for n in module.graph.nodes()]
    return [k.removeprefix("fastact::") for k in kinds if k.startswith("fastact::")]


# 2^16 elements: on a CPU, fewer elements are left to PyTorch.
IMAGE, ROWS = (2, 4, 128, 64), (8192, 8)
CASES = [
    (PreActivation, IMAGE,
     ["fused_elu (batch norm)", "fused_celu (batch norm, residual)",
      "fused_softplus (residual, gate)", "fused_mish (residual)", "fused_gelu_tanh (residual)",
      "fused_log_sigmoid (gate)"], []),
    # Freezing folds batch norms into convolutions.
    (lambda: Block(nn.Mish()), IMAGE, ["fused_mish (residual)"], []),
    (SqueezeExcitation, IMAGE, [],
     ["relu (batch norm): was not faster on a CPU",
      "sigmoid (gate): its activation applies to a smaller tensor, which broadcasts"]),
    (Branch, IMAGE, ["fused_mish (batch norm)", "fused_tanh (residual)"],
     ["selu (residual, gate): it is in a branch or a loop, where shapes are unknown"]),
    (Written, IMAGE, ["fused_tanh (residual)"], ["mish (gate): a tensor is written to in between"]),
    (Weighted, IMAGE, ["fused_mish (residual)"], []),
    (lambda: Gated("unbind"), ROWS, [], ["silu (gate): was not faster on a CPU"]),
]  # fmt: skip


@pytest.mark.parametrize(("make", "shape", "replaced", "left"), CASES)
def test_what_is_fused(make, shape, replaced, left, tmp_path, capsys):
    model, x = make(), values(*shape)
    before, after = optimized(model, tmp_path, x)
    printed = capsys.readouterr().out.splitlines()
    assert sorted(printed) == sorted(replaced + [f"left: {line}" for line in left])
    for y in (x, -x, values(*shape)):
        with torch.no_grad():
            expected, found = before(y.clone()), after(y.clone())
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    graph = str(after.graph)
    assert graph.count("fastact::fused_") == len(replaced)


def test_bits(tmp_path):
    model, x = PreActivation().eval(), values(2, 4, 128, 64)
    with torch.no_grad():
        scale = model.norm1.weight * torch.rsqrt(model.norm1.running_var + model.norm1.eps)
        shift = torch.addcmul(model.norm1.bias, model.norm1.running_mean, scale, value=-1)
        expected = torch.ops.fastact.fused_elu(x, scale, shift, alpha=0.5, dim=1)
        alone = nn.Sequential(model.norm1, nn.ELU(0.5))
        _, after = optimized(alone, tmp_path, x, scripted=False)
        assert fused_nodes(after) == ["fused_elu"]
        assert_same_bits(after(x), expected)


def test_16_bits(half, tmp_path):
    model = nn.Sequential(norm(4), nn.Mish(), norm(4, affine=False), nn.SELU()).to(half)
    x = values(2, 4, 3, 3, dtype=half)
    before, after = optimized(model, tmp_path, x)
    assert fused_nodes(after) == ["fused_mish", "fused_selu"]
    assert after(x).dtype == half
    torch.testing.assert_close(after(x), before(x), rtol=2e-2, atol=2e-2)


def test_without_a_sample_sums_and_products_are_left(tmp_path, capsys):
    before, after = optimized(PreActivation(), tmp_path)
    lines = capsys.readouterr().out.splitlines()
    assert "fused_elu (batch norm)" in lines
    assert "left: mish (residual, gate): shapes are unknown without a sample" in lines
    x = values(2, 4, 3, 3)
    assert fused_nodes(after) == ["fused_elu"]
    torch.testing.assert_close(after(x), before(x), rtol=1e-4, atol=1e-4)


def test_several_types_are_left(tmp_path, capsys):
    class Sum(nn.Module):
        def forward(self, x, y):
            return F.mish(x + y)

    x = values(4, 1 << 14)
    before, after = optimized(Sum(), tmp_path, x, x.double())
    assert capsys.readouterr().out.strip() == (
        "left: mish (residual): its tensors differ in type or device"
    )
    assert_same_bits(after(x, x.double()), before(x, x.double()))


def test_an_archive_that_was_optimized_stays(tmp_path, capsys):
    x = values(2, 4, 3, 3)
    _, once = optimized(nn.Sequential(norm(4), nn.SELU()), tmp_path, x)
    capsys.readouterr()
    (tmp_path / "out.pt").rename(tmp_path / "once.pt")
    files = [str(tmp_path / name) for name in ("once.pt", "twice.pt")]
    assert main(["optimize", *files, "--shape", "2,4,3,3"]) == 0
    assert capsys.readouterr().out == ""
    twice = torch.jit.load(files[1])
    assert fused_nodes(twice) == ["fused_selu"]
    assert_same_bits(twice(x), once(x))


def test_after_replace(tmp_path):
    import fastact

    model = nn.Sequential(norm(4), nn.Softplus(2, 5), norm(4), nn.LogSigmoid()).eval()
    fastact.replace_(model)
    before, after = optimized(model, tmp_path)
    assert fused_nodes(after) == ["fused_softplus", "fused_log_sigmoid"]
    x = values(2, 4, 3, 3)
    torch.testing.assert_close(after(x), before(x))


def test_errors(tmp_path, capsys):
    archive, out = str(tmp_path / "in.pt"), tmp_path / "out.pt"
    torch.jit.script(nn.Sequential(norm(4), nn.SELU()).train()).save(archive)
    assert main(["optimize", archive, str(out)]) == 1
    message = capsys.readouterr().err
    assert (
        "fastact::optimize: expected a module in inference mode, but got one in training" in message
    )
    torch.jit.script(nn.Sequential(norm(4), nn.SELU()).eval()).save(archive)
    assert main(["optimize", archive, str(out), "--shape", "2,5,3,3"]) == 1
    assert "fastact: expected to optimize" in capsys.readouterr().err
    assert main(["optimize", str(tmp_path / "none.pt"), str(out)]) == 1
    assert "none.pt" in capsys.readouterr().err
    assert not out.exists()
    with pytest.raises(SystemExit):
        main(["optimize", archive, str(out), "--shape", "two"])
    assert "expected sizes, but got two" in capsys.readouterr().err


@pytest.mark.slow
def test_a_process_of_its_own(tmp_path):
    """Calls the command as a user does. The archive runs in a process that loads the library."""
    from support import package_path

    archive, out = tmp_path / "in.pt", tmp_path / "out.pt"
    torch.jit.script(nn.Sequential(norm(4), nn.SELU()).eval()).save(archive)
    run = subprocess.run(
        [sys.executable, "-m", "fastact", "optimize", archive, out, "--shape", "2,4,3,3"],
        cwd=package_path().parent, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert run.stdout == "fused_selu (batch norm)\n"
    assert fused_nodes(torch.jit.load(out)) == ["fused_selu"]
