"""Reports the functions of a fused model that TorchDynamo leaves to Python."""

import re
import time
from collections.abc import Callable
from pathlib import Path

from torch._dynamo.utils import counters, get_compilation_metrics, set_compilation_metrics_limit

from fastact._report import Report

# How many compilations TorchDynamo remembers: enough for one call. Its default is 64.
set_compilation_metrics_limit(1 << 10)
# How TorchDynamo's reason begins if a function calls no operator.
_EMPTY = "No ops traced"


def reporting(function: Callable, report: Report) -> Callable:
    """Wraps the function. Each call adds to the report what TorchDynamo left to Python."""

    def call(*args, **kwargs):
        count, start = counters["frames"]["total"], time.time_ns() / 1000
        try:
            return function(*args, **kwargs)
        finally:
            if counters["frames"]["total"] != count:
                _note_frames(report, start)

    return call


def _note_frames(report: Report, start: float) -> None:
    """Adds TorchDynamo's messages about compilations since `start`, in microseconds."""
    lines: dict[str, str] = {}
    for frame in get_compilation_metrics():
        number = (frame.compile_id or "").rpartition("/")[0]  # of the function
        file = Path(frame.co_filename) if frame.co_filename else None
        is_ours = file is not None and file.parent == Path(__file__).parent
        if file is not None:  # None if the function is no longer compiled
            line = frame.fail_user_frame_lineno or frame.co_firstlineno
            lines[number] = "" if is_ours else f"{file.name}:{line}"
        if is_ours or number not in lines or (frame.start_time_us or 0) < start:
            continue
        reasons = [("leaves it to Python", frame.fail_reason or _EMPTY)]
        reasons += [("breaks its graph", reason) for reason in sorted(frame.restart_reasons or ())]
        for what, reason in reasons:
            if not reason.startswith(_EMPTY):
                text = f"TorchDynamo {what}, {_brief(reason)}"
                report.leave(lines[number], ": ".join(filter(None, (frame.co_name, text))))


def _brief(reason: str) -> str:
    """Returns TorchDynamo's reason in one line, without its hints."""
    text = re.sub(r"\s+", " ", reason.partition("Hint:")[0]).replace(" Explanation:", ":")
    return f'"{text.strip()}"'
