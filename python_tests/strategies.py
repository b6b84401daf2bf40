"""Hypothesis strategies for tensors: any shape, layout, alias and bits.

A Spec only describes a tensor, so that each of the compared calls can build the same arguments.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from hypothesis import strategies as st

from oracle import FORMATS, bits
from support import DTYPES
from test_special_values import nans, specials

SIZES = (1, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65)
LARGEST = 4000
# Sizes around those of vectors, of the CPU's blocks, and of PyTorch's grain for threads.
EDGES = (15, 16, 17, 127, 128, 129, 511, 512, 513, 1023, 1025, 4097, 32767, 32768, 32769, 65537)
UNSUPPORTED = (torch.bool, torch.uint8, torch.int32, torch.int64, torch.complex64)


@dataclass(frozen=True)
class Spec:
    """The as_strided() arguments of a tensor, in a storage that other tensors may share."""

    dtype: torch.dtype
    shape: tuple
    strides: tuple
    offset: int
    storage: int = 0  # specs with the same number share memory
    seed: int = 0  # for the storage's bits
    is_view: bool = True  # of a base tensor, with its version counter
    device: str | None = None  # instead of the device under test

    @property
    def extent(self):
        """Returns the number of elements that the storage must hold."""
        steps = ((size - 1) * stride for size, stride in zip(self.shape, self.strides))
        return self.offset + (1 + sum(steps) if 0 not in self.shape else 0)


@lru_cache(maxsize=32)  # each call builds the same arguments again
def random_bits(count, dtype, seed):
    """Returns numbers: half of them are arbitrary bit patterns, the others ordinary or special."""
    generator = torch.Generator().manual_seed(seed)
    ordinary = (torch.randn(count, dtype=torch.float64, generator=generator) * 3).to(dtype)
    if dtype not in FORMATS:
        return ordinary
    integer = FORMATS[dtype].integer
    patterns = torch.randint(-(2**63), 2**63 - 1, (count,), generator=generator).to(integer)
    special = bits(torch.cat((specials(dtype, "cpu"), nans(dtype, "cpu"))))
    special = special[torch.randint(len(special), (count,), generator=generator)]
    kind = torch.randint(4, (count,), generator=generator)
    chosen = torch.where(kind == 0, bits(ordinary), torch.where(kind == 1, special, patterns))
    return chosen.view(dtype)


def build(specs, device, transform=None):
    """Returns the tensors of a call, which may share storages. `transform` maps the number of a
    storage to a function of its elements."""
    bases = {}
    for number in {s.storage for s in specs}:
        sharing = [s for s in specs if s.storage == number]
        # Extra elements at the end reveal writes past the end.
        count = max(s.extent for s in sharing) + 3
        base = random_bits(count, sharing[0].dtype, sharing[0].seed)
        base = (transform or {}).get(number, lambda base: base)(base)
        bases[number] = base.to(sharing[0].device or device, copy=True)

    def tensor(spec):
        base = bases[spec.storage]
        if spec.is_view:
            return base.as_strided(spec.shape, spec.strides, spec.offset)
        fresh = torch.empty(0, dtype=spec.dtype, device=base.device)
        return fresh.set_(base.untyped_storage(), spec.offset, spec.shape, spec.strides)

    return [tensor(s) for s in specs]


def addresses(spec):
    return torch.arange(spec.extent).as_strided(spec.shape, spec.strides, spec.offset).contiguous()


def well_defined(specs, written):
    """Returns true if no element is written twice, or written before another is computed from
    it."""
    target = addresses(specs[written])
    if len(target.unique()) != target.numel():
        return False
    for i, spec in enumerate(specs):
        if i == written or spec.storage != specs[written].storage:
            continue
        source = addresses(spec)
        if source.shape != target.shape:
            return False
        if (torch.isin(source, target) & (source != target)).any():
            return False
    return True


def overlaps_in_part(specs, written):
    """Returns true if the written tensor shares elements with another tensor that is not the same
    view."""
    target = specs[written]
    for i, spec in enumerate(specs):
        if i == written or spec.storage != target.storage:
            continue
        is_same_view = (spec.shape, spec.offset) == (target.shape, target.offset) and all(
            ours == theirs
            for size, ours, theirs in zip(spec.shape, spec.strides, target.strides)
            if size != 1
        )
        if not is_same_view and torch.isin(addresses(spec), addresses(target)).any():
            return True
    return False


@st.composite
def shapes(draw):
    if draw(st.integers(0, 7)) == 0:
        edge = draw(st.sampled_from(EDGES))
        return draw(st.sampled_from(((edge,), (1, edge), (2, edge // 2 + 1), (edge // 3 + 1, 3))))
    shape = draw(st.lists(st.sampled_from(SIZES), max_size=5))
    while math.prod(shape) > LARGEST:
        shape[shape.index(max(shape))] //= 2
    if shape and draw(st.integers(0, 11)) == 0:
        shape[draw(st.integers(0, len(shape) - 1))] = 0
    return tuple(shape)


CHANNELS_LAST = {4: (0, 2, 3, 1), 5: (0, 2, 3, 4, 1)}
LAYOUTS = (
    "contiguous", "permuted", "channels_last", "stepped", "half_of_a_chunk", "expanded",
    "overlapping", "strange",
)  # fmt: skip


@st.composite
def layouts(draw, shape):
    """Draws strides for the shape."""
    layout = draw(st.sampled_from(LAYOUTS))
    dims = range(len(shape))
    if layout == "overlapping":
        return tuple(draw(st.integers(0, 3)) for _ in dims)
    order = tuple(dims)
    if layout == "channels_last":
        order = CHANNELS_LAST.get(len(shape), order)
    elif layout == "permuted" or layout != "contiguous" and draw(st.booleans()):
        order = draw(st.permutations(order))
    strides, next_stride = [0] * len(shape), 1
    for dim in reversed(order):
        if layout == "expanded" and draw(st.booleans()):
            continue
        step = draw(st.integers(1, 3)) if layout == "stepped" else 1
        strides[dim] = step * next_stride
        next_stride = strides[dim] * max(shape[dim], 1)
        if layout == "half_of_a_chunk":
            next_stride *= 2
    if layout == "strange":  # strides of dimensions of size 1 are arbitrary
        for dim in dims:
            if shape[dim] <= 1 or 0 in shape:
                strides[dim] = draw(st.integers(0, 99))
    return tuple(strides)


offsets = st.sampled_from((0, 0, 0, 1, 2, 3, 5, 8))
supported = st.sampled_from(DTYPES)
dtypes = st.sampled_from(DTYPES * 12 + UNSUPPORTED)
seeds = st.integers(0, 2**31)


@st.composite
def tensors(draw, storage, dtype, shape):
    return Spec(
        dtype=dtype,
        shape=shape,
        strides=draw(layouts(shape)),
        offset=draw(offsets),
        storage=storage,
        seed=draw(seeds),
        is_view=draw(st.booleans()),
    )


@st.composite
def targets(draw, storage, shape, inputs):
    """Draws a tensor to write to: mostly of the right shape, sometimes in an input's memory."""
    if draw(st.integers(0, 3)) == 0:
        shape = draw(st.one_of(shapes(), st.just((0,))))
    source = draw(st.sampled_from(inputs))
    spec = draw(tensors(storage, source.dtype, shape))
    kind = draw(st.sampled_from(("own", "dtype", "device", "same", "shifted", "other")))
    if kind == "dtype":
        return replace(spec, dtype=draw(st.sampled_from(DTYPES + UNSUPPORTED)))
    if kind == "device":
        return replace(spec, device=draw(st.sampled_from(("meta", "cpu"))))
    if kind == "own":
        return spec
    if kind == "other":
        return replace(spec, storage=source.storage)
    shift = draw(st.integers(1, 5)) if kind == "shifted" else 0
    return replace(source, offset=source.offset + shift, is_view=spec.is_view)


@st.composite
def broadcastable(draw, shape):
    """Draws a shape that broadcasts to the given one, and sometimes one that may not."""
    if draw(st.integers(0, 19)) == 0:
        return draw(shapes())
    if draw(st.booleans()):
        return shape
    kept = list(shape[draw(st.integers(0, len(shape))) :])
    return tuple(1 if draw(st.integers(0, 2)) == 0 else size for size in kept)
