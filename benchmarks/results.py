"""A result: what one run measured on one machine, as JSON."""

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
    """Where and with what a result was measured; `isa` is what a CPU's sides were held to."""
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
    """A result's machine and versions, in a line."""
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
    """One result for each title: of several, each section is the last one's that has it, but for
    cells, of which each is; and `measured` says on which machine and when."""
    of_title: dict[str, dict] = {}
    for result in found:
        measured = {name: result["machine"] for name in SECTION_TITLES if result.get(name)}
        earlier = of_title.get(title(result), {"measured": {}})
        of_title[title(result)] = {
            **earlier, **result, **_cells_of_both(earlier, result),
            "measured": {**earlier["measured"], **measured},
        }  # fmt: skip
    return list(of_title.values())


def _cells_of_both(earlier: dict, later: dict) -> dict:
    """The cells of two runs, as of runs for an operator each, and what was unsteady of them."""
    if not earlier.get("cells") or not later.get("cells"):
        return {}
    cells = {key_of(cell): cell for cell in earlier["cells"] + later["cells"]}
    replaced = {cell["op"] for cell in later["cells"]}
    kept = [s for s in earlier.get("unsteady", ()) if s.partition(" ")[0] not in replaced]
    return {"cells": list(cells.values()), "unsteady": kept + later.get("unsteady", [])}


def write(path: Path, result: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"format": FORMAT, **result}, indent=1) + "\n")


def read(path: Path) -> dict:
    """A stored result. Raises ValueError, with the sentence to show, if it is none."""
    try:
        result = json.loads(path.read_text())
        stored = result.get("format") if isinstance(result, dict) else None
    except (OSError, ValueError) as error:
        raise ValueError(
            f"expected a result of this benchmark in {path}, but got: {error}"
        ) from error
    if stored != FORMAT:
        raise ValueError(f"expected a result of format {FORMAT} in {path}, but got {stored}")
    return result
