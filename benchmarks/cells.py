"""Cells of the benchmark. A cell is an operator, form, dtype, size, layout and number of
threads."""

import math
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from op_table import OPERATORS, Activation
from support import DTYPES, dtype_name

# Tensors that a form must read or write. Backward reads the gradient and the saved tensor, and
# writes the gradient of x. Training reads x and writes y before that. Further tensors that an
# implementation saves do not count.
TENSORS_MOVED = {"forward": 2, "in-place": 2, "out": 2, "backward": 3, "training": 5}
FORMS = tuple(TENSORS_MOVED)
FORMS_OF_ONE_CALL = tuple(form for form in FORMS if form != "training")
DTYPE_NAMES = tuple(dtype_name(dtype) for dtype in DTYPES)
SIXTEEN_BITS = ("bfloat16", "float16")
# The length of a row in memory: a power of two, like every size.
ROW = 1024

LAYOUTS = {
    "contiguous": lambda base, n: base(n),
    "channels_last": lambda base, n: base(n // ROW, 16, 8, 8).to(memory_format=torch.channels_last),
    "chunk": lambda base, n: base(n // ROW, 2 * ROW).chunk(2, 1)[0],
    "every_second_column": lambda base, n: base(n // ROW, 2 * ROW)[:, ::2],
    "odd_offset": lambda base, n: base(n + 1)[1:],
}


@dataclass(frozen=True)
class Cell:
    op: str
    form: str
    dtype: str
    elements: int
    layout: str
    threads: int  # 0 on a GPU
    device: str
    compiled: bool = False  # whether torch.compile is timed, which takes seconds

    @property
    def act(self) -> Activation:
        return next(act for act in OPERATORS if act.id == self.op)

    @property
    def torch_dtype(self) -> torch.dtype:
        return getattr(torch, self.dtype)

    @property
    def bytes_of_tensor(self) -> int:
        return self.elements * self.torch_dtype.itemsize

    @property
    def bytes_moved(self) -> int:
        return TENSORS_MOVED[self.form] * self.bytes_of_tensor

    @property
    def memory_needed(self) -> int:
        """Returns an upper bound: three operands, which may take twice the memory; three tensors of
        the copy; four that autograd keeps for a backward pass; and two results."""
        return (12 if self.layout == "contiguous" else 15) * self.bytes_of_tensor

    @property
    def key(self) -> tuple:
        return key_of(self.__dict__)

    def as_dict(self) -> dict:
        described = asdict(self)
        del described["compiled"]
        return described

    def tensor(self) -> torch.Tensor:
        """Returns a repeated block of random numbers in the cell's layout."""

        def base(*shape: int) -> torch.Tensor:
            count = math.prod(shape)
            block = 3 * torch.randn(min(count, 1 << 20), device=self.device)
            times = -(-count // len(block))
            return block.to(self.torch_dtype).repeat(times)[:count].view(shape)

        return LAYOUTS[self.layout](base, self.elements)


def key_of(cell: dict) -> tuple:
    """Returns the identity of a cell, measured or stored, among the cells of one device."""
    return tuple(cell[name] for name in ("op", "form", "dtype", "elements", "layout", "threads"))


def label(cell: dict) -> str:
    """Returns the name of a stored cell for a table."""
    words = [cell["op"].partition("-")[0], cell["form"], cell["dtype"], size_name(cell["elements"])]
    if cell["layout"] != "contiguous":
        words.append(cell["layout"])
    if cell["device"] == "cpu":
        words.append(f"{cell['threads']} thread" + "s" * (cell["threads"] > 1))
    return " ".join(words)


def size_name(elements: int) -> str:
    power = elements.bit_length() - 1
    return f"2^{power}" if elements == 1 << power else str(elements)


# ---- Selections


def last_level_cache() -> int:
    """Returns the bytes of the CPU's largest cache."""
    sizes = [
        path.read_text().strip()
        for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    ]
    units = {"K": 1 << 10, "M": 1 << 20}
    return max((int(size[:-1]) * units[size[-1]] for size in sizes), default=32 << 20)


def available_memory(device: str) -> int:
    if device == "cuda":
        return torch.cuda.mem_get_info()[0]
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def powers(*exponents: int) -> tuple[int, ...]:
    return tuple(1 << exponent for exponent in exponents)


# The activations that are measured at every size, layout and form by default. A few suffice,
# because moving elements does not depend on the formula.
SWEPT = ("selu", "relu")


@dataclass(frozen=True)
class Grid:
    """A product of the fields' values. `threads` is "one", "all" or both, for a CPU."""

    sizes: tuple[int, ...]
    forms: tuple[str, ...] = ("forward",)
    dtypes: tuple[str, ...] = DTYPE_NAMES
    layouts: tuple[str, ...] = ("contiguous",)
    threads: tuple[str, ...] = ("one",)
    compiled: bool = False
    every: bool = False  # for all activations, not only those of SWEPT

    def cells(self, ops: Iterable[str], device: str) -> Iterable[Cell]:
        numbers = {"one": 1, "all": torch.get_num_threads()}
        threads = [0] if device == "cuda" else sorted({numbers[t] for t in self.threads})
        for op in ops:
            for form in self.forms:
                for dtype in self.dtypes:
                    for layout in self.layouts:
                        for count in threads:
                            for size in self.sizes:
                                yield Cell(
                                    op, form, dtype, size, layout, count, device, self.compiled
                                )


OTHER_LAYOUTS = tuple(name for name in LAYOUTS if name != "contiguous")
BOTH = ("one", "all")
TWO_DTYPES = ("float32", "bfloat16")
# Grids of a selection overlap. A cell is measured once, as its first grid specifies.
SELECTIONS = {
    ("cpu", "quick"): (
        Grid(powers(20), ("forward",), ("float32",), compiled=True),
        Grid(powers(12, 16, 20), ("forward", "backward"), TWO_DTYPES),
        Grid(powers(20), ("in-place", "training"), TWO_DTYPES),
        Grid(powers(22), ("out",), TWO_DTYPES, threads=BOTH),
    ),
    ("cpu", "default"): (
        Grid(powers(20), ("forward", "training"), TWO_DTYPES, compiled=True),
        Grid(powers(22), ("forward",), TWO_DTYPES, threads=BOTH, compiled=True),
        Grid(powers(4, 8, 12, 14, 16, 18, 20, 22, 24, 26)),
        Grid(powers(12, 16, 20, 24), FORMS),
        Grid(powers(16, 22), ("forward", "backward"), TWO_DTYPES, OTHER_LAYOUTS),
        Grid(powers(16, 20, 24, 26), ("forward", "out", "backward"), threads=("all",)),
        Grid(powers(16, 20), ("forward", "backward"), every=True),
    ),
    ("cpu", "every"): (Grid(powers(12, 16, 20, 24), FORMS_OF_ONE_CALL, threads=BOTH, every=True),),
    ("cpu", "full"): (
        Grid(powers(*range(4, 31, 2)), FORMS, threads=BOTH, compiled=True),
        Grid(powers(*range(12, 27, 2)), FORMS, layouts=OTHER_LAYOUTS, threads=BOTH),
    ),
    ("cuda", "quick"): (
        Grid(powers(24), ("forward",), ("float32",), compiled=True),
        Grid(powers(16, 22, 26), ("forward", "in-place", "backward", "training"), TWO_DTYPES),
    ),
    ("cuda", "default"): (
        Grid(powers(24, 28), ("forward", "training"), TWO_DTYPES, compiled=True),
        Grid(powers(4, 10, 14, 16, 18, 20, 22, 23, 24, 26, 28, 30)),
        Grid(powers(16, 20, 24, 28), FORMS),
        Grid(powers(20, 26), ("forward", "backward"), TWO_DTYPES, OTHER_LAYOUTS),
        Grid(powers(20, 28), ("forward", "backward"), every=True),
    ),
    ("cuda", "every"): (Grid(powers(16, 20, 24, 28), FORMS_OF_ONE_CALL, every=True),),
    ("cuda", "full"): (
        Grid(powers(*range(4, 31, 2)), FORMS, compiled=True),
        Grid(powers(*range(12, 29, 2)), FORMS, layouts=OTHER_LAYOUTS),
    ),
}
# Seconds for all cells of a selection, and the limit for one cell.
SECONDS = {
    "quick": (60, 0.5),
    "default": (240, 1.0),
    "every": (3600, 1.0),
    "full": (float("inf"), 1.0),
}


def select(
    selection: str,
    device: str,
    ops: Iterable[str],
    dtypes: Iterable[str] = (),
    forms: Iterable[str] = (),
    sizes: Iterable[int] = (),
    layouts: Iterable[str] = (),
    swept: Iterable[str] = SWEPT,
) -> list[Cell]:
    """Returns the cells of a selection that pass the filters and fit into memory. An empty filter
    passes everything. `sizes` replaces the selection's sizes. `swept` lists the operators of grids
    that do not contain every operator."""
    if selection == "full":
        swept = ops
    chosen: dict[tuple, Cell] = {}
    for grid in SELECTIONS[device, selection]:
        for cell in grid.cells([op for op in ops if grid.every or op in swept], device):
            for size in sizes or (cell.elements,):
                candidate = Cell(**{**cell.__dict__, "elements": size})
                if (
                    (not dtypes or candidate.dtype in dtypes)
                    and (not forms or candidate.form in forms)
                    and (not layouts or candidate.layout in layouts)
                    and (candidate.layout == "contiguous" or candidate.elements >= ROW)
                ):
                    chosen.setdefault(candidate.key, candidate)
    memory = 0.8 * available_memory(device)
    return [cell for cell in chosen.values() if cell.memory_needed <= memory]
