"""Measures the library file: its size, its load time and, if requested, its build time."""

import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from support import REPOSITORY, build_info, library_path

LOADS = 5
LOAD = """
import sys, time, torch
start = time.perf_counter()
torch.ops.load_library(sys.argv[1])
print(time.perf_counter() - start)
"""


def measure(with_build: bool, jobs: int) -> dict:
    library = library_path()
    result = {
        "bytes": library.stat().st_size,
        "bytes_by_architecture": device_code(library),
        "load_seconds": load_seconds(library),
    }
    print(f"{library.name}: {result['bytes'] / 2**20:.2f} MiB")
    for architecture, size in result["bytes_by_architecture"].items():
        print(f"  its code for {architecture}, uncompressed: {size / 2**20:.2f} MiB")
    print(f"loading it into a process that has torch: {1e3 * result['load_seconds']:.1f} ms")
    if with_build:
        result["build_seconds"] = build_seconds(jobs)
        result["build_jobs"] = jobs
        print(f"a fresh build with {jobs} jobs: {result['build_seconds']:.0f} s")
    return result


def device_code(library: Path) -> dict[str, int]:
    """Returns the uncompressed bytes of GPU code by architecture, if the library contains any and
    cuobjdump is found: on the PATH, in the CUDA Toolkit, or in torch's Triton."""
    beside_torch = Path(torch.__file__).parents[1] / "triton" / "backends" / "nvidia" / "bin"
    places = (
        shutil.which("cuobjdump"),
        "/usr/local/cuda/bin/cuobjdump",
        beside_torch / "cuobjdump",
    )
    cuobjdump = next((place for place in places if place and Path(place).is_file()), None)
    if build_info()["cuda"] == "none" or cuobjdump is None:
        return {}
    sizes: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("-xelf", "-xptx"):
            subprocess.run([cuobjdump, kind, "all", library], cwd=folder, capture_output=True)
        for path in Path(folder).iterdir():
            architecture = re.search(r"sm_\d+[af]?", path.name)
            if architecture:
                name = architecture[0] + (" (PTX)" if path.suffix == ".ptx" else "")
                sizes[name] = sizes.get(name, 0) + path.stat().st_size
    return dict(sorted(sizes.items()))


def load_seconds(library: Path) -> float:
    """Returns the median of several fresh processes. The file is in the system's cache."""
    times = []
    for _ in range(LOADS):
        done = subprocess.run(
            [sys.executable, "-c", LOAD, library], capture_output=True, text=True, check=True
        )
        times.append(float(done.stdout))
    return statistics.median(times)


def build_seconds(jobs: int) -> float:
    """Builds in a new folder, with or without CUDA like the library, and returns the seconds."""
    cuda = "OFF" if build_info()["cuda"] == "none" else "ON"
    with tempfile.TemporaryDirectory(prefix="fastact-build-") as folder:
        start = time.perf_counter()
        for command in (
            ["cmake", "-S", REPOSITORY, "-B", folder, "-G", "Ninja", f"-DFASTACT_WITH_CUDA={cuda}",
             f"-DPython3_EXECUTABLE={sys.executable}", "-DFASTACT_CCACHE=OFF"],
            ["cmake", "--build", folder, "-j", str(jobs)],
        ):  # fmt: skip
            subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - start
