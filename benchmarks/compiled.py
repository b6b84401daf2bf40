"""Times expressions that torch.compile fuses, with FastAct's and with PyTorch's activation.

    python benchmarks/compiled.py --device cuda --workers 16 --output compiled.json
    python benchmarks/compiled.py --device cpu --op gelu --dtype float32 --isa avx2

A cell is an activation with a neighbour, in one type. The compiled expressions of FastAct and
PyTorch take turns, one sample each in every round. For each type, the script prints a table of
PyTorch's time divided by FastAct's. It writes all times as JSON. `--workers N` first compiles the
cells in N processes, which fill Inductor's cache. `--below R` lists the cells whose ratio is below
R beyond noise; the exit code is then 1.
"""

import argparse
import concurrent.futures
import json
import multiprocessing
import statistics
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "python_tests"))  # the table of activations
sys.path.append(str(ROOT / "python" / "fastact"))  # the turns of contestants

import torch  # noqa: E402
import torch._inductor.config  # noqa: E402
from _timing import Contestant, CpuClock, CudaClock, in_turn, slower  # noqa: E402

import isa  # noqa: E402
from results import machine  # noqa: E402
from support import package_path  # noqa: E402

# Inductor's tuner chooses again in the measuring process, because the workers shared the GPU when
# they tuned.
torch._inductor.config.autotune_local_cache = False

DTYPES = ("bfloat16", "float16", "float32")
SIZES = {"cuda": 1 << 26, "cpu": 1 << 20}
ROW = 4096


def add(f, a, b):
    return f(a + b)


def mul(f, a, b):
    return f(a * b)


def affine(f, a, b):
    return f(a * 1.5 + 0.25)


def residual(f, a, b):
    return f(a) + b


def gate(f, a, b):
    return f(a) * b


def dropout(f, a, b):
    return torch.nn.functional.dropout(f(a), 0.1)


def cast(f, a, b):
    return f(a).to(torch.float32 if a.dtype != torch.float32 else torch.bfloat16)


def total(f, a, b):
    return f(a).view(-1, ROW).sum(-1)


def alone(f, a, b):
    return f(a)


def in_fused_operator(f, a, b):
    return f(a + b) * b


def fused(f, a, b):
    return in_fused_operator(f, a, b) * 0.5


NEIGHBOURS = {
    "add": add, "mul": mul, "affine": affine, "residual": residual, "gate": gate,
    "dropout": dropout, "cast": cast, "sum": total, "alone": alone,
    "fused": fused, "fused_alone": in_fused_operator,
}  # fmt: skip
# Cells in which FastAct calls one fused operator, and the operation after it.
FUSED = {"fused": lambda y: y * 0.5, "fused_alone": lambda y: y}


def activations() -> dict:
    """Returns the activations with default parameters, by name."""
    from op_table import ACTIVATIONS

    return {act.name: act for act in ACTIVATIONS if act.defaults is None}


def compiled(cell: tuple, device: str, n: int) -> tuple[dict, tuple]:
    """Returns FastAct's and PyTorch's compiled expressions, and the operands."""
    name, neighbour, dtype = cell
    torch._dynamo.reset()
    torch.manual_seed(0)
    act = activations()[name]
    operands = tuple(torch.randn(n, device=device).to(getattr(torch, dtype)) for _ in range(2))
    expression = NEIGHBOURS[neighbour]
    fused_operator, after = getattr(torch.ops.fastact, f"fused_{name}"), FUSED.get(neighbour)

    def ours(a, b):
        if after:
            return after(fused_operator(a, residual=b, gate=b))
        return expression(act.op, a, b)

    def pytorchs(a, b):
        return expression(act.aten, a, b)

    sides = {"FastAct": torch.compile(ours, dynamic=False, fullgraph=True),
             "PyTorch": torch.compile(pytorchs, dynamic=False, fullgraph=True)}  # fmt: skip
    for side in sides.values():
        side(*operands)
    return sides, operands


def prepare(device: str, n: int, threads: int, cells: list[tuple]) -> None:
    """Compiles the cells in a worker process, to fill the cache."""
    torch.set_num_threads(threads)
    import fastact  # noqa: F401

    with torch.no_grad():
        for cell in cells:
            compiled(cell, device, n)


def table(results: list[dict], dtype: str, neighbours: list[str]) -> str:
    rows = [f"| {dtype} | " + " | ".join(neighbours) + " |", "|---" * (len(neighbours) + 1) + "|"]
    of = {(r["op"], r["neighbour"]): r for r in results if r["dtype"] == dtype}
    for name in dict.fromkeys(op for op, _ in of):
        ratios = [of.get((name, neighbour)) for neighbour in neighbours]
        texts = [f"{r['ratio']:.2f}" if r else "" for r in ratios]
        rows.append(f"| {name} | " + " | ".join(texts) + " |")
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_argument = parser.add_argument
    add_argument("--device", choices=SIZES, required=True)
    add_argument("--op", action="append", choices=list(activations()), help="(repeatable)")
    add_argument("--neighbour", action="append", choices=NEIGHBOURS, help="(repeatable)")
    add_argument("--dtype", action="append", choices=DTYPES, help="(repeatable)")
    add_argument("--n", type=int, help=f"elements; default: {SIZES}")
    add_argument("--isa", choices=isa.ENVIRONMENTS, help="CPU instruction set of both sides")
    add_argument("--threads", type=int, default=1, help="on a CPU; default: 1")
    add_argument("--seconds", type=float, default=0.1, help="for each cell; default: 0.1")
    add_argument("--workers", type=int, default=0, help="processes that compile beforehand")
    add_argument("--below", type=float, help="list ratios below this one")
    add_argument("--output", type=Path, help="a JSON file of all times")
    arguments = parser.parse_args()
    device, n = arguments.device, arguments.n or SIZES[arguments.device]
    isa.hold(arguments.isa)
    torch.set_num_threads(arguments.threads)
    sys.path.append(str(package_path().parent))
    import fastact

    if arguments.isa:
        isa.check(arguments.isa)
        torch._inductor.config.cpp.simdlen = {"avx2": 256, "avx512": 512}[arguments.isa]
    print(f"FastAct {fastact.__version__}, torch {torch.__version__}, {n} elements, {device}")
    neighbours = arguments.neighbour or list(NEIGHBOURS)
    dtypes = arguments.dtype or list(DTYPES)
    cells = [
        (name, neighbour, dtype)
        for dtype in dtypes
        for name in arguments.op or activations()
        for neighbour in neighbours
    ]
    if arguments.workers:
        parts = [cells[i :: arguments.workers] for i in range(arguments.workers)]
        with concurrent.futures.ProcessPoolExecutor(
            arguments.workers, mp_context=multiprocessing.get_context("spawn")
        ) as pool:
            list(pool.map(partial(prepare, device, n, arguments.threads), parts))
    clock = CudaClock() if device == "cuda" else CpuClock()
    results = []
    with torch.no_grad():
        for cell in cells:
            sides, operands = compiled(cell, device, n)
            contestants = {
                side: Contestant(partial(call, *operands)) for side, call in sides.items()
            }
            times = {k: asdict(v) for k, v in
                     in_turn(contestants, clock, arguments.seconds).items()}  # fmt: skip
            ratio = times["PyTorch"]["median"] / times["FastAct"]["median"]
            results.append(dict(zip(("op", "neighbour", "dtype"), cell), ratio=ratio, times=times))
    for dtype in dtypes:
        print(f"\n{table(results, dtype, neighbours)}")
    print(f"\ngeometric mean {statistics.geometric_mean(r['ratio'] for r in results):.3f}, "
          f"least {min(r['ratio'] for r in results):.2f}, of {len(results)} cells")  # fmt: skip
    if arguments.output:
        found = {
            "machine": machine(device, arguments.isa),
            "elements": n,
            "threads": arguments.threads,
        }
        found |= {"neighbours": neighbours, "rows": results}
        arguments.output.write_text(json.dumps(found, indent=1) + "\n")
    missed = []
    if arguments.below:
        margin = 1 / arguments.below - 1
        missed = [
            r for r in results if slower(r["times"]["FastAct"], r["times"]["PyTorch"], margin)
        ]
        for r in missed:
            print(
                f"below {arguments.below}: {r['op']} {r['neighbour']} {r['dtype']} {r['ratio']:.2f}"
            )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
