"""The Python package's version, and the versions of torch that it requires: those of its libraries.

A provider of dynamic metadata (pyproject.toml). FASTACT_TORCHES, as in "2.11.0 2.15.0", names the
versions of torch of a wheel for several; without it that is the torch of this Python, for which
`pip install .` builds. FASTACT_WHEEL_LABEL=cpu makes version 0.1.0+cpu of 0.1.0.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

# Of the Python that builds, without the isolation that pip puts around a build by PYTHONPATH.
FIND = "import importlib.metadata as m; print(m.version('torch'))"


def version() -> str:
    listed = Path(__file__).resolve().parents[1] / "CMakeLists.txt"
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
    """For 2.11.0 to 2.15.0: torch>=2.11,<2.16; a library serves one minor version."""
    minors = sorted(tuple(map(int, version.split(".")[:2])) for version in versions)
    (low_major, low), (high_major, high) = minors[0], minors[-1]
    return f"torch>={low_major}.{low},<{high_major}.{high + 1}"


def dynamic_wheel(settings: dict) -> dict:
    return {"dependencies": True}  # a source distribution is for any torch


def dynamic_metadata(settings: dict, project: dict) -> dict:
    return {"version": version(), "dependencies": [requirement(torch_versions()), "tqdm"]}
