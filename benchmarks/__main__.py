"""Times FastAct, PyTorch, torch.compile, a plain kernel and a memory copy on this machine.

    python benchmarks                                    the default selection
    python benchmarks --quick --op selu --dtype bfloat16 --device cuda
    python benchmarks --compare OLD.json                 shows what became faster or slower
    python benchmarks --bars                             checks the required speeds
    python benchmarks --every --isa avx2                 every activation, form and type with AVX2
    python benchmarks --report build/bench               docs/performance.md, with new results

In each cell (operator, form, dtype, size, layout, threads) the contestants take turns, one sample
each in every round. The sections are cells; overhead, the cost of a call on 8 numbers; memory, the
peak of forward and backward; and binary, the library's size and load time. The result is written
after each section. Exit code: 0, 1 if a bar is missed, 2 for a wrong command line, 130 after an
interrupt.
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "python_tests"))  # the table of activations
sys.path.append(str(ROOT / "python" / "fastact"))  # the turns of contestants

import torch  # noqa: E402

import bars  # noqa: E402
import binary  # noqa: E402
import cells  # noqa: E402
import compare  # noqa: E402
import isa  # noqa: E402
import measure  # noqa: E402
import memory  # noqa: E402
import overhead  # noqa: E402
import performance  # noqa: E402
import results  # noqa: E402
import steadiness  # noqa: E402
from op_table import OPERATORS  # noqa: E402
from support import library_path  # noqa: E402

LARGEST_POWER = 34
# Seconds for each case of the overhead section.
OVERHEAD_SECONDS = {"quick": 0.2, "default": 3.0, "every": 3.0, "full": 10.0}


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--device", choices=("cpu", "cuda"), help="default: a GPU if there is one; --bars: both")
    add("--op", action="append", choices=[act.id for act in OPERATORS], help="(repeatable)")
    add("--dtype", action="append", choices=cells.DTYPE_NAMES, help="(repeatable)")
    add("--form", action="append", choices=cells.FORMS, help="(repeatable)")
    add("--layout", action="append", choices=cells.LAYOUTS, help="(repeatable)")
    add("--size", action="append", type=int, metavar="N", help="2^N elements (repeatable)")
    add("--section", action="append", choices=SECTIONS, help="(repeatable; default: all)")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_const", const="quick", dest="selection",
                      help="a few cells, in about a minute")  # fmt: skip
    size.add_argument("--every", action="store_const", const="every", dest="selection",
                      help="every activation at a few sizes, in about an hour")  # fmt: skip
    size.add_argument("--full", action="store_const", const="full", dest="selection",
                      help="every cell, for hours")  # fmt: skip
    add("--isa", choices=isa.ENVIRONMENTS,
        help="the instruction set of both sides (default: the best one of each)")  # fmt: skip
    add("--seconds", type=float, help="per cell (default: the selection's time / its cells)")
    add("--note", default="", help="a sentence about the circumstances, for the report")
    add("--probes", type=int, default=4, metavar="N",
        help="fresh processes that also time the CPU operators (default: 4)")  # fmt: skip
    add("--build", action="store_true", help="also time a fresh build of the library")
    add("--jobs", type=int, default=2, help="compilers of that build")
    add("--results", type=Path, default=ROOT / "build" / "bench",
        help="the folder for the result and its plots (default: %(default)s)")  # fmt: skip
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--compare", type=Path, metavar="OLD.json", help="an earlier result")
    mode.add_argument("--bars", action="store_true", help="measure and check only the bars")
    mode.add_argument("--report", type=Path, metavar="FOLDER",
        help="write docs/performance.md, its figures and README's part, with the results below "
             "the folder")  # fmt: skip
    options = parser.parse_args(arguments)
    options.selection = options.selection or "default"
    try:
        check(options)
        options.earlier = results.read(options.compare) if options.compare else {}
    except ValueError as error:
        parser.error(str(error))
    if options.isa:
        options.device = "cpu"
    options.acts = [act for act in OPERATORS if not options.op or act.id in options.op]
    # Only these activations run in the long grids.
    options.swept = [act for act in options.acts if options.op or act.id in cells.SWEPT]
    return options


def check(options: argparse.Namespace) -> None:
    """Raises ValueError, with an error message, for invalid combinations of options."""
    if options.isa and options.device == "cuda":
        raise ValueError("expected --device cpu with --isa, but got cuda")
    if options.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("expected a GPU for --device cuda, but torch finds none")
    if bad := [size for size in options.size or () if not 0 <= size <= LARGEST_POWER]:
        raise ValueError(f"expected --size from 0 to {LARGEST_POWER}, but got {bad[0]}")
    if options.seconds is not None and not options.seconds > 0:
        raise ValueError(f"expected --seconds above 0, but got {options.seconds:g}")
    if options.probes < 0:
        raise ValueError(f"expected at least 0 for --probes, but got {options.probes}")
    if options.jobs < 1:
        raise ValueError(f"expected at least 1 for --jobs, but got {options.jobs}")
    if options.report is None and not library_path().exists():
        raise ValueError(f"expected the library at {library_path()}: run make build")


def gpu_at_hand() -> bool:
    key = f"fastact::{OPERATORS[0].name}"
    return torch.cuda.is_available() and torch._C._dispatch_has_kernel_for_dispatch_key(key, "CUDA")


def measure_cells(
    options: argparse.Namespace, device: str, wanted: list[cells.Cell], seconds: float, cache: int
) -> dict:
    """Returns the cells of a result, and on a CPU the probes that detect a slow process.
    `graph_built_outside` records that no time of a backward pass includes a forward pass."""
    ops = sorted({cell.op for cell in wanted})
    probed = device == "cpu" and options.probes and wanted
    probes = [steadiness.probe(ops)] if probed else []
    found = measure.measure(wanted, seconds, cache)
    if probed:
        probes += [steadiness.probe(ops), *steadiness.fresh_probes(ops, options.probes)]
    unsteady = steadiness.unsteady(probes)
    for sentence in unsteady:
        print(f"UNSTEADY: {sentence}")
    return {"cells": found, "probes": probes, "unsteady": unsteady, "graph_built_outside": True}


def chosen(options: argparse.Namespace, cell: cells.Cell) -> bool:
    return (
        (not options.op or cell.op in options.op)
        and (not options.dtype or cell.dtype in options.dtype)
        and (not options.form or cell.form in options.form)
    )


def measure_bars(options: argparse.Namespace) -> int:
    devices = [options.device] if options.device else ["cpu"] + ["cuda"] * gpu_at_hand()
    held = "-" + options.isa if options.isa else ""
    threads = torch.get_num_threads()
    missed = []
    for device in devices:
        wanted = [cell for cell in bars.cells(device, threads) if chosen(options, cell)]
        where = results.machine(device, options.isa)
        print(f"\n{results.title({'machine': where})}")
        cache = where["last_level_cache"]
        found = measure_cells(options, device, wanted, options.seconds or 1.0, cache)
        results.write(options.results / f"{device}{held}-bars.json", {"machine": where, **found})
        missed += bars.missed(found["cells"], device, threads) + found["unsteady"]
    print("\n" + ("missed:\n  " + "\n  ".join(missed) if missed else "every bar is met"))
    return int(bool(missed))


def measure_overhead(options: argparse.Namespace, machine: dict) -> dict:
    print(f"\nThe cost of a call on {overhead.ELEMENTS} numbers\n\n{overhead.COLUMNS}")
    seconds = OVERHEAD_SECONDS[options.selection]
    return {"overhead": overhead.measure(options.swept, machine["device"], seconds)}


def measure_memory(options: argparse.Namespace, machine: dict) -> dict:
    print(f"\nPeak of forward plus backward, {memory.LAYERS} layers: FastAct, PyTorch\n")
    return {"memory": memory.measure(options.swept, machine["device"])}


def measure_binary(options: argparse.Namespace, machine: dict) -> dict:
    print("\nThe library\n")
    return {"binary": binary.measure(options.build, options.jobs)}


def measure_chosen_cells(options: argparse.Namespace, machine: dict) -> dict:
    wanted = cells.select(
        options.selection,
        machine["device"],
        [act.id for act in options.acts],
        options.dtype,
        options.form,
        [1 << size for size in options.size or ()],
        options.layout,
        [act.id for act in options.swept],
    )
    total, most = cells.SECONDS[options.selection]
    seconds = options.seconds or min(most, total / max(len(wanted), 1))
    return measure_cells(options, machine["device"], wanted, seconds, machine["last_level_cache"])


SECTIONS = {
    "overhead": measure_overhead,
    "memory": measure_memory,
    "binary": measure_binary,
    "cells": measure_chosen_cells,  # last, because it takes longest
}


def measure_sections(options: argparse.Namespace) -> int:
    device = options.device or ("cuda" if gpu_at_hand() else "cpu")
    machine = results.machine(device, options.isa) | {"note": options.note}
    result = {"machine": machine, "selection": options.selection}
    path = options.results / (f"{device}-{options.isa}.json" if options.isa else f"{device}.json")
    print(results.title(result))
    for name, measure_section in SECTIONS.items():
        if name in (options.section or SECTIONS):
            result |= measure_section(options, machine)
            results.write(path, result)  # after each section, so that an interrupt loses only one
    print(f"\nresult: {path}")
    if options.compare:
        compare.report(options.earlier.get("cells", []), result.get("cells", []))
    return 0


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if options.report is not None:
        return performance.write(options.report)
    isa.hold(options.isa)
    torch.ops.load_library(str(library_path()))
    torch.manual_seed(0)
    try:
        isa.check(options.isa)
        return measure_bars(options) if options.bars else measure_sections(options)
    except isa.Unmet as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
