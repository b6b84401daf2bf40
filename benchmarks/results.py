"""Results as JSON: the measurements of one run on one machine."""

import datetime
import json
import os
import platform
from pathlib import Path

import torch

from cells import key_of, last_level_cache
from contestants import COPY
from support import build_info, processor

FORMAT = 1


def machine(device: str, isa: str | None = None) -> dict:
    """Describes the machine and software of a result. `isa` is the CPU's forced instruction set."""
    found = {
        "device": device,
        "name": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "last_level_cache": last_level_cache(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "build_info": build_info(),
        "copy": COPY[device],
        "isa": isa,
    }
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        found |= {
            "cpu": found["name"],
            "name": properties.name,
            "capability": f"{properties.major}.{properties.minor}",
            "memory": properties.total_memory,
            "last_level_cache": properties.L2_cache_size,
            "cuda": torch.version.cuda,
        }
    return found


def title(result: dict) -> str:
    """Returns a result's machine and versions in one line."""
    where = result["machine"]
    info = where["build_info"]
    kind = (
        f"CUDA {where['cuda']}"
        if where["device"] == "cuda"
        else f"{where['cores']} threads, {info['cpu instruction set in use']}"
    )
    return f"{where['name']}, {kind}, torch {where['torch']}"


SECTION_TITLES = {
    "cells": "cells",
    "overhead": "the cost of a call",
    "memory": "memory",
    "binary": "the library",
}


def combined(found: list[dict]) -> list[dict]:
    """Returns one result for each title. The last result that has a section provides the section,
    except cells, which are merged. `measured` records machines and dates."""
    of_title: dict[str, dict] = {}
    for result in found:
        measured = {name: result["machine"] for name in SECTION_TITLES if result.get(name)}
        measured |= result.get("measured", {})  # an already combined result
        earlier = of_title.get(title(result), {"measured": {}})
        of_title[title(result)] = {
            **earlier, **result, **_cells_of_both(earlier, result),
            "measured": {**earlier["measured"], **measured},
        }  # fmt: skip
    return list(of_title.values())


def _cells_of_both(earlier: dict, later: dict) -> dict:
    """Merges the cells of two runs, for example of different operators, and their unsteadiness."""
    if not earlier.get("cells") or not later.get("cells"):
        return {}
    cells = {key_of(cell): cell for cell in earlier["cells"] + later["cells"]}
    replaced = {cell["op"] for cell in later["cells"]}
    kept = [s for s in earlier.get("unsteady", ()) if s.partition(" ")[0] not in replaced]
    return {"cells": list(cells.values()), "unsteady": kept + later.get("unsteady", [])}


def write(path: Path, result: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"format": FORMAT, **result}, indent=1) + "\n")


# The fields that identify a row of a packed result, and the numbers of a time in it.
PACKED_ROW = ("op", "form", "dtype", "layout", "threads", "device")
PACKED_TIME = ("median", "low", "high")


def packed(result: dict) -> dict:
    """Returns a result in the form stored in docs/. Each row has, for each size, a list of
    nanoseconds for each contestant, to four digits: the median, and for FastAct and PyTorch also
    the percentiles of the spread."""
    contestants = list(dict.fromkeys(name for cell in result["cells"] for name in cell["times"]))
    rows: dict[tuple, dict] = {}
    for cell in result["cells"]:
        row = rows.setdefault(tuple(cell[name] for name in PACKED_ROW), {})
        row[str(cell["elements"])] = [
            [
                four_digits(1e9 * cell["times"][name][number])
                for number in PACKED_TIME[: 3 if name in ("fastact", "pytorch") else 1]
                if name in cell["times"]
            ]
            for name in contestants
        ]
    # Of the probes, only the sentences about unsteadiness are kept.
    rest = {name: value for name, value in result.items() if name not in ("cells", "probes")}
    where = told(result["machine"])
    others = {name: told(machine) for name, machine in result.get("measured", {}).items()}
    others = {name: machine for name, machine in others.items() if machine != where}
    rest |= {"machine": where} | ({"measured": others} if "measured" in rest else {})
    listed = [[*key, sizes] for key, sizes in rows.items()]
    return {**rest, "contestants": contestants, "rows": listed}


def told(machine: dict) -> dict:
    """Returns the machine without its kernel version, which the page does not show."""
    return {name: value for name, value in machine.items() if name != "system"}


def four_digits(value: float) -> float:
    rounded = float(f"{value:.4g}")
    return int(rounded) if rounded.is_integer() else rounded


def unpacked(stored: dict) -> dict:
    cells = []
    for *key, sizes in stored["rows"]:
        for elements, times in sizes.items():
            found = {}
            for name, numbers in zip(stored["contestants"], times):
                if numbers:
                    seconds = [1e-9 * number for number in numbers] * (3 // len(numbers))
                    found[name] = dict(zip(PACKED_TIME, seconds))
            described = {**dict(zip(PACKED_ROW, key)), "elements": int(elements)}
            cells.append({**described, "times": found, "absent": {}})
    rest = {name: v for name, v in stored.items() if name not in ("rows", "contestants")}
    return {**rest, "cells": cells}


def write_packed(path: Path, result: dict) -> None:
    """Writes a packed result with one line for each row."""
    stored = {"format": FORMAT, **packed(result)}
    rows = [json.dumps(row, separators=(",", ":")) for row in stored.pop("rows")]
    head = json.dumps(stored, indent=1).removesuffix("\n}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{head},\n "rows": [\n' + ",\n".join(rows) + "\n]}\n")


def read(path: Path) -> dict:
    """Reads a stored result. Raises ValueError, with an error message, if it is invalid."""
    try:
        result = json.loads(path.read_text())
        stored = result.get("format") if isinstance(result, dict) else None
    except (OSError, ValueError) as error:
        raise ValueError(
            f"expected a result of this benchmark in {path}, but got: {error}"
        ) from error
    if stored != FORMAT:
        raise ValueError(f"expected a result of format {FORMAT} in {path}, but got {stored}")
    return unpacked(result) if "rows" in result else result
