"""torch.compile: FastAct's operators inside the kernels that Inductor writes.

Inductor fuses only what it has a lowering for, so an operator of a library is a call between its
kernels. This package gives it lowerings for FastAct's (lowerings.py), as soon as Inductor itself is
imported: `import fastact` alone imports nothing of it.
"""

from fastact._after_import import after_import
from fastact._errors import reason

MODULE = "torch._inductor.lowering"

#: What became of it, in a sentence for show_config(); None until Inductor is imported.
status: str | None = None


def register() -> None:
    """Registers the lowerings. If that fails, for example because Inductor has changed, compiled
    code calls the operators. Raises no error: the import of Inductor must not fail."""
    global status
    try:
        from fastact._inductor import lowerings

        status = lowerings.register()
    except Exception as error:  # of any type: torch's internals raise it
        status = f"calls the operators, as this torch's Inductor took no lowerings: {reason(error)}"


def install() -> None:
    """Once, by `import fastact`."""
    after_import(MODULE, register)
