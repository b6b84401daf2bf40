"""Holds FastAct and PyTorch to one instruction set of the CPU, so that a machine with more of them
shows how both do on one with fewer."""

import os
import sys
from collections.abc import Mapping

import torch

from support import build_info

# PyTorch's own loops, and the libraries that compute for it (tanh is MKL's, GELU oneDNN's): they
# look at the processor themselves. With AVX-512 they may use what they like.
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
    """An instruction set that a side does not use."""


def missing(isa: str | None, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What the environment lacks for that instruction set; None is what each side chooses."""
    wanted = ENVIRONMENTS[isa] if isa else {}
    return {name: value for name, value in wanted.items() if environment.get(name) != value}


def hold(isa: str | None) -> None:
    """Starts this program again where the environment lacks something: the libraries read it when
    they are loaded."""
    if lacking := missing(isa):
        os.execve(sys.executable, sys.orig_argv, {**os.environ, **lacking})


def check(isa: str | None) -> None:
    """Raises Unmet, with the sentence to show, if a side uses another instruction set."""
    if isa is None:
        return
    sides = {
        "FastAct": build_info()["cpu instruction set in use"],
        "PyTorch": torch.backends.cpu.get_cpu_capability().lower(),
    }
    for side, used in sides.items():
        if used != isa:
            raise Unmet(f"expected both sides to use {isa}, but {side} uses {used}")
