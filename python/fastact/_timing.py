"""Times contestants in turn: each round takes one sample of each, in random order."""

import random
import statistics
import time
import timeit
from collections.abc import Callable
from dataclasses import dataclass

import torch

MOST_ROUNDS = 200
FEWEST_ROUNDS = 5
# How much two runs of the same code may differ, beyond the spread within a run.
BETWEEN_RUNS = 0.03


@dataclass(frozen=True)
class Contestant:
    call: Callable
    prepare: Callable | None = None  # runs before each sample, untimed


@dataclass(frozen=True)
class Times:
    """Seconds per call: the median, and the 10th and 90th percentiles."""

    median: float
    low: float
    high: float
    rounds: int

    @classmethod
    def of(cls, samples: list[float]) -> "Times":
        deciles = statistics.quantiles(samples, n=10, method="inclusive")
        return cls(statistics.median(samples), deciles[0], deciles[-1], len(samples))


def slower(a: dict, b: dict, margin: float = 0.0) -> bool:
    """Returns whether times a exceed times b by more than noise: the spreads do not overlap, and
    the medians differ by more than the margin."""
    return a["low"] > b["high"] and a["median"] > (1 + margin) * b["median"]


class CpuClock:
    """Times calls on a CPU. Short calls are timed in groups.

    The address of a new result can change the time by a third (ReLU of 2^16 float32 on a Zen 4: 6.8
    or 9.2 us), and an allocator may give each contestant addresses of its own. Therefore a block of
    a random size is allocated before each sample.
    """

    SHORTEST_SAMPLE = 50e-6
    LARGEST_BLOCK = 1 << 18  # bytes

    def __init__(self) -> None:
        self._numbers: dict[Contestant, int] = {}
        self._random = random.Random(0)
        self._block: torch.Tensor | None = None

    def sample(self, contestant: Contestant) -> float:
        size = self._random.randrange(self.LARGEST_BLOCK)
        self._block = torch.empty(size, dtype=torch.uint8)
        number = self._numbers.get(contestant)
        if number is None:
            number = max(1, round(self.SHORTEST_SAMPLE / self._run(contestant, 1)))
            self._numbers[contestant] = number
        return self._run(contestant, number)

    @staticmethod
    def _run(contestant: Contestant, number: int) -> float:
        timer = timeit.Timer(contestant.call, contestant.prepare or "pass")
        return timer.timeit(number) / number


class CudaClock:
    """Times calls on a GPU, between two events, with no operand in its L2 cache.

    The GPU waits for `wait` seconds before the first event, until Python has queued the call, so
    that the time covers the GPU's work and not its submission.
    """

    # 0.5 ms suffice to submit a forward and a backward pass. On a slow host, 0.2 ms were too short
    # for four training cells.
    def __init__(self, wait: float = 0.5e-3) -> None:
        cache = torch.cuda.get_device_properties(0).L2_cache_size
        self._other_bytes = torch.zeros(2 * cache // 4, dtype=torch.int32, device="cuda")
        self._cycles = round(wait * 2e9)  # at 2 GHz

    def sample(self, contestant: Contestant) -> float:
        if contestant.prepare:
            contestant.prepare()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._other_bytes.max()  # a read, so the timed part writes nothing back
        torch.cuda._sleep(self._cycles)
        start.record()
        contestant.call()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e-3


def in_turn(contestants: dict[str, Contestant], clock, seconds: float) -> dict[str, Times]:
    """Returns the times of all contestants, measured for about `seconds` in at least FEWEST_ROUNDS.

    Each round has a random order: a new result may reuse memory that the previous contestant has
    freed, or need new pages of the system. In one fixed order, ReLU of 2^16 float64 took 34.7 us
    and PyTorch's 14.7; in random orders, 19.8 and 19.0.
    """
    turns = random.Random(0)

    def one_round() -> dict[str, float]:
        names = turns.sample(list(contestants), len(contestants))
        return {name: clock.sample(contestants[name]) for name in names}

    begin = time.perf_counter()
    for _ in range(2):  # the first calls allocate, compile and calibrate
        start = time.perf_counter()
        one_round()
        a_round = time.perf_counter() - start
        if a_round > seconds:
            break
    left = seconds - (time.perf_counter() - begin)
    rounds = min(max(int(left / a_round), FEWEST_ROUNDS), MOST_ROUNDS)
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, value in one_round().items():
            samples[name].append(value)
    return {name: Times.of(values) for name, values in samples.items()}
