"""How close results are to the exact ones, over whole input spaces: ours, and PyTorch's."""

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from exact import exact, exact_error, exactly
from inputs import FLOAT64_INPUTS, counters, every_pattern, mix_, mixed
from oracle import FORMATS
from workers import each, each_in_threads

# Leading bits of an element that choose its bin in the profile: sign, exponent, and of float32's
# fraction two.
PROFILE_BITS = 11
# Elements in a piece: its two dozen temporaries are to stay near a CPU's caches, and to keep a GPU
# busy.
CPU_PIECE, CUDA_PIECE = 1 << 17, 1 << 24
SAVED_EVERY = 5.0  # seconds


# ---- Inputs


def inputs_of(act, dtype, first, count, device):
    """The elements first, first + 1, ... of what is tried."""
    if dtype == torch.float64:
        return _float64_inputs(act, first, count).to(device)
    return every_pattern(dtype, first, count, device)


def _float64_inputs(act, first, count):
    """In stripes of 4,096: any bits; ordinary sizes; the numbers next to a branch point; numbers at
    random distances from one, as many near it as far."""
    stripe = 1 << 12
    turn = torch.arange(first // (4 * stripe), (first + count) // (4 * stripe)).view(-1, 1)
    result = mixed(torch.float64, 0, first, count, "cpu").view(torch.int64).view(-1, 4, stripe)
    random = mix_(counters((1 << 50) + first, count, "cpu")).view(-1, 4, stripe)

    points = torch.tensor((0.0, *act.kinks, *act.branch_points), dtype=torch.float64)
    point = points.view(torch.int64)[turn % len(points)]
    magnitude = point.bitwise_and((1 << 63) - 1)
    # 0, -1, 1, -2, 2, ... as the point has its turn again and again.
    place = turn // len(points) * stripe + torch.arange(stripe)
    near = torch.where(place % 2 == 0, place // 2, -(place // 2) - 1)
    far = (random[:, 2] >> 1) >> random[:, 3].bitwise_and(0x3F).clamp_(max=62)
    for i, distance in ((2, near), (3, far)):
        sign = torch.where(magnitude == 0, random[:, 1], point).bitwise_and(-(1 << 63))
        result[:, i] = (magnitude + distance).abs_().bitwise_or_(sign)
    return result.view(-1).view(torch.float64)


# ---- What is compared


def ours(act, x, k):
    results = act.ladder(*[torch.ones_like(x)] * k, x)
    # A negative derivative that underflows may be a zero of either sign.
    return results if k == 0 else results.masked_fill_(results == 0, 0.0)


def pytorchs(act, x, k):
    """PyTorch's own value, backward with a gradient of 1, and the latter's derivative; None where
    PyTorch has none (hardsigmoid's)."""
    if k == 0:
        return act.aten(x)
    if k == 1:
        return act.aten_backward(torch.ones_like(x), x)
    if act.takes_output:
        # Of the backward operator by its result.
        k, function = k - 1, lambda y: act.aten_backward(torch.ones_like(y), y)
    else:
        function = act.aten
    x = x.clone().requires_grad_()
    y = function(x)
    for _ in range(k):
        if not y.requires_grad:  # a derivative that is the same everywhere
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


@dataclass
class Tally:
    """What was found of one implementation."""

    # Largest error in ULP of the exact value, -1 where there is no result; the input where it is,
    # and the result there.
    max_ulp: float = -1.0
    max_at: float = 0.0
    max_result: float = 0.0
    misrounded: int = 0
    beyond_contract: int = 0
    # Beyond the contract among the inputs that are infinite, or where the input or the result is
    # subnormal; misrounded among those that are zero; and wrong results for a NaN.
    infinity: int = 0
    zero: int = 0
    subnormal: int = 0
    nan: int = 0
    # The largest error by leading bits.
    profile: dict = field(default_factory=dict)

    def add(self, other, act, k, dtype):
        """Adds another piece's; a new largest error is confirmed by MPFR."""
        for name in ("misrounded", "beyond_contract", "infinity", "zero", "subnormal", "nan"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for bin_, error in other.profile.items():
            self.profile[bin_] = max(error, self.profile.get(bin_, 0.0))
        if other.max_ulp > self.max_ulp:
            self.max_ulp, self.max_at, self.max_result = (
                other.max_ulp, other.max_at, other.max_result,
            )  # fmt: skip
            if 0 < other.max_ulp < float("inf"):
                _, y = exactly(act, other.max_at, k, dtype)
                floor = act.floor(dtype, k)(other.max_at)
                self.max_ulp = exact_error(other.max_result, y, dtype, floor)


def tally(x, results, target, bound, canonical_nan):
    """The tally of one piece. `bound` is the contract in ULP."""
    fmt = FORMATS[x.dtype]
    pattern, expected_pattern = results.view(fmt.integer), target.expected.view(fmt.integer)
    nan = x.isnan()
    wrong = (pattern != expected_pattern) & ~nan
    errors = target.errors(results)
    errors[results.isnan()] = torch.inf
    # Right: also an infinity for a value far beyond the range.
    errors[nan | (target.expected.isinf() & ~wrong)] = 0.0
    beyond = wrong if bound == 0.5 else (errors > bound)

    smallest = torch.finfo(x.dtype).smallest_normal
    zero = x == 0
    subnormal = ((x.abs() < smallest) & ~zero) | (
        (target.expected.abs() < smallest) & (target.expected != 0)
    )
    bad_nan = nan & ((pattern != fmt.nan) if canonical_nan else ~results.isnan())
    worst = int(errors.argmax())
    return Tally(
        max_ulp=float(errors[worst]),
        max_at=float(x[worst]),
        max_result=float(results[worst]),
        misrounded=int(wrong.sum()),
        beyond_contract=int(beyond.sum()) + int(bad_nan.sum()),
        infinity=int((beyond & x.isinf()).sum()),
        zero=int((wrong & zero).sum()),
        subnormal=int((beyond & subnormal).sum()),
        nan=int(bad_nan.sum()),
        profile=_profile(x, errors) if x.dtype != torch.float64 else {},
    )


def _profile(x, errors):
    """Of elements with consecutive patterns."""
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
    float64_inputs: int = FLOAT64_INPUTS

    @property
    def inputs(self):
        """How many there are to try."""
        return 1 << (
            self.float64_inputs if self.dtype == torch.float64 else 8 * self.dtype.itemsize
        )

    @property
    def name(self):
        return f"{self.act.id}_order{self.order}_{str(self.dtype).removeprefix('torch.')}"

    @property
    def bound(self):
        return self.act.ulp[self.dtype][self.order]

    def piece(self, first, count):
        """The tallies of a piece: ours, PyTorch's."""
        x = inputs_of(self.act, self.dtype, first, count, self.device)
        target = exact(self.act, x, self.order)
        theirs = pytorchs(self.act, x, self.order)
        return (
            tally(x, ours(self.act, x, self.order), target, self.bound, True),
            Tally() if theirs is None else tally(x, theirs, target, self.bound, False),
        )


def load_state(path, job, environment):
    """(inputs done, seconds, tallies) of an earlier run in the same environment."""
    try:
        state = json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        state = {}
    if state.get("environment") != environment or state.get("contract") != job.bound:
        return 0, 0.0, {"fastact": Tally(), "pytorch": Tally()}
    tallies = {name: Tally(**state[name]) for name in ("fastact", "pytorch")}
    return state["inputs"], state["seconds"], tallies


def save_state(path, job, environment, done, seconds, tallies):
    state = {
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


def run(job, path: Path, environment: dict, workers: int, progress):
    """Runs a job to its end, from where an earlier run was interrupted; its state."""
    done, seconds, tallies = load_state(path, job, environment)
    progress(done)
    total = job.inputs
    # The exact values of float64 are the CPU's work in any case.
    on_cpu = job.device == "cpu" or job.dtype == torch.float64
    size = min(CPU_PIECE if on_cpu else CUDA_PIECE, total)
    start = time.monotonic() - seconds
    saved = time.monotonic()

    def save():
        return save_state(path, job, environment, done, time.monotonic() - start, tallies)

    share = each if job.device == "cpu" else each_in_threads
    pieces = share(
        lambda first: job.piece(first, size),
        range(done, total, size),
        workers if on_cpu else 1,
    )
    try:
        for of_ours, of_pytorchs in pieces:
            tallies["fastact"].add(of_ours, job.act, job.order, job.dtype)
            tallies["pytorch"].add(of_pytorchs, job.act, job.order, job.dtype)
            done += size
            progress(size)
            if time.monotonic() - saved > SAVED_EVERY:
                save()
                saved = time.monotonic()
    except BaseException:
        save()
        raise
    return save()
