"""Whole models with and without FastAct: `make bench-models`.

    python benchmarks/models.py                          this machine's GPU, or its CPU
    python benchmarks/models.py --network vit --dtype bfloat16 --seconds 5
    python benchmarks/models.py --libraries              networks of torchvision and timm
    python benchmarks/models.py --compile --at-once      compiled, too, by a process for each: on a
                                                         GPU their kernels are then tuned by chance
    python benchmarks/models.py --compile --fill-cache replace_   beforehand, compiles that side
    python benchmarks/models.py --calls                  single calls, on 8 numbers
    python benchmarks/models.py --fuse --threads 1       the backend (fuse_), at inference
    python benchmarks/models.py --fuse --mode training   and in training
    python benchmarks/models.py --fuse --fold            and beside batch norms in convolutions
    python benchmarks/models.py --forms --threads 1      what is fused, activation by activation

The contestants take turns: PyTorch, and PyTorch with FastAct's kernels (override). With --compile,
both are also compiled, FastAct with its operators in the graph (replace_). Forward is inference;
training is a forward and a backward pass. The result is build/bench/models-DEVICE.json, or with
--fuse build/bench/fuse-DEVICE-THREADS.json.
"""

import argparse
import concurrent.futures
import contextlib
import copy
import datetime
import itertools
import json
import math
import multiprocessing
import os
import statistics
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = Path(os.environ.get("FASTACT_LIBRARY", ROOT / "build/lib/libfastact.so")).resolve()
sys.path.append(str(LIBRARY.parents[1] / "python"))
sys.path.append(str(ROOT / "python" / "fastact"))
sys.path.append(str(ROOT / "python_tests"))  # the table of activations

import torch  # noqa: E402
import torch._inductor.config  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from _timing import Contestant, CpuClock, CudaClock, in_turn, slower  # noqa: E402
from torch.fx.experimental.optimization import fuse as fold_batch_norms  # noqa: E402

import fastact  # noqa: E402
from fastact import _info  # noqa: E402
from fastact._fusion import sites  # noqa: E402
from networks import NETWORKS, SWIGLU, library_networks  # noqa: E402
from op_table import OPERATORS  # noqa: E402

# Inductor's tuner chooses again in the measuring process, because other processes share the GPU
# during --fill-cache. With their choices, six ReLUs of resnet50 took 108 or 179 us (H100).
torch._inductor.config.autotune_local_cache = False

# Width, side of the images, and batch size. Networks of libraries have their own width.
SIZES = {"cpu": (32, 32, 8), "cuda": (128, 64, 64)}
LIBRARY_SIZES = {"cpu": (None, 64, 8), "cuda": (None, 224, 64)}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
MODES = {False: "forward", True: "training"}
OVERRIDE, FUSE = "override", "fuse_"
COMPILED = {side: f"{side} compiled" for side in ("PyTorch", "replace_")}


class Switch:
    """Switches an override on or off for a contestant."""

    def __init__(self) -> None:
        self._override: fastact.AtenOverride | None = None

    def set(self, on: bool) -> None:
        if on and self._override is None:
            self._override = fastact.override_aten()
        elif not on and self._override is not None:
            self._override.undo()
            self._override = None


def step(model: torch.nn.Module, x: torch.Tensor, training: bool) -> None:
    if not training:
        with torch.inference_mode():
            model(x)
        return
    model.zero_grad(set_to_none=True)
    model(x).float().square().mean().backward()


def contestants(model, x, training: bool, options, switch: Switch) -> dict[str, Contestant]:
    def contestant(model: torch.nn.Module, on: bool) -> Contestant:
        return Contestant(lambda: step(model, x, training), lambda: switch.set(on))

    found = {"PyTorch": contestant(model, False)}
    if options.fuse:
        fused = copy.deepcopy(model)
        report = fastact.fuse_(fused)
        step(fused, x, training)
        if report.replaced:  # otherwise the model is unchanged
            found[FUSE] = contestant(fused, False)
    else:
        found[OVERRIDE] = contestant(model, True)
    if options.fold:
        folded = fold_batch_norms(model)
        found["PyTorch folded"] = contestant(folded, False)
        both = copy.deepcopy(folded)
        fastact.fuse_(both)
        found["fuse_ folded"] = contestant(both, False)
    if options.compile and options.fuse:
        found[COMPILED["PyTorch"]] = contestant(torch.compile(model), False)
    elif options.compile:
        replaced = copy.deepcopy(model)
        fastact.replace_(replaced)
        found[COMPILED["PyTorch"]] = contestant(torch.compile(model), False)
        found[COMPILED["replace_"]] = contestant(torch.compile(replaced), False)
    if options.fill_cache:
        return {title: found[title] for title in (COMPILED[options.fill_cache],)}
    return found


def usual_networks() -> tuple:
    """Returns a gated unit and, if installed, networks of torchvision and timm, in common sizes."""
    return (*library_networks(), SWIGLU)


def submission(every: dict[str, Contestant]) -> float:
    """Returns the seconds until a call of the slowest contestant is queued on the GPU: of each
    contestant's second call, because the first one allocates memory."""
    found = []
    for contestant in every.values():
        contestant.prepare()
        for _ in range(2):
            torch.cuda.synchronize()
            start = time.perf_counter()
            contestant.call()
            seconds = time.perf_counter() - start
        found.append(seconds)
    torch.cuda.synchronize()
    return max(found)


@dataclass(frozen=True)
class Cell:
    network: str
    dtype: str
    training: bool


def sizes_of(options: argparse.Namespace) -> tuple[int | None, int, int]:
    width, side, batch = (LIBRARY_SIZES if options.libraries else SIZES)[options.device]
    return width, side, options.batch or batch


def cells_of(options: argparse.Namespace) -> list[Cell]:
    networks = usual_networks() if options.libraries else NETWORKS
    names = [n.name for n in networks if not options.network or n.name in options.network]
    modes = [m for m in MODES if options.mode in (None, MODES[m])]
    if options.fuse and options.mode is None:
        modes = [False]
    return [Cell(*cell) for cell in itertools.product(names, options.dtype or DTYPES, modes)]


def measure_cell(cell: Cell, options: argparse.Namespace, turn=contextlib.nullcontext) -> dict:
    """Measures a cell. Compiles before `turn`, so that only measuring needs the turn."""
    width, side, batch = sizes_of(options)
    networks = usual_networks() if options.libraries else NETWORKS
    network = next(n for n in networks if n.name == cell.network)
    dtype = DTYPES[cell.dtype]
    torch._dynamo.reset()
    model, inputs = network.build(width, side)
    model = model.to(options.device, dtype).train(cell.training)
    x = inputs(batch).to(options.device, dtype)
    if x.is_cuda and x.dim() == 4:
        x = x.to(memory_format=torch.channels_last)
        model = model.to(memory_format=torch.channels_last)
    switch = Switch()
    every = contestants(model, x, cell.training, options, switch)
    for contestant in every.values():
        contestant.prepare()
        contestant.call()
    if x.is_cuda:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    if options.fill_cache:
        return {}
    with turn():
        # With a reserve of 50 %, because host times vary by 10 to 30 % (training of 15 networks).
        clock = CudaClock(1.5 * submission(every)) if x.is_cuda else CpuClock()
        times = in_turn(every, clock, options.seconds)
        switch.set(False)
        row = {"network": cell.network, "dtype": cell.dtype, "training": cell.training}
        row["contestant"] = FUSE if options.fuse else OVERRIDE
        row["times"] = {title: asdict(t) for title, t in times.items()}
        print(line(row), flush=True)
        if x.is_cuda:
            del every, model, x
            torch.cuda.empty_cache()
    return row


# Set at the start of a process of --at-once.
all_ready: threading.Barrier
one_at_a_time: threading.Lock


def begin(barrier: threading.Barrier, lock: threading.Lock) -> None:
    global all_ready, one_at_a_time
    all_ready, one_at_a_time = barrier, lock


@contextlib.contextmanager
def turn_of_process():
    all_ready.wait()
    with one_at_a_time:
        yield


def measure_at_once(cells: list[Cell], options: argparse.Namespace) -> list[dict]:
    """Runs a process for each cell. They compile at the same time, and measure in turn."""
    context = multiprocessing.get_context("spawn")
    shared = context.Barrier(len(cells)), context.Lock()
    turn = contextlib.nullcontext if options.fill_cache else turn_of_process
    with concurrent.futures.ProcessPoolExecutor(len(cells), context, begin, shared) as processes:
        measured = [processes.submit(measure_cell, cell, options, turn) for cell in cells]
        for future in concurrent.futures.as_completed(measured):
            if future.exception():
                shared[0].abort()
        return [future.result() for future in measured]


def measure(options: argparse.Namespace) -> dict:
    cells = cells_of(options)
    if options.at_once or options.fill_cache:
        rows = measure_at_once(cells, options)
    else:
        rows = [measure_cell(cell, options) for cell in cells]
    device = options.device
    name = torch.cuda.get_device_name() if device == "cuda" else _info.cpu_name()
    info = _info.build_info()
    return {
        "machine": name, "torch": torch.__version__, "threads": torch.get_num_threads(),
        "device": device, "date": datetime.date.today().isoformat(), "revision": info["revision"],
        "instruction_set": info["cpu instruction set in use"],
        "sizes": sizes_of(options),
        "contestant": FUSE if options.fuse else OVERRIDE, "rows": rows,
    }  # fmt: skip


# Each replaced activation on a few numbers, where the call takes most of the time.
CALLS = {
    "relu": F.relu, "elu": F.elu, "selu": F.selu, "celu": F.celu, "leaky_relu": F.leaky_relu,
    "hardtanh": F.hardtanh, "relu6": F.relu6, "threshold": lambda x: F.threshold(x, 0.5, 0.25),
    "hardswish": F.hardswish, "hardsigmoid": F.hardsigmoid, "sigmoid": torch.sigmoid,
    "tanh": torch.tanh, "silu": F.silu, "gelu": F.gelu, "mish": F.mish, "softplus": F.softplus,
    "logsigmoid": F.logsigmoid, "softshrink": F.softshrink, "hardshrink": F.hardshrink,
}  # fmt: skip


def measure_calls(options: argparse.Namespace) -> None:
    """Measures the microseconds of a call on 8 numbers; on a GPU, until the call is queued."""
    switch, x = Switch(), torch.randn(8, device=options.device)
    for name, function in CALLS.items():
        both = {
            title: Contestant(lambda f=function: f(x), lambda on=on: switch.set(on))
            for title, on in {"PyTorch": False, "override": True}.items()
        }
        with torch.no_grad():
            times = {n: asdict(t) for n, t in in_turn(both, CpuClock(), options.seconds).items()}
        theirs, ours = (1e6 * times[title]["median"] for title in both)
        found = ratio(times, "PyTorch", "override")
        print(f"{name:16}{found:10}(PyTorch {theirs:.2f}, override {ours:.2f} us)", flush=True)
    switch.set(False)


# The forms that fuse_ finds. Sizes are batch, channels and side.
FORMS = [parts for n in (1, 2, 3) for parts in itertools.combinations(sites.PARTS, n)]
FORM_SIZES = [(1, 32, 16), (8, 32, 32), (8, 128, 32), (16, 64, 56)]


def form_ratio(act, form: tuple, size: tuple, layout: torch.memory_format, seconds: float) -> float:
    """Returns PyTorch's float32 time divided by that of the call in a fused graph."""
    batch, channels, side = size
    x, other, gate = (
        torch.randn(batch, channels, side, side).to(memory_format=layout) for _ in range(3)
    )
    weight, bias, mean, variance = (torch.rand(channels) + 0.5 for _ in range(4))
    has_norm, has_residual, has_gate = (part in form for part in sites.PARTS)

    def theirs() -> torch.Tensor:
        y = F.batch_norm(x, mean, variance, weight, bias) if has_norm else x
        y = act.aten(y + other if has_residual else y)
        return y * gate if has_gate else y

    scale = weight * torch.rsqrt(variance + 1e-5)
    vectors = (scale, bias - mean * scale) if has_norm else (None, None)
    parameters = {"output_scale" if k == "scale" else k: v for k, v in act.parameters.items()}
    operands = (*vectors, other if has_residual else None, gate if has_gate else None)
    fused = getattr(torch.ops.fastact, f"fused_{act.name}").default
    both = {
        "PyTorch": Contestant(theirs),
        "fuse_": Contestant(lambda: fused(x, *operands, **parameters, dim=1)),
    }
    with torch.inference_mode():
        times = in_turn(both, CpuClock(), seconds)
    return times["PyTorch"].median / times["fuse_"].median


def measure_forms(options: argparse.Namespace) -> None:
    """Prints the geometric mean and the minimum of the ratios over FORM_SIZES and memory
    formats."""
    for act in OPERATORS:
        if (
            not hasattr(torch.ops.fastact, f"fused_{act.name}")
            or options.op
            and act.name not in options.op
        ):
            continue
        found = []
        for form in FORMS:
            ratios = [
                form_ratio(act, form, size, layout, options.seconds)
                for size in FORM_SIZES
                for layout in (torch.contiguous_format, torch.channels_last)
                if sites.NORM in form or math.prod(size) * size[2] >= sites.FEWEST_ON_CPU
            ]
            mean = statistics.geometric_mean(ratios)
            found.append(f"{' + '.join(form)} {mean:.2f} (from {min(ratios):.2f})")
        print(f"{act.name:14}" + "; ".join(found), flush=True)


def ratio(times: dict, theirs: str, ours: str) -> str:
    """Returns PyTorch's time divided by FastAct's, bold if FastAct is slower beyond the spread."""
    if not {theirs, ours} <= times.keys():
        return ""
    text = f"{times[theirs]['median'] / times[ours]['median']:.2f}"
    return f"**{text}**" if slower(times[ours], times[theirs], 0.03) else text


def fuse_ratio(times: dict) -> str:
    return ratio(times, "PyTorch", FUSE) or "as it was"


def line(row: dict) -> str:
    times = row["times"]
    if row["contestant"] == FUSE:
        compiled, found = ratio(times, COMPILED["PyTorch"], FUSE), fuse_ratio(times)
    else:
        compiled = ratio(times, *COMPILED.values())
        found = ratio(times, "PyTorch", OVERRIDE)
    milliseconds = ", ".join(f"{title} {1e3 * t['median']:.2f}" for title, t in times.items())
    found += f", compiled {compiled}" if compiled else ""
    cell = f"{row['network']:16}{row['dtype']:9}{MODES[row['training']]:9}"
    return f"{cell}{found:24}({milliseconds} ms)"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found = "cuda" if _info.gpus() else "cpu"
    parser.add_argument("--device", choices=("cpu", "cuda"), default=found)
    parser.add_argument("--libraries", action="store_true", help="models of torchvision and timm")
    every = [n.name for n in (*NETWORKS, *usual_networks())]
    parser.add_argument("--network", action="append", choices=every)
    parser.add_argument("--dtype", action="append", choices=DTYPES)
    parser.add_argument("--batch", type=int, help="default: 8 on a CPU, 64 on a GPU")
    parser.add_argument("--mode", choices=MODES.values(), help="default: both")
    parser.add_argument("--compile", action="store_true", help="also time compiled models")
    parser.add_argument("--at-once", action="store_true", help="compile all at the same time")
    parser.add_argument("--fill-cache", choices=COMPILED, help="only compile this side, at once")
    parser.add_argument("--fuse", action="store_true", help="fuse_ instead of the override")
    parser.add_argument("--fold", action="store_true", help="also with folded batch norms")
    parser.add_argument("--calls", action="store_true", help="single calls on 8 numbers")
    parser.add_argument("--forms", action="store_true", help="fused forms and PyTorch, on a CPU")
    parser.add_argument("--op", action="append", help="activations of --forms")
    parser.add_argument("--threads", type=int, help="PyTorch's threads, on a CPU")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each cell")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.forms:
        measure_forms(options)
        return
    if options.calls:
        measure_calls(options)
        return
    result = measure(options)
    if options.fill_cache:
        return
    folder = ROOT / "build" / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    threads = f"-{result['threads']}" if options.device == "cpu" else ""
    kind = f"fuse-{options.device}{threads}" if options.fuse else f"models-{options.device}"
    file = folder / f"{kind}.json"
    file.write_text(json.dumps(result, indent=1) + "\n")
    print(file)


if __name__ == "__main__":
    main()
