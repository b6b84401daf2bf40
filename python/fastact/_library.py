"""Finds the library for the installed torch, and loads it once."""

import os
import struct
from pathlib import Path

import torch

from fastact._build import CUDA, VERSION

_FOLDER = Path(__file__).parent / "lib"


def load() -> str:
    """Registers the operators, unless they are already registered. Returns the library's path."""
    path = _find(torch.__version__)
    if not hasattr(torch.ops.fastact, "build_info"):
        _check_cuda(torch.version.cuda)
        for kernels in _FOLDER.glob("*.so"):  # the dynamic linker loads them with the library
            _check_whole(kernels)
        open_library(path)
    # Registered operators are from this library, or from one that was loaded earlier.
    if not hasattr(torch.ops.fastact, "build_info"):
        raise ImportError(
            f"fastact: expected torch {torch.__version__} to have all functions that {path} calls, "
            "but it lacks some: install a release of torch"
        )
    _check_version(torch.ops.fastact.build_info())
    return str(path)


def open_library(path: Path) -> None:
    """Loads a library. Raises ImportError with the dynamic linker's reason."""
    _check_whole(path)
    try:
        torch.ops.load_library(str(path))
    except OSError as error:
        # torch's message says only that loading failed; the dynamic linker's says why.
        raise ImportError(
            f"fastact: expected {path} to load, but got: {error.__cause__ or error}"
        ) from error


def _check_whole(path: Path) -> None:
    """Raises ImportError if the file is truncated. The dynamic linker would map it, and the process
    would die by SIGBUS at an access beyond its end. The linker itself rejects non-ELF files."""
    try:
        with path.open("rb") as file:
            header = file.read(64)
            (start,) = struct.unpack_from("<Q", header, 0x20)
            entry_size, count = struct.unpack_from("<HH", header, 0x36)
            file.seek(start)
            table = file.read(entry_size * count)
            size = file.seek(0, os.SEEK_END)
        # offset and file_size of each segment
        segments = [struct.unpack_from("<8xQ16xQ", table, entry_size * i) for i in range(count)]
    except (OSError, struct.error):
        return
    end = max((sum(segment) for segment in segments), default=0)
    if header.startswith(b"\x7fELF") and size < end:
        raise ImportError(
            f"fastact: expected {path} to have at least {end:,} bytes, but got {size:,}: install "
            "fastact again"
        )


def _find(torch_version: str) -> Path:
    minor = ".".join(torch_version.split(".")[:2])
    path = _FOLDER / f"torch-{minor}" / "libfastact.so"
    if not path.is_file():
        names = [folder.name.removeprefix("torch-") for folder in _FOLDER.glob("torch-*")]
        names.sort(key=lambda name: [int(part) for part in name.split(".")])
        raise ImportError(
            f"fastact: expected torch {_alternatives(names)}, for which fastact {VERSION} was "
            f"built, but got torch {torch_version}: install one of these versions, or build "
            "fastact for this torch with `pip install .` in its source tree"
        )
    return path


def _alternatives(names: list[str]) -> str:
    return " or ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def _check_cuda(found: str | None) -> None:
    """Raises ImportError if the library needs CUDA libraries that torch does not have: those of the
    same major version."""
    if CUDA is None:
        return
    major = CUDA.split(".")[0]
    if found is None or found.split(".")[0] != major:
        has = f"CUDA {found}" if found else "no CUDA"
        raise ImportError(
            f"fastact: expected a torch with CUDA {major}, for which fastact {VERSION} was built, "
            f"but got torch {torch.__version__} with {has}: install another torch, or the CPU-only "
            "wheel of fastact"
        )


def _check_version(build_info: str) -> None:
    loaded = build_info.splitlines()[0].removeprefix("version: ")
    if loaded != VERSION:
        raise ImportError(
            f"fastact: expected version {VERSION} of the library, but this process has loaded "
            f"version {loaded} already: load only one of them, or install fastact {loaded}"
        )
