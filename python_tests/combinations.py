"""The description of one call of test_combinations.py, and the tensors made from it."""

import math
from dataclasses import dataclass, field, fields

import torch

from operator_rows import rows
from support import LAYOUTS

# The numbers of each role. self * scale + bias + residual is exact in every type and an odd
# multiple of 1/16. No activation has a kink there, and rounding cannot cross one. Sums stay below
# 8, so they fit into bfloat16's 8 significant bits.
NUMBERS = {
    "argument": tuple((2 * k + 1) / 16 for k in range(-14, 14)),
    "below_one": tuple((2 * k + 1) / 16 for k in range(-8, 8)),
    "odd": (-3.0, -1.0, 1.0, 3.0),
    "shift": tuple(k / 8 for k in range(-8, 9)),
    "factor": tuple(k / 8 for k in range(-16, 17) if k),
}
# The mode that compares bits of one operator. Its numbers are random.
BITS = "bits"
BATCH = 2
GRADIENT = "incoming"


@dataclass(frozen=True)
class Combination:
    """One call. `operands` maps the name of each present operand to words that describe it:

    full, vector (along `dim`), channels, row, column, one (element), zero_dim, higher (one more
    dimension): its shape relative to `shape`;
    channels_last, transposed, expanded, strided, chunk, unaligned, or a layout of support.py after
    "as_": its layout, by default contiguous;
    grad: requires a gradient; inference: made under inference_mode;
    batched, batched_last: its first or last dimension is the batch dimension of vmap;
    float32, ...: its type, if that is not `dtype`.
    """

    operator: str
    mode: str
    operands: dict
    dtype: str = "float32"
    shape: tuple = (2, 4, 3, 2)
    dim: int = -1
    incoming: str = "full"  # the incoming gradient's layout
    seed: int = 0
    device: str = "cpu"

    def __repr__(self):
        """Returns an expression that makes this object, without arguments that have their
        default."""
        named = [
            f"{f.name}={getattr(self, f.name)!r}"
            for f in fields(self)[3:]
            if getattr(self, f.name) != f.default
        ]
        return (
            f"Combination({', '.join(map(repr, (self.operator, self.mode, self.operands)))}"
            f"{''.join(', ' + text for text in named)})"
        )

    @property
    def row(self):
        return rows()[self.operator]

    def words(self, name):
        return self.operands[name].split()

    def having(self, word):
        return tuple(name for name in self.operands if word in self.words(name))

    def batch_dim(self, name):
        words = self.words(name)
        return 0 if "batched" in words else -1 if "batched_last" in words else None


def shape_of(words, shape, dim):
    """Returns the shape of an operand, given the result's shape."""
    if "zero_dim" in words or (not shape and "full" not in words and "higher" not in words):
        return (1,) if "one" in words or "vector" in words else ()
    if "full" in words:
        return shape
    if "higher" in words:
        return (2, *shape)
    if "vector" in words:
        return (shape[dim],)
    if "channels" in words:
        return (shape[1] if len(shape) > 1 else 1,)
    if "row" in words:
        return (*(1,) * (len(shape) - 1), shape[-1])
    if "column" in words:
        return (*shape[:-1], 1)
    if "one" in words:
        return (1,)
    raise ValueError(f"no shape in {words}")


def laid_out(words, shape, draw):
    """Returns a tensor with the layout that the words name. draw(*shape) makes a contiguous
    tensor."""
    for word in words:
        if word.startswith("as_"):
            return LAYOUTS[word.removeprefix("as_")](draw)
    if "expanded" in words and shape:
        return draw(1, *shape[1:]).expand(shape)
    if "strided" in words:
        return draw(*shape[:-1], 2 * shape[-1] + 1)[..., 1::2] if shape else draw(3)[1]
    if "chunk" in words and shape:
        return draw(*shape[:-1], 2 * shape[-1])[..., shape[-1] :]
    if "unaligned" in words:
        return draw(math.prod(shape) + 1)[1:].view(shape)
    t = draw(*shape)
    if "channels_last" in words and t.dim() == 4:
        return t.contiguous(memory_format=torch.channels_last)
    if ("transposed" in words or "channels_last" in words) and t.dim() > 1:
        return t.transpose(-1, -2).contiguous().transpose(-1, -2)
    return t


def drawn(words, shape, numbers, dtype, seed, device="cpu"):
    """Returns a tensor of these NUMBERS, or of normally distributed numbers."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        if numbers is None:
            found = 3 * torch.randn(shape, generator=generator, dtype=torch.float64)
        else:
            values = torch.tensor(NUMBERS[numbers], dtype=torch.float64)
            found = values[torch.randint(len(values), shape, generator=generator)]
        return found.to(dtype).to(device)

    return laid_out(words, shape, draw)


def dtype_of(c, name):
    for word in c.words(name):
        if isinstance(found := getattr(torch, word, None), torch.dtype):
            return found
    return getattr(torch, c.dtype)


def slices_of(c):
    """Returns the operands of each slice, without gradients. A call without vmap has one slice."""
    is_batched = c.having("batched") or c.having("batched_last")
    result = []
    for i in range(BATCH if is_batched else 1):
        tensors = {}
        for place, operand in enumerate(c.row.operands):
            name = operand.name
            if name not in c.operands:
                continue
            words = c.words(name)
            seed = 1000 * c.seed + 10 * place + (i if c.batch_dim(name) is not None else 0)
            shape = shape_of(words, c.shape, c.dim)
            if c.row.halves:
                shape = (*shape[:-1], 2 * shape[-1])
            with torch.inference_mode("inference" in words):
                numbers = None if c.mode == BITS else operand.numbers
                tensors[name] = drawn(words, shape, numbers, dtype_of(c, name), seed, c.device)
        result.append(tensors)
    return result


def batched(c, slices):
    """Returns the operands of the whole call."""
    tensors = dict(slices[0])
    for name in tensors:
        dim = c.batch_dim(name)
        if dim is not None:
            tensors[name] = torch.stack([s[name] for s in slices], dim)
    for name in c.having("grad"):
        tensors[name] = tensors[name].detach().requires_grad_()
    return tensors


def incoming_like(c, value, seed=99):
    """Returns an incoming gradient for a result."""
    words = c.incoming.split()
    shape, seed = tuple(value.shape), 1000 * c.seed + seed
    return drawn(words, shape, "factor", value.dtype, seed, c.device)


@dataclass
class Outcome:
    value: torch.Tensor | None = None
    gradients: dict | None = None  # of the operands that require one: a tensor or None
    incoming: torch.Tensor | None = None  # the incoming gradient of `gradients`
    tangent: torch.Tensor | None = None
    tangents: dict | None = None  # the operands' tangents that give `tangent`
    directions: dict | None = None  # `second`: derivatives of gradients along these
    second: dict | None = None


@dataclass
class Call:
    """A combination with its tensors."""

    c: Combination
    slices: list = field(init=False)
    tensors: dict = field(init=False)

    def __post_init__(self):
        self.slices = slices_of(self.c)
        self.tensors = batched(self.c, slices_of(self.c))

    @property
    def needs(self):
        return self.c.having("grad")

    def operator(call, /, **tensors):  # not `self`, which is the name of an operand
        return call.c.row.call(tensors, call.c.dim)

    def operator_(call, /, **tensors):
        return call.c.row.call_(tensors, call.c.dim)

    def of(self, names, function=None):
        """Returns the operator as a function of only these operands."""
        function = function or self.operator
        return lambda *values: function(**{**self.tensors, **dict(zip(names, values))})

    def detached(self):
        return {name: t.detach() for name, t in self.tensors.items()}

    def of_detached(self, names, function=None):
        """Returns the same function, with all other operands detached."""
        function, constant = function or self.operator, self.detached()
        return lambda *values: function(**{**constant, **dict(zip(names, values))})


class Composed(Call):
    """The same call, composed of PyTorch's operators in the operands' own types."""

    def operator(call, /, **tensors):
        c, rank = call.c, tensors[call.c.row.leading].dim()
        views = {name: c.row.align(name, t, rank, c.dim) for name, t in tensors.items()}
        return c.row.compose(c.row.function, views)
