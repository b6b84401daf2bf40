"""Replaces ATen's kernels with FastAct's, for models and programs that do not call FastAct."""

import os
import threading
from pathlib import Path

import torch

from fastact._library import open_library

# Held while an override begins or ends. Re-entrant, because a signal handler may begin or end one.
_lock = threading.RLock()
# fork() acquires the lock. Otherwise the child could inherit a half-loaded library, and a lock held
# by another thread, which would never be released in the child.
os.register_at_fork(
    before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
)


class AtenOverride:
    """An override that has begun. `undo()`, or the end of a `with` block, ends it.

    The object can be used again: a `with` block on an override that has ended begins it again.
    Blocks on one object nest.
    """

    def __init__(self) -> None:
        # How often it has begun without having ended.
        self._depth = 1
        # True if override_aten() has begun it outside a block. The first block then adopts it.
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
                self._depth -= 1  # first, so that an interrupt here ends no other override
                torch.ops.fastact_aten.end()

    def undo(self) -> None:
        """Ends this override and all its active blocks. ATen's kernels return when no other
        override is active."""
        with _lock:
            while self._depth:
                self._depth -= 1
                torch.ops.fastact_aten.end()
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
            "one build, but they are not: load both from one build"
        )


def override_aten() -> AtenOverride:
    """Replaces ATen's kernels with FastAct's, in this process and for every thread.

    PyTorch's activations, such as `torch.nn.functional.silu`, softmax, log-softmax, their
    gradients, and the values of `layer_norm` and `group_norm` then have FastAct's bits, also in
    existing models and TorchScript archives. Names, arguments, errors and saved tensors do not
    change. While an override is active, torch.compile's Inductor uses FastAct's formulas.
    docs/guides/existing-models.md lists what is replaced and what is not, such as other dtypes and
    devices.

    Without `with`, the override lasts until `undo()` of the returned object is called; in a `with`
    statement, until the end of the block. Overrides nest. An override that has ended can be used in
    another `with` statement.

        with fastact.override_aten():
            model(x)

    Raises ImportError if the library is missing, or belongs to another build.
    """
    import fastact

    with _lock:
        if hasattr(torch.ops.fastact_aten, "begin"):
            torch.ops.fastact_aten.begin()
        else:
            _load(Path(fastact.library_path).with_name("libfastact_aten.so"))
    return AtenOverride()


def is_overriding() -> bool:
    """Returns true if any override is active. Dynamo's guards call this."""
    # torch.ops takes ten times as long to find out that the library is not loaded.
    found, _ = torch._C._jit_get_operation("fastact_aten::is_overriding")
    return found is not None and found()


def overridden_aten_kernels() -> tuple[str, ...]:
    """Returns the kernels that an active override replaces, such as "aten::silu.out [CPU]".

    Empty if no override is active.
    """
    return tuple(torch.ops.fastact_aten.kernels()) if is_overriding() else ()
