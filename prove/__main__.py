"""Checks what FastAct promises about its results, on this machine.

    python prove                                         every activation, dtype and order
    python prove --op selu --dtype float32 --isa avx2    a part of that
    python prove --device cuda                           on a GPU
    python prove --digest                                the same bits as everywhere else?
    python prove --report                                docs/accuracy.md, docs/digests.md

Without --digest, compares results with exact results, to the third derivative. Tests all inputs of
the 16-bit types, and all inputs of float32 to the second derivative. Tests 2^27 fixed inputs, or
the number that --sample sets, for float64 and the third derivative of float32, and as many operand
sets for prelu. An interrupted run resumes. Exit code: 0 if every contract of the formulas' headers
holds, 1 if one does not, 2 for a wrong command line, 130 after an interrupt.

With --digest, compares 64-bit digests of whole spaces of results with digests.json. If all are
equal, records the run in build/prove/digests, from which `make report` writes docs/digests.md.
"""

import argparse
import datetime
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "python_tests"))  # the oracle table
sys.path.append(str(ROOT / "python" / "fastact"))  # the digests

import torch  # noqa: E402
from _digests.inputs import SAMPLE  # noqa: E402
from _digests.kernels import PRELU, compute, prelu_kernels  # noqa: E402
from _digests.rows import ROWS  # noqa: E402
from tqdm import tqdm  # noqa: E402

import digest  # noqa: E402
from drawn_parameters import FAMILIES, SEED, check_exact, settings  # noqa: E402
from op_table import ACTIVATIONS, TOP_ORDER  # noqa: E402
from support import DTYPES, build_info, dtype_name, library_path, processor  # noqa: E402

REFERENCE = Path(__file__).with_name("digests.json")
INSTRUCTION_SETS = ("baseline", "avx2", "avx512")
ORDERS = tuple(range(TOP_ORDER + 1))


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="prove", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    names = [*(act.id for act in ACTIVATIONS), PRELU, *ROWS]
    dtypes = [dtype_name(d) for d in DTYPES]
    add("--op", action="append", choices=names, help="an operator (repeatable)")
    add("--dtype", action="append", choices=dtypes, help="a dtype (repeatable)")
    add("--device", default="cpu", choices=("cpu", "cuda"))
    add(
        "--isa",
        choices=INSTRUCTION_SETS,
        help="the CPU's instruction set (default: the best one; with --digest, all)",
    )
    add("--workers", type=int, default=None, help="CPU cores to use (default: all)")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--digest", action="store_true", help="compare digests instead")
    mode.add_argument(
        "--report",
        action="store_true",
        help="write docs/accuracy.md, docs/digests.md and their figures",
    )
    accuracy = parser.add_argument_group("comparison with the exact results")
    add = accuracy.add_argument
    add("--order", action="append", type=int, choices=ORDERS,
        help="0: value, 1: derivative, ... (repeatable; default: all)")  # fmt: skip
    add("--sample", type=int, default=SAMPLE, metavar="N",
        help="2^N inputs where not all are tested (default: %(default)s)")  # fmt: skip
    add("--fresh", action="store_true", help="discard the results of earlier runs")
    add("--settings", type=int, default=256, metavar="N",
        help="random parameter sets for each activation (default: %(default)s)")  # fmt: skip
    add("--seed", type=int, default=SEED, help="the seed of these sets (default: %(default)s)")
    add("--results", type=Path, default=ROOT / "build" / "prove", help="the folder of the results")
    digests = parser.add_argument_group("digests")
    add = digests.add_argument
    size = digests.add_mutually_exclusive_group()
    size.add_argument("--part", action="store_true", help="a fixed 1/256 of each space")
    size.add_argument("--whole", action="store_true", help="whole spaces, also with the baseline")
    add("--path", choices=digest.PATHS, default="dense", help="how the operators are called")
    add("--update", action="store_true", help="write the digests instead of comparing them")
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("expected a GPU for --device cuda, but torch finds none")
    if options.device == "cuda" and options.isa:
        parser.error("expected --isa with --device cpu, but got cuda")
    if rows := not options.digest and [name for name in ROWS if name in (options.op or ())]:
        parser.error(f"expected --digest with --op {rows[0]}, whose accuracy a test checks")
    if not library_path().exists():
        parser.error(f"expected the library at {library_path()}: run make build")
    if options.workers is not None and options.workers < 1:
        parser.error(f"expected at least 1 for --workers, but got {options.workers}")
    if not 17 <= options.sample <= 40:
        parser.error(f"expected 17 to 40 for --sample, but got {options.sample}")
    if options.workers is None:
        options.workers = len(os.sched_getaffinity(0))
    options.activations = [a for a in ACTIVATIONS if not options.op or a.id in options.op]
    options.dtypes = [d for d in DTYPES if not options.dtype or dtype_name(d) in options.dtype]
    return options


def load(isa):
    """Loads the library; FASTACT_CPU_ISA is read at the first call."""
    if isa:
        os.environ["FASTACT_CPU_ISA"] = isa
    torch.ops.load_library(str(library_path()))
    torch.set_num_threads(1)  # the pieces run in parallel
    return build_info()


def progress_bar(total, description):
    return tqdm(
        total=total, desc=description, unit="", unit_scale=True, dynamic_ncols=True,
        mininterval=0.5 if sys.stderr.isatty() else 30,
    )  # fmt: skip


# ---- Accuracy


def environment(options, info):
    """Returns the properties on which results may depend."""
    device = torch.cuda.get_device_name() if options.device == "cuda" else processor()
    return {
        "library": hashlib.sha256(library_path().read_bytes()).hexdigest(),
        "device": device,
        "instruction_set": "" if options.device == "cuda" else info["cpu instruction set in use"],
        "torch": torch.__version__,
    }


def prove(options):
    import accuracy
    import prelu

    info = load(options.isa)
    where = environment(options, info)
    orders = options.order or ORDERS
    jobs = [
        accuracy.Job(act, dtype, order, options.device, options.sample)
        for act in options.activations
        for dtype in options.dtypes
        for order in orders
    ]
    if not options.op or PRELU in options.op:
        jobs += [
            prelu.PreluJob(form, dtype, options.device, options.sample)
            for form in prelu.FORMS
            for dtype in options.dtypes
            if form.order in orders
        ]
    folder = options.results / (where["instruction_set"] or "cuda")
    print(f"{where['device']}, {where['instruction_set'] or 'CUDA'}, torch {where['torch']}")
    print(f"{'':27} {'inputs':>10} | {'max ULP':>9} {'misrounded':>11} {'special':>7} | PyTorch's")
    failed = False
    with progress_bar(sum(job.inputs for job in jobs), "proving") as bar:
        for job in jobs:
            path = folder / f"{job.name}.json"
            if options.fresh:
                path.unlink(missing_ok=True)
            bar.set_description(job.name)
            state = accuracy.run(job, path, where, options.workers, bar.update)
            held = state["fastact"]["beyond_contract"] == 0
            failed |= not held
            bar.write(summary(job, state, held), file=sys.stdout)
    print(f"results: {folder}")
    failed |= not prove_drawn_parameters(options)
    return int(failed)


def prove_drawn_parameters(options):
    """Returns true if the activations with parameters keep their contract at random parameters."""
    names = {act.name for act in options.activations}
    drawn = [
        (setting, dtype)
        for name in FAMILIES
        if name in names
        for setting in settings(name, options.settings, options.seed)
        if setting.is_told
        for dtype in options.dtypes
    ]
    broken = 0
    for setting, dtype in tqdm(drawn, desc="drawn parameters", disable=not sys.stderr.isatty()):
        try:
            check_exact(setting, dtype, options.device)
        except AssertionError as error:
            broken += 1
            print(f"  BROKEN: {error}")
    print(
        f"parameters drawn at random, --seed {options.seed} --settings {options.settings}: "
        f"{len(drawn)} of a setting and a type, {broken} beyond the contract"
    )
    return broken == 0


def summary(job, state, held):
    import accuracy

    def columns(found):
        if found["max_ulp"] < 0:
            return f"{'none':>9} {'':11} {'':7}"
        special = sum(found[name] for name in accuracy.SPECIAL)
        return f"{found['max_ulp']:9.6g} {found['misrounded']:11d} {special:7d}"

    line = f"{job.name:27} {state['inputs']:10d} | {columns(state['fastact'])} |"
    line += columns(state["pytorch"])
    if not held:
        found = state["fastact"]
        line += (
            f"\n  BROKEN: expected at most {job.bound} ULP everywhere, but got "
            f"{found['beyond_contract']} results beyond, {found['max_ulp']:.6g} ULP at "
            f"{found['max_at']!r}"
        )
    return line


# ---- Digests


def compare_digests(options):
    """Compares the digests of one instruction set or GPU. If none is named, runs a process for
    each."""
    if options.device == "cpu" and options.isa is None:
        return _every_instruction_set()
    info = load(options.isa)
    where = "CUDA" if options.device == "cuda" else info["cpu instruction set in use"]
    part = options.part or (options.isa == "baseline" and not options.whole)
    reference = json.loads(REFERENCE.read_text()) if REFERENCE.exists() else {}
    wanted = [
        kernel
        for act in options.activations
        for dtype in options.dtypes
        for kernel in digest.kernels(act, dtype)
    ]
    families = {act.name for act in options.activations} & set(FAMILIES)
    wanted += [
        kernel
        for name in FAMILIES
        if name in families
        for dtype in options.dtypes
        for kernel in digest.drawn_kernels(name, dtype)
    ]
    if not options.op or PRELU in options.op:
        wanted += [k for dtype in options.dtypes for k in prelu_kernels(dtype)]
    wanted += [
        kernel
        for name in ROWS
        if not options.op or name in options.op
        for dtype in options.dtypes
        for kernel in digest.kernels_of_rows(name, dtype)
    ]
    # There is only one GPU, and the path that sets the number of threads needs all cores.
    alone = options.device == "cuda" or options.path == "threads"
    workers = 1 if alone else options.workers
    start = time.monotonic()
    differing = 0
    total = sum(count for kernel in wanted for _, count in kernel.ranges(part, 1))
    with progress_bar(total, f"{where}, {options.path}") as bar:
        for kernel in wanted:
            value = compute(
                kernel, options.device, part, digest.PATHS[options.path], workers, bar.update
            )
            entry = reference.setdefault(kernel.name, {}).setdefault(dtype_name(kernel.dtype), {})
            entry = entry.setdefault(kernel.form, {})
            size = "part" if part else "all"
            if options.update:
                entry["of"], entry[size] = kernel.space.description, value
            elif entry.get(size) != value:
                differing += 1
                bar.write(
                    f"DIFFERS: {kernel.name} {dtype_name(kernel.dtype)} {kernel.form}, {size} of "
                    f"{kernel.space.description}: expected {entry.get(size)}, but got {value}",
                    file=sys.stdout,
                )
    if options.update:
        REFERENCE.write_text(digest.one_digest_a_line(reference))
    verdict = "written" if options.update else f"{differing} differ" if differing else "all equal"
    print(
        f"{where}, {options.path}, {'part' if part else 'whole'}: {len(wanted)} digests of "
        f"{total:,} results in {time.monotonic() - start:.0f} s: {verdict}",
        flush=True,
    )
    if options.device == "cuda":
        print(f"arithmetic: {build_info()['cuda arithmetic in use']}", flush=True)
    if verdict == "all equal" and not options.op and not options.dtype:
        path = options.results / "digests" / f"{where}-{options.path}.json".lower()
        found = {"digests": len(wanted), "results": total}
        found = {"of": "part" if part else "whole", "path": options.path, **found}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(where_equal(where, info) | found, indent=1) + "\n")
        print(f"recorded: {path}", flush=True)
    return int(differing > 0)


def where_equal(where, info):
    """Returns the machine and the build of a run whose digests were all equal."""
    machine = processor()
    if where == "CUDA":
        major, minor = torch.cuda.get_device_capability()
        machine = f"{torch.cuda.get_device_name()} ({major}.{minor})"
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "machine": machine,
        "instruction_set": where,
        "compiler": compiler(info),
        "torch": torch.__version__,
        "revision": info["revision"],
    }


def compiler(info):
    """Returns the compiler of the library, which ELF files record in a section."""
    text = library_path().read_bytes()
    versions = {v.decode() for v in re.findall(rb"GCC: \([^)]*\) ([\d.]+)", text)}
    built = [f"gcc {version}" for version in sorted(versions)]
    return ", ".join(built + ([f"CUDA {info['cuda']}"] if info["cuda"] != "none" else []))


def _every_instruction_set():
    torch.ops.load_library(str(library_path()))
    status = 0
    for isa in build_info()["cpu instruction sets"].split():
        command = [sys.executable, str(Path(__file__).parent), *sys.argv[1:], "--isa", isa]
        status |= subprocess.run(command).returncode
    return status


def main():
    options = parse(sys.argv[1:])
    try:
        if options.report:
            import report

            return report.write(options.results)
        return compare_digests(options) if options.digest else prove(options)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
