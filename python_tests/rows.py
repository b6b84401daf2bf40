"""Rows of every kind, and their exact softmax, log-softmax and norms in MPFR."""

import gmpy2
import torch

# Around the sizes of vectors, lanes, tiles and of the GPU's kernels.
LENGTHS = (1, 2, 7, 8, 31, 33, 128, 129, 255, 256, 257, 513, 1000, 1024, 1025, 4097, 16384, 16385)


def kinds_of_rows(n, dtype=torch.float32, seed=0):
    """Returns rows of every kind: wide and narrow ranges, cancellation, equal elements, infinities,
    NaN, subnormal numbers, zeros of both signs."""
    generator = torch.Generator().manual_seed(seed + n)

    def normal():
        return torch.randn(n, generator=generator, dtype=torch.float64)

    masked, plus, nan = normal(), normal(), normal()
    masked[n // 2 + 1 :] = -torch.inf
    plus[n // 3] = torch.inf
    nan[n // 4] = torch.nan
    zeros = torch.zeros(n, dtype=torch.float64)
    zeros[::2] = -0.0
    dominated = normal()
    dominated[n // 2] = 20
    rows = {
        "normal": normal(), "wide": normal() * 3, "wider": normal() * 40,
        "far": 1000 + normal() / 10,
        "equal": torch.full((n,), 3.25, dtype=torch.float64), "dominated": dominated,
        "masked": masked, "subnormal": normal() * 1e-39, "zeros": zeros,
        "plus": plus, "nan": nan, "minus": torch.full((n,), -torch.inf, dtype=torch.float64),
    }  # fmt: skip
    return {kind: row.to(dtype) for kind, row in rows.items()}


def rows_far_from_zero(n, dtype):
    """Returns rows on both sides of the distance from which ops/math/row_exponential.h moves a row,
    and rows so far away that it has to."""
    generator = torch.Generator().manual_seed(n)
    normal = torch.randn(n, generator=generator, dtype=torch.float64)
    centers = [-2050, -260, -250, 250, 260, 2050]
    if dtype != torch.float16:
        centers += [-3e6, 3e6, 1e15]
    huge = 1e4 if dtype == torch.float16 else 1e30
    rows = {center: center + normal * 3 for center in centers} | {"huge": normal * huge}
    return {kind: row.to(dtype) for kind, row in rows.items()}


def rows_of(n, dtype=torch.float32, seed=0):
    return torch.stack(list(kinds_of_rows(n, dtype, seed).values()))


FINITE = ("normal", "wide", "wider", "far", "equal", "dominated", "masked", "subnormal", "zeros")


def moved(x):
    """The same values with gaps between elements and rows."""
    wide = x.new_zeros(x.shape[0] * 2, x.shape[1] * 3)
    wide[::2, ::3] = x
    return wide[::2, ::3]


def padded(x, columns):
    """The same values in rows that are not aligned."""
    wide = x.new_zeros(x.shape[0], x.shape[1] + columns)
    wide[:, columns:] = x
    return wide[:, columns:]


def exact_row(name, row):
    """Returns the results for a row with finite elements, in 200 bits."""
    with gmpy2.context(gmpy2.get_context(), precision=200):
        x = [gmpy2.mpfr(value) for value in row.tolist()]
        top = max(x)
        exponentials = [gmpy2.exp(value - top) for value in x]
        total = gmpy2.fsum(exponentials)
        if name == "softmax":
            return [e / total for e in exponentials]
        log = gmpy2.log(total)
        return [value - top - log for value in x]


def exact_norm(name, row, weight=None, *, eps):
    """Returns the results for a row with finite elements, in 200 bits."""
    with gmpy2.context(gmpy2.get_context(), precision=200):
        x = [gmpy2.mpfr(value) for value in row.tolist()]
        if name == "layer_norm":
            mean = gmpy2.fsum(x) / len(x)
            x = [value - mean for value in x]
        wide = torch.float64 if row.dtype == torch.float64 else torch.float32
        eps = gmpy2.mpfr(torch.tensor(eps, dtype=wide).item())
        root = gmpy2.sqrt(gmpy2.fsum([value * value for value in x]) / len(x) + eps)
        factors = [1] * len(x) if weight is None else map(gmpy2.mpfr, weight.tolist())
        return [value / root * factor for value, factor in zip(x, factors, strict=True)]


def largest_error(actual, exact, least=0.0):
    """Returns the largest error in ULP of the exact results, or of `least` for smaller ones."""
    info = torch.finfo(actual.dtype)
    digits = {torch.float32: 24, torch.float64: 53, torch.bfloat16: 8, torch.float16: 11}
    smallest = gmpy2.mpfr(max(info.smallest_normal, least)) * 2
    worst = 0.0
    with gmpy2.context(gmpy2.get_context(), precision=200):
        for ours, wanted in zip(actual.double().tolist(), exact):
            if gmpy2.is_infinite(wanted):
                assert ours == wanted
                continue
            exponent = gmpy2.frexp(max(abs(wanted), smallest / 2))[0]
            unit = gmpy2.exp2(exponent - digits[actual.dtype])
            worst = max(worst, float(abs(gmpy2.mpfr(ours) - wanted) / unit))
    return worst
