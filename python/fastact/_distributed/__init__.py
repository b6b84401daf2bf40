"""DTensor: sharding rules for FastAct's operators.

Without a rule, an operator of a DTensor is an error. This package registers the rules (sharding.py)
as soon as torch.distributed.tensor is imported: `import fastact` alone imports nothing of it.
"""

from fastact._errors import reason

MODULE = "torch.distributed.tensor"

#: What became of it, in a sentence for show_config(); None until DTensor is imported.
status: str | None = None


def register() -> None:
    """Registers the rules. If that fails, for example because DTensor's inner interface has
    changed, operators of DTensors are errors. Raises no error: the import of DTensor must not fail.
    """
    global status
    count, failure = 0, ""
    try:
        from fastact._distributed import operators, sharding

        for op in operators.overloads():
            sharding.register_operator(op)
            count += 1
    except Exception as error:  # of any type: torch's internals raise it
        failure = f", as this torch's DTensor did not take all: {reason(error)}"
    status = f"sharding rules for {count or 'no'} operators{failure}"
