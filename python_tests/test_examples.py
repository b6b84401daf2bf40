"""Runs every example as examples/README.md describes, with small sizes and an installed FastAct.

FASTACT_PREFIX names the installed FastAct. Without it, the build folder of the library under test
is installed into a temporary folder.
"""

import contextlib
import io
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from torch import nn

from op_table import OPERATORS
from support import library_path, package_path

import fastact  # isort: skip
from fastact.__main__ import main  # isort: skip

# The consumers in cpp_tests/ build C++ programs with every torch.
pytestmark = [pytest.mark.newest, pytest.mark.slow]

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
ENVIRONMENT = {
    **os.environ,
    # OpenMP threads wait without spinning, because other tests or builds may use the cores.
    "OMP_WAIT_POLICY": "passive",
    "PATH": str(Path(sys.executable).parent) + os.pathsep + os.environ.get("PATH", ""),
}


def run(*command, code=0):
    """Runs a command. Fails with its output if the exit code is not `code`."""
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, env=ENVIRONMENT
    )
    assert done.returncode == code, f"{done.args}\n{done.stdout}\n{done.stderr}"
    return done


def python(*command, code=0):
    return run(sys.executable, *command, code=code)


def in_this_process(script, *arguments, code=0):
    """Runs a script in this process, which saves the seconds of importing torch."""
    known, threads, path, argv = set(sys.modules), torch.get_num_threads(), sys.path[:], sys.argv
    out, errors = io.StringIO(), io.StringIO()
    sys.path.insert(0, str(script.parent))
    sys.argv = [str(word) for word in (script, *arguments)]
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(errors),
            pytest.raises(SystemExit) as ended,
        ):
            runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.path, sys.argv = path, argv
        torch.set_num_threads(threads)
        for name in set(sys.modules) - known:
            if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(EXAMPLES)):
                del sys.modules[name]
    done = subprocess.CompletedProcess(script, ended.value.code, out.getvalue(), errors.getvalue())
    assert done.returncode == code, done
    return done


def assert_one_sentence(done, *words):
    """Asserts that stderr is one line that contains all of `words`, and none of PyTorch's
    internals."""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert done.stdout == ""
    for word in words:
        assert word in lines[0], lines[0]
    assert not re.search(r"Exception raised from|frame #|Traceback", lines[0])


@pytest.fixture(scope="session")
def prefix(tmp_path_factory):
    if "FASTACT_PREFIX" in os.environ:
        return Path(os.environ["FASTACT_PREFIX"]).resolve()
    folder = tmp_path_factory.mktemp("prefix")
    run("cmake", "--install", library_path().resolve().parents[1], "--prefix", folder)
    return folder


@pytest.fixture(scope="session")
def library(prefix):
    return prefix / "lib" / "libfastact.so"


@pytest.fixture(scope="session")
def build(prefix, tmp_path_factory):
    """Builds the C++ example of a folder as a user would, and returns the build folder. Without
    optimization, because torch's headers then compile in less time."""

    def build(example):
        folder = tmp_path_factory.mktemp(example)
        run(
            *("cmake", "-S", EXAMPLES / example, "-B", folder),
            *(f"-DCMAKE_PREFIX_PATH={prefix}", f"-DPython3_EXECUTABLE={sys.executable}"),
            "-DCMAKE_CXX_FLAGS_RELEASE=-O0",
        )
        run("cmake", "--build", folder)
        return folder

    return build


# --- With the package ---


@pytest.fixture
def package(monkeypatch):
    """Puts the package on the examples' path, because it need not be installed."""
    monkeypatch.setitem(ENVIRONMENT, "PYTHONPATH", str(package_path().parent))


def test_python(package):
    printed = python(EXAMPLES / "python" / "activations.py").stdout
    numbers = r"-0\.086\d+, -0\.082\d+, 0\.5, 1\.082\d+, 1\.086\d+"
    assert re.search(rf"^gradient \[{numbers}\]$", printed, re.M)
    assert re.search(r"^network \[(-?\d\S+, ){2}-?\d\S+\]$", printed, re.M)


def test_existing_model(package):
    lines = python(EXAMPLES / "existing_model" / "fuse.py").stdout.splitlines()
    assert lines[:3] == [
        "1: gelu_tanh",
        "2 (fuse.py:15): mish",
        "4: prelu",
    ]
    assert len(lines) == 4


def test_log_probabilities(package):
    sizes = ("--batch", 2, "--length", 9, "--vocabulary", 100)
    done = python(EXAMPLES / "log_probabilities" / "score.py", "--device", "cpu", *sizes)
    lines = done.stdout.splitlines()[3:]
    cells = {line[:30].strip(): line[30:].split() for line in lines}
    for name in ("RMSNorm", "softmax", "SiLU", "log-softmax"):
        _, _, *ours = cells[name]
        assert ours == ["0", "0"], done.stdout
    assert len(cells["log-probabilities of the model"]) == 4


def test_every_module_can_be_replaced():
    """Uses settings other than the defaults, and one module in two places. test_norms.py,
    test_rrelu.py and test_cross_entropy.py test what stays PyTorch's."""
    settings = {"Threshold": (0.5, 0.25), "PReLU": (4,), "CELU": (0.7,), "GELU": ("tanh",)}
    settings["GLU"] = (1,)
    left = ("RReLU", "CrossEntropyLoss")
    kinds = [
        kind
        for kind in fastact.nn.__all__
        if hasattr(nn, kind) and kind not in left and "Norm" not in kind
    ]
    both = [[getattr(n, kind)(*settings.get(kind, ())) for kind in kinds] for n in (nn, fastact.nn)]
    model = nn.ModuleList(both[0] + [both[0][0]])
    fastact.replace_(model)
    x = torch.randn(3, 4, 5)
    for replaced, ours in zip(model, both[1]):
        assert type(replaced) is type(ours) and repr(replaced) == repr(ours)
        assert torch.equal(replaced(x), ours(x)), ours
    # Plus prelu, GLU and four modules of row operators, minus three that PyTorch lacks.
    assert len(kinds) == len(OPERATORS) + 6 - 3


def torchrun(processes, *command, code=0):
    return python(
        "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", processes, *command,
        code=code,
    )  # fmt: skip


@pytest.mark.slow
def test_distributed(package, tmp_path):
    """A process dies. The run is resumed on another mesh, with another kind of parallelism."""
    script = (EXAMPLES / "distributed" / "train.py", "--model", "swiglu", "--out", tmp_path)
    first = torchrun(2, *script, "--epochs", 2, "--die-in", 2, code=1)
    assert "from epoch 1\nepoch 1: loss" in first.stdout
    assert "rank 1 dies in epoch 2, as it was told" in first.stdout
    assert re.search(r"rank +: 1 \(local_rank: 1\)\n +exitcode +: 1 ", first.stderr)
    flags = ("--epochs", 2, "--data", "fsdp", "--tensor", 2)
    lines = torchrun(4, *script, *flags).stdout.splitlines()
    assert lines[0] == "swiglu on 2 (fsdp) x 2 (tensor) processes, gloo, from epoch 2"
    assert float(re.search(r"accuracy (.*)%", lines[2])[1]) > 80
    assert re.search(r"one process's, of [1-9]\d*: FastAct 0, PyTorch \d+$", lines[3])


def test_distributed_bits_in_uneven_parts(package, tmp_path):
    """Tests SELU in a tensor-parallel layer with 250 outputs on 3 processes."""
    script = (EXAMPLES / "distributed" / "train.py", "--out", tmp_path)
    lines = torchrun(3, *script, "--epochs", 1, "--tensor", 3).stdout.splitlines()
    assert lines[0] == "selu on 1 (ddp) x 3 (tensor) processes, gloo, from epoch 1"
    assert re.search(r"one process's, of [1-9]\d*: FastAct 0, PyTorch \d+$", lines[3])


def test_the_page_on_many_gpus(package, tmp_path):
    page = (EXAMPLES.parent / "docs" / "guides" / "distributed.md").read_text()
    script = tmp_path / "this_file.py"
    block = re.search(r"```python\n(.*?)```", page, re.DOTALL)[1]
    # With torch 2.11 a process that uses gloo may abort at its normal exit, with torch.relu, too.
    script.write_text(block + "import os; os._exit(0)\n")
    torchrun(4, script)


def test_aot_inductor(package, build, tmp_path):
    """The AOTInductor package gives the same bits in Python and C++. This one does not need
    FastAct."""
    archive = tmp_path / "network.pt2"
    in_python = python(EXAMPLES / "aot_inductor" / "export.py", archive).stdout
    in_cpp = run(build("aot_inductor") / "run_package", archive).stdout
    numbers = [[float.fromhex(line) for line in text.split()] for text in (in_python, in_cpp)]
    assert len(numbers[0]) == 8 and numbers[0] == numbers[1]
    if torch.backends.cpu.get_cpu_capability() == "DEFAULT":
        return  # without AVX2, the AOTInductor package calls the operator
    script = f"""
import torch
network = torch._inductor.aoti_load_package({str(archive)!r})
for number in network(torch.linspace(-2, 2, 16).reshape(2, 8)).flatten().tolist():
    print(number.hex())
"""
    assert python("-c", script).stdout == in_python


# --- Three ways to load ---


def test_load_python(library):
    printed = python(EXAMPLES / "load_python" / "load.py", library).stdout
    assert re.search(r"selu +\[-1\.52\d+, -0\.69\d+, 0\.0, 0\.52\d+, 2\.10\d+\]", printed)
    assert re.search(r"gradient \[0\.23\d+, 1\.06\d+, 1\.75\d+, 1\.05\d+, 1\.05\d+\]", printed)


def test_load_cpp(build):
    printed = run(build("load_cpp") / "load_cpp").stdout
    for number in ("-1.5202", "-1.1113", "1.0507", "2.1014", torch.__version__.split("+")[0]):
        assert number in printed


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_load_torchscript(library, build, tmp_path, capsys):
    """Tests also an archive of PyTorch's operators into which fused operators were inserted."""
    archive, fused = tmp_path / "network.pt", tmp_path / "fused.pt"
    python(EXAMPLES / "load_torchscript" / "save.py", library, archive)
    program = build("load_torchscript") / "load_torchscript"
    printed = run(program, archive).stdout
    for number in ("-1.5202", "-1.1113", "1.0507", "2.1014"):
        assert number in printed

    norm = nn.BatchNorm1d(1, eps=1e-30).eval()  # 1 + 1e-30 is 1 in float32
    network = nn.Sequential(nn.Unflatten(0, (5, 1)), norm, nn.SELU()).eval()
    torch.jit.trace(network, torch.zeros(5)).save(archive)
    assert main(["optimize", str(archive), str(fused), "--shape", "5"]) == 0
    assert capsys.readouterr().out == "fused_selu (batch norm)\n"
    printed = run(program, fused).stdout
    for number in ("-1.5202", "-1.1113", "1.0507", "2.1014"):
        assert number in printed
    assert "fastact::fused_selu" in str(torch.jit.load(fused).graph)


# --- An archive with PyTorch's operators only ---


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_override(prefix, build, tmp_path):
    """The archive gives FastAct's bits if the library is opened, and if it is preloaded."""
    archive = tmp_path / "network.pt"
    python("-W", "ignore", EXAMPLES / "override" / "save.py", archive)
    program, library = build("override") / "run_archive", prefix / "lib" / "libfastact_aten.so"
    plain = run(program, archive)
    opened = run(program, archive, "--override", library)
    preloaded = run("env", f"LD_PRELOAD={library}", program, archive)
    assert opened.stdout == preloaded.stdout != plain.stdout
    assert (opened.stderr, preloaded.stderr) == ("", "")

    network = torch.jit.load(archive)
    with torch.no_grad():
        linear = [layer for layer in network.children() if hasattr(layer, "weight")]
        ops = torch.ops.fastact
        y = ops.selu(linear[0](torch.linspace(-4, 4, 4096).reshape(64, 64)))
        y = ops.tanh(ops.gelu(ops.mish(linear[1](y))))
    assert [float.fromhex(line) for line in opened.stdout.split()] == y.flatten().tolist()


def test_override_of_a_server(prefix):
    """Tests a server that is not linked to torch and opens it later, as Python does."""
    library = prefix / "lib" / "libfastact_aten.so"
    torch_folder = Path(torch.__file__).parent / "lib"
    script = "import torch; print(torch.ops.fastact_aten.is_overriding())"
    command = ("env", f"LD_PRELOAD={library}", sys.executable, "-c", script)
    done = run("env", f"LD_LIBRARY_PATH={torch_folder}", *command)
    assert (done.stdout, done.stderr) == ("True\n", "")
    assert "libtorch_cpu.so: cannot open shared object file" in run(*command, code=127).stderr
    missing = run("env", "LD_PRELOAD=/missing/libfastact_aten.so", "echo", "runs")
    assert missing.stdout == "runs\n" and "cannot be preloaded" in missing.stderr


# --- digits ---


@pytest.fixture(scope="session")
def demo(prefix, tmp_path_factory, worker_id):
    """Runs the demo with short training, once for all processes of pytest-xdist. Returns its
    output, its archives and its app. Uses two threads and batches of 90, because the app's defaults
    are one thread and batches of 64."""
    folder = tmp_path_factory.getbasetemp()
    folder = (folder if worker_id == "master" else folder.parent) / "digits"
    output = folder / "output.txt"
    with FileLock(f"{folder}.lock"):
        if not output.exists():
            done = python(
                *(EXAMPLES / "digits" / "demo.py", "--prefix", prefix, "--build-dir", folder),
                *("--epochs", 4, "--threads", 2, "--batch", 90),
            )
            output.write_text(done.stdout)
    return output.read_text(), folder / "archives", folder / "app" / "digits"


def table_rows(printed):
    """Returns (model, device, accuracy, equality, FastAct, PyTorch) for each row of the app's
    table."""
    row = re.compile(
        r"^(selu|relu) +(cpu|cuda) +([\d.]+)% +(.+?) +([\d.]+) us +([\d.]+) us +[\d.]+x$", re.M
    )
    return row.findall(printed)


def test_digits_demo(demo):
    printed, _, _ = demo
    rows = table_rows(printed)
    assert "batches of 90, CPU threads: 2" in printed
    assert [row[0] for row in rows if row[1] == "cpu"] == ["selu", "relu"]
    for _, _, accuracy, equality, ours, theirs in rows:
        assert float(accuracy) > 93
        assert equality == "bit for bit"
        assert min(float(ours), float(theirs)) > 0


def test_digits_demo_with_an_override(demo):
    """With the override, the archives of PyTorch's operators give FastAct's logits."""
    printed, _, _ = demo
    row = re.compile(
        r"^(selu|relu)\.torch\.pt +cpu +([\d.]+)% +([\d.]+)% +(equal|other), (equal|other) +"
        r"[\d.]+ us +[\d.]+ us +[\d.]+x$", re.M,
    )  # fmt: skip
    rows = row.findall(printed)
    assert [(name, before, after) for name, _, _, before, after in rows] == [
        ("selu", "other", "equal"),
        ("relu", "equal", "equal"),
    ]
    assert all(float(accuracy) > 93 for r in rows for accuracy in r[1:3])


def test_digits_demo_runs_on_the_gpu_too(demo, cuda):
    printed, _, _ = demo
    assert [row[0] for row in table_rows(printed) if row[1] == "cuda"] == ["selu", "relu"]


def test_digits_app_flags(demo):
    _, archives, app = demo
    printed = run(
        *(app, "--model", archives / "selu.pt", f"--data={archives / 'heldout.pt'}"),
        *("--batch", 1000, "--device=cpu"),
    ).stdout
    assert "batches of 360" in printed
    (row,) = table_rows(printed)
    assert row[:2] == ("selu", "cpu")
    # Another batch may change how matrix products are computed, but only their rounding.
    assert row[3] == "bit for bit" or re.fullmatch(r"within \de-0[5-9]", row[3])
    assert "Python ran batches of 90" in printed


def test_digits_app_help(demo):
    _, _, app = demo
    done = run(app, "--help")
    for flag in ("--model", "--data", "--device", "--batch", "--library", "--override"):
        assert flag in done.stdout
    assert done.stderr == ""


@pytest.fixture(scope="session")
def wrong_files(demo, tmp_path_factory):
    """Returns a folder with invalid files, and a network without its twin."""
    _, archives, _ = demo
    folder = tmp_path_factory.mktemp("wrong")
    (folder / "text").write_text("This is no archive.\n")
    (folder / "empty").write_text("")
    (folder / "selu.pt").write_bytes((archives / "selu.pt").read_bytes())
    torch.jit.script(torch.nn.Linear(64, 10)).save(folder / "other.pt")
    wide = torch.nn.Linear(65, 10)
    wide.name = "selu"
    for name in ("wide.pt", "wide.torch.pt"):
        torch.jit.script(wide).save(folder / name)
    return folder


# In the flags, A is the folder of archives, T the folder of invalid files, C a library other than
# FastAct.
@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], ["--model"]),
        (["--bogus", "1"], ["--bogus", "--help"]),
        (["selu.pt"], ["selu.pt", "--help"]),
        (["--model"], ["--model", "needs a value"]),
        (["--model", "A/selu.pt", "--batch", "0"], ["--batch", "'0'"]),
        (["--model", "A/selu.pt", "--batch", "many"], ["--batch", "'many'"]),
        (["--model", "A/selu.pt", "--device", "tpu"], ["cpu or cuda", "'tpu'"]),
        (["--model", "A/missing.pt"], ["missing.pt", "does not exist"]),
        (["--model", "A"], ["is not a file"]),
        (["--model", "A/selu.pt", "--data", "A/missing.pt"], ["missing.pt", "does not exist"]),
        (["--model", "A/selu.pt", "--data", "A/selu.pt"], ["selu.pt", "not the held-out data"]),
        (["--model", "A/selu.pt", "--data", "T/text"], ["text", "not the held-out data"]),
        (["--model", "A/selu.pt", "--data", "T/empty"], ["empty", "not the held-out data"]),
        (["--model", "T/text", "--data", "A/heldout.pt"], ["text", "not a TorchScript archive"]),
        (["--model", "T/empty", "--data", "A/heldout.pt"], ["empty", "not a TorchScript archive"]),
        (["--model", "A/heldout.pt"], ["heldout.pt", "not a TorchScript archive"]),
        (["--model", "T/other.pt", "--data", "A/heldout.pt"], ["other.pt", "not a network of"]),
        (["--model", "T/wide.pt", "--data", "A/heldout.pt"], ["wide.pt", "cannot classify"]),
        (["--model", "T/selu.pt", "--data", "A/heldout.pt"], ["selu.torch.pt", "does not exist"]),
        (["--model", "A/selu.pt", "--library", "A/lib.so"], ["lib.so", "does not exist"]),
        (
            ["--model", "A/selu.pt", "--library", "T/text"],
            ["library cannot be loaded", "file too short"],
        ),
        (["--model", "A/selu.pt", "--library", "C"], ["is not the FastAct library"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_digits_app_errors(demo, wrong_files, flags, words):
    _, archives, app = demo
    places = {
        "A": str(archives),
        "T": str(wrong_files),
        "C": str(Path(torch.__file__).parent / "lib" / "libc10.so"),
    }
    flags = [re.sub(r"^[ATC](?=/|$)", lambda m: places[m.group()], flag) for flag in flags]
    done = run(app, *flags, code=1)
    progress = ("loading ", "classifying ")
    done.stderr = "\n".join(x for x in done.stderr.splitlines() if not x.startswith(progress))
    assert_one_sentence(done, "digits: ", *words)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_digits_without_gpu(demo, prefix):
    _, archives, app = demo
    done = run(app, "--model", archives / "selu.pt", "--device", "cuda", code=1)
    assert_one_sentence(done, "--device cuda", "no CUDA device")
    done = python(EXAMPLES / "digits" / "demo.py", "--prefix", prefix, "--device=cuda", code=1)
    assert_one_sentence(done, "--device cuda", "no CUDA device")


def test_digits_demo_without_fastact(tmp_path):
    arguments = (EXAMPLES / "digits" / "demo.py", "--prefix", tmp_path)
    done = in_this_process(*arguments, code=1)
    assert_one_sentence(done, "FastAct is not installed", str(tmp_path))
    library = tmp_path / "lib" / "libfastact.so"
    library.parent.mkdir()
    library.write_text("This is no library.\n")
    done = in_this_process(*arguments, code=1)
    assert_one_sentence(done, "FastAct cannot be loaded beside torch", str(library))


# --- kernelbench ---


def test_kernelbench(library, device):
    """The example measures the error of every activation."""
    problems = [argument for act in OPERATORS for argument in ("--problem", act.name)]
    # The comparison with a fast-math build uses the same library here: only its output is tested.
    done = python(
        *(EXAMPLES / "kernelbench" / "run.py", "--library", library),
        *("--device", device, "--rows", 1, "--fast-math-library", library, *problems),
    )
    parts = {act.name: done.stdout.partition(f"\n{act.name}, float32")[2] for act in OPERATORS}
    assert all(parts.values())
    for variant in ("forward", "in place", "training"):
        assert re.search(rf"^  {variant} +[\d.]+ ms +(-|[\d.]+ ms) +[\d.]+ ms +", done.stdout, re.M)
    for name, error in (("selu", r"0\.500"), ("relu", r"0\.000")):
        (first, *_) = re.findall(r"value: largest error in ULP: .*", parts[name])
        assert re.search(f"FastAct {error}", first)
    assert "built with FASTACT_FAST_MATH" in done.stdout


def test_kernelbench_errors(library, tmp_path):
    script = EXAMPLES / "kernelbench" / "run.py"
    done = in_this_process(script, "--library", tmp_path / "missing.so", code=1)
    assert_one_sentence(done, "kernelbench: ", "missing.so", "does not exist")
    if not torch.cuda.is_available():
        done = in_this_process(script, "--library", library, "--device", "cuda", code=1)
        assert_one_sentence(done, "--device cuda", "no CUDA device")
