"""A copy of the tree to change and build: what the checks of this folder share."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COPIED = (
    *("CMakeLists.txt", "benchmarks", "cmake", "cpp_tests", "ops", "prove", "python"),
    *("python_tests", "registration", "scripts"),
)


class Failure(Exception):
    """What went wrong, in a sentence."""


def replaced(path: Path, pattern: str, replacement: str) -> None:
    """Replaces the one match of the pattern in a file."""
    text = path.read_text()
    result, count = re.subn(pattern, lambda m: m.expand(replacement), text, flags=re.MULTILINE)
    if count != 1:
        raise Failure(f"expected one match of {pattern!r} in {path.name}, but got {count}.")
    path.write_text(result)


class ScratchTree:
    """The copy, in `work`/tree, and its build for the CPU with this Python's torch."""

    def __init__(self, work: Path, jobs: int):
        self.path, self.build_folder, self.jobs = work / "tree", work / "build", jobs
        self.library = self.build_folder / "lib" / "libfastact.so"
        self.path.mkdir(parents=True)
        ignored = shutil.ignore_patterns("__pycache__", ".*")
        for entry in COPIED:
            if (ROOT / entry).is_dir():
                shutil.copytree(ROOT / entry, self.path / entry, ignore=ignored)
            else:
                shutil.copy2(ROOT / entry, self.path / entry)

    def run(self, *command: object, quiet: bool = False) -> subprocess.CompletedProcess:
        """Runs a command in the tree with this Python's tools; `quiet` keeps its output."""
        tools = str(Path(sys.executable).parent)
        environment = {
            **os.environ,
            "PATH": tools + os.pathsep + os.environ.get("PATH", ""),
            "FASTACT_LIBRARY": str(self.library),
        }
        return subprocess.run(
            [str(word) for word in command],
            cwd=self.path,
            env=environment,
            text=True,
            capture_output=quiet,
        )

    def step(self, name: str, *command: object) -> None:
        """Runs a command that must succeed."""
        print(f"== {name}", flush=True)
        done = self.run(*command)
        if done.returncode != 0:
            raise Failure(f"this step failed with exit code {done.returncode}: {name}.")

    def configure(self, *settings: str) -> None:
        self.step(
            "configure",
            *("cmake", "-S", self.path, "-B", self.build_folder, "-G", "Ninja"),
            f"-DPython3_EXECUTABLE={sys.executable}",
            *("-DFASTACT_WITH_CUDA=OFF", "-DFASTACT_BUILD_TESTS=OFF", *settings),
        )

    def build(self) -> None:
        self.step("build", "cmake", "--build", self.build_folder, "-j", self.jobs)
