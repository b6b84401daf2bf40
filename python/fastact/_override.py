"""FastAct's kernels in the place of ATen's, for models and programs that do not know FastAct."""

import os
import threading
from pathlib import Path

import torch

from fastact._library import open_library

# Held while an override begins or ends. Re-entrant for a signal's handler that does the same.
_lock = threading.RLock()
# A fork waits for another thread that holds it: the child would else wait for that thread, which it
# does not have, and might have half of a library.
os.register_at_fork(
    before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
)


class AtenOverride:
    """An override that has begun. `undo()`, or the end of a `with` block, ends it.

    It may be used again: a `with` block of one that has ended begins it anew, and blocks nest.
    """

    def __init__(self) -> None:
        # How often it has begun and not ended.
        self._depth = 1
        # Whether it has begun without a block, as override_aten() does; the first block takes that.
        self._is_free = True

    def __enter__(self) -> "AtenOverride":
        with _lock:
            if not self._is_free:
                torch.ops.fastact_aten.begin()
                self._depth += 1
            self._is_free = False
        return self

    def __exit__(self, *exception: object) -> None:
        with _lock:
            if self._depth:
                torch.ops.fastact_aten.end()
                self._depth -= 1

    def undo(self) -> None:
        """Ends this override, and all blocks of it that have begun. ATen's kernels are back when no
        other override is going on."""
        with _lock:
            while self._depth:
                torch.ops.fastact_aten.end()
                self._depth -= 1
            self._is_free = False


def _load(path: Path) -> None:
    """Loads the library, which begins an override by itself."""
    if not path.is_file():
        raise ImportError(
            f"fastact: expected {path}, but there is no such file: install fastact again"
        )
    open_library(path)
    if not hasattr(torch.ops.fastact_aten, "begin"):
        raise ImportError(
            f"fastact: expected {path} and the libfastact.so that this process has loaded to be of "
            "one build, but they are not: leave out what loads the other one"
        )


def override_aten() -> AtenOverride:
    """Puts FastAct's kernels in the place of ATen's, in this process and for every thread.

    PyTorch's activations, such as `torch.nn.functional.silu`, and their gradients then have
    FastAct's bits, also in models and TorchScript archives that were made before. Names,
    arguments, errors and what autograd keeps stay PyTorch's. docs/override.md lists what is
    replaced, and what stays ATen's: other types and devices, and kernels that compilers make.

    As a function it lasts until `undo()` of the result; in a `with` statement until the end of the
    block. Overrides nest, and one that has ended may be used in a `with` statement again.

        with fastact.override_aten():
            model(x)

    Raises ImportError if the library is missing, or is not of this build.
    """
    import fastact

    with _lock:
        if hasattr(torch.ops.fastact_aten, "begin"):
            torch.ops.fastact_aten.begin()
        else:
            _load(Path(fastact.library_path).with_name("libfastact_aten.so"))
    return AtenOverride()


def overridden_aten_kernels() -> tuple[str, ...]:
    """The kernels that an override that is going on replaces, as "aten::silu.out [CPU]".

    Empty if none is going on.
    """
    library = torch.ops.fastact_aten
    if not hasattr(library, "begin") or not library.is_overriding():
        return ()
    return tuple(library.kernels())
