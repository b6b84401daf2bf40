"""Restricts FastAct and PyTorch to one instruction set of the CPU. So a machine with AVX-512 can
measure both with AVX2."""

import os
import sys
from collections.abc import Mapping

import torch

from support import build_info

# The settings of PyTorch's own loops and of MKL (tanh) and oneDNN (GELU), which detect the
# processor themselves. With AVX-512 they are not restricted.
ENVIRONMENTS = {
    "avx2": {
        "FASTACT_CPU_ISA": "avx2",
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
    },
    "avx512": {"FASTACT_CPU_ISA": "avx512", "ATEN_CPU_CAPABILITY": "avx512"},
}


class Unmet(Exception):
    """A side does not use the requested instruction set."""


def missing(isa: str | None, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the variables that the environment lacks. `isa` None means no restriction."""
    wanted = ENVIRONMENTS[isa] if isa else {}
    return {name: value for name, value in wanted.items() if environment.get(name) != value}


def hold(isa: str | None) -> None:
    """Restarts this program if the environment lacks a variable, because the libraries read the
    environment when they are loaded."""
    if lacking := missing(isa):
        os.execve(sys.executable, sys.orig_argv, {**os.environ, **lacking})


def check(isa: str | None) -> None:
    """Raises Unmet, with an error message, if a side uses another instruction set."""
    if isa is None:
        return
    sides = {
        "FastAct": build_info()["cpu instruction set in use"],
        "PyTorch": torch.backends.cpu.get_cpu_capability().lower(),
    }
    for side, used in sides.items():
        if used != isa:
            raise Unmet(f"expected both sides to use {isa}, but {side} uses {used}")
