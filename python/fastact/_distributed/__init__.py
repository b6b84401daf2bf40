"""DTensor: sharding rules for FastAct's operators.

Without a rule, an operator of a DTensor is an error. This package registers the rules (sharding.py)
as soon as torch.distributed.tensor is imported: `import fastact` alone imports nothing of it.
"""

from fastact._after_import import after_import

_DTENSOR = "torch.distributed.tensor"

#: What became of it, in a sentence for show_config(); None until DTensor is imported.
status: str | None = None


def register() -> None:
    """Registers the rules through DTensor's inner interface; where that has changed, through its
    public one, which knows no `out=` form."""
    global status
    try:
        from fastact._distributed import sharding

        status = sharding.register()
        return
    except (ImportError, AttributeError, TypeError) as error:
        reason = f"as this torch's DTensor has other interfaces: {error}"
    try:
        from fastact._distributed import public_sharding

        status = f"{public_sharding.register()}, {reason}"
    except (ImportError, AttributeError, TypeError):
        status = f"no sharding rules, {reason}"


def install() -> None:
    """Once, by `import fastact`."""
    after_import(_DTENSOR, register)
