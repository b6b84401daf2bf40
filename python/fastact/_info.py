"""Describes the library and the devices of this machine."""

import contextlib
import importlib
import os
import platform
import sys
from types import ModuleType

import torch

import fastact
from fastact import _distributed, _inductor
from fastact._build import CUDA
from fastact._errors import first_line, reason


def gpus() -> list[torch.device]:
    """Returns the GPUs, if the library contains GPU code."""
    count = torch.cuda.device_count() if CUDA is not None else 0
    return [torch.device("cuda", index) for index in range(count)]


def cpu_name() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(": ", 1)[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def build_info() -> dict[str, str]:
    """Returns the library's own description, by name."""
    lines = torch.ops.fastact.build_info().splitlines()
    return dict(line.split(": ", 1) for line in lines)


def processor(device: str) -> str:
    """Returns the name of the processor of "cpu" or "cuda", with the CPU's instruction set."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    return f"{cpu_name()}, {build_info()['cpu instruction set in use']}"


def _use(device: torch.device) -> str:
    """Calls an operator on a GPU. Returns the GPU's name, and the reason if the call fails."""
    name = torch.cuda.get_device_name(device)
    try:
        torch.ops.fastact.gelu(torch.zeros(1, dtype=torch.bfloat16, device=device))
        torch.cuda.synchronize(device)
    except RuntimeError as error:
        return f"{name}, unusable: {first_line(error)}"
    return name


def _status(package: ModuleType) -> str:
    """Returns the status of a package's registration, after importing torch's module."""
    try:
        importlib.import_module(package.MODULE)
    except Exception as error:  # any type, because torch's internals raise it
        return f"none, because {package.MODULE} cannot be imported: {reason(error)}"
    if package.status is None:  # the hook missed the import
        package.register()
    return package.status


def text() -> str:
    """Returns one "name: value" per line. Uses each GPU, because that checks its arithmetic."""
    devices = {f"gpu {device.index}": _use(device) for device in gpus()}
    built = build_info()
    found = {
        "fastact": f"{fastact.__version__} (revision {built.pop('revision')})",
        "library": fastact.library_path,
        "python": sys.version.split()[0],
        "torch": f"{torch.__version__}; the library was built for {built.pop('torch')}",
        "cpu": f"{cpu_name()}, {len(os.sched_getaffinity(0))} cores",
    }
    found |= devices or {"gpu": "none that torch and this library can use"}
    del built["version"]
    found["torch.compile"] = _status(_inductor)
    with contextlib.suppress(Exception):  # any type: _status() has reported it
        importlib.import_module(_inductor.COMPILER)
    if _inductor.override_problem is not None:
        found["torch.compile"] += f"; {_inductor.override_problem}"
    has_dtensor = torch.distributed.is_available()
    found["DTensor"] = _status(_distributed) if has_dtensor else "not in this torch"
    return "\n".join(f"{name}: {value}" for name, value in (found | built).items())
