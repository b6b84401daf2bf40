"""Makes registrations with torch fail at each of their lines in turn. A script of its own, run by
test_after_import.py, because it changes torch.

    python registration_faults.py inductor|dtensor

Raises an error before each line of the package that a registration runs, and before the second and
third run of lines in loops; except in the nightly run, only before each fifth. The types of the
errors take turns. Prints the number of lines.
"""

import itertools
import linecache
import os
import pickle
import sys
from collections import Counter

import torch
import torch.distributed.tensor
from torch._functorch import partitioners
from torch._inductor import codecache, lowering
from torch._inductor.codegen import cpp

STEP = 1 if os.environ.get("FASTACT_NIGHTLY") else 5
ERRORS = (
    RuntimeError, SystemError, OSError, AttributeError, ImportError, KeyError, AssertionError,
    pickle.PicklingError, NotImplementedError, MemoryError, RecursionError,
)  # fmt: skip
PLACES = (lowering, partitioners, codecache.FxGraphHashDetails, cpp.CppOverrides,
          cpp.CppVecOverrides)  # fmt: skip


class Fault:
    """Raises an error before line number `number` that runs."""

    def __init__(self, package, number):
        self.folder = package.__path__[0]
        # The file whose code calls the lines and catches their errors.
        self.caller = package.__file__
        self.number = number
        self.error = ERRORS[number % len(ERRORS)]("simulated")
        self.is_raised = False
        self.runs = Counter()

    def trace(self, frame, event, argument):
        name = frame.f_code.co_filename
        return self.trace_line if name.startswith(self.folder) and name != self.caller else None

    def trace_line(self, frame, event, argument):
        if event == "line":
            place = frame.f_code.co_filename, frame.f_lineno
            self.runs[place] += 1
            # Python reports the first line of a `with` block again at its end.
            is_end = self.runs[place] > 1 and linecache.getline(*place).lstrip().startswith("with ")
            if self.runs[place] <= 3 and not is_end:
                self.number -= 1
            if self.number < 0:
                self.is_raised, self.place = True, place
                raise self.error
        return self.trace_line

    def __enter__(self):
        sys.settrace(self.trace)
        return self

    def __exit__(self, *exception):
        sys.settrace(None)


def forget(package):
    """Makes the next import load the package's modules again."""
    for name in [name for name in sys.modules if name.startswith(package.__name__ + ".")]:
        del sys.modules[name]
        vars(package).pop(name.rpartition(".")[2], None)
    package.status = None


def lacks(package, error):
    """Asserts that show_config() gives the reason why something is missing."""
    assert f"{type(error).__name__}: " in package.status, (package.status, error)
    assert "simulated" in package.status, package.status


def state():
    """Everything that a registration with Inductor may change."""
    return [dict(vars(place)) for place in PLACES] + [dict(lowering.lowerings)]


def inductor(package):
    before = state()
    for number in itertools.count(0, STEP):
        forget(package)
        with Fault(package, number) as fault:
            package.register()
        if not fault.is_raised:
            assert state() != before
            return number
        lacks(package, fault.error)
        assert state() == before, f"not all was put back after {fault.place}"


def dtensor(package):
    propagator = torch.distributed.tensor.DTensor._op_dispatcher.sharding_propagator

    def ours():
        return [op for op in propagator.op_strategy_funcs if op.namespace == "fastact"]

    for number in itertools.count(0, STEP):
        for op in ours():
            del propagator.op_strategy_funcs[op]
        forget(package)
        with Fault(package, number) as fault:
            package.register()
        count = len(ours())
        assert package.status.startswith(f"sharding rules for {count or 'no'} operators")
        if not fault.is_raised:
            assert count > 100, package.status
            return number
        lacks(package, fault.error)


def main(what):
    import fastact

    package = getattr(fastact, {"inductor": "_inductor", "dtensor": "_distributed"}[what])
    print({"inductor": inductor, "dtensor": dtensor}[what](package))


if __name__ == "__main__":
    # Without this module `import fastact` does not change Inductor.
    sys.modules["fastact._inductor.lowerings"] = None
    main(*sys.argv[1:])
