"""Times FastAct beside PyTorch and beside a copy of the same bytes; checks the first speed bar.

On a GPU: tensors of 4096 x 393216 elements; every contestant runs once a round, in turn, timed by
CUDA events. The copy is a kernel of its own (copy.cu) that moves exactly the bytes of the
operation: one stream in and one out, or two in and one out for backward. On the CPU: 2^20 elements
on one thread, beside PyTorch alone.

Prints the median time of each, the spread of ours (10th to 90th percentile), and two ratios:
copy / ours (the fraction of copy speed) and PyTorch / ours. Exits with 1 if a bar is missed. This
measures; the tests assert bits.
"""

import argparse
import ctypes
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

GPU_SHAPE = (4096, 393216)
CPU_ELEMENTS = 1 << 20
LAMBDA_ALPHA, LAMBDA = 1.6732632423543772, 1.0507009873554805

# The least fraction of copy speed on a GPU, and the least PyTorch / ours on one CPU thread.
GPU_BARS = {
    ("selu", torch.float32, "forward"): 0.97,
    ("selu", torch.float32, "in-place"): 0.97,
    ("selu", torch.float32, "backward"): 0.97,
    ("relu", torch.float32, "forward"): 0.97,
    ("relu", torch.float32, "in-place"): 0.97,
    ("relu", torch.float32, "backward"): 0.97,
    ("selu", torch.bfloat16, "forward"): 0.95,
    ("relu", torch.bfloat16, "forward"): 0.95,
}
CPU_BARS = {
    ("selu", torch.float32, "forward"): 1.8,
    ("selu", torch.bfloat16, "forward"): 4.0,
    ("relu", torch.float32, "forward"): 1.0,
    ("relu", torch.bfloat16, "forward"): 1.0,
}
# A bar of 1.0 means "no slower": within what two runs of the same code differ by.
NOISE = 0.03


def repository_library() -> Path:
    return Path(__file__).resolve().parent.parent / "build" / "lib" / "libfastact.so"


def load_copy_kernels() -> ctypes.CDLL:
    """Compiles copy.cu for this GPU with the nvcc of $CUDACXX or PATH."""
    library = Path(tempfile.mkdtemp()) / "libcopy.so"
    nvcc = os.environ.get("CUDACXX", "nvcc")
    source = Path(__file__).with_name("copy.cu")
    subprocess.run(
        [
            nvcc,
            "-O3",
            "-std=c++17",
            "-arch=native",
            "-shared",
            "-Xcompiler",
            "-fPIC",
            source,
            "-o",
            library,
        ],
        check=True,
    )
    kernels = ctypes.CDLL(str(library))
    pointer, size = ctypes.c_void_p, ctypes.c_int64
    kernels.copy_bytes.argtypes = [pointer, pointer, size, pointer]
    kernels.merge_bytes.argtypes = [pointer, pointer, pointer, size, pointer]
    return kernels


def torch_forms(op: str) -> dict[str, Callable]:
    aten = torch.ops.aten
    if op == "relu":
        return {
            "forward": torch.relu,
            "in-place": torch.relu_,
            "backward": lambda g, x: aten.threshold_backward(g, x, 0),
        }
    return {
        "forward": torch.selu,
        "in-place": torch.selu_,
        "backward": lambda g, x: aten.elu_backward(g, LAMBDA_ALPHA, LAMBDA, 1.0, False, x),
    }


def our_forms(op: str) -> dict[str, Callable]:
    ops = torch.ops.fastact
    return {
        "forward": getattr(ops, op),
        "in-place": getattr(ops, op + "_"),
        "backward": getattr(ops, op + "_backward"),
    }


def time_in_turn(
    calls: dict[str, Callable], rounds: int, clock: Callable[[Callable], float]
) -> dict[str, list[float]]:
    times = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(3):
            call()
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(clock(call))
    return times


def cuda_clock(call: Callable) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e-3


def cpu_clock(call: Callable) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def percentile(values: list[float], fraction: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))]


class Report:
    def __init__(self) -> None:
        self.missed: list[str] = []
        print(
            f"{'operation':34}{'ours':>10}{'spread':>17}{'PyTorch':>10}{'copy':>10}"
            f"{'copy/ours':>11}{'torch/ours':>12}{'bar':>7}"
        )

    def add(
        self, key: tuple, times: dict[str, list[float]], bar: float | None, unit: float, ratio: str
    ) -> None:
        op, dtype, form = key
        median = {name: statistics.median(values) for name, values in times.items()}
        ours = median["ours"]
        low, high = (percentile(times["ours"], fraction) / unit for fraction in (0.1, 0.9))
        spread = f"{low:.3f}..{high:.3f}"
        ratios = {name: median[name] / ours for name in ("copy", "torch") if name in median}
        missed = bar is not None and ratios[ratio] < (
            bar if bar > 1 or ratio == "copy" else bar - NOISE
        )
        name = f"{op} {str(dtype).removeprefix('torch.')} {form}"
        if missed:
            self.missed.append(f"{name}: {ratios[ratio]:.3f} is below {bar}")
        copy = f"{median['copy'] / unit:.3f}" if "copy" in median else "-"
        fraction = f"{ratios['copy']:.3f}" if "copy" in ratios else "-"
        print(
            f"{name:34}{ours / unit:10.3f}{spread:>17}{median['torch'] / unit:10.3f}{copy:>10}"
            f"{fraction:>11}{ratios['torch']:12.2f}{'-' if bar is None else bar:>7}"
            f"{'  MISSED' if missed else ''}",
            flush=True,
        )


def bench_gpu(rounds: int) -> list[str]:
    kernels = load_copy_kernels()
    print(
        f"\n{torch.cuda.get_device_name()}, {GPU_SHAPE[0]} x {GPU_SHAPE[1]} elements, times in ms"
    )
    report = Report()
    stream = torch.cuda.current_stream().cuda_stream
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        x = torch.randn(GPU_SHAPE, device="cuda", dtype=dtype)
        gradient = torch.randn_like(x)
        spare = torch.empty_like(x)
        size = x.numel() * x.element_size()
        for op in ("selu", "relu"):
            ours, theirs = our_forms(op), torch_forms(op)
            copy = {
                "forward": lambda: kernels.copy_bytes(x.data_ptr(), spare.data_ptr(), size, stream),
                "in-place": lambda: kernels.copy_bytes(
                    spare.data_ptr(), spare.data_ptr(), size, stream
                ),
                "backward": lambda: kernels.merge_bytes(
                    gradient.data_ptr(), x.data_ptr(), spare.data_ptr(), size, stream
                ),
            }
            arguments = {"forward": (x,), "in-place": (spare,), "backward": (gradient, x)}
            for form in ("forward", "in-place", "backward"):
                spare.copy_(x)
                calls = {
                    "ours": lambda: ours[form](*arguments[form]),
                    "copy": copy[form],
                    "torch": lambda: theirs[form](*arguments[form]),
                }
                key = (op, dtype, form)
                report.add(
                    key, time_in_turn(calls, rounds, cuda_clock), GPU_BARS.get(key), 1e-3, "copy"
                )
    return report.missed


def bench_cpu(rounds: int) -> list[str]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    print(f"\nCPU, one thread, {CPU_ELEMENTS} elements, times in us")
    report = Report()
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        x = torch.randn(CPU_ELEMENTS).to(dtype)
        gradient = torch.randn(CPU_ELEMENTS).to(dtype)
        for op in ("selu", "relu"):
            ours, theirs = our_forms(op), torch_forms(op)
            for form, arguments in (("forward", (x,)), ("backward", (gradient, x))):
                calls = {
                    "ours": lambda: ours[form](*arguments),
                    "torch": lambda: theirs[form](*arguments),
                }
                key = (op, dtype, form)
                report.add(
                    key, time_in_turn(calls, rounds, cpu_clock), CPU_BARS.get(key), 1e-6, "torch"
                )
    torch.set_num_threads(threads)
    return report.missed


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = Path(os.environ.get("FASTACT_LIBRARY", repository_library()))
    parser.add_argument(
        "--library", type=Path, default=default, help="libfastact.so (default: %(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--device", choices=("cpu", "cuda", "all"), default="all")
    arguments = parser.parse_args()
    torch.ops.load_library(arguments.library)
    print(torch.ops.fastact.build_info())
    missed = []
    with torch.no_grad():
        if arguments.device != "cuda":
            missed += bench_cpu(arguments.rounds)
        if arguments.device != "cpu" and torch.cuda.is_available():
            missed += bench_gpu(arguments.rounds)
    print("\n" + ("missed:\n  " + "\n  ".join(missed) if missed else "every bar is met"))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
