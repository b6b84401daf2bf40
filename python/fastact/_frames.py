"""The functions of a fused model that TorchDynamo leaves to Python, for the model's report."""

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

from torch._dynamo.callback import CallbackArgs, callback_handler
from torch._dynamo.utils import counters, get_compilation_metrics

from fastact._report import Report

# In each thread, of the call that is running: the report, the lines of the functions that
# TorchDynamo has compiled for it, by number, and the time of its beginning.
_current = threading.local()


def _note_frames() -> None:
    """Adds what TorchDynamo says of its compilations since the call began."""
    report, lines, start = _current.call
    for frame in get_compilation_metrics():
        number, file = _number(frame.compile_id), frame.co_filename
        is_ours = file is not None and Path(file).parent == Path(__file__).parent
        if is_ours or number not in lines or 1000 * (frame.start_time_us or 0) < start:
            continue
        if file is not None:  # it is None if the function is compiled no more
            line = frame.fail_user_frame_lineno or frame.co_firstlineno
            lines[number] = f"{Path(file).name}:{line}"
        reasons = [("leaves it to Python", frame.fail_reason or _EMPTY)]
        reasons += [("breaks its graph", reason) for reason in sorted(frame.restart_reasons or ())]
        for what, reason in reasons:
            if not reason.startswith(_EMPTY):
                text = f"TorchDynamo {what}, {_brief(reason)}"
                report.leave(lines[number], ": ".join(filter(None, (frame.co_name, text))))


# The beginning of the reason for leaving a function that calls no operator.
_EMPTY = "No ops traced"


def _brief(reason: str) -> str:
    """TorchDynamo's reason without its hints, in one line."""
    text = re.sub(r"\s+", " ", reason.partition("Hint:")[0]).replace(" Explanation:", ":")
    return f'"{text.strip()}"'


def _number(compile_id: str | None) -> str:
    """What the compilations of one function share."""
    return (compile_id or "").rpartition("/")[0]


def _compilation_ends(args: CallbackArgs) -> None:
    if getattr(_current, "call", None) is not None:
        _current.call[1].setdefault(_number(args.compile_id), "")
        _note_frames()  # now, because TorchDynamo remembers a limited number


def reporting(function: Callable, report: Report) -> Callable:
    """Wraps the function. Each call adds to the report what TorchDynamo left to Python in it."""
    lines: dict[str, str] = {}

    def call(*args, **kwargs):
        if _compilation_ends not in callback_handler.end_callbacks:  # torch._dynamo.reset() ran
            callback_handler.register_end_callback(_compilation_ends)
        before, count = getattr(_current, "call", None), counters["frames"]["total"]
        _current.call = report, lines, time.time_ns()
        try:
            return function(*args, **kwargs)
        finally:
            if counters["frames"]["total"] != count:
                _note_frames()
            _current.call = before

    return call
