"""Writes the measured part of README: a table with four rows, from the stored results."""

import json
from pathlib import Path

import plots
import proven
import stored
from cells import SIXTEEN_BITS, size_name
from measure import faster_and_slower, ratio, worst_losses
from op_table import OPERATORS
from support import REPOSITORY

DIGESTS = REPOSITORY / "prove" / "digests.json"
# The networks in README, by their names in torchvision.
IN_README = {"resnet50": "ResNet-50", "efficientnet_b0": "EfficientNet-B0"}


def listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def measured(found: stored.Stored, docs: Path = stored.DOCS) -> str:
    """Returns README's table of measurements, with links to the pages."""
    rows = [row for row in (bits(docs), accurate(), fast(found), integrated()) if row]
    return "\n".join(
        ["| | |", "|---|---|", *(f"| **{name}** | {text} |" for name, text in rows), ""]
    )


def of_whole_sets(run: dict) -> str:
    machine, trillions = run["machine"].partition(" (")[0], run["results"] / 1e12
    return (
        f"On an {machine}, we also hashed {trillions:.1f} trillion results in {run['digests']:,} "
        "groups, with the same outcome. "
    )


def bits(docs: Path) -> tuple[str, str] | None:
    path = docs / "digests" / "results.json"
    if not path.exists():
        return None
    runs = json.loads(path.read_text())
    parts, whole = ([run for run in runs if run["of"] == of] for of in ("part", "whole"))
    if not parts:
        return None
    fewest = min(parts, key=lambda run: run["digests"])
    gpus = {run["machine"] for run in runs if run["instruction_set"] == "CUDA"}
    capabilities = sorted({gpu.rpartition("(")[2].rstrip(")") for gpu in gpus})
    sets = {run["instruction_set"] for run in runs} - {"CUDA"}
    machines = (
        f"{len(sets)} CPU instruction sets and {len(gpus)} GPUs of compute capability "
        f"{listed(capabilities)}"
    )
    return (
        "Same bits",
        "In eager mode: all four dtypes. Under Inductor (`torch.compile`): float32 and float64 "
        "always; 16-bit only where Inductor does not fuse the operator "
        "([what is covered](docs/explanation/bits.md#what-is-covered)). "
        f"On [{machines}](docs/digests.md), we computed results for the same fixed inputs "
        f"({fewest['results'] / 1e9:.1f} billion on each) and hashed them in at least "
        f"{fewest['digests']:,} groups. Every hash was equal to the stored one. "
        + "".join(map(of_whole_sets, whole))
        + f"`python -m fastact verify` checks {verified_digests():,} hashes on your machine, "
        "those of softmax, losses, norms and sums included. It skips the hashes of results with "
        "random parameters.",
    )


def verified_digests() -> int:
    """Returns the number of digests that `python -m fastact verify` compares: those without random
    parameters."""
    rows = json.loads(DIGESTS.read_text()).items()
    forms = [forms for id, dtypes in rows if not id.endswith("-drawn") for forms in dtypes.values()]
    return sum(map(len, forms))


def accurate() -> tuple[str, str]:
    found = proven.states()
    value = max(
        state["fastact"]["max_ulp"]
        for (op, dtype, order), state in found.items()
        if dtype == "float32" and order == 0
    )
    small = sum(
        state["fastact"]["misrounded"]
        for (op, dtype, order), state in found.items()
        if dtype in SIXTEEN_BITS and op in {act.id for act in OPERATORS}
    )
    gelu = proven.error_of_pytorch("gelu", "float32", 0)
    rounded = f"misrounded {small} times" if small else "correctly rounded"
    return (
        "Accurate",
        f"With default parameters, 16-bit activations are {rounded}, and float32 activations are "
        f"within {value:.2f} ULP for all 4.3 billion inputs. PyTorch's float32 GELU is off by "
        f"{gelu / 1e6:.0f} million ULP in its "
        "negative tail: it returns 0 instead of a number below 1e-6 in magnitude "
        "([proof](docs/accuracy.md)).",
    )


def fast(found: stored.Stored) -> tuple[str, str] | None:
    if "gpu" not in found.operators or "gpu" not in found.networks:
        return None
    result = found.operators["gpu"]
    cells = plots.shown_cells(result)
    elements = cells[0]["elements"]
    smaller = [cell for cell in result["cells"] if cell["elements"] < elements]
    lost = len(worst_losses(smaller))
    faster, slower = faster_and_slower(cells)
    cases = (
        f"{len(cells)} cases ({len({cell['op'] for cell in cells})} activations, "
        f"{len(plots.DTYPES)} dtypes, {listed(list(plots.FORMS))})"
    )
    counts = f"faster in {faster} of {cases}" + (f", slower in {slower}" if slower else "")
    counts += f" and equally fast in {len(cells) - faster - slower}"
    copies = [ratio(cell, "copy") for cell in cells]
    gains = [
        f"{plots.gain(row):.2f} ({IN_README[row['network']]})"
        for row in found.networks["gpu"]["rows"]
        if row["network"] in IN_README
    ]
    versions = sorted({result["machine"]["torch"], found.networks["gpu"]["torch"]})
    return (
        "Fast",
        f"On an {result['machine']['name']} with torch {listed(versions)}, activations and "
        f"gradients of {size_name(elements)} elements run at {min(copies):.2f} to "
        f"{max(copies):.2f} of a memory copy's speed ({listed(list(plots.DTYPES))}). Compared with "
        f"PyTorch at this size, FastAct is {counts}. At smaller sizes, it is slower in [{lost} "
        f"{'case' if lost == 1 else 'cases'}](docs/performance.md#losses). With "
        "`fastact.fuse_(model)`, bfloat16 inference on an "
        f"{found.networks['gpu']['machine']} runs at {listed(gains)} times the speed of eager "
        "PyTorch, mostly because batch norms are fused. Folding the batch norms into the "
        "convolutions instead was slower than fusing on an H200 ([all "
        "results](docs/performance.md)).",
    )


def integrated() -> tuple[str, str]:
    return (
        "Integrated",
        f"{len(OPERATORS) + 1} activations, softmax, log-softmax, cross-entropy, RMSNorm, "
        "LayerNorm, derivatives "
        "of any order, `torch.func`, `torch.compile`, TorchScript, AOTInductor, DTensor, C++ "
        "([reference](docs/reference/index.md)).",
    )
