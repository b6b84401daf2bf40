"""Checks that the results of `Model` (PyTorch) and `ModelNew` (FastAct) agree, and times both.

    python run.py --library PREFIX/lib/libfastact.so [--problem NAME]... [--device cpu|cuda]
                  [--rows N] [--fast-math-library PATH]

Without --problem it runs selu and relu. On CUDA it also runs their plain kernels from plain.cu,
in which one thread computes one element.
"""

import argparse
import ctypes
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from problems import PROBLEMS, SHAPES, Model, ModelNew, Problem, get_init_inputs, get_inputs

HERE = Path(__file__).resolve().parent
PLAIN = ("selu", "relu")
VARIANTS = ("forward", "in place", "training")
# Tensors read or written by each variant. Training reads x and writes y, then reads the gradient
# and the saved tensor, and writes the gradient of x. A copy moves two.
TENSORS_MOVED = {"forward": 2, "in place": 2, "training": 5}
WARM_UP_RUNS = 5
TIMED_RUNS = 30
Work = Callable[[], torch.Tensor]


class Failure(Exception):
    """An error message for the user, in one sentence."""


# --- The contenders: each has the three variants as functions without arguments ---


def model_works(model: torch.nn.Module, in_place: Callable | None, x, z, grad) -> dict[str, Work]:
    leaf = x.detach().requires_grad_()

    def forward() -> torch.Tensor:
        with torch.no_grad():
            return model(x)

    def training() -> torch.Tensor:
        return torch.autograd.grad(model(leaf), leaf, grad)[0]

    works = {"forward": forward, "training": training}
    if in_place:
        works["in place"] = lambda: in_place(z)
    return works


def plain_works(library: ctypes.CDLL, name: str, x, z, grad) -> dict[str, Work]:
    def call(function: str, *tensors: torch.Tensor) -> torch.Tensor:
        entry = getattr(library, function)
        entry.restype = ctypes.c_char_p
        entry.argtypes = [ctypes.c_void_p] * len(tensors) + [ctypes.c_int64, ctypes.c_void_p]
        stream = torch.cuda.current_stream().cuda_stream
        error = entry(*(tensor.data_ptr() for tensor in tensors), x.numel(), stream)
        if error:
            raise Failure(f"{function} failed: {error.decode()}.")
        return tensors[-1]

    def training() -> torch.Tensor:
        call(f"plain_{name}", x, torch.empty_like(x))
        return call(f"plain_{name}_backward", grad, x, torch.empty_like(x))

    return {
        "forward": lambda: call(f"plain_{name}", x, torch.empty_like(x)),
        "in place": lambda: call(f"plain_{name}", z, z),
        "training": training,
    }


def build_plain(folder: str) -> ctypes.CDLL | None:
    """Builds plain.cu for this GPU and returns the library, or None without nvcc."""
    beside_torch = sorted(Path(torch.__file__).parents[1].glob("nvidia/cu*/bin/nvcc"))
    candidates = [
        os.environ.get("CUDACXX"),
        shutil.which("nvcc"),
        *beside_torch,
        "/usr/local/cuda/bin/nvcc",
    ]
    nvcc = next((path for path in candidates if path and Path(path).is_file()), None)
    if nvcc is None:
        print("No nvcc was found: the plain kernel does not run.")
        return None
    major, minor = torch.cuda.get_device_capability()
    library = Path(folder) / "libplain.so"
    command = [str(nvcc), "-O3", "-std=c++17", "-shared", "-Xcompiler", "-fPIC"]
    command += [f"--gpu-architecture=sm_{major}{minor}", str(HERE / "plain.cu"), "-o", str(library)]
    built = subprocess.run(command, capture_output=True, text=True)
    if built.returncode != 0:
        print(f"{nvcc} cannot build plain.cu, so the plain kernel does not run:\n{built.stderr}")
        return None
    return ctypes.CDLL(str(library))


# --- Checking ---


def ulp_error(actual: torch.Tensor, exact: torch.Tensor) -> float:
    """Returns the largest error of float32 `actual` from float64 `exact`, in float32 ULP."""
    exponent = torch.frexp(exact).exponent.clamp(min=-125)
    return ((actual.double() - exact).abs() / torch.exp2(exponent.double() - 24)).max().item()


def exact_value(problem: Problem, x: torch.Tensor) -> torch.Tensor:
    return (problem.exact or problem.pytorch)(x.double())


def exact_gradient(problem: Problem, x: torch.Tensor) -> torch.Tensor:
    x = x.double().requires_grad_()
    return torch.autograd.grad(exact_value(problem, x).sum(), x)[0]


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.view(torch.int32), b.view(torch.int32))


def check(problem: Problem, works: dict[str, dict[str, Work]], x: torch.Tensor) -> dict:
    """Returns the errors of every contender, over all elements of the value and the gradient."""
    report: dict = {}
    parts = max(1, x.numel() // 2**24)  # because the float64 reference of x may not fit in memory
    for variant, exact in (("forward", exact_value), ("training", exact_gradient)):
        results = {who: work[variant]() for who, work in works.items()}
        chunks = {who: result.view(-1).chunk(parts) for who, result in results.items()}
        errors = dict.fromkeys(results, 0.0)
        difference, equal = 0.0, True
        for i, part in enumerate(x.view(-1).chunk(parts)):
            reference = exact(problem, part)
            for who in results:
                errors[who] = max(errors[who], ulp_error(chunks[who][i], reference))
            ours, theirs = chunks["FastAct"][i], chunks["PyTorch"][i]
            difference = max(difference, ulp_error(ours, theirs.double()))
            equal &= same_bits(ours, theirs)
        report[variant] = {"ulp": errors, "difference": difference, "equal": equal}
    return report


def judge(name: str, report: dict) -> None:
    """Raises Failure if FastAct's results exceed the documented bounds."""
    if not report["in place"]["equal"]:
        raise Failure(f"{name}: FastAct's bits in place differ from those of its forward.")
    if report["in place"]["allocated"]:
        raise Failure(
            f"{name}: FastAct allocates {report['in place']['allocated']} bytes in place."
        )
    agreement = PROBLEMS[name].agreement_ulp
    for variant, limit in zip(("forward", "training"), PROBLEMS[name].ulp, strict=True):
        found = report[variant]
        error, difference = found["ulp"]["FastAct"], found["difference"]
        if error > limit:
            raise Failure(f"{name}, {variant}: FastAct is off by {error:.3f} ULP, not {limit}.")
        if agreement == 0 and not found["equal"]:
            raise Failure(f"{name}, {variant}: FastAct's bits differ from PyTorch's.")
        if agreement is not None and difference > agreement:
            raise Failure(f"{name}, {variant}: the two differ by {difference:.3f} ULP.")


def check_in_place(works: dict[str, Work], device: str) -> dict:
    """Returns whether the in-place call has the bits of the forward, and the bytes it allocates."""
    expected = works["forward"]()
    key = "allocated_bytes.all.allocated"
    before = torch.cuda.memory_stats()[key] if device == "cuda" else 0
    result = works["in place"]()
    allocated = torch.cuda.memory_stats()[key] - before if device == "cuda" else None
    return {"equal": same_bits(result, expected), "allocated": allocated}


# --- Timing ---


def milliseconds(work: Work, device: str) -> float:
    if device == "cpu":
        start = time.perf_counter()
        work()
        return (time.perf_counter() - start) * 1e3
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(2_000_000)  # cycles in which the CPU launches the timed work
    start.record()
    work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def medians(works: dict[str, Work], device: str) -> dict[str, float]:
    """Returns median times. The works take turns, so a change of the clock rate affects all."""
    times: dict[str, list[float]] = {who: [] for who in works}
    for run in range(-WARM_UP_RUNS, TIMED_RUNS):
        for who, work in works.items():
            elapsed = milliseconds(work, device)
            if run >= 0:
                times[who].append(elapsed)
    return {who: statistics.median(values) for who, values in times.items()}


# --- One problem ---


def rows_that_fit(device: str, shape: tuple[int, int]) -> int:
    """Returns the problem's number of rows, halved until eight such tensors fit on the GPU."""
    rows, columns = shape
    if device == "cuda":
        torch.cuda.empty_cache()  # frees the memory that the allocator keeps from the last problem
        free, _ = torch.cuda.mem_get_info()
        while rows > 1 and 8 * rows * columns * 4 > 0.9 * free:
            rows //= 2
    return rows


def run_problem(name: str, options: argparse.Namespace, plain: ctypes.CDLL | None) -> dict:
    device = options.device
    problem = PROBLEMS[name]
    rows = options.rows or rows_that_fit(device, SHAPES[device])
    (x,) = get_inputs(device, rows)
    z, grad = x.clone(), torch.ones_like(x)

    def copy() -> torch.Tensor:
        return torch.empty_like(x).copy_(x)

    def copy_in_place() -> torch.Tensor:
        return z.copy_(x)

    def in_place(z: torch.Tensor) -> torch.Tensor:
        return getattr(torch.ops.fastact, f"{name}_")(z, *problem.arguments)

    arguments = get_init_inputs(name)
    works = {
        "PyTorch": model_works(Model(*arguments), problem.pytorch_in_place, x, z, grad),
        "FastAct": model_works(ModelNew(*arguments), in_place, x, z, grad),
    }
    if plain is not None and name in PLAIN:
        works["plain"] = plain_works(plain, name, x, z, grad)
    print(f"{name}: checking {list(x.shape)} on {device}", file=sys.stderr, flush=True)
    result = {"shape": list(x.shape), "check": check(problem, works, x), "ms": {}}
    result["check"]["in place"] = check_in_place(works["FastAct"], device)
    for variant in VARIANTS:
        print(f"{name}: timing {variant}", file=sys.stderr, flush=True)
        contenders = {who: work[variant] for who, work in works.items() if variant in work}
        # The copy allocates as the variant does. In place, it restores the numbers of `x` in `z`.
        contenders["copy"] = copy_in_place if variant == "in place" else copy
        result["ms"][variant] = medians(contenders, device)
    return result


def print_problem(name: str, result: dict, options: argparse.Namespace) -> None:
    where = (
        torch.cuda.get_device_name()
        if options.device == "cuda"
        else f"CPU, threads: {torch.get_num_threads()}"
    )
    print(f"\n{name}, float32 {result['shape']}, {where}, PyTorch {torch.__version__}")
    for variant, label in (("forward", "value"), ("training", "gradient")):
        found = result["check"][variant]["ulp"]
        errors = ", ".join(f"{who} {ulp:.3f}" for who, ulp in found.items())
        print(f"  {label}: largest error in ULP: {errors}")
    in_place = result["check"]["in place"]
    allocated = (
        "" if in_place["allocated"] is None else f", {in_place['allocated']} bytes allocated"
    )
    print(f"  in place: FastAct's bits equal its forward's: {in_place['equal']}{allocated}")
    columns = ("variant", "PyTorch", "plain", "FastAct", "speed-up", "of copy speed")
    print("  {:<10}{:>13}{:>13}{:>13}{:>10}{:>15}".format(*columns))
    for variant in VARIANTS:
        ms = result["ms"][variant]
        pytorch, plain = (f"{ms[who]:.3f} ms" if who in ms else "-" for who in ("PyTorch", "plain"))
        gain = f"{ms['PyTorch'] / ms['FastAct']:.2f}x" if "PyTorch" in ms else "-"
        fraction = ms["copy"] * TENSORS_MOVED[variant] / TENSORS_MOVED["forward"] / ms["FastAct"]
        print(
            f"  {variant:<10}{pytorch:>13}{plain:>13}{ms['FastAct']:>10.3f} ms"
            f"{gain:>10}{fraction:>15.1%}"
        )


def print_fast_math(name: str, result: dict, fast: dict) -> None:
    print("  built with FASTACT_FAST_MATH:")
    for variant in VARIANTS:
        ours, theirs = result["ms"][variant]["FastAct"], fast["ms"][variant]["FastAct"]
        print(f"    {variant:<10}{theirs:>10.3f} ms, {ours / theirs:.2f}x the speed of FastAct")
    for variant, label in (("forward", "value"), ("training", "gradient")):
        ours, theirs = (of["check"][variant]["ulp"]["FastAct"] for of in (result, fast))
        print(f"    {label}: largest error {theirs:.3f} ULP instead of {ours:.3f}")


def run_other_library(library: str, options: argparse.Namespace) -> dict:
    """Runs another build in a process of its own, because a process can load only one."""
    command = [sys.executable, str(HERE / "run.py"), "--library", library, "--json"]
    command += ["--device", options.device, "--threads", str(options.threads)]
    for problem in options.problem:
        command += ["--problem", problem]
    if options.rows:
        command += ["--rows", str(options.rows)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise Failure(f"the run on {library} failed.")
    return json.loads(done.stdout)


def run(options: argparse.Namespace) -> None:
    for library in filter(None, (options.library, options.fast_math_library)):
        if not Path(library).is_file():
            raise Failure(f"the library {library} does not exist.")
    if options.device == "cuda" and not torch.cuda.is_available():
        raise Failure("--device cuda: PyTorch finds no CUDA device on this machine.")
    fast = {}
    if options.fast_math_library:  # first, while this process has allocated no GPU memory
        fast = run_other_library(options.fast_math_library, options)
    torch.ops.load_library(options.library)
    with tempfile.TemporaryDirectory() as folder:
        wants_plain = options.device == "cuda" and not options.json
        plain = build_plain(folder) if wants_plain else None
        results = {}
        for name in options.problem:
            results[name] = run_problem(name, options, plain)
            if not options.json:
                print_problem(name, results[name], options)
                if fast:
                    print_fast_math(name, results[name], fast[name])
                judge(name, results[name]["check"])
    if options.json:
        print(json.dumps(results))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--library", required=True, help="the installed libfastact.so")
    parser.add_argument(
        "--problem", action="append", choices=PROBLEMS, help="default: selu and relu"
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], help="default: cuda if available")
    parser.add_argument(
        "--rows", type=int, help="rows of the tensor, instead of the problem's number"
    )
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    parser.add_argument("--fast-math-library", help="a build with FASTACT_FAST_MATH, to compare")
    parser.add_argument(
        "--json", action="store_true", help="print the figures as JSON, without judging them"
    )
    options = parser.parse_args()
    options.problem = options.problem or ["selu", "relu"]
    torch.set_num_threads(options.threads)
    options.device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        run(options)
    except Failure as failure:
        print(f"kernelbench: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
