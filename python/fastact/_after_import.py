"""Runs functions after a module of torch is imported, without importing it: that takes seconds."""

import importlib.abc
import sys
from collections.abc import Callable


class _Loader(importlib.abc.Loader):
    """Executes a module by its own loader, and then calls a function."""

    def __init__(self, loader: importlib.abc.Loader, then: Callable[[], None]):
        self._loader, self._then = loader, then

    def __getattr__(self, name):  # for callers that only inspect the loader
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._then()


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, module: str, function: Callable[[], None]):
        self.module, self.function = module, function

    def find_spec(self, fullname, path=None, target=None):
        if fullname != self.module:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = find and find(fullname, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, self._imported)
                return spec
        return None

    def _imported(self) -> None:
        # Not earlier: the caller of find_spec() may not import the module.
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            self.function()


def after_import(module: str, function: Callable[[], None]) -> None:
    """Calls the function once: now if the module is imported, otherwise right after its import. If
    the function raises an error, the import raises it."""
    if module in sys.modules:
        function()
    else:
        sys.meta_path.insert(0, _Finder(module, function))
