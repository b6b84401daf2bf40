"""FastAct: fast activation functions for PyTorch with proven error bounds and the same bits on CPUs
and GPUs.

    import fastact
    y = fastact.functional.selu(x)      # as torch.nn.functional.selu
    layer = fastact.nn.SELU()           # as torch.nn.SELU
    fastact.override_aten()             # torch.nn.functional.selu, too, and all others of PyTorch's

Importing the package loads the library that was built for the installed torch and registers its
operators, torch.ops.fastact.*. With any other torch it is an ImportError that says which is needed.
"""

from pathlib import Path as _Path

from fastact import _library
from fastact._build import VERSION as __version__

#: The library for the installed torch, for C++ programs and torch.ops.load_library.
library_path: str = _library.load()
#: For CMAKE_PREFIX_PATH of a C++ project, which then has find_package(FastAct).
cmake_prefix_path: str = str(_Path(__file__).parent)

# They need the operators.
from fastact import _distributed, _fuse, _inductor, functional, nn  # noqa: E402
from fastact._convert import convert  # noqa: E402
from fastact._fuse import fuse_, restore_  # noqa: E402
from fastact._override import overridden_aten_kernels, override_aten  # noqa: E402
from fastact._replace import replace_  # noqa: E402
from fastact._report import Report  # noqa: E402

_inductor.install()
_distributed.install()
_fuse.install()


def show_config() -> None:
    """Prints what `python -m fastact info` prints: versions, devices, instruction sets."""
    from fastact import _info

    print(_info.text())


__all__ = [
    "Report",
    "__version__",
    "cmake_prefix_path",
    "convert",
    "functional",
    "fuse_",
    "library_path",
    "nn",
    "overridden_aten_kernels",
    "override_aten",
    "replace_",
    "restore_",
    "show_config",
]
