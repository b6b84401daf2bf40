"""What the library is, and what it found on this machine."""

import importlib
import os
import platform
import sys

import torch

import fastact
from fastact import _distributed, _inductor
from fastact._build import CUDA


def gpus() -> list[torch.device]:
    """The GPUs that the library has kernels for."""
    count = torch.cuda.device_count() if CUDA is not None else 0
    return [torch.device("cuda", index) for index in range(count)]


def cpu_name() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(": ", 1)[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def build_info() -> dict[str, str]:
    """What the library says of itself, by name."""
    lines = torch.ops.fastact.build_info().splitlines()
    return dict(line.split(": ", 1) for line in lines)


def text() -> str:
    """One "name: value" a line. A GPU checks its arithmetic at its first use, so each is used."""
    for device in gpus():
        torch.ops.fastact.gelu(torch.zeros(1, dtype=torch.bfloat16, device=device))
        torch.cuda.synchronize(device)
    built = build_info()
    found = {
        "fastact": f"{fastact.__version__} (revision {built.pop('revision')})",
        "library": fastact.library_path,
        "python": sys.version.split()[0],
        "torch": f"{torch.__version__}; the library was built for {built.pop('torch')}",
        "cpu": f"{cpu_name()}, {len(os.sched_getaffinity(0))} cores",
    }
    for device in gpus():
        found[f"gpu {device.index}"] = torch.cuda.get_device_name(device)
    if not gpus():
        found["gpu"] = "none that torch and this library can use"
    del built["version"]
    importlib.import_module("torch._inductor.lowering")  # which gives it FastAct's
    found["torch.compile"] = _inductor.status
    if torch.distributed.is_available():
        importlib.import_module("torch.distributed.tensor")
    found["DTensor"] = _distributed.status or "not in this torch"
    return "\n".join(f"{name}: {value}" for name, value in (found | built).items())
