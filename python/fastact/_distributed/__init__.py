"""DTensor: sharding rules for FastAct's operators.

Without a rule, an operator of a DTensor is an error. This package registers the rules (sharding.py)
as soon as torch.distributed.tensor is imported: `import fastact` alone imports nothing of it.
"""

import importlib

from fastact._after_import import after_import
from fastact._errors import reason

MODULE = "torch.distributed.tensor"

#: What became of it, in a sentence for show_config(); None until DTensor is imported.
status: str | None = None


def register() -> None:
    """Registers the rules through DTensor's inner interface. If that fails, for example because it
    has changed, registers the remaining rules through the public interface, which does not support
    `out=` forms. Raises no error: the import of DTensor must not fail."""
    global status
    given, failure = [], ""
    for interface in ("sharding", "public_sharding"):
        try:
            rules = importlib.import_module(f"{__name__}.{interface}")
            for op in rules.overloads():
                if op not in given:
                    rules.register_operator(op)
                    given.append(op)
            break
        except Exception as error:  # of any type: torch's internals raise it
            failure = failure or f", as this torch's DTensor did not take all: {reason(error)}"
    status = f"sharding rules for {len(given) or 'no'} operators{failure}"


def install() -> None:
    """Once, by `import fastact`."""
    after_import(MODULE, register)
