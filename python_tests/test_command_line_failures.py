"""python -m fastact with failing streams, files, processes and environment variables. Each failure
gives one sentence and an exit code."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from fusable_models import norm
from support import library_path, package_path, run_python

import fastact  # isort: skip
from fastact import _library, _verify  # isort: skip
from fastact._digests import workers  # isort: skip
from fastact.__main__ import main  # isort: skip

pytestmark = [pytest.mark.newest, pytest.mark.filterwarnings("ignore:.*torch.jit")]
FULL = Path("/dev/full")
FULL_DISK = {"stdout": "/dev/full"}
needs_full = pytest.mark.skipif(not FULL.exists(), reason="no /dev/full")
LETTERS = os.fsdecode(b"a\xffb\nc")  # neither valid UTF-8 nor one line


# A fork server that has also imported what `info` imports. A fork ends as `python -m fastact` does.
SERVER = """
import os, resource, sys
import torch._inductor.lowering, torch.distributed.tensor
from fastact.__main__ import main
from fork_server import next_command

def redirect(number, target):
    if target == "closed":
        os.close(number)
        setattr(sys, "stdout" if number == 1 else "stderr", None)
        return
    reader, writer = os.pipe() if target == "no reader" else (None, os.open(target, os.O_RDWR))
    os.dup2(writer, number)
    if reader is not None:
        os.close(reader)

order = next_command()
if order["limit"]:
    resource.setrlimit(resource.RLIMIT_FSIZE, (order["limit"], order["limit"]))
redirect(1, order["stdout"])
redirect(2, order["stderr"])
exec(order["before"])
sys.exit(main(order["arguments"]))
"""


@contextlib.contextmanager
def server(folder, **environment):
    """Yields command(*arguments), which returns the exit code, the output and the error lines.

    stdout and stderr: "closed", "no reader" or a file, by default one in `folder`. limit: bytes of
    the largest file that may be written. before: Python code that runs first.
    """
    path = os.pathsep.join((str(package_path().parent), str(Path(__file__).parent)))
    environment = {**os.environ, "PYTHONPATH": path, **environment}
    environment.pop("PYTHONUNBUFFERED", None)
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER], env=environment,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip

    def command(*arguments, limit=None, before="", **streams):
        files = {name: folder / name for name in ("stdout", "stderr")}
        for file in files.values():
            file.write_bytes(b"")
        order = {
            "arguments": list(map(str, arguments)), "limit": limit, "before": before,
            **{name: str(file) for name, file in files.items()}, **streams,
        }  # fmt: skip
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.flush()
        _, code = (int(process.stdout.readline()) for _ in ("process ID", "exit code"))
        return code, files["stdout"].read_text(), files["stderr"].read_text().splitlines()

    with process:
        yield command
        process.stdin.close()


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    with server(tmp_path_factory.mktemp("streams")) as command:
        yield command


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    path = tmp_path_factory.mktemp("archives") / "in.pt"
    torch.jit.script(nn.Sequential(norm(4), nn.SELU()).eval()).save(path)
    return path


# ---- Streams


@pytest.mark.slow
@needs_full
@pytest.mark.parametrize(
    "arguments", (["info"], ["bench", "--seconds", "0.1"], ["--help"]), ids=" ".join
)
def test_output_to_a_full_disk(command, arguments):
    code, _, errors = command(*arguments, **FULL_DISK)
    name = "fastact" if arguments == ["--help"] else f"fastact {arguments[0]}"
    sentence = f"{name}: expected to end its work, but got: [Errno 28] No space left on device"
    assert (code, errors) == (3, [sentence])


@pytest.mark.slow
@needs_full
def test_a_verdict_to_a_full_disk(command, tmp_path):
    """The exit code shows that the verdict was not written."""
    recorded = tmp_path / "recorded.json"
    recorded.write_text("[]")
    before = f"import fastact._verify as v, pathlib; v.RECORDED = pathlib.Path({str(recorded)!r})"
    assert command("verify", "--device", "cpu", before=before, **FULL_DISK)[0] == 3


def test_a_reader_that_has_gone(command):
    code, _, errors = command("info", stdout="no reader")
    assert (code, errors) == (
        3,
        ["fastact info: expected to end its work, but got: [Errno 32] Broken pipe"],
    )


def test_closed_streams(command):
    assert command("info", stdout="closed") == (
        3, "", ["fastact: expected a standard output, but it is closed"],
    )  # fmt: skip
    code, out, _ = command("info", stderr="closed")
    assert code == 0 and out.startswith("fastact: ")


@needs_full
def test_a_sentence_that_cannot_be_written_leaves_the_exit_code(command):
    assert command("optimize", "none", "out", stderr="/dev/full")[0] == 1
    assert command("info", stderr="/dev/full", **FULL_DISK)[0] == 3


# ---- The environment


@pytest.mark.slow
def test_settings_that_are_no_text(tmp_path):
    settings = dict.fromkeys(
        ("FASTACT_CPU_ISA", "FASTACT_CUDA_MATH", "FASTACT_HUGE_PAGES"), LETTERS
    )
    with server(tmp_path, **settings) as command:
        code, out, errors = command("info")
        lines = (line for line in out.splitlines() if "cpu instruction set in use" in line)
        sentence = next(lines).partition("none (")[2].removesuffix(")")
        assert sentence.startswith("fastact: expected FASTACT_CPU_ISA to be baseline")
        assert sentence.endswith(r"but got a\xffb\x0ac") and (code, errors) == (0, [])
        code, _, errors = command("bench", "--seconds", "0.1")
        assert (code, errors) == (3, [sentence])
        code, _, errors = command("verify", "--device", "cpu")
    assert code == 3 and errors[-1] == sentence
    assert not [line for line in errors[:-1] if line and not line.startswith("cpu: ")]


def test_an_error_of_the_library_is_text():
    """This also holds without the package. torch cannot decode bytes that are not text."""
    script = """
import os, torch
torch.ops.load_library(os.environ["FASTACT_LIBRARY"])
try:
    torch.ops.fastact.relu(torch.ones(3))
except RuntimeError as error:
    print(str(error).splitlines()[0])
print(torch.ops.fastact.build_info().count("\\n") < 12)
"""
    found = run_python("-c", script, environment={"FASTACT_CPU_ISA": LETTERS})
    sentence, is_short = found.splitlines()
    assert sentence.endswith(r"but got a\xffb\x0ac") and is_short == "True"


# ---- Files


def unusable(folder):
    """Makes unusable files. Returns their names, and names of a folder and of no file."""
    torch.save(torch.ones(2, 4, 3, 3), folder / "whole.pt")
    whole = (folder / "whole.pt").read_bytes()
    contents = {"cut": whole[: len(whole) // 2], "empty": b"", "other": b"\x80\x02other",
                "zeros": bytes(999)}  # fmt: skip
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    (folder / "folder").mkdir()
    return [*contents, "folder", "none", "a\udcff"]


def only_sentence(capsys):
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert captured.out == ""
    return line


def test_samples_that_are_none(tmp_path, archive, capsys):
    values = {"dict": {"a": 1}, "int": 5, "a tensor and": (torch.ones(2), 3), "None": None}
    for name, value in values.items():
        torch.save(value, tmp_path / name)
    for name in (*unusable(tmp_path), *values):
        sample, out = str(tmp_path / name), tmp_path / "out.pt"
        assert main(["optimize", str(archive), str(out), "--sample", sample]) == 1
        line = only_sentence(capsys)
        assert line.startswith("fastact optimize: expected ") and not out.exists()
        assert " to be a tensor or a tuple of tensors, as torch.save wrote it, but got" in line


def test_archives_that_are_none(tmp_path, capsys):
    for name in (*unusable(tmp_path), "whole.pt"):
        out = tmp_path / "out.pt"
        assert main(["optimize", str(tmp_path / name), str(out), "--shape", "2,4,3,3"]) == 1
        assert only_sentence(capsys).startswith("fastact: expected to optimize ")
        assert not out.exists()


@needs_full
def test_outputs_that_cannot_be_written(tmp_path, archive, capsys):
    for out, reason in (
        (FULL, "No space left on device"),
        (tmp_path, "Is a directory"),
        (tmp_path / "none" / "out.pt", "No such file or directory"),
    ):
        assert main(["optimize", str(archive), str(out), "--shape", "2,4,3,3"]) == 1
        line = only_sentence(capsys)
        assert line.startswith("fastact: expected to optimize ") and line.endswith(reason), line
    assert not list(tmp_path.iterdir()) and FULL.is_char_device()


def test_an_output_is_replaced_as_a_whole(command, tmp_path, archive):
    """If the new archive cannot be written, the old file stays: it may be the input."""
    same, link = tmp_path / "same.pt", tmp_path / "link.pt"
    before = archive.read_bytes()
    same.write_bytes(before)
    same.chmod(0o640)
    link.symlink_to(same)
    arguments = ["optimize", same, link, "--shape", "2,4,128,128"]
    code, _, errors = command(*arguments, limit=1024)
    assert code == 1 and errors[-1].endswith("File too large"), errors
    assert same.read_bytes() == before
    code, out, _ = command(*arguments)
    assert (code, out) == (0, "fused_selu (batch norm)\n")
    assert same.read_bytes() != before and same.stat().st_mode & 0o777 == 0o640
    assert link.is_symlink() and sorted(tmp_path.iterdir()) == [link, same]


@pytest.mark.parametrize("content", (None, b"", b"[{", b"\xff\xfe"))
def test_digests_that_are_none(tmp_path, monkeypatch, capsys, content):
    path = tmp_path / "recorded.json"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setattr(_verify, "RECORDED", path)
    assert main(["verify", "--device", "cpu"]) == 3
    assert only_sentence(capsys).startswith(f"fastact: expected the digests in {path}, but got: ")


@pytest.mark.slow
def test_a_library_that_was_cut_off(tmp_path):
    """The dynamic linker would map the truncated file, and the process would die."""
    script = """
import pathlib, sys
from fastact import _library
for name in sys.argv[2:]:
    path, whole = pathlib.Path(sys.argv[1]), pathlib.Path(name).read_bytes()
    for size in (0, 10, 70, 5000, len(whole) // 2, len(whole) * 9 // 10):
        path.write_bytes(whole[:size])
        try:
            _library.open_library(path)
        except ImportError as error:
            print(error)
    path.write_bytes(whole)
    _library._check_whole(path)
"""
    path, libraries = tmp_path / "cut.so", list(package_path().rglob("*.so"))
    package = {"PYTHONPATH": str(package_path().parent)}
    lines = run_python("-c", script, path, *libraries, environment=package).splitlines()
    assert len(lines) == 6 * len(libraries) > 0
    assert all(line.startswith(f"fastact: expected {path} to ") for line in lines), lines


def test_libraries_beside_the_library_are_whole(tmp_path, monkeypatch):
    """The dynamic linker maps these libraries, too."""
    part = tmp_path / "libother.so"
    part.write_bytes(library_path().read_bytes()[:5000])
    monkeypatch.setattr(_library, "_FOLDER", tmp_path)
    monkeypatch.setattr(_library, "_find", lambda version: Path(fastact.library_path))
    monkeypatch.setattr(_library.torch.ops, "fastact", object())
    with pytest.raises(
        ImportError, match=f"expected {part} to have at least .* bytes, but got 5,000"
    ):
        _library.load()


# ---- Processes


@pytest.fixture
def interruptible():
    """Processes that a shell starts in the background ignore SIGINT, and so do their children."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def children(process):
    listing = Path(f"/proc/{process}/task/{process}/children")
    return [int(child) for child in listing.read_text().split()]


@pytest.mark.slow
@pytest.mark.parametrize("end", ("killed", "interrupted"))
def test_verify_ends_with_its_processes(end, interruptible):
    """One process is killed, as by the out-of-memory killer, or the whole group is interrupted."""
    verify = subprocess.Popen(
        [sys.executable, "-m", "fastact", "verify", "--device", "cpu", "--workers", "2"],
        env={**os.environ, "PYTHONPATH": str(package_path().parent)}, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        while len(started := children(verify.pid)) < 2 and verify.poll() is None:
            time.sleep(0.01)
        if end == "killed":
            os.kill(started[0], signal.SIGKILL)
        else:
            os.killpg(verify.pid, signal.SIGINT)
        # communicate() returns when all processes have closed their streams.
        _, errors = verify.communicate(timeout=120)
    finally:
        if verify.poll() is None:
            os.killpg(verify.pid, signal.SIGKILL)
    sentences = [line for line in errors.splitlines() if line and not line.startswith("cpu: ")]
    if end == "killed":
        (sentence,) = sentences
        assert sentence.startswith("fastact: expected 2 worker processes to finish, but one was")
        assert verify.returncode == 3
    else:
        assert (verify.returncode, sentences) == (130, ["interrupted"])


def test_pieces_come_in_order_and_interrupts_wait(interruptible):
    assert list(workers.each(lambda x: x * x, range(100), 2, chunk=7)) == [
        x * x for x in range(100)
    ]
    after = []
    with pytest.raises(KeyboardInterrupt), workers._without_interrupts():
        signal.raise_signal(signal.SIGINT)
        after.append(True)
    assert after and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    for broken in (
        workers.each(lambda x: 1 / x, [1, 0], 2),
        workers.each(lambda x: 1 / x, [1, 0], 1),
    ):
        with pytest.raises(ZeroDivisionError):
            list(broken)
