"""Provides the Python package's version, and its torch requirement: the versions of torch for which
its libraries are built.

A provider of dynamic metadata (pyproject.toml). FASTACT_TORCHES, such as "2.11.0 2.15.0", lists the
versions of torch for a wheel that supports several. Without it, the version is that of this
Python's torch, for which `pip install .` builds. FASTACT_WHEEL_LABEL=cpu turns version 0.1.0 into
0.1.0+cpu.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

# The torch of the Python that builds, outside the isolation that pip creates with PYTHONPATH.
FIND = "import importlib.metadata as m; print(m.version('torch'))"


def version() -> str:
    listed = Path(__file__).resolve().parents[2] / "CMakeLists.txt"
    number = re.search(r"^project\(FastAct\s+VERSION (\S+)", listed.read_text(), re.MULTILINE)[1]
    label = os.environ.get("FASTACT_WHEEL_LABEL", "")
    return f"{number}+{label}" if label else number


def torch_versions() -> list[str]:
    named = os.environ.get("FASTACT_TORCHES", "").split()
    if named:
        return named
    found = subprocess.run([sys.executable, "-E", "-c", FIND], capture_output=True, text=True)
    if found.returncode != 0:
        sys.exit(
            "fastact: expected a torch in the environment, for which to build, but found none: "
            "install torch first; an installer that builds in an environment of its own needs "
            "`--no-build-isolation`"
        )
    return [found.stdout.strip()]


def requirement(versions: list[str]) -> str:
    """Returns torch>=2.11,<2.16 for 2.11.0 to 2.15.0. A library serves one minor version."""
    minors = sorted(tuple(map(int, version.split(".")[:2])) for version in versions)
    (low_major, low), (high_major, high) = minors[0], minors[-1]
    return f"torch>={low_major}.{low},<{high_major}.{high + 1}"


def dynamic_wheel(settings: dict) -> dict:
    return {"dependencies": True}  # a source distribution supports any torch


def dynamic_metadata(settings: dict, project: dict) -> dict:
    return {"version": version(), "dependencies": [requirement(torch_versions()), "tqdm"]}
