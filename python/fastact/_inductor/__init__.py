"""torch.compile: FastAct's operators inside the kernels that Inductor writes.

Inductor fuses only what it has a lowering for, so an operator of a library is a call between its
kernels. This package gives it lowerings for FastAct's (lowerings.py), as soon as Inductor itself is
imported: `import fastact` alone imports nothing of it.
"""

import importlib.abc
import importlib.util
import sys

_INDUCTOR = "torch._inductor.lowering"

#: What became of it, in a sentence for show_config(); None until Inductor is imported.
status: str | None = None


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls register() when Inductor's module of lowerings has been imported."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname != _INDUCTOR:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            register()

        spec.loader.exec_module = exec_module
        return spec


def register() -> None:
    """Registers the lowerings. Where Inductor's interfaces are others, operators stay calls."""
    global status
    try:
        from fastact._inductor import lowerings

        status = lowerings.register()
    except (ImportError, AttributeError, TypeError) as error:
        status = f"calls the operators, as this torch's Inductor has other interfaces: {error}"


def install() -> None:
    """Once, by `import fastact`."""
    if _INDUCTOR in sys.modules:
        register()
    else:
        sys.meta_path.insert(0, _AfterImport())
