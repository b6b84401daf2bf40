"""A copy of the tree to change and build, for the checks in this folder."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPIED = (
    *("CMakeLists.txt", "benchmarks", "cmake", "cpp_tests", "ops", "prove", "python"),
    *("python_tests", "registration", "scripts"),
)


class Failure(Exception):
    """An error message in one sentence."""


def replaced(path: Path, pattern: str, replacement: str) -> None:
    """Replaces the one match of the pattern in a file."""
    text = path.read_text()
    result, count = re.subn(pattern, lambda m: m.expand(replacement), text, flags=re.MULTILINE)
    if count != 1:
        raise Failure(f"expected one match of {pattern!r} in {path.name}, but got {count}.")
    path.write_text(result)


def files_below(folder: Path, entry: str) -> Iterable[str]:
    """Yields the files of an entry by their paths in the folder, without hidden and cached ones."""
    path = folder / entry
    if path.is_file():
        yield entry
        return
    for child in sorted(path.iterdir()):
        if child.name != "__pycache__" and not child.name.startswith("."):
            yield from files_below(folder, f"{entry}/{child.name}")


def copy_tree(target: Path, entries: Iterable[str], texts: Mapping[str, str]) -> None:
    """Makes `target` a copy of these entries of the tree. The files in `texts` get that text.

    Writes only files that differ, so that the build of an older copy recompiles only these.
    """
    wanted = {file for entry in entries for file in files_below(ROOT, entry)} | texts.keys()
    for path in target.rglob("*") if target.exists() else ():
        if path.is_file() and path.relative_to(target).as_posix() not in wanted:
            path.unlink()
    for file in wanted:
        source, path = ROOT / file, target / file
        content = texts[file].encode() if file in texts else source.read_bytes()
        if not path.is_file() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            if source.exists():
                shutil.copymode(source, path)


class ScratchTree:
    """The copy, in `work`/tree, and its build for the CPU with this Python's torch.

    An older copy in `work` is brought up to date. `texts` replaces or adds files.
    """

    def __init__(self, work: Path, jobs: int, texts: Mapping[str, str] | None = None):
        self.path, self.build_folder, self.jobs = work / "tree", work / "build", jobs
        self.library = self.build_folder / "lib" / "libfastact.so"
        copy_tree(self.path, COPIED, texts or {})

    def environment(self) -> dict[str, str]:
        """This process's environment with this Python's tools and the library of the copy."""
        tools = str(Path(sys.executable).parent)
        return {
            **os.environ,
            "PATH": tools + os.pathsep + os.environ.get("PATH", ""),
            "FASTACT_LIBRARY": str(self.library),
        }

    def run(self, *command: object, quiet: bool = False) -> subprocess.CompletedProcess:
        """Runs a command in the tree with this Python's tools; `quiet` keeps its output."""
        return subprocess.run(
            [str(word) for word in command],
            cwd=self.path,
            env=self.environment(),
            text=True,
            capture_output=quiet,
        )

    def step(self, name: str, *command: object) -> None:
        """Runs a command that must succeed."""
        print(f"== {name}", flush=True)
        done = self.run(*command)
        if done.returncode != 0:
            raise Failure(f"this step failed with exit code {done.returncode}: {name}.")

    def configure(self, *settings: str, source: str = ".") -> None:
        """Configures the project in the folder `source` of the tree."""
        self.step(
            "configure",
            *("cmake", "-S", self.path / source, "-B", self.build_folder, "-G", "Ninja"),
            f"-DPython3_EXECUTABLE={sys.executable}",
            *("-DFASTACT_WITH_CUDA=OFF", "-DFASTACT_BUILD_TESTS=OFF", *settings),
        )

    def build(self, *targets: str) -> None:
        """Builds the targets, or everything."""
        chosen = [word for target in targets for word in ("-t", target)]
        self.step("build", "cmake", "--build", self.build_folder, "-j", self.jobs, *chosen)
