"""python() runs a program in a fork as in a new process."""

import pytest

from support import python, run_python

pytestmark = pytest.mark.newest

SCRIPT = """
import atexit, os, sys, torch
print(__name__, sys.argv[1:], os.environ["FASTACT_SETTING"], os.getcwd(), torch.ones(1).item())
print(next(path for path in sys.path if path), hasattr(torch.ops.fastact, "relu"))
atexit.register(print, "bye", flush=True)
sys.stdin.read()
sys.exit(int(sys.argv[-1]))
"""


@pytest.mark.parametrize("kind", ("code", "file", "module"))
def test_a_fork_is_like_a_process(tmp_path, kind):
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    program = {"code": ("-c", SCRIPT), "file": (file,), "module": ("-m", "script")}[kind]
    environment = {"FASTACT_SETTING": "1", "PYTHONPATH": str(tmp_path)}
    done = python(*program, "a", 3, environment=environment, cwd=tmp_path)
    assert done.stdout.splitlines() == [
        f"__main__ ['a', '3'] 1 {tmp_path} 1.0", f"{tmp_path} False", "bye",
    ]  # fmt: skip
    assert (done.returncode, done.stderr) == (3, "")


def test_a_program_in_a_fork_may_restart_itself():
    script = """
import os, sys
if "FASTACT_SETTING" not in os.environ:
    os.execve(sys.executable, sys.orig_argv, {**os.environ, "FASTACT_SETTING": "2"})
print(os.environ["FASTACT_SETTING"], sys.argv[1:])
"""
    assert run_python("-c", script, "a") == "2 ['a']\n"


def test_failures_of_a_fork():
    done = python("-W", "error", "-c", "import warnings; warnings.warn('a warning')")
    assert done.returncode == 1 and done.stderr.endswith("\nUserWarning: a warning\n")
    assert python("-c", "import os; os.abort()").returncode == -6
    assert python("-c", "import time; time.sleep(60)", timeout=0.5).returncode == -9
    with pytest.raises(AssertionError, match="some words"):
        run_python("-c", "raise SystemExit('some words')")
    assert run_python("-c", "import os; print(os.getenv('FASTACT_SETTING'))") == "None\n"
