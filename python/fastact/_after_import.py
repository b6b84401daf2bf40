"""Work that waits until somebody has imported a module of torch's, which takes seconds."""

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, module: str, function: Callable[[], None]):
        self.module, self.function = module, function
        self.is_searching = False

    def find_spec(self, fullname, path=None, target=None):
        if fullname != self.module or self.is_searching:
            return None
        self.is_searching = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self.is_searching = False
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            # Not before: whoever asked for the spec may not have imported the module.
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                self.function()

        spec.loader.exec_module = exec_module
        return spec


def after_import(module: str, function: Callable[[], None]) -> None:
    """Calls the function once: now if the module is imported, else as soon as it has been."""
    if module in sys.modules:
        function()
    else:
        sys.meta_path.insert(0, _Finder(module, function))
