"""Writes docs/digests.md: where all digests were equal, and which results change in PyTorch."""

import json
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "digests.md"
RECORD = ROOT / "docs" / "digests" / "results.json"
CHANGES = RECORD.with_name("changes.json")
PATHS = ("dense", "strided", "offset", "tails", "threads")

INTRODUCTION = """\
# Digests

`prove/digests.json` stores 64-bit digests (hashes) of each operator's results for fixed sets of
inputs and gradients. `make digests` computes the digests on a machine, compares them with the
stored ones, and records the machine if all are equal. `make report` writes this page from the
records in [results.json](digests/results.json).
[What is covered](explanation/bits.md#what-is-covered) lists which results are bit-identical.

## Where all digests were equal

A cell says how much of each set was computed, the date and the source revision; an empty cell was
not run. *part* means a fixed sample of 1/256 of each set, spread over all of it; *whole* means the
whole set. The columns say how the operators were called: on *dense* tensors, on *strided* tensors,
at an odd *offset*, on pieces of a prime length (*tails*), and with several *threads*.
"""
CHANGING = """\
The table counts how many results for {elements:,} standard normal inputs differ in their bits from
those of one call on the CPU: if each result is computed alone (length), if Inductor compiles the
call for the CPU (compile), and if a GPU computes them (device). Measured on {machine} with torch
{torch}, {date}. Data: [changes.json](digests/changes.json). Command: `python
benchmarks/changes.py`."""


def write(folder: Path) -> None:
    """Adds the records in the folder to RECORD, and writes the page."""
    new = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    recorded = json.loads(RECORD.read_text()) if RECORD.exists() else []
    # The newest run on each machine, by how the operators were called.
    runs = {}
    for run in sorted((*recorded, *new), key=lambda run: run["date"]):
        runs[run["machine"], run["instruction_set"], run["torch"], run["path"], run["of"]] = run
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(json.dumps(list(runs.values()), indent=1) + "\n")
    changes = json.loads(CHANGES.read_text()) if CHANGES.exists() else None
    PAGE.write_text(page(list(runs.values()), changes))


def page(runs: list[dict], changes: dict | None) -> str:
    lines = [INTRODUCTION, *table_of_runs(runs), ""]
    counts = [
        f"{run['of']}, {run['date']}: {run['digests']:,} digests of {run['results']:,} results"
        for run in {(run["of"], run["digests"]): run for run in runs}.values()
    ]
    if counts:
        lines += [
            "The number of digests depends on the revision. The newest run for each number is:",
            "",
        ]
        lines += [*(f"- {count}" for count in counts), ""]
    return "\n".join([*lines, *(table_of_changes(changes) if changes else [])])


def table_of_runs(runs: list[dict]) -> list[str]:
    machines: dict[tuple, dict[str, dict]] = {}
    for run in runs:
        machine = run["machine"], run["instruction_set"], run["torch"], run["compiler"]
        machines.setdefault(machine, {})[run["path"]] = run
    lines = [
        "| processor | instruction set | torch | compiler | " + " | ".join(PATHS) + " |",
        "|---|---|---|---|" + "---|" * len(PATHS),
    ]
    for machine, by_path in machines.items():
        cells = [
            f"{by_path[p]['of']}, {by_path[p]['date']}, {by_path[p]['revision']}"
            if p in by_path
            else ""
            for p in PATHS
        ]
        lines.append("| " + " | ".join((*machine, *cells)) + " |")
    return lines


def table_of_changes(changes: dict) -> list[str]:
    machine, rows = changes["machine"], changes["rows"]
    names = [n for n in ("length", "compile", "device") if n in rows[0]["PyTorch"]]
    head = [f"PyTorch, {name}" for name in names] + [f"FastAct, {name}" for name in names]
    processors = [machine["name"], *([machine["cpu"]] if "cpu" in machine else [])]
    introduction = CHANGING.format(
        elements=rows[0]["elements"], machine=" and ".join(processors), torch=machine["torch"],
        date=machine["date"][:10],
    )  # fmt: skip
    introduction = textwrap.fill(" ".join(introduction.split()), 120, break_on_hyphens=False)
    lines = [
        "## Results that change",
        "",
        introduction,
        "",
        "| | " + " | ".join(head) + " |",
        "|---|" + "---:|" * len(head),
    ]
    for row in rows:
        cells = [f"{row[side][name]:,}" for side in ("PyTorch", "FastAct") for name in names]
        lines.append(f"| `{row['op']}`, {row['dtype']} | " + " | ".join(cells) + " |")
    return [*lines, ""]
