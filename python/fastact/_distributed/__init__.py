"""DTensor: sharding rules for FastAct's operators.

Without a rule, calling an operator with a DTensor is an error. This package registers the rules
(sharding.py) when torch.distributed.tensor is imported; `import fastact` does not import it.
"""

from fastact._errors import reason

MODULE = "torch.distributed.tensor"

#: The result of the registration, for show_config(); None until DTensor is imported.
status: str | None = None


def register() -> None:
    """Registers the rules. If that fails, for example because DTensor's internal interface has
    changed, calls with DTensors are errors. Raises no error: the import of DTensor must not fail.
    """
    global status
    count, failure = 0, ""
    try:
        from fastact._distributed import operators, sharding

        for op in operators.overloads():
            sharding.register_operator(op)
            count += 1
    except Exception as error:  # any type, because torch's internals raise it
        failure = f", because this torch's DTensor did not accept all: {reason(error)}"
    status = f"sharding rules for {count or 'no'} operators{failure}"
