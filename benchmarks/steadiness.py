"""Detects slow processes: on a CPU, an operator can be slow for the whole life of a process.

On a virtual AMD EPYC (Zen 5), PyTorch's SELU took 1 ns per element in some processes and 13 ns in
others, without FastAct, without system calls and for any data. The cause is unknown. A run in such
a process would show a false speed-up, and the spread within the run would not reveal it. Therefore
fresh processes also time a small tensor, and disagreements are reported.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import torch

from op_table import OPERATORS
from support import REPOSITORY, library_path

ELEMENTS = 1 << 16
SAMPLES = 100
PAUSE = 2e-3  # seconds between samples, so that together they outlast another program's time slice
# If the minimum times of two processes differ by more, their speeds differ.
FACTOR = 1.5


def probe(ops: list[str]) -> dict[str, float]:
    """Returns the minimum float32 ns per element in this process, by operator and library."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    x = 3 * torch.randn(ELEMENTS, generator=torch.Generator().manual_seed(0))
    out = torch.empty_like(x)
    found = {}
    for act in OPERATORS:
        if act.id in ops:
            for who, function in (("fastact", act.out), ("pytorch", act.aten_out)):
                found[f"{act.id} {who}"] = _least(function, x, out)
    torch.set_num_threads(threads)
    return found


def _least(function, x: torch.Tensor, out: torch.Tensor) -> float:
    best = float("inf")
    for _ in range(SAMPLES):
        time.sleep(PAUSE)
        function(x, out)  # brings the operands back into the cache
        start = time.perf_counter()
        function(x, out)
        best = min(best, time.perf_counter() - start)
    return 1e9 * best / ELEMENTS


def fresh_probes(ops: list[str], processes: int) -> list[dict[str, float]]:
    """Runs probe() in fresh processes."""
    folders = (Path(__file__).parent, REPOSITORY / "python_tests")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, folders)),
        "FASTACT_LIBRARY": str(library_path()),
    }
    script = "import sys, steadiness; steadiness.print_probe(sys.argv[1:])"
    command = [sys.executable, "-c", script, *ops]
    return [
        json.loads(subprocess.run(command, env=environment, check=True, capture_output=True).stdout)
        for _ in range(processes)
    ]


def print_probe(ops: list[str]) -> None:
    torch.ops.load_library(str(library_path()))
    print(json.dumps(probe(ops)))


def unsteady(probes: list[dict[str, float]]) -> list[str]:
    """Returns a sentence for each operator whose speed differs between the probes."""
    sentences = []
    for name in probes[0] if probes else ():
        times = sorted(found[name] for found in probes)
        if times[-1] > FACTOR * times[0]:
            sentences.append(
                f"{name}: {times[0]:.2f} to {times[-1]:.2f} ns an element in {len(times)} probes, "
                "so ratios to it are not to be relied on"
            )
    return sentences
