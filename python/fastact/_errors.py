"""Formats errors as one line."""


def first_line(error: BaseException) -> str:
    """The first line of the message, without torch's stack; the type if the message is empty."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def reason(error: BaseException) -> str:
    """The first line with the type in front, for errors whose message may be unclear without it."""
    name, line = type(error).__name__, first_line(error)
    return line if line == name else f"{name}: {line}"
