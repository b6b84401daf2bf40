"""python -m fastact: info, verify and bench, and messages for wrong command lines."""

import json
import re
import subprocess
import sys

import pytest
import torch

from op_table import OPERATORS
from support import REPOSITORY, build_info, package_path

from fastact import __main__ as command_line  # isort: skip
from fastact import _bench, _info, _verify  # isort: skip
from fastact._digests.rows import ROWS  # isort: skip

import fastact  # isort: skip

pytestmark = pytest.mark.newest


def recorded(*names):
    return [row for row in json.loads(_verify.RECORDED.read_text()) if row["name"] in names]


def few(row):
    """Returns only a row's 16-bit value digests, which take milliseconds."""
    digests = {t: {"value": row["digests"][t]["value"]} for t in ("bfloat16", "float16")}
    return row | {"digests": digests}


@pytest.fixture
def only_values(monkeypatch):
    """Makes verify compute only the kernels in the record."""
    every = _verify.activation_kernels
    monkeypatch.setattr(
        _verify,
        "activation_kernels",
        lambda *arguments: (kernel for kernel in every(*arguments) if kernel.form == "value"),
    )


def test_info_says_what_there_is(capsys):
    assert command_line.main(["info"]) == 0
    found = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    assert found["fastact"].startswith(fastact.__version__)
    assert found["library"] == fastact.library_path
    assert found["torch"].startswith(torch.__version__)
    for name in ("cpu instruction set in use", "cuda"):
        assert found[name] == build_info()[name]
    gpus = [name for name in found if re.fullmatch(r"gpu \d+", name)]
    assert len(gpus) == len(_info.gpus())
    fastact.show_config()
    assert capsys.readouterr().out.splitlines()[0] == f"fastact: {found['fastact']}"


def test_info_uses_each_gpu_so_that_it_has_checked_itself(cuda, capsys):
    assert command_line.main(["info"]) == 0
    assert "device 0" in capsys.readouterr().out


def test_every_digest_of_fixed_parameters_is_recorded():
    source = json.loads((REPOSITORY / "prove" / "digests.json").read_text())
    names = {act.name for act in OPERATORS if hasattr(torch.ops.fastact, act.name)}
    names |= {"prelu", *ROWS}
    expected = {
        (key, dtype, form, entry["part"])
        for key, dtypes in source.items()
        for dtype, forms in dtypes.items()
        for form, entry in forms.items()
        if key.split("-")[0] in names and not key.endswith("-drawn")
    }
    found = {
        (row["id"], dtype, form, digest)
        for row in recorded(*names)
        for dtype, forms in row["digests"].items()
        for form, digest in forms.items()
    }
    assert found == expected and len(found) > 100


def test_every_recorded_digest_is_computed():
    rows = recorded("elu", "prelu", "relu", "log_softmax")
    kernels = [kernel for kernel, _ in _verify._kernels(rows)]
    computed = {(kernel.name, str(kernel.dtype), kernel.form) for kernel in kernels}
    assert computed == {
        (row["id"], f"torch.{dtype}", form)
        for row in rows
        for dtype, forms in row["digests"].items()
        for form in forms
    }
    assert len(computed) == len(kernels)


def test_verify_is_silent_where_bits_are_equal(tmp_path, monkeypatch, only_values, capsys):
    path = tmp_path / "recorded.json"
    path.write_text(json.dumps([few(row) for row in recorded("relu", "selu", "elu")]))
    monkeypatch.setattr(_verify, "RECORDED", path)
    assert command_line.main(["verify", "--device", "cpu", "--workers", "1"]) == 0
    out = capsys.readouterr().out
    assert "10 digests of 655,360 results" in out and out.endswith("all equal\n")
    assert "DIFFER" not in out


def test_verify_fails_where_a_bit_differs(tmp_path, monkeypatch, only_values, capsys):
    row = few(*recorded("relu"))
    row["digests"]["float16"]["value"] = "0123456789abcdef"
    path = tmp_path / "recorded.json"
    path.write_text(json.dumps([row]))
    monkeypatch.setattr(_verify, "RECORDED", path)
    assert command_line.main(["verify", "--device", "cpu", "--workers", "1"]) == 1
    captured = capsys.readouterr()
    assert "DIFFERS: relu float16 value: expected 0123456789abcdef" in captured.out + captured.err
    assert captured.out.endswith("1 DIFFER\n")


def test_bench_prints_a_row_a_cell(capsys):
    assert _bench.run("cpu", seconds=0.01, sizes=(1 << 10,)) == 0
    out = capsys.readouterr().out
    for name in _bench.PYTORCH:
        for dtype in ("bfloat16", "float32"):
            assert re.search(rf"^{name} +{dtype} +1,024 .*% +[\d.]+ +[\d.]+$", out, re.MULTILINE)


@pytest.mark.parametrize("name", _bench.PYTORCH)
def test_bench_compares_what_is_the_same(name):
    x = torch.linspace(-6, 6, 999)
    ours = getattr(torch.ops.fastact, name)(x)
    torch.testing.assert_close(ours, _bench.PYTORCH[name](x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    (
        ([], "the following arguments are required: command"),
        (["sing"], "invalid choice: 'sing'"),
        (["verify", "--device", "tpu"], "argument --device: invalid choice: 'tpu'"),
        (["verify", "--workers", "0"], "argument --workers: expected more than 0, but got 0"),
        (["verify", "--workers", "two"], "argument --workers: invalid int value: 'two'"),
        (["bench", "--seconds", "-1"], "argument --seconds: expected more than 0, but got -1"),
        (["bench", "--seconds", "nan"], "argument --seconds: expected more than 0, but got nan"),
        (["info", "--device", "cpu"], "unrecognized arguments: --device cpu"),
    ),
)
def test_a_wrong_command_line_is_a_sentence_and_2(arguments, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        command_line.main(arguments)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_a_gpu_that_is_not_there_is_a_sentence_and_2(monkeypatch, capsys):
    monkeypatch.setattr(_info, "gpus", list)
    for command in ("verify", "bench"):
        with pytest.raises(SystemExit) as stopped:
            command_line.main([command, "--device", "cuda"])
        assert stopped.value.code == 2
        assert "expected a GPU that torch and this library can use" in capsys.readouterr().err


def test_an_interrupt_is_130(monkeypatch, capsys):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(_info, "text", interrupted)
    assert command_line.main(["info"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


@pytest.mark.slow
def test_runs_as_a_module(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "fastact", "info"],
        env={"PYTHONPATH": str(package_path().parent), "PATH": ""},
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"fastact: {fastact.__version__}")
