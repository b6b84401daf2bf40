"""Measures the accuracy of FastAct and PyTorch over whole input spaces."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from _digests.inputs import SAMPLE, counters, every_pattern, mix_, mixed
from _digests.workers import each

from exact import exact, exact_error, exactly
from op_table import TOP_ORDER
from oracle import FORMATS

# The leading bits of an element that determine its bin in the profile: the sign, the exponent, and
# two bits of float32's fraction.
PROFILE_BITS = 11
# Elements in a piece. Its two dozen temporaries should fit into the caches of a CPU, or occupy a
# GPU.
CPU_PIECE, CUDA_PIECE = 1 << 17, 1 << 24
SAVED_EVERY = 5.0  # seconds


# ---- Inputs


def inputs_of(act, dtype, first, count, device, whole=True):
    """Returns elements first, first + 1, ... of the inputs: all numbers, or a sample."""
    if dtype == torch.float64 or not whole:
        return _sampled_inputs(act, dtype, first, count).to(device)
    return every_pattern(dtype, first, count, device)


def _sampled_inputs(act, dtype, first, count):
    """Returns inputs in stripes of 32 KiB: any bits; ordinary sizes; the neighbours of a branch
    point; numbers at random distances from a branch point, from near to far."""
    width = 8 * dtype.itemsize
    integer = FORMATS[dtype].integer
    stripe = (1 << 18) // width
    turn = torch.arange(first // (4 * stripe), (first + count) // (4 * stripe)).view(-1, 1)
    result = mixed(dtype, 0, first, count, "cpu").view(integer).view(-1, 4, stripe)
    random = mix_(counters((1 << 50) + first, count, "cpu")).view(-1, 4, stripe)

    points = torch.tensor((0.0, *act.kinks, *act.branch_points), dtype=dtype)
    point = points.view(integer).long()[turn % len(points)]
    magnitude = point.bitwise_and((1 << width - 1) - 1)
    # 0, -1, 1, -2, 2, ... because each point recurs.
    place = turn // len(points) * stripe + torch.arange(stripe)
    near = torch.where(place % 2 == 0, place // 2, -(place // 2) - 1)
    shift = random[:, 3].bitwise_and_(width - 1).clamp_(max=width - 2)
    far = (random[:, 2] >> 65 - width) >> shift
    for i, distance in ((2, near), (3, far)):
        sign = torch.where(magnitude == 0, random[:, 1], point) < 0
        pattern = (magnitude + distance).abs_().bitwise_and_((1 << width - 1) - 1)
        result[:, i] = torch.where(sign, pattern | -(1 << width - 1), pattern).to(integer)
    return result.view(-1).view(dtype)


# ---- Comparison


def ours(act, x, k):
    results = act.ladder(*[torch.ones_like(x)] * k, x)
    # A negative derivative that underflows may be a zero of either sign.
    return results if k == 0 else results.masked_fill_(results == 0, 0.0)


def pytorchs(act, x, k):
    """Returns PyTorch's value, its backward with a gradient of 1, and the derivative of that.
    Returns None if PyTorch has none (hardsigmoid)."""
    if k == 0:
        return act.aten(x)
    if k == 1:
        return act.aten_backward(torch.ones_like(x), x)
    if act.takes_output:
        # The backward operator as a function of the result.
        k, function = k - 1, lambda y: act.aten_backward(torch.ones_like(y), y)
    else:
        function = act.aten
    x = x.clone().requires_grad_()
    y = function(x)
    for _ in range(k):
        if not y.requires_grad:  # a constant derivative
            return torch.zeros_like(x)
        try:
            (y,) = torch.autograd.grad(
                y, x, torch.ones_like(y),
                create_graph=True, allow_unused=True, materialize_grads=True,
            )  # fmt: skip
        except RuntimeError as error:
            if "is not implemented" in str(error):
                return None
            raise
    return y.detach()


# Counted separately from misrounded results.
SPECIAL = ("infinity", "zero", "sign", "subnormal", "nan")
# The format of a stored state. Format 2 counts infinite inputs and the signs of zeros separately.
FORMAT = 2


@dataclass
class Tally:
    """The errors found in one implementation."""

    # For finite inputs: the largest error in ULP of the exact value, or -1 if there are no results;
    # its input and its result; and the number of results that are not the nearest number. Zeros of
    # the wrong sign are not included.
    max_ulp: float = -1.0
    max_at: float = 0.0
    max_result: float = 0.0
    misrounded: int = 0
    # For all inputs.
    beyond_contract: int = 0
    # Beyond the contract for infinite inputs, and for subnormal inputs or results; misrounded for
    # inputs of zero; zeros of the wrong sign; wrong results for NaN.
    infinity: int = 0
    zero: int = 0
    sign: int = 0
    subnormal: int = 0
    nan: int = 0
    # The largest error by leading bits.
    profile: dict = field(default_factory=dict)

    def add(self, other, confirmed):
        """Adds the tally of another piece. confirmed(other) recomputes its largest error by a
        second method."""
        for name in ("misrounded", "beyond_contract", *SPECIAL):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for bin_, error in other.profile.items():
            self.profile[bin_] = max(error, self.profile.get(bin_, 0.0))
        if other.max_ulp > self.max_ulp:
            self.max_ulp, self.max_at, self.max_result = (
                other.max_ulp, other.max_at, other.max_result,
            )  # fmt: skip
            if 0 < other.max_ulp < float("inf"):
                self.max_ulp = confirmed(other)


def tally(x, results, target, bound, canonical_nan, whole=False):
    """Returns the tally of one piece. `bound` is the contract in ULP. `whole`: the patterns are
    consecutive."""
    fmt = FORMATS[x.dtype]
    pattern, expected_pattern = results.view(fmt.integer), target.expected.view(fmt.integer)
    nan = x.isnan()
    wrong = (pattern != expected_pattern) & ~nan
    errors = target.errors(results)
    errors[results.isnan()] = torch.inf
    # Correct, including an infinity for a value far beyond the range.
    errors[nan | (target.expected.isinf() & ~wrong)] = 0.0
    sign = wrong & (results == 0) & (target.expected == 0)
    beyond = wrong if bound == 0.5 else (errors > bound) | sign
    wrong = wrong & ~sign

    smallest = torch.finfo(x.dtype).smallest_normal
    zero = x == 0
    infinite = x.isinf()
    finite_errors = errors.masked_fill(infinite, 0.0)
    subnormal = ((x.abs() < smallest) & ~zero) | (
        (target.expected.abs() < smallest) & (target.expected != 0)
    )
    bad_nan = nan & ((pattern != fmt.nan) if canonical_nan else ~results.isnan())
    worst = int(finite_errors.argmax())
    return Tally(
        max_ulp=float(finite_errors[worst]),
        max_at=float(x[worst]),
        max_result=float(results[worst]),
        misrounded=int((wrong & ~infinite).sum()),
        beyond_contract=int(beyond.sum()) + int(bad_nan.sum()),
        infinity=int((beyond & infinite & ~sign).sum()),
        zero=int((wrong & zero).sum()),
        sign=int(sign.sum()),
        subnormal=int((beyond & subnormal & ~sign).sum()),
        nan=int(bad_nan.sum()),
        profile=_profile(x, finite_errors) if whole else {},
    )


def _profile(x, errors):
    """Returns the profile of elements with consecutive patterns."""
    width = 8 * x.dtype.itemsize - PROFILE_BITS
    first = int(x[0].view(FORMATS[x.dtype].integer)) >> width
    maxima = errors.view(-1, min(1 << width, len(errors))).amax(1).tolist()
    return {str((first + i) % (1 << PROFILE_BITS)): e for i, e in enumerate(maxima) if e > 0}


# ---- Jobs


@dataclass(frozen=True)
class Job:
    """One derivative of one activation in one dtype."""

    act: object
    dtype: torch.dtype
    order: int
    device: str
    # 2^sample inputs are tested if not all are.
    sample: int = SAMPLE

    @property
    def is_whole(self):
        """Returns true if all numbers are tested: not for float64 and the third derivative of
        float32."""
        width = 8 * self.dtype.itemsize
        return width == 16 or (width == 32 and self.order < TOP_ORDER)

    @property
    def inputs(self):
        """The number of inputs to test."""
        return 1 << (8 * self.dtype.itemsize if self.is_whole else self.sample)

    @property
    def name(self):
        return f"{self.act.id}_order{self.order}_{str(self.dtype).removeprefix('torch.')}"

    @property
    def bound(self):
        return self.act.ulp[self.dtype][self.order]

    def confirmed(self, found):
        """Returns the largest error of a piece, computed by MPFR."""
        _, y = exactly(self.act, found.max_at, self.order, self.dtype)
        floor = self.act.floor(self.dtype, self.order)(found.max_at)
        return exact_error(found.max_result, y, self.dtype, floor)

    def piece(self, first, count):
        """Returns the tallies of a piece for FastAct and PyTorch."""
        x = inputs_of(self.act, self.dtype, first, count, self.device, self.is_whole)
        target = exact(self.act, x, self.order)
        theirs = pytorchs(self.act, x, self.order)
        return (
            tally(x, ours(self.act, x, self.order), target, self.bound, True, self.is_whole),
            Tally()
            if theirs is None
            else tally(x, theirs, target, self.bound, False, self.is_whole),
        )


def load_state(path, job, environment):
    """Returns (inputs done, seconds, tallies) of an earlier run in the same environment."""
    try:
        state = json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        state = {}
    wanted = {"format": FORMAT, "environment": environment, "contract": job.bound, "of": job.inputs}
    if any(state.get(name) != value for name, value in wanted.items()):
        return 0, 0.0, {"fastact": Tally(), "pytorch": Tally()}
    tallies = {name: Tally(**state[name]) for name in ("fastact", "pytorch")}
    return state["inputs"], state["seconds"], tallies


def save_state(path, job, environment, done, seconds, tallies):
    state = {
        "format": FORMAT,
        "activation": job.act.id,
        "dtype": str(job.dtype).removeprefix("torch."),
        "order": job.order,
        "contract": job.bound,
        "inputs": done,
        "of": job.inputs,
        "seconds": round(seconds, 3),
        "environment": environment,
        **{name: asdict(t) for name, t in tallies.items()},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(state, indent=1) + "\n")
    temporary.replace(path)
    return state


def _each_in_threads(function, items, workers):
    """Yields function(item) for every item, in order. The threads share a GPU."""
    with ThreadPoolExecutor(workers) as pool:
        try:
            yield from pool.map(function, items)
        finally:
            pool.shutdown(cancel_futures=True)


def run(job, path: Path, environment: dict, workers: int, progress):
    """Completes a job, resuming an interrupted run. Returns its state."""
    done, seconds, tallies = load_state(path, job, environment)
    progress(done)
    total = job.inputs
    # The exact values of float64 are computed on the CPU in any case.
    on_cpu = job.device == "cpu" or job.dtype == torch.float64
    size = min(CPU_PIECE if on_cpu else CUDA_PIECE, total)
    start = time.monotonic() - seconds
    saved = time.monotonic()

    def save():
        return save_state(path, job, environment, done, time.monotonic() - start, tallies)

    share = each if job.device == "cpu" else _each_in_threads
    pieces = share(
        lambda first: job.piece(first, size),
        range(done, total, size),
        workers if on_cpu else 1,
    )
    try:
        for of_ours, of_pytorchs in pieces:
            tallies["fastact"].add(of_ours, job.confirmed)
            tallies["pytorch"].add(of_pytorchs, job.confirmed)
            done += size
            progress(size)
            if time.monotonic() - saved > SAVED_EVERY:
                save()
                saved = time.monotonic()
    except BaseException:
        save()
        raise
    return save()
