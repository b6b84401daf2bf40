"""FastAct: activation functions for PyTorch that return the same bits on CPUs and GPUs.

    import fastact
    y = fastact.functional.selu(x)      # like torch.nn.functional.selu
    layer = fastact.nn.SELU()           # like torch.nn.SELU
    fastact.override_aten()             # FastAct now computes PyTorch's own activations

Importing the package loads the library that was built for the installed torch, and registers its
operators as torch.ops.fastact.*. If there is no library for the installed torch, it raises an
ImportError that names the supported versions.
"""

from pathlib import Path as _Path

from fastact import _library
from fastact._build import VERSION as __version__

#: The path of the library for the installed torch, for torch.ops.load_library and C++ programs.
library_path: str = _library.load()
#: The folder to add to CMAKE_PREFIX_PATH, so that find_package(FastAct) finds the library.
cmake_prefix_path: str = str(_Path(__file__).parent)

# These need the operators.
from fastact import _after_import, _distributed, _fuse, _inductor, functional, nn  # noqa: E402
from fastact._convert import convert  # noqa: E402
from fastact._fuse import fuse_, restore_  # noqa: E402
from fastact._override import overridden_aten_kernels, override_aten  # noqa: E402
from fastact._replace import replace_  # noqa: E402
from fastact._report import Report  # noqa: E402

_after_import.after_import(_inductor.MODULE, _inductor.register)
_after_import.after_import(_inductor.COMPILER, _inductor.register_override)
_after_import.after_import(_distributed.MODULE, _distributed.register)
_after_import.after_import("torch._dynamo.backends.registry", _fuse.register)


def show_config() -> None:
    """Prints versions, devices and instruction sets, like `python -m fastact info`."""
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
