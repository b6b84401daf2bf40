"""Counts activation results that change although their input does not.

    python benchmarks/changes.py                         on the CPU, and on the GPU if there is one
    python benchmarks/changes.py --op gelu --op silu --dtype float32

The same numbers are computed in one tensor (the reference), one at a time ("length"), by
torch.compile ("compile"), and on the GPU ("device"). The result is build/bench/changes.json: for
PyTorch and FastAct the number of results whose bits differ from the reference.
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "python_tests"))  # the table of activations
sys.path.append(str(ROOT / "python" / "fastact"))  # the turns of contestants

import torch  # noqa: E402

import results  # noqa: E402
from op_table import OPERATORS  # noqa: E402
from support import package_path  # noqa: E402

ELEMENTS = 1 << 16
DTYPES = ("float32", "bfloat16")
OPS = ("gelu", "gelu_tanh", "silu", "mish", "selu", "tanh")


def differing(a: torch.Tensor, b: torch.Tensor) -> int:
    width = {2: torch.int16, 4: torch.int32}[a.itemsize]
    return int((a.cpu().view(width) != b.cpu().view(width)).sum())


def changes(function: Callable, x: torch.Tensor) -> dict[str, int]:
    """Returns the number of changed results for each circumstance."""
    reference = function(x)
    found = {"length": differing(reference, torch.cat([function(part) for part in x.split(1)]))}
    torch._dynamo.reset()
    found["compile"] = differing(reference, torch.compile(function, dynamic=False)(x))
    if torch.cuda.is_available():
        found["device"] = differing(reference, function(x.cuda()))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--op", action="append", choices=OPS, help="(repeatable; default: all)")
    parser.add_argument("--dtype", action="append", choices=DTYPES, help="(repeatable)")
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "bench", metavar="FOLDER")
    options = parser.parse_args()
    sys.path.append(str(package_path().parent))
    import fastact  # noqa: F401

    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = []
    for act in (act for act in OPERATORS if act.name in (options.op or OPS)):
        for dtype in options.dtype or DTYPES:
            torch.manual_seed(0)
            x = torch.randn(ELEMENTS).to(getattr(torch, dtype))
            row = {"op": act.name, "dtype": dtype, "elements": ELEMENTS}
            row |= {"PyTorch": changes(act.aten, x), "FastAct": changes(act.op, x)}
            rows.append(row)
            print(row, flush=True)
    path = options.results / "changes.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    found = {"machine": results.machine(device), "rows": rows}
    path.write_text(json.dumps(found, indent=1) + "\n")
    print(f"result: {path}")


if __name__ == "__main__":
    main()
