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


def error_text(error: float) -> str:
    if error < 0:
        return ""
    if error == float("inf"):
        return "infinite"
    return f"{error:.1e}".replace("e+0", "e").replace("e+", "e") if error >= 1e4 else f"{error:.3g}"
