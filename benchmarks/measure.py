"""Times cells one after another, and prints a line for each."""

import sys
from dataclasses import asdict

import torch
from _timing import CpuClock, CudaClock, in_turn, slower

from cells import Cell, label
from contestants import NAMES, contestants

# Ratios this close to 1 count as equal.
EQUAL = 0.02

COLUMNS = (
    f"{'':44}{'median':>10} {'10..90 %':>21} {'GB/s':>8} {'of copy':>8}"
    f" {'PyTorch':>8} {'compile':>8} {'plain':>8}"
)
EXPLANATION = """\
Medians and spreads are FastAct's. GB/s: the bytes that the form reads and writes, once each. Of
copy: the time of a copy of as many bytes over FastAct's. PyTorch, compile, plain: their times over
FastAct's.
"""


def cache_state(cell: Cell, last_level_cache: int) -> str:
    """Returns where the operands are. On a GPU the L2 cache contains none of them. On a CPU calls
    are repeated, so operands that fit are in a cache."""
    cold = cell.device == "cuda" or cell.bytes_moved > last_level_cache
    return "cold" if cold else "warm"


def measure(cells: list[Cell], seconds: float, last_level_cache: int) -> list[dict]:
    """Returns the results of the cells, each measured for `seconds`."""
    print(f"\n{EXPLANATION}\n{COLUMNS}", flush=True)
    threads = torch.get_num_threads()
    said: set[str] = set()
    results = []
    clock_of = {"cpu": CpuClock, "cuda": CudaClock}
    for cell in cells:
        if cell.threads:
            torch.set_num_threads(cell.threads)
        present, absent = contestants(cell)
        with torch.set_grad_enabled(cell.form == "training"):
            times = in_turn(present, clock_of[cell.device](), seconds)
        for name, reason in absent.items():
            if reason not in said:
                said.add(reason)
                print(f"{NAMES[name]} does not take part: {reason}", file=sys.stderr, flush=True)
        results.append(
            {
                **cell.as_dict(),
                "bytes": cell.bytes_moved,
                "cache": cache_state(cell, last_level_cache),
                "times": {name: asdict(value) for name, value in times.items()},
                "absent": absent,
            }
        )
        print(line(results[-1]), flush=True)
        del present
    torch.set_num_threads(threads)
    return results


def ratio(cell: dict, name: str) -> float | None:
    """Returns a contestant's time divided by FastAct's: above 1 if FastAct is faster."""
    times = cell["times"]
    return times[name]["median"] / times["fastact"]["median"] if name in times else None


def faster_and_slower(cells: list[dict]) -> tuple[int, int]:
    """Returns in how many cells FastAct is faster and slower than PyTorch, by the medians."""
    ratios = [ratio(cell, "pytorch") for cell in cells]
    return sum(r > 1 + EQUAL for r in ratios), sum(r < 1 - EQUAL for r in ratios)


def loses(cell: dict) -> bool:
    """Returns whether FastAct is slower than PyTorch beyond noise."""
    return slower(cell["times"]["fastact"], cell["times"]["pytorch"])


def worst_losses(cells: list[dict]) -> dict[tuple, float]:
    """Returns the smallest ratio of cells that are slower beyond noise, by operator, type and
    form."""
    found: dict[tuple, float] = {}
    for cell in cells:
        value = ratio(cell, "pytorch")
        if value is not None and value < 1 - EQUAL and loses(cell):
            form = "backward" if cell["form"] == "backward" else "forward"
            key = cell["op"], cell["dtype"], form
            found[key] = min(value, found.get(key, value))
    return found


def seconds_text(value: float) -> str:
    for unit, factor in (("s", 1), ("ms", 1e3), ("us", 1e6)):
        if value * factor >= 1:
            return f"{value * factor:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def line(cell: dict) -> str:
    ours = cell["times"]["fastact"]
    spread = f"{seconds_text(ours['low'])}..{seconds_text(ours['high'])}"
    ratios = [ratio(cell, name) for name in ("copy", "pytorch", "compile", "plain")]
    cells = " ".join(f"{'-' if r is None else format(r, '.3f'):>8}" for r in ratios)
    return (
        f"{label(cell):44}{seconds_text(ours['median']):>10} {spread:>21} "
        f"{cell['bytes'] / ours['median'] / 1e9:8.1f} {cells}"
        f"  {cell['cache']}{'  SLOWER than PyTorch' if loses(cell) else ''}"
    )
