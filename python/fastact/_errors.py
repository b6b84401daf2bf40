"""Errors of others in a line."""


def first_line(error: BaseException) -> str:
    """What it says, without the stack that torch appends; its type if it says nothing."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def reason(error: BaseException) -> str:
    """The same with its type, for what has no message that a reader would expect."""
    name, line = type(error).__name__, first_line(error)
    return line if line == name else f"{name}: {line}"
