"""The results that the pages show: JSON files below docs/, which `make report` updates."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import results
from support import REPOSITORY

DOCS = REPOSITORY / "docs"


@dataclass
class Stored:
    """The results by kind of device: "gpu" or a CPU's instruction set (for networks, "gpu" or
    "cpu")."""

    operators: dict[str, dict] = field(default_factory=dict)
    calls: dict[str, dict] = field(default_factory=dict)
    networks: dict[str, dict] = field(default_factory=dict)
    compiled: dict[str, dict] = field(default_factory=dict)
    changes: dict = field(default_factory=dict)


def path_of(docs: Path, section: str, kind: str = "") -> Path:
    if section == "changes":
        return docs / "digests" / "changes.json"
    return docs / "performance" / f"{section}-{kind}.json"


def kind_of(machine: dict) -> str:
    if machine["device"] == "cuda":
        return "gpu"
    return machine["build_info"]["cpu instruction set in use"]


def load(docs: Path = DOCS) -> Stored:
    stored = Stored()
    for path in sorted((docs / "performance").glob("*.json")):
        section, _, kind = path.stem.partition("-")
        is_packed = section in ("operators", "calls")
        getattr(stored, section)[kind] = (
            results.read(path) if is_packed else json.loads(path.read_text())
        )
    if (changes := path_of(docs, "changes")).exists():
        stored.changes = json.loads(changes.read_text())
    return stored


def take(folder: Path, docs: Path = DOCS) -> list[Path]:
    """Copies every result below the folder to docs/, and returns the written files."""
    found = sorted(folder.rglob("*.json"), key=lambda path: path.stat().st_mtime)
    return [written for path in found for written in _take_one(path, docs)]


def _take_one(path: Path, docs: Path) -> list[Path]:
    data = json.loads(path.read_text())
    if not isinstance(data, dict):
        return []
    if "format" in data:
        return _take_benchmark(results.read(path), docs)
    if "contestant" in data:
        if data["contestant"] != "fuse_":
            return []
        target = path_of(docs, "networks", "gpu" if data["device"] == "cuda" else "cpu")
    elif "neighbours" in data:
        target = path_of(docs, "compiled", kind_of(data["machine"]))
    elif "rows" in data and "PyTorch" in data["rows"][0]:
        target = path_of(docs, "changes")
    else:
        return []
    if "machine" in data and isinstance(data["machine"], dict):
        data["machine"] = results.told(data["machine"])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(data, indent=1) + "\n")
    return [target]


def _take_benchmark(result: dict, docs: Path) -> list[Path]:
    """Stores the cells and the cost of a call. Cells of the same machine, versions, revision and
    method extend the stored cells. Otherwise, they replace the stored cells."""
    kind, written = kind_of(result["machine"]), []
    if result.get("cells"):
        target = path_of(docs, "operators", kind)
        earlier = [results.read(target)] if target.exists() else []
        earlier = [stored for stored in earlier if _origin(stored) == _origin(result)]
        newest = results.combined([*earlier, {**result, "measured": {}}])[-1]
        results.write_packed(target, {**newest, "measured": {}, "overhead": [], "memory": []})
        written.append(target)
    if result.get("overhead"):
        target = path_of(docs, "calls", kind)
        machine = results.told(result["machine"])
        results.write(target, {"machine": machine, "overhead": result["overhead"]})
        written.append(target)
    return written


def _origin(result: dict) -> tuple:
    """Returns the revision of the library, and how the benchmark times backward passes."""
    return result["machine"]["build_info"]["revision"], result.get("graph_built_outside", False)
