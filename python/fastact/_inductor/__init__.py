"""torch.compile: FastAct's operators inside the kernels that Inductor generates.

Inductor fuses only operators that have a lowering; it calls others between its kernels. This
package registers lowerings for FastAct's operators (lowerings.py) and, under an override, replaces
ATen's operators (overriding.py). It does so when Inductor is imported; `import fastact` does not
import it.
"""

from fastact._errors import reason

MODULE = "torch._inductor.lowering"
COMPILER = "torch._inductor.compile_fx"

#: The result of the registration, for show_config(); None until Inductor is imported.
status: str | None = None
#: Why an override does not cover compiled code; None if it does.
override_problem: str | None = None


def register() -> None:
    """Registers the lowerings. If that fails, for example because Inductor has changed, compiled
    code calls the operators. Raises no error: the import of Inductor must not fail."""
    global status
    try:
        from fastact._inductor import lowerings

        status = lowerings.register()
    except Exception as error:  # any type, because torch's internals raise it
        status = f"calls the operators, because this Inductor took no lowerings: {reason(error)}"


def register_override() -> None:
    """Makes an override cover compiled code. Raises no error, like register()."""
    global override_problem
    try:
        from fastact._inductor import overriding

        overriding.register()
    except Exception as error:  # any type, because torch's internals raise it
        override_problem = f"an override leaves compiled code to PyTorch: {reason(error)}"
