"""Random parameters, because two or three sets in a table do not show what holds for all.

The first half of the settings has ordinary sizes. In the others, one parameter or all of them are
zero, tiny, huge, subnormal or not finite. The settings depend only on the activation's name and the
seed, so every process draws the same ones.
"""

import math
import os
import random
from dataclasses import dataclass, replace

import torch

from contract import assert_within_contract
from op_table import (
    TOP_ORDER,
    celu_row,
    elu_row,
    hardtanh_row,
    leaky_relu_row,
    shrink_row,
    softplus_row,
    threshold_row,
)
from support import values

# Other values choose other settings, or more of them.
SEED = int(os.environ.get("FASTACT_SETTINGS_SEED", "1"))
COUNT = int(os.environ.get("FASTACT_SETTINGS", "32"))


@dataclass(frozen=True)
class Family:
    """An activation with parameters."""

    names: tuple  # of the parameters, in the order of the schema
    row: callable  # makes the oracle table's row
    # How a call rounds the parameters, except for float64 tensors.
    rounded: str = ""  # "float32", "self" (the tensor's type) or "" (not rounded)
    is_allowed: callable = lambda *values: True


FAMILIES = {
    "leaky_relu": Family(("negative_slope",), leaky_relu_row),
    "hardtanh": Family(
        ("min_val", "max_val"), hardtanh_row, "self", lambda low, high: not low > high
    ),
    "threshold": Family(("threshold", "value"), threshold_row, "float32"),
    "softshrink": Family(
        ("lambd",), lambda v: shrink_row("softshrink", v, v), "float32", lambda v: v >= 0
    ),
    "hardshrink": Family(("lambd",), lambda v: shrink_row("hardshrink", v, 0), "float32"),
    "elu": Family(("alpha", "scale", "input_scale"), elu_row),
    "celu": Family(("alpha",), celu_row, "", lambda v: v != 0),
    "softplus": Family(("beta", "threshold"), softplus_row),
}


def _sign(generator):
    return generator.choice((1.0, -1.0))


def _draw_ordinary(generator):
    """Draws a number with few decimal digits, as in programs, or with all digits of a double."""
    size = 2 ** generator.uniform(-4, 4)
    if generator.random() < 0.5:
        size = float(f"{size:.2g}")
    return size if generator.random() < 0.75 else -size


# The kinds of numbers in the other half, in turn.
EXTREMES = (
    lambda g: _sign(g) * 2 ** g.uniform(-126, -20),
    lambda g: _sign(g) * 2 ** g.uniform(20, 127),
    lambda g: _sign(g) * 0.0,
    lambda g: _sign(g) * 2 ** g.uniform(-149, -126),  # float32's subnormal numbers
    lambda g: _sign(g) * 2 ** g.uniform(-1022, -149),
    lambda g: _sign(g) * 2 ** g.uniform(127, 1023),
    lambda g: _sign(g) * g.randrange(1, 1 << 52) * 5e-324,  # float64's
    lambda g: _sign(g) * math.inf,
    lambda g: math.nan,
)


@dataclass(frozen=True)
class Setting:
    name: str
    values: tuple

    @property
    def family(self):
        return FAMILIES[self.name]

    @property
    def parameters(self):
        return dict(zip(self.family.names, self.values))

    @property
    def is_finite(self):
        return all(map(math.isfinite, self.values))

    @property
    def is_told(self):
        """Returns whether the row is defined; it is not for 1 / 0 or next to infinities."""
        return self.is_finite and not (self.name == "softplus" and self.values[0] == 0)

    def as_used(self, dtype):
        """Returns the parameters rounded for a tensor of this type."""
        if dtype == torch.float64 or not self.family.rounded:
            return self.values
        single = torch.tensor(self.values, dtype=torch.float64).float()
        return tuple((single.to(dtype) if self.family.rounded == "self" else single).tolist())

    def row(self, dtype):
        """Returns the oracle table's row for these parameters."""
        row = self.family.row(*self.as_used(dtype))
        # These never count as defaults, whose closer bounds other tests check.
        return replace(row, parameters=self.parameters, defaults=row.defaults or self.parameters)


def settings(name, count=COUNT, seed=SEED):
    """Returns `count` settings of an activation's parameters."""
    generator = random.Random(f"{name} {seed}")
    family = FAMILIES[name]
    ordinary, extreme = [], []
    while len(ordinary) < (count + 1) // 2:
        values = tuple(_draw_ordinary(generator) for _ in family.names)
        if family.is_allowed(*values):
            ordinary.append(Setting(name, values))
    turn = 0
    while len(extreme) < count // 2:
        values = [_draw_ordinary(generator) for _ in family.names]
        of_all = generator.random() < 0.25
        chosen = range(len(values)) if of_all else [generator.randrange(len(values))]
        for i in chosen:
            values[i] = EXTREMES[turn % len(EXTREMES)](generator)
        turn += 1
        if family.is_allowed(*values):
            extreme.append(Setting(name, tuple(values)))
    return ordinary + extreme


def _inputs(setting, dtype, device):
    """Returns elements of every kind, and elements where this setting's function bends."""
    info = torch.finfo(dtype)
    ends = [0.0, 1.0, info.max, info.tiny, info.smallest_normal * info.eps, math.inf]
    ordinary = values(200, dtype=torch.float64) * 4
    exponents = torch.empty(100, dtype=torch.float64).uniform_(
        math.log2(info.smallest_normal * info.eps), math.log2(info.max)
    )
    pieces = [torch.tensor([*ends, *(-v for v in ends), math.nan]).double(), ordinary]
    pieces.append(torch.exp2(exponents) * torch.sign(torch.randn(100)))
    for value in setting.as_used(dtype):
        # Values at and next to a bound, and values for which a rate times x has an ordinary size.
        bound = torch.tensor([value, -value], dtype=torch.float64).to(dtype)
        pieces += [bound, torch.nextafter(bound, bound + 1), torch.nextafter(bound, bound - 1)]
        if value != 0:
            pieces += [ordinary * 20 / value, ordinary * value]
    x = torch.cat([piece.to(dtype) for piece in pieces])
    if setting.name == "softplus":
        # FastAct and ATen round beta x before they compare it with the threshold. Elements for
        # which the exact comparison has another result are omitted.
        beta, threshold = setting.values
        z = x.double() * beta
        compute = torch.float64 if dtype == torch.float64 else torch.float32
        rounded = x.to(compute) * torch.tensor(beta, dtype=compute)
        same = (rounded > torch.tensor(threshold, dtype=compute)) == (z > threshold)
        x = x[same & ~((z - threshold).abs() <= 1e-12 * abs(threshold))]
    return x.to(device)


def check_exact(setting, dtype, device):
    """Asserts that value and derivatives, with gradients of 1 and others, meet the contract."""
    act = setting.row(dtype)
    x = _inputs(setting, dtype, device)
    gradients = [values(len(x), dtype=dtype, device=device) for _ in range(TOP_ORDER)]
    for order in range(TOP_ORDER + 1):
        ones = [torch.ones_like(x)] * order
        for given in (ones, gradients[:order]) if order else ([],):
            try:
                assert_within_contract(act, act.ladder(*given, x), *given, x)
            except AssertionError as error:
                raise AssertionError(f"{setting}, {dtype}, order {order}: {error}") from error
