"""Finds cells that became faster or slower since an earlier result."""

from _timing import BETWEEN_RUNS, slower

from cells import key_of, label
from measure import seconds_text


def changes(old: list[dict], new: list[dict]) -> tuple[list, list]:
    """Returns the cells that became faster and the cells that became slower, as pairs (old, new).
    In these pairs, the spreads do not overlap, and the medians differ by more than they do in two
    runs of the same code."""
    before = {key_of(cell): cell for cell in old}
    pairs = [(before[key_of(cell)], cell) for cell in new if key_of(cell) in before]

    def is_slower(a: dict, b: dict) -> bool:
        return slower(a["times"]["fastact"], b["times"]["fastact"], BETWEEN_RUNS)

    faster = [(a, b) for a, b in pairs if is_slower(a, b)]
    return faster, [(a, b) for a, b in pairs if is_slower(b, a)]


def report(old: list[dict], new: list[dict]) -> None:
    faster, slower_ = changes(old, new)
    shared = len({key_of(c) for c in old} & {key_of(c) for c in new})
    print(f"\n{shared} cells in both results: {len(faster)} faster, {len(slower_)} slower")
    for word, pairs in (("faster", faster), ("SLOWER", slower_)):
        for a, b in pairs:
            was, now = (cell["times"]["fastact"]["median"] for cell in (a, b))
            change = f"{seconds_text(was)} to {seconds_text(now)}, {now / was:.3f}x"
            print(f"  {word}: {label(b)}: {change}")
