"""Error messages of scripts/build/setup.sh and CMake: one sentence that says what to do."""

import contextlib
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support import REPOSITORY

pytestmark = pytest.mark.kernels

SETUP = REPOSITORY / "scripts" / "build" / "setup.sh"
TOOLS = [
    "awk",
    "bash",
    "cat",
    "df",
    "dirname",
    "env",
    "grep",
    "head",
    "mkdir",
    "rm",
    "rmdir",
    "sh",
    "tee",
]
# Fakes the Python of an existing environment. Its pip uses another index and fails.
FAILING = """#!/bin/sh
case "$*" in
  "-c import sys; print"*) echo 3.11 ;;
  "-m pip config list") echo "global.index-url='https://example.org'" ;;
  "-m pip install"*) cat "{words}"; exit 1 ;;
esac
"""


@pytest.fixture
def tools(tmp_path):
    """Returns a folder with the programs that the script calls, without a compiler."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in TOOLS:
        if not (path := shutil.which(name)):
            pytest.skip(f"no {name}")
        (folder / name).symlink_to(path)
    return folder


def program(path, text):
    path.write_text(text)
    path.chmod(0o755)
    return path


def set_up(folder, tools, torch="2.15.0", **environment):
    """Runs setup.sh, and returns its one line on stderr."""
    where = {"PATH": str(tools), "PYTHON": sys.executable, "HOME": str(folder)} | environment
    done = subprocess.run(
        [SETUP, folder / "venv", torch],
        env={name: str(value) for name, value in where.items()},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    (line,) = done.stderr.splitlines()
    return line


def test_no_compiler(tmp_path, tools):
    needed = "setup: GCC 11 or newer is needed, but "
    assert set_up(tmp_path, tools) == needed + "no C++ compiler was found."
    old = program(tools / "c++", '#!/bin/sh\n[ "$1" = --version ] && echo "old 1.0" || exit 1\n')
    assert set_up(tmp_path, tools) == needed + f"{old} does not compile C++20: old 1.0"


def test_no_python(tmp_path, tools):
    needed = "setup: python3 (3.11 or newer) is needed, but "
    broken = program(tmp_path / "broken", "#!/bin/sh\nexit 1\n")
    another = "to use another, run: make PYTHON=/path/to/python3"
    assert set_up(tmp_path, tools, PYTHON=broken) == f"{needed}{broken} does not run; {another}"
    line = set_up(tmp_path, tools, PYTHON="python9")
    assert line == f"{needed}'python9' was not found; {another}"
    line = set_up(tmp_path, tools, torch="2.14.1", PYTHON="python9")
    assert line == f"{needed.replace('3.11', '3.10')}'python9' was not found; {another}"


def test_a_disk_without_room_is_told_of_before_anything_is_downloaded(tmp_path, tools):
    program(tools / "c++", "#!/bin/sh\nexit 0\n")
    (tools / "df").unlink()
    program(tools / "df", "#!/bin/sh\necho head; echo disk 9 9 1234567 1% /\n")
    venv = tmp_path / "venv"
    assert set_up(tmp_path, tools) == (
        f"setup: the disk has 1234 MB free at {venv}, but the environment takes 5.7 GB; "
        "free some space, or put the environment elsewhere: make VENV=/path"
    )
    assert not venv.exists()


@pytest.mark.parametrize(
    "words, sentence",
    (
        ("ERROR: Could not install packages: [Errno 28] No space left on device\n\n",
         "the disk is full; the environment takes 5.7 GB, and 0.5 GB more with nvcc; "
         "free some space, and run the command again."),
        ("WARNING: Retrying after NewConnectionError('...')\nERROR: No matching distribution\n",
         "the Python package index cannot be reached; is the network up?"),
        ("ERROR: one\nERROR: No matching distribution found for torch==2.15.0\nmore\n",
         "pip could not install: No matching distribution found for torch==2.15.0"),
    ),
)  # fmt: skip
def test_pip_fails(tmp_path, tools, words, sentence):
    program(tools / "c++", "#!/bin/sh\nexit 0\n")
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / ".fastact-made").touch()
    (tmp_path / "words").write_text(words)
    program(venv / "bin" / "python", FAILING.format(words=tmp_path / "words"))
    assert set_up(tmp_path, tools) == f"setup: {sentence}"


def test_cmake_without_a_compiler(tmp_path, tools):
    """Tests the message that `pip install .` shows."""
    cmake = shutil.which("cmake", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if not cmake:
        pytest.skip("no cmake")
    program(tools / "make", "#!/bin/sh\nexit 1\n")
    done = subprocess.run(
        [cmake, "-S", REPOSITORY, "-B", tmp_path / "build", "-G", "Unix Makefiles"],
        env={"PATH": str(tools)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert " ".join(done.stderr.split()).endswith(
        "FastAct: GCC 11 or newer is needed, but no C++ compiler was found: "
        "install one, or name it by the environment variable CXX."
    ), done.stderr


PROBE = """
set(SKBUILD {skbuild})
set(FASTACT_WITH_CUDA {requested})
set(FASTACT_WITH_TORCH ON)
set(LibTorch_VERSION 2.15.0)
set(PROJECT_BINARY_DIR "${{CMAKE_CURRENT_LIST_DIR}}")
list(APPEND CMAKE_MODULE_PATH "{modules}")
include(FastActCuda)
"""


@pytest.mark.parametrize(
    ("skbuild", "requested", "shown"),
    (
        ("2", "AUTO", "FastAct: building for the CPU only: torch 2.15.0 is CPU-only"),
        ("2", "OFF", ""),  # the user requested it
        ("OFF", "AUTO", ""),  # CMake shows its own output
    ),
)
def test_pip_shows_why_a_wheel_is_for_the_cpu_only(tmp_path, skbuild, requested, shown):
    """The message goes to the terminal, because pip hides the output of the build."""
    cmake = shutil.which("cmake", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if not cmake:
        pytest.skip("no cmake")
    script = tmp_path / "probe.cmake"
    script.write_text(
        PROBE.format(
            skbuild=skbuild, requested=requested, modules=(REPOSITORY / "cmake").as_posix()
        )
    )
    child, terminal = pty.fork()
    if child == 0:
        os.execv("/bin/sh", ["sh", "-c", '"$0" -P "$1" >/dev/null 2>&1', cmake, str(script)])
    output = b""
    with contextlib.suppress(OSError):  # Linux raises it when no process uses the terminal any more
        while chunk := os.read(terminal, 4096):
            output += chunk
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert output.decode().strip() == shown
