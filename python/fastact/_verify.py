"""Compares digests of a fixed part of all results on this machine with the recorded ones."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from tqdm import tqdm

from fastact import _info
from fastact._digests.kernels import PRELU, Kernel, activation_kernels, compute, prelu_kernels
from fastact._digests.rows import ROWS, row_kernels

RECORDED = Path(__file__).parent / "_digests" / "recorded.json"


def _kernels(rows: list[dict]) -> Iterator[tuple[Kernel, str]]:
    """Yields everything that has a digest, with the recorded digest."""
    for row in rows:
        for dtype_name, recorded in row["digests"].items():
            dtype = getattr(torch, dtype_name)
            if row["name"] == PRELU:
                every = prelu_kernels(dtype)
            elif row["name"] in ROWS:
                every = row_kernels(row["name"], int(row["parameters"]["length"]), dtype)
            else:
                has_is_result = "derivative_1_from_result" in recorded
                every = activation_kernels(
                    row["id"], row["name"], row["parameters"], has_is_result, dtype
                )
            for kernel in every:
                yield kernel, recorded[kernel.form]


def run(devices: list[str], workers: int) -> int:
    """Prints every digest that differs, and a verdict for each device. Returns the exit code."""
    try:
        rows = json.loads(RECORDED.read_bytes())
    except (OSError, ValueError) as error:
        raise RuntimeError(
            f"fastact: expected the digests in {RECORDED}, but got: {error}: install fastact again"
        ) from error
    return max(_verify(device, workers, rows) for device in devices)


def _verify(device: str, workers: int, rows: list[dict]) -> int:
    if device == "cuda":
        workers = 1  # processes would share the GPU
    kernels = list(_kernels(rows))
    total = sum(count for kernel, _ in kernels for _, count in kernel.ranges(True, 1))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the workers share the pieces; a piece is not divided
    start = time.monotonic()
    differing = 0
    with tqdm(
        total=total, desc=device, unit="", unit_scale=True, dynamic_ncols=True,
        disable=sys.stderr is None,
    ) as bar:  # fmt: skip
        for kernel, expected in kernels:
            found = compute(kernel, device, part=True, workers=workers, progress=bar.update)
            if found != expected:
                differing += 1
                dtype = str(kernel.dtype).removeprefix("torch.")
                bar.write(
                    f"DIFFERS: {kernel.name} {dtype} {kernel.form}: expected {expected}, "
                    f"but got {found}"
                )
    torch.set_num_threads(threads)
    verdict = f"{differing} DIFFER" if differing else "all equal"
    print(
        f"{device}, {_info.processor(device)}: {len(kernels)} digests of {total:,} results in "
        f"{time.monotonic() - start:.0f} s: {verdict}",
        flush=True,
    )
    return int(differing > 0)
