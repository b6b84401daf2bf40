"""What `make prove` found, as the pages about speed quote it."""

import json
from functools import cache

import stored
from pages import error_of_finite_inputs


@cache
def states() -> dict[tuple, dict]:
    """The state of the newest form of proof, by activation, type and order."""
    newest: dict[tuple, dict] = {}
    for state in json.loads((stored.DOCS / "accuracy" / "results.json").read_text()):
        key = state["activation"], state["dtype"], state["order"]
        if key not in newest or state["format"] >= newest[key]["format"]:
            newest[key] = state
    return newest


def error_of_pytorch(op: str, dtype: str, order: int) -> float:
    """In ULP, or -1 if it is not known."""
    state = states().get((op, dtype, order))
    return error_of_finite_inputs(state, "pytorch") if state else -1.0


def error_text(error: float) -> str:
    if error < 0:
        return ""
    if error == float("inf"):
        return "infinite"
    return f"{error:.1e}".replace("e+0", "e").replace("e+", "e") if error >= 1e4 else f"{error:.3g}"
