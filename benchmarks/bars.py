"""The table of required speeds, which `python benchmarks --bars` checks."""

from dataclasses import dataclass

import torch
from _timing import BETWEEN_RUNS

from cells import DTYPE_NAMES, SIXTEEN_BITS, Cell, key_of, label, powers
from measure import ratio

FLOAT32 = ("float32",)
BOTH = ("selu", "relu")
STREAMED = ("forward", "in-place", "backward")
WRITTEN = ("out", "in-place")  # on a CPU, new memory would cost more than the computation
# Bytes of one tensor, far more than any L2 cache.
HUGE = 1 << 31
ONE_AND_ALL = ("one", "all")


@dataclass(frozen=True)
class Bar:
    """The required ratio of a contestant's time to FastAct's, in every cell of a product."""

    least: float
    against: str
    device: str
    ops: tuple[str, ...]
    forms: tuple[str, ...]
    dtypes: tuple[str, ...]
    elements: tuple[int, ...] = ()  # empty: tensors of HUGE bytes

    def cells(self, threads: int) -> list[Cell]:
        counts = (0,) if self.device == "cuda" else sorted({1, threads})
        return [
            Cell(op, form, dtype, elements, "contiguous", count, self.device)
            for op in self.ops
            for form in self.forms
            for dtype in self.dtypes
            for count in counts
            for elements in self.elements or (HUGE // getattr(torch, dtype).itemsize,)
        ]

    def met(self, cell: dict) -> bool:
        """Returns whether a cell meets the bar. A bar of 1 means not slower beyond noise."""
        found = ratio(cell, self.against)
        if found is None:
            return False
        if self.least == 1 and found >= 1 - BETWEEN_RUNS:
            return True
        return found >= self.least


MIDDLE = powers(22, 23, 24)
CPU_SIZE = powers(20)
BARS = (
    Bar(0.98, "copy", "cuda", BOTH, STREAMED, (*FLOAT32, *SIXTEEN_BITS)),
    Bar(0.95, "copy", "cuda", BOTH, STREAMED, ("float64",)),
    Bar(1.1, "pytorch", "cuda", ("selu",), ("forward",), SIXTEEN_BITS, MIDDLE),
    Bar(1.0, "pytorch", "cuda", BOTH, ("forward",), DTYPE_NAMES, MIDDLE),
    Bar(1.9, "pytorch", "cpu", ("selu",), WRITTEN, FLOAT32, CPU_SIZE),
    Bar(5.5, "pytorch", "cpu", ("selu",), WRITTEN, SIXTEEN_BITS, CPU_SIZE),
    Bar(1.0, "pytorch", "cpu", ("selu",), ("backward",), FLOAT32, CPU_SIZE),
    Bar(1.4, "pytorch", "cpu", ("selu",), ("backward",), SIXTEEN_BITS, CPU_SIZE),
    Bar(1.0, "pytorch", "cpu", ("relu",), WRITTEN, FLOAT32, CPU_SIZE),
    Bar(1.5, "pytorch", "cpu", ("relu",), WRITTEN, ("bfloat16",), CPU_SIZE),
)


def cells(device: str, threads: int) -> list[Cell]:
    """Returns the cells of a device's bars, each once."""
    wanted = [cell for bar in BARS if bar.device == device for cell in bar.cells(threads)]
    return list({cell.key: cell for cell in wanted}.values())


def missed(measured: list[dict], device: str, threads: int) -> list[str]:
    """Returns a sentence for each measured cell that misses its bar."""
    found = {key_of(cell): cell for cell in measured}
    sentences = []
    for bar in BARS:
        for cell in bar.cells(threads) if bar.device == device else ():
            stored = found.get(cell.key)
            if stored and not bar.met(stored):
                value = ratio(stored, bar.against)
                got = f"{value:.3f}" if value else f"no time of the {bar.against}"
                sentences.append(
                    f"{label(stored)}: expected {bar.against} / FastAct of at least {bar.least:g}, "
                    f"but got {got}"
                )
    return sentences
