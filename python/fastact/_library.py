"""Finds the library for the installed torch, and loads it once."""

from pathlib import Path

import torch

from fastact._build import CUDA, VERSION

_FOLDER = Path(__file__).parent / "lib"


def load() -> str:
    """Registers the operators, if they are not there yet; the path of the library."""
    path = _find(torch.__version__)
    if not hasattr(torch.ops.fastact, "build_info"):
        _check_cuda(torch.version.cuda)
        open_library(path)
    # Operators that are there came from this library, or from one that somebody loaded before.
    if not hasattr(torch.ops.fastact, "build_info"):
        raise ImportError(
            f"fastact: expected torch {torch.__version__} to have all functions that {path} calls, "
            "but it lacks some: install a release of torch"
        )
    _check_version(torch.ops.fastact.build_info())
    return str(path)


def open_library(path: Path) -> None:
    """Raises ImportError with the dynamic linker's reason."""
    try:
        torch.ops.load_library(str(path))
    except OSError as error:
        # torch says that it could not load, the dynamic linker why.
        raise ImportError(
            f"fastact: expected {path} to load, but got: {error.__cause__ or error}"
        ) from error


def _find(torch_version: str) -> Path:
    minor = ".".join(torch_version.split(".")[:2])
    path = _FOLDER / f"torch-{minor}" / "libfastact.so"
    if not path.is_file():
        names = [folder.name.removeprefix("torch-") for folder in _FOLDER.glob("torch-*")]
        names.sort(key=lambda name: [int(part) for part in name.split(".")])
        raise ImportError(
            f"fastact: expected torch {_alternatives(names)}, for which fastact {VERSION} was "
            f"built, but got torch {torch_version}: install one that fits, or build fastact for "
            "this torch with `pip install .` in its source tree"
        )
    return path


def _alternatives(names: list[str]) -> str:
    return " or ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def _check_cuda(found: str | None) -> None:
    """A library with CUDA needs torch's CUDA libraries, of the same major version."""
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
            f"version {loaded} already: leave out what loads that one, or install fastact {loaded}"
        )
