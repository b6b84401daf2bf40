"""The results of `make prove` that the pages about speed quote."""

import json
from functools import cache

import stored
from pages import error_of_finite_inputs


@cache
def states() -> dict[tuple, dict]:
    """Returns the states of the newest format by activation, type and order."""
    newest: dict[tuple, dict] = {}
    for state in json.loads((stored.DOCS / "accuracy" / "results.json").read_text()):
        key = state["activation"], state["dtype"], state["order"]
        if key not in newest or state["format"] >= newest[key]["format"]:
            newest[key] = state
    return newest


def error_of_pytorch(op: str, dtype: str, order: int) -> float:
    """Returns PyTorch's largest error in ULP, or -1 if it is unknown."""
    state = states().get((op, dtype, order))
    return error_of_finite_inputs(state, "pytorch") if state else -1.0


def where_infinite(op: str, dtype: str, error: float, form: str) -> str:
    """Says at which finite input PyTorch's error is infinite, and what PyTorch returns there."""
    found = states().get((op, dtype, int(form == "backward")), {}).get("pytorch", {})
    if error != float("inf") or "max_at" not in found:
        return ""
    return f" ({found['max_result']} at x = {found['max_at']:.2g})".replace("nan", "NaN")


def error_text(error: float) -> str:
    if error < 0:
        return ""
    if error == float("inf"):
        return "infinite"
    return f"{error:.1e}".replace("e+0", "e").replace("e+", "e") if error >= 1e4 else f"{error:.3g}"
