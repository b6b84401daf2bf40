"""Breaks copies of the library on purpose, and shows which check catches each break.

    python scripts/checks/prove_selftest.py [--only TEXT] [--jobs N]

Exit code: 0 if every break is caught and the untouched copy passes the same checks.
"""

import argparse
import os
import re
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from scratch_tree import Failure, ScratchTree, replaced

CONTRACTION = ("cmake/FastActOptions.cmake", "-ffp-contract=off", "-ffp-contract=fast")


@dataclass(frozen=True)
class Break:
    """The texts to replace in the tree, as (file, text, replacement), and the check that must catch
    the break."""

    name: str
    replacements: tuple
    # Arguments of `prove`.
    check: tuple
    # The instruction set with which the reference digests are computed first.
    reference: str | None = None


SELU_FLOAT32 = ("--op", "selu", "--dtype", "float32")
BREAKS = (
    Break(
        "one coefficient of float64 SELU off by one ULP",
        (("ops/math/exponential.h", "0x1.5555555555541p-5", "0x1.5555555555542p-5"),),
        ("--digest", "--op", "selu", "--dtype", "float64", "--part"),
    ),
    Break(
        "one coefficient of float16 SELU off by a 2,300th of itself",
        (("ops/activations/selu.h", "0x1.2c0bc6p-2f", "0x1.2c2bc6p-2f"),),
        ("--op", "selu", "--dtype", "float16", "--order", "0"),
    ),
    Break(
        "the leading coefficient of float32 SELU off by one ULP",
        (("ops/activations/selu.h", "0x1.c212cc640f02fp0,", "0x1.c212cc640f02ep0,"),),
        ("--digest", *SELU_FLOAT32, "--isa", "avx2"),
    ),
    Break(
        "NaN swallowed",
        (
            (
                "ops/activations/relu.h",
                "canonical(x, at_least(x, T{0}))",
                "canonical(T{0}, x >= T{0} ? x : T{0})",
            ),
        ),
        ("--op", "relu", "--dtype", "bfloat16", "--order", "0"),
    ),
    Break(
        "the sign of zero lost",
        (("ops/activations/relu.h", "at_least(x, T{0})", "x > T{0} ? x : T{0}"),),
        ("--op", "relu", "--dtype", "float16", "--order", "0"),
    ),
    Break(
        "the last element of an odd length left out",
        (("ops/cpu/packed.h", "if (n % 2 != 0) dense", "if (n % 2 != 0 && n == 1) dense"),),
        ("--digest", "--op", "relu", "--dtype", "bfloat16", "--part", "--path", "tails"),
    ),
    Break(
        "rows of a strided tensor taken one element too far on",
        (("ops/cpu/strided.cpp", "column = start - row * size0;", "column = start % 511;"),),
        ("--digest", "--op", "relu", "--dtype", "float32", "--part", "--path", "strided"),
    ),
    Break(
        "contraction on, and a sum of a product that is not spelled as fma",
        (
            CONTRACTION,
            (
                "ops/activations/selu.h",
                "fma(kLambdaAlpha, p, kLambdaAlphaLow)",
                "(kLambdaAlpha * p + kLambdaAlphaLow)",
            ),
        ),
        ("--digest", "--op", "selu", "--dtype", "float64", "--part", "--isa", "avx2"),
        reference="baseline",
    ),
    Break(
        "a race: threads that share a buffer",
        (
            ("ops/cpu/packed.h", "float result[kHalves]", "static float result[kHalves]"),
            # If this were inlined, the compiler would keep the buffer in registers.
            *(
                (
                    f"ops/cpu/vector_{isa}.h",
                    "FASTACT_INLINE void narrow_halves",
                    "__attribute__((noinline)) inline void narrow_halves",
                )
                for isa in ("avx2", "avx512")
            ),
        ),
        ("--digest", "--op", "selu", "--dtype", "float16", "--part", "--path", "threads"),
    ),
)


class SelfTest:
    def __init__(self, work: Path, jobs: int):
        self.tree = ScratchTree(work, jobs)
        self.tree.configure("-DFASTACT_ONLY=relu;selu")
        self.tree.build()

    def prove(self, arguments):
        """Returns the exit code of `prove` in the copy, and the problems that it reports."""
        done = self.tree.run(
            sys.executable, "prove", *arguments, *self._results(arguments), quiet=True
        )
        findings = [
            line.strip() for line in done.stdout.splitlines() if re.search("BROKEN|DIFFERS", line)
        ]
        if done.returncode not in (0, 1) or (done.returncode == 1) != bool(findings):
            raise Failure(f"prove ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.returncode, findings[:1]

    def _results(self, arguments):
        if "--digest" in arguments:
            return ()
        return ("--fresh", "--results", self.tree.path / "results")

    def _with_reference(self, case):
        if case.reference:
            where = case.check.index("--isa")
            update = (*case.check[: where + 1], case.reference, *case.check[where + 2 :])
            self.prove((*update, "--update"))
        return self.prove(case.check)

    def run(self, case):
        """Returns true if the break is caught and the untouched copy passes."""
        print(f"\n== {case.name}", flush=True)
        names = {file for file, _, _ in case.replacements} | {"prove/digests.json"}
        originals = {name: (self.tree.path / name).read_bytes() for name in names}
        try:
            for file, text, replacement in case.replacements:
                replaced(self.tree.path / file, re.escape(text), replacement.replace("\\", r"\\"))
            self.tree.build()
            status, lines = self._with_reference(case)
        finally:
            for name, content in originals.items():
                (self.tree.path / name).write_bytes(content)
        print(
            f"{'caught' if status else 'NOT CAUGHT'} by: prove {' '.join(case.check)}",
            *lines,
            sep="\n  ",
            flush=True,
        )
        return status == 1

    def untouched(self, cases):
        print("\n== the untouched copy", flush=True)
        self.tree.build()
        passed = True
        for check in sorted({case.check for case in cases}):
            status, lines = self.prove(check)
            print(
                f"{'FAILED' if status else 'passed'}: prove {' '.join(check)}", *lines, flush=True
            )
            passed &= status == 0
        return passed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="breaks whose name contains this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    options = parser.parse_args()
    cases = [case for case in BREAKS if options.only in case.name]
    start = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="fastact-") as folder:
            test = SelfTest(Path(folder), options.jobs)
            caught = [test.run(case) for case in cases]
            passed = test.untouched(cases)
    except Failure as failure:
        print(f"prove_selftest: {failure}", file=sys.stderr)
        return 1
    print(
        f"\n{sum(caught)} of {len(cases)} breaks caught, the untouched copy "
        f"{'passes' if passed else 'FAILS'}; {time.monotonic() - start:.0f} s"
    )
    return int(not (passed and all(caught)))


if __name__ == "__main__":
    sys.exit(main())
