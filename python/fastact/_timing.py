"""Times of several contestants that take turns: one sample of each a round, in random order."""

import random
import statistics
import time
import timeit
from collections.abc import Callable
from dataclasses import dataclass

import torch

MOST_ROUNDS = 200
FEWEST_ROUNDS = 5
# What two runs of the same code may differ by, beyond the spread within a run.
BETWEEN_RUNS = 0.03


@dataclass(frozen=True)
class Contestant:
    call: Callable
    prepare: Callable | None = None  # runs before each sample, untimed


@dataclass(frozen=True)
class Times:
    """Seconds a call: the median, the 10th and the 90th percentile."""

    median: float
    low: float
    high: float
    rounds: int

    @classmethod
    def of(cls, samples: list[float]) -> "Times":
        deciles = statistics.quantiles(samples, n=10, method="inclusive")
        return cls(statistics.median(samples), deciles[0], deciles[-1], len(samples))


def slower(a: dict, b: dict, margin: float = 0.0) -> bool:
    """Whether times a are above times b beyond noise: the spreads do not touch, and the medians
    differ by more than the margin."""
    return a["low"] > b["high"] and a["median"] > (1 + margin) * b["median"]


class CpuClock:
    """Seconds a call by the processor's clock. Short calls are timed by the dozen.

    Where a new result lies can cost a third of the time (ReLU of 2^16 float32 on a Zen 4: 6.8 or
    9.2 us), and an allocator may keep to one place for one contestant and to another for the next.
    So a block of a random size is taken before each sample.
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
    """Seconds a call on the GPU, between two events, with nothing of the operands in its L2 cache.

    The GPU waits before the first event until the call has been queued, so that what is timed is
    the GPU's work and not how fast Python submits it: `wait` are the seconds that this takes.
    """

    # 0.5 ms, in which an autograd round trip is submitted. On a host that was slow to submit,
    # 0.2 ms were too short for four cells of training.
    def __init__(self, wait: float = 0.5e-3) -> None:
        cache = torch.cuda.get_device_properties(0).L2_cache_size
        self._other_bytes = torch.zeros(2 * cache // 4, dtype=torch.int32, device="cuda")
        self._cycles = round(wait * 2e9)  # at 2 GHz

    def sample(self, contestant: Contestant) -> float:
        if contestant.prepare:
            contestant.prepare()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._other_bytes.max()  # reads: nothing is left to be written back in the timed part
        torch.cuda._sleep(self._cycles)
        start.record()
        contestant.call()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e-3


def in_turn(contestants: dict[str, Contestant], clock, seconds: float) -> dict[str, Times]:
    """Times of all contestants within about that many seconds, at least FEWEST_ROUNDS each.

    Who follows whom is drawn anew for each round: a new result may lie in memory that the one
    before has just freed, which is there, or that the system has to bring back. ReLU of 2^16
    float64 took 34.7 us beside PyTorch's 14.7 in one order, 19.8 beside 19.0 in random ones.
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
