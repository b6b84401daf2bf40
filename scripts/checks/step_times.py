"""Compares the time of each step of .ci/run with its budget.

    python scripts/checks/step_times.py check BUDGETS
    python scripts/checks/step_times.py table BUDGETS TIMES

BUDGETS contains a line "NAME: SECONDS" for each step. TIMES contains such a line for each step that
has run. Both commands fail if the budgets exceed LIMIT. `table` prints the times beside the budgets
and a warning for each step that exceeded its budget, and fails if a step has no budget. Exceeding a
budget is not an error, because machines differ.
"""

import sys
from pathlib import Path

LIMIT = 3600  # seconds


class Failure(Exception):
    """An error message in one sentence."""


def read_seconds(path: Path) -> dict[str, int]:
    """Returns the seconds of each step, in the file's order."""
    result: dict[str, int] = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, seconds = line.rpartition(":")
        if not name or not seconds.strip().isdigit():
            raise Failure(f"{path}:{number}: expected 'NAME: SECONDS', but got '{line}'.")
        if name in result:
            raise Failure(f"{path}:{number}: expected each step once, but got '{name}' again.")
        result[name] = int(seconds)
    return result


def read_budgets(path: Path) -> dict[str, int]:
    budgets = read_seconds(path)
    if sum(budgets.values()) > LIMIT:
        raise Failure(
            f"{path}: expected budgets of at most {LIMIT} s in all, but got "
            f"{sum(budgets.values())} s: take from one step what another needs."
        )
    return budgets


def table(budgets: dict[str, int], times: dict[str, int]) -> str:
    """Returns a table of budgets and times, with a warning for each step above its budget."""
    for name in times:
        if name not in budgets:
            raise Failure(f"expected a budget for each step, but got none for '{name}'.")
    width = max(map(len, (*budgets, "step")))
    rows = [f"{'step':{width}}  {'seconds':>7}  {'budget':>7}"]
    for name, budget in budgets.items():
        rows.append(f"{name:{width}}  {times.get(name, 'not run'):>7}  {budget:>7}")
    total = sum(times.get(name, 0) for name in budgets)
    rows.append(f"{'all':{width}}  {total:>7}  {sum(budgets.values()):>7}")
    rows += [
        f"warning: {name} took {times[name]} s, and its budget is {budget} s"
        for name, budget in budgets.items()
        if times.get(name, 0) > budget
    ]
    return "\n".join(rows)


def main(arguments: list[str]) -> int:
    if len(arguments) not in (2, 3) or arguments[0] != ("check", "table")[len(arguments) - 2]:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        budgets = read_budgets(Path(arguments[1]))
        if arguments[0] == "table":
            print(table(budgets, read_seconds(Path(arguments[2]))))
    except Failure as failure:
        print(f"step_times: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
