"""torch.compile: FastAct's operators inside the kernels that Inductor writes.

Inductor fuses only what it has a lowering for, so an operator of a library is a call between its
kernels. This package gives it lowerings for FastAct's (lowerings.py) and, under an override,
FastAct's in place of ATen's (overriding.py), as soon as Inductor itself is imported: `import
fastact` alone imports nothing of it.
"""

from fastact._errors import reason

MODULE = "torch._inductor.lowering"
COMPILER = "torch._inductor.compile_fx"

#: What became of it, in a sentence for show_config(); None until Inductor is imported.
status: str | None = None
#: Why an override leaves compiled code to PyTorch; None if it does not.
override_problem: str | None = None


def register() -> None:
    """Registers the lowerings. If that fails, for example because Inductor has changed, compiled
    code calls the operators. Raises no error: the import of Inductor must not fail."""
    global status
    try:
        from fastact._inductor import lowerings

        status = lowerings.register()
    except Exception as error:  # of any type: torch's internals raise it
        status = f"calls the operators, as this torch's Inductor took no lowerings: {reason(error)}"


def register_override() -> None:
    """Lets an override cover compiled code. Raises no error, as register()."""
    global override_problem
    try:
        from fastact._inductor import overriding

        overriding.register()
    except Exception as error:  # of any type: torch's internals raise it
        override_problem = f"an override leaves compiled code to PyTorch: {reason(error)}"
