"""Formats errors as one line."""


def first_line(error: BaseException) -> str:
    """Returns the message's first line, without torch's stack, or the type if it is empty."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def reason(error: BaseException) -> str:
    """Returns the type and the first line, for errors whose message may be unclear alone."""
    name, line = type(error).__name__, first_line(error)
    return line if line == name else f"{name}: {line}"
