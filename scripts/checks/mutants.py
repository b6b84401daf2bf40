"""Shows which tests catch which deliberate breaks of the library.

    python scripts/checks/mutants.py [--only TEXT] [--nth N] [--groups A,B] [--first] [--uncaught]
                                      [--untried]

Builds one copy of the tree that contains all breaks of scripts/checks/mutant_list.py. The
environment variable FASTACT_MUTANT switches one of them on. A group is a file of python_tests/, the
slow tests of a file, or a C++ test program. First all groups run with no break switched on, which
also records the breaks whose code each test executes. Groups that fail are left out. Then each
group runs once for each break whose code it executes, with only the tests that execute that code.
The results are written to docs/dev/mutants.md.

Exit code: 0 if each chosen group passes with no break switched on, and each chosen break is caught
by a group, else 1.
"""

import argparse
import concurrent.futures
import contextlib
import functools
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mutant_list import BREAKS, Break
from scratch_tree import ROOT, Failure, ScratchTree, copy_tree

VARIABLE = "FASTACT_MUTANT"
# The variable that names a file, to which each test appends the breaks whose code it executes.
RECORD = "FASTACT_MUTANTS_RECORD"
# The same for breaks of Python files.
PYTHON_RECORD = "FASTACT_MUTANTS_PYTHON_RECORD"
COMMAND = "make mutants"
PAGE = ROOT / "docs" / "dev" / "mutants.md"
RESULTS = PAGE.with_suffix(".json")

# The breaks of Python files.
IN_PYTHON = [c.name for c in BREAKS if any(edit.file.endswith(".py") for edit in c.edits)]

# The end of the name of a group of slow tests.
SLOW = "_slow"
# Groups that call no operator of the library. They run only if --groups names them.
LEFT_OUT = {
    *("test_benchmarks", "test_contributing", "test_dependencies", "test_polynomials"),
    *("test_prove", "test_selection", "test_self_check", "test_set_up"),
}
# pytest's exit code if it has selected no test.
NO_TESTS = 5
PROGRAMS = ("fastact_ops_tests", "fastact_api_tests", "fastact_load_tests")
# The groups that probably catch a break of an area. They run before all others.
LIKELY = {
    "CPU engine": ("fastact_ops_tests", "test_layouts"),
    "autograd": ("test_combinations", "test_autograd"),
    "alpha dropout": ("test_alpha_dropout",),
    "fused forms": ("test_fused", "test_combinations"),
    "prelu": ("test_prelu",),
    "packed halves": ("test_fused", "test_clamped_swiglu"),
    "ATen override": ("test_override",),
    "TorchScript": ("test_optimize", "test_registration"),
    "Inductor": ("test_inductor",),
    "DTensor": ("test_distributed_slow",),
    "Python package": ("test_functional", "test_replace", "test_backend"),
    "loading": ("test_loading", "test_after_import_slow"),
}

# In a folder whose headers the Python package contains for Inductor's kernels.
HEADER = "ops/math/mutants.h"
HEADER_TEXT = f"""\
// Written by scripts/checks/mutants.py.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>

// Functions are static, because files are compiled for different instruction sets.
namespace fastact_mutants {{

[[maybe_unused]] static std::uint64_t hash(const char* text) {{
  std::uint64_t value = 14695981039346656037u;
  for (; text != nullptr && *text != 0; ++text)
    value = (value ^ static_cast<unsigned char>(*text)) * 1099511628211u;
  return value;
}}

// Appends the break and the current test to the record, once for each test and thread.
[[maybe_unused]] static void record(const char* file, const char* name, std::uint64_t& last) {{
  const char* const test = std::getenv("PYTEST_CURRENT_TEST");
  if (hash(test) == last) return;
  last = hash(test);
  if (std::FILE* const to = std::fopen(file, "a")) {{
    std::fprintf(to, "%s\\t%s\\n", name, test == nullptr ? "" : test);
    std::fclose(to);
  }}
}}

}}  // namespace fastact_mutants

// True if the environment switches the named break on.
#define FASTACT_MUTANT(name)                                                              \\
  ([] {{                                                                                   \\
    static const char* const file = std::getenv("{RECORD}");               \\
    static const bool is_on =                                                             \\
        ::fastact_mutants::hash(std::getenv("{VARIABLE}")) == ::fastact_mutants::hash(name); \\
    static thread_local std::uint64_t last = 0;                                           \\
    if (file != nullptr) ::fastact_mutants::record(file, name, last);                      \\
    return is_on;                                                                         \\
  }}())
"""

# ---- The copy with the breaks


def switch(name: str, file: str) -> str:
    """Returns the expression that replaces the word MUTANT."""
    if file.endswith(".py"):
        # Without double quotes and backslashes, because scripts/codegen/python_package.py contains
        # this code in strings.
        return (
            f"(lambda e: ('{PYTHON_RECORD}' in e and open(e['{PYTHON_RECORD}'], 'a').write("
            f"'{name}' + chr(9) + e.get('PYTEST_CURRENT_TEST', '') + chr(10)), "
            f"e.get('{VARIABLE}') == '{name}')[1])(__import__('os').environ)"
        )
    return f'FASTACT_MUTANT("{name}")'


def broken_text(file: str, text: str, breaks: Iterable[Break]) -> str:
    """Returns a file's text with all breaks of that file. Raises Failure if one does not fit."""
    found: list[tuple[int, int, str, str]] = []
    for case in breaks:
        for edit in case.edits:
            if edit.file != file:
                continue
            count = text.count(edit.old)
            if count != 1:
                raise Failure(
                    f"the break '{case.name}': expected {file} to contain its text once, but got "
                    f"{count} times: {edit.old!r}."
                )
            if re.search(r"\bMUTANT\b", edit.new) is None:
                raise Failure(
                    f"the break '{case.name}': expected the word MUTANT in the new text for {file}."
                )
            start = text.index(edit.old)
            new = re.sub(r"\bMUTANT\b", lambda _, c=case: switch(c.name, file), edit.new)
            found.append((start, start + len(edit.old), new, case.name))
    found.sort()
    for (_, end, _, name), (start, _, _, other) in zip(found, found[1:]):
        if start < end:
            raise Failure(f"the breaks '{name}' and '{other}' change the same text of {file}.")
    for start, end, new, _ in reversed(found):
        text = text[:start] + new + text[end:]
    return text if file.endswith(".py") else f'#include "{HEADER}"\n{text}'


def broken_texts() -> dict[str, str]:
    """Returns all files of the copy that differ from the tree."""
    names = [case.name for case in BREAKS]
    for name in names:
        if names.count(name) > 1 or re.search(r"['\"|\\`]", name):
            raise Failure(f"'{name}': expected a name without quotes that no other break has.")
    files = sorted({edit.file for case in BREAKS for edit in case.edits})
    texts = {file: broken_text(file, (ROOT / file).read_text(), BREAKS) for file in files}
    return texts | {HEADER: HEADER_TEXT}


# ---- Groups of tests


@dataclass(frozen=True)
class Group:
    name: str
    command: tuple[str, ...]


def every_group(build_folder: Path) -> dict[str, Group]:
    """Returns all groups by name, including those that are omitted by default."""
    pytest = (sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider")
    groups = []
    for path in sorted((ROOT / "python_tests").glob("test_*.py")):
        command = (*pytest, f"python_tests/{path.name}", "-m")
        groups.append(Group(path.stem, (*command, "not slow")))
        if "mark.slow" in path.read_text():
            groups.append(Group(path.stem + SLOW, (*command, "slow")))
    for name in PROGRAMS:
        program = str(build_folder / "bin" / name)
        groups.append(Group(name, (program, "--gtest_brief=1", "--gtest_fail_fast")))
    return {group.name: group for group in groups}


def chosen_groups(build_folder: Path, names: str | None) -> list[Group]:
    found = every_group(build_folder)
    if names is None:
        return [g for name, g in found.items() if name.removesuffix(SLOW) not in LEFT_OUT]
    for name in names.split(","):
        if name not in found:
            raise Failure(f"expected --groups to be of {', '.join(found)}, but got '{name}'.")
    return [found[name] for name in names.split(",")]


def end(process: subprocess.Popen) -> None:
    """Kills a process that leads a session, and all other processes of the session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@dataclass(frozen=True)
class Outcome:
    #: "passed", "failed", "timed out" or "has no test here".
    status: str
    seconds: float
    output: str

    def reason(self) -> str:
        """Returns the line of the output that states the failure."""
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        for line in lines:
            if re.match(r"FAILED |ERROR |\[  FAILED  \]", line):
                return line[:200]
        return lines[-1][:200] if lines else "no output"


class Laboratory:
    """The build that contains all breaks, and the copy of the tests that run with it."""

    def __init__(self, work: Path, jobs: int):
        self.work = work
        self.tree = ScratchTree(work, jobs, broken_texts())
        self.tests = work / "tests"
        self.running: set[subprocess.Popen] = set()
        self.is_stopped = False
        #: For each group, the tests that execute the code of each break. None: any test may.
        self.executed: dict[str, dict[str, list[str] | None]] = {}
        #: Groups that fail with no break switched on.
        self.failing: list[str] = []
        entries = [
            path.name
            for path in ROOT.iterdir()
            if path.name not in ("build", "dist") and not path.name.startswith(".")
        ]
        copy_tree(self.tests, entries, {})

    def build(self, with_programs: bool) -> None:
        """Builds the library and the package. Builds the C++ tests only if a group needs them."""
        os.environ.pop(VARIABLE, None)
        self.tree.configure(f"-DFASTACT_BUILD_TESTS={'ON' if with_programs else 'OFF'}")
        self.tree.build()
        prefix = self.tree.build_folder / "prefix"
        self.tree.step("install", "cmake", "--install", self.tree.build_folder, "--prefix", prefix)

    def fingerprint(self) -> str:
        """Returns a digest of everything that the groups depend on."""
        digest = hashlib.sha256()
        unread = (PAGE.name, RESULTS.name, Path(__file__).name)
        for folder in (self.tree.path, self.tests):
            for path in sorted(folder.rglob("*")):
                if path.is_file() and path.name not in unread:
                    digest.update(str(path.relative_to(folder)).encode() + path.read_bytes())
        return digest.hexdigest()

    def run(
        self, group: Group, limit: float, name: str = "", records: Mapping[str, str] | None = None
    ) -> Outcome:
        """Runs a group with a break switched on, or with none and with variables of `records`."""
        if self.is_stopped:
            raise Failure("the tests were stopped.")
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
            environment = {
                **self.tree.environment(),
                **(records or {}),
                "FASTACT_PREFIX": str(self.tree.build_folder / "prefix"),
                "OMP_NUM_THREADS": str(max(2, (os.cpu_count() or 2) // self.tree.jobs)),
                "OMP_WAIT_POLICY": "passive",
                "PYTHONDONTWRITEBYTECODE": "1",
                # A break must not find the files of an earlier one.
                "HYPOTHESIS_STORAGE_DIRECTORY": f"{folder}/hypothesis",
                "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
            }
            command = list(group.command)
            if name:
                environment[VARIABLE] = name
                tests = self.executed[group.name][name]
                if tests is not None:
                    arguments = Path(folder) / "tests.txt"
                    arguments.write_text("\n".join(tests))
                    command = [f"@{arguments}" if "/test_" in word else word for word in command]
            if "pytest" in command:
                command.append(f"--basetemp={folder}/pytest")
            output = Path(folder) / "output.txt"
            with output.open("wb") as file:
                process = subprocess.Popen(
                    command, cwd=self.tests, env=environment, stdin=subprocess.DEVNULL,
                    stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
                )  # fmt: skip
                self.running.add(process)
                try:
                    code = process.wait(timeout=limit)
                except subprocess.TimeoutExpired:
                    code = None
                finally:
                    end(process)  # and all processes that the tests have started
                    process.wait()
                    self.running.discard(process)
            text = output.read_text(errors="replace")
        if self.is_stopped:
            raise Failure("the tests were stopped.")
        statuses = {None: "timed out", 0: "passed", NO_TESTS: "has no test here"}
        return Outcome(statuses.get(code, "failed"), time.monotonic() - start, text)

    def parallel(self, function: Callable, items: list) -> Iterator[tuple]:
        """Yields each item with the function's result, in the order in which the results arrive.
        Kills all tests after an interrupt."""
        pool = concurrent.futures.ThreadPoolExecutor(self.tree.jobs)
        try:
            futures = {pool.submit(function, item): item for item in items}
            for future in concurrent.futures.as_completed(futures):
                yield futures[future], future.result()
        finally:
            self.is_stopped = sys.exc_info()[0] is not None
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(self.running):
                end(process)

    def keep_output(self, name: str, group: Group, outcome: Outcome) -> None:
        folder = self.work / "outputs" / re.sub(r"\W+", "-", name or "no break")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{group.name}.txt").write_text(outcome.output)

    def untouched(self, groups: list[Group], limit: float) -> dict[str, float]:
        """Runs the groups with no break switched on, and returns the seconds of each passing group.
        A group that passed with the same sources does not run again."""
        file = self.work / "untouched.json"
        found = json.loads(file.read_text()) if file.exists() else {}
        fingerprint = self.fingerprint()
        if found.get("fingerprint") != fingerprint:
            found = {"fingerprint": fingerprint, "seconds": {}, "executed": {}}
        seconds, self.executed = found["seconds"], found["executed"]
        waiting = [group for group in groups if group.name not in seconds]
        print(f"== {len(waiting)} groups with no break switched on", flush=True)

        def attempt(group: Group) -> tuple[Outcome, dict[str, list[str] | None]]:
            # TorchDynamo traces code of the package, and fails where it would record a break there.
            for variables in ((RECORD, PYTHON_RECORD), (RECORD,)):
                with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
                    record = Path(folder) / "record.txt"
                    outcome = self.run(group, limit, records=dict.fromkeys(variables, str(record)))
                    if outcome.status == "passed":
                        executed = {} if PYTHON_RECORD in variables else dict.fromkeys(IN_PYTHON)
                        return outcome, executed | read_record(record)
            return outcome, {}

        for group, (outcome, executed) in self.parallel(attempt, waiting):
            print(
                f"  {group.name}: {outcome.status}, {outcome.seconds:.0f} s, executes the code of "
                f"{len(executed)} breaks",
                flush=True,
            )
            if outcome.status == "passed":
                seconds[group.name], self.executed[group.name] = outcome.seconds, executed
                file.write_text(json.dumps(found))
            elif outcome.status != "has no test here":
                self.keep_output("", group, outcome)
                print(f"    left out: {outcome.reason()}", flush=True)
                self.failing.append(group.name)
        return seconds


def read_record(file: Path) -> dict[str, list[str] | None]:
    """Returns the tests that execute the code of each break. None stands for any test: the code was
    executed outside of a test's call, such as in a fixture that other tests share."""
    executed: dict[str, list[str] | None] = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        name, _, current = line.partition("\t")
        test, is_call, _ = current.rpartition(" (call)")
        tests = executed.setdefault(name, [])
        if not is_call:
            executed[name] = None
        elif tests is not None and test not in tests:
            tests.append(test)
    return executed


# ---- The page


@dataclass
class Result:
    """The groups that catch a break, miss it, or exceed their time limit."""

    caught: set[str] = field(default_factory=set)
    missed: set[str] = field(default_factory=set)
    timed_out: set[str] = field(default_factory=set)

    def tried(self) -> set[str]:
        return self.caught | self.missed | self.timed_out

    def add(self, group: str, status: str) -> None:
        for names in (self.caught, self.missed, self.timed_out):
            names.discard(group)
        kinds = {"failed": self.caught, "passed": self.missed, "timed out": self.timed_out}
        kinds[status].add(group)

    def update(self, other: "Result") -> None:
        for status, names in (
            ("failed", other.caught), ("passed", other.missed), ("timed out", other.timed_out)
        ):  # fmt: skip
            for name in names:
                self.add(name, status)


Results = dict[str, Result]


def read_results(file: Path) -> Results:
    """Returns the stored results. The file lists the groups that did not run with a break instead
    of the many that did not catch it."""
    if not file.exists():
        return {}
    stored = json.loads(file.read_text())
    return {
        name: Result(
            set(row["caught"]),
            set(stored["groups"]) - set(row["caught"] + row["timed out"] + row["untried"]),
            set(row["timed out"]),
        )
        for name, row in stored["breaks"].items()
    }


def write_results(file: Path, page_file: Path, results: Results, groups: set[str]) -> None:
    """Stores the results of the breaks in the list for groups that still exist, and writes the
    page."""
    rows = {}
    for case in BREAKS:
        result = results.get(case.name, Result())
        rows[case.name] = {
            "caught": sorted(result.caught & groups),
            "timed out": sorted(result.timed_out & groups),
            "untried": sorted(groups - result.tried()),
        }
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
    file.write_text(f'{{"groups": {json.dumps(sorted(groups))},\n "breaks": {{\n{lines}\n }}}}\n')
    page_file.write_text(page(rows, groups))


def page(stored: dict[str, dict[str, list[str]]], groups: set[str]) -> str:
    def cell(names: Iterable[str]) -> str:
        return ", ".join(f"`{name}`" for name in sorted(names))

    rows, alone, nobody = [], [], []
    for case in BREAKS:
        caught, untried = stored[case.name]["caught"], stored[case.name]["untried"]
        tried = "all" if not untried else f"{len(groups) - len(untried)} of {len(groups)}"
        rows.append(f"| {case.name} | {case.area} | {cell(caught)} | {tried} |")
        if len(caught) == 1 and len(untried) <= len(groups) // 10:
            alone.append((*caught, case.name))
        if not caught:
            nobody.append(case.name if not untried else f"{case.name} (tried by {tried})")
    return "\n".join(
        [
            "# Deliberate breaks, and the tests that catch them",
            "",
            f"Written by `{COMMAND}`, which builds a copy of the library that contains every break",
            "of `scripts/checks/mutant_list.py` and switches on one at a time. A group is a file",
            "in `python_tests/`, the slow tests of a file (`_slow`), or a C++ test program. It",
            "catches a break if one of its tests fails, not if it exceeds its time limit. A group",
            "that does not execute the code of a break counts as tried, but does not run.",
            f"[{RESULTS.name}]({RESULTS.name}) lists the {len(groups)} groups, and for each break",
            "the groups that have not tried it.",
            "",
            "| break | area | caught by | groups that tried |",
            "|---|---|---|---|",
            *rows,
            "",
            "## Breaks that exactly one group catches",
            "",
            "This list contains only breaks that at least nine tenths of the groups have tried.",
            "",
            "| group | break |",
            "|---|---|",
            *(f"| `{group}` | {name} |" for group, name in sorted(alone)),
            "",
            "## Breaks that no group catches",
            "",
            *([f"- {name}" for name in nobody] or ["None."]),
            "",
        ]
    )


# ---- The command


def try_break(
    laboratory: Laboratory,
    seconds: dict[str, float],
    limit: float,
    item: tuple[Break, tuple[Group, ...]],
) -> Result:
    """Runs the groups with the break switched on, up to the first that catches it."""
    case, groups = item
    result = Result()
    for group in groups:
        if case.name not in laboratory.executed[group.name]:
            result.add(group.name, "passed")
            continue
        outcome = laboratory.run(group, min(limit, 60 + 5 * seconds[group.name]), case.name)
        result.add(group.name, outcome.status)
        if outcome.status == "passed":
            continue
        laboratory.keep_output(case.name, group, outcome)
        print(f"{case.name}\n  {group.name} {outcome.status}: {outcome.reason()}", flush=True)
        if outcome.status == "failed":
            break
    return result


def run(options: argparse.Namespace, breaks: list[Break], work: Path) -> int:
    laboratory = Laboratory(work, options.jobs)
    groups = chosen_groups(laboratory.tree.build_folder, options.groups)
    laboratory.build(with_programs=any(group.name in PROGRAMS for group in groups))
    seconds = laboratory.untouched(groups, options.limit)
    groups = [group for group in groups if group.name in seconds]
    results = read_results(RESULTS)
    if options.uncaught:
        breaks = [case for case in breaks if not results.get(case.name, Result()).caught]
    every = {name for result in results.values() for name in result.tried()}
    every &= set(every_group(laboratory.tree.build_folder))
    every |= {group.name for group in groups}
    every -= set(laboratory.failing)  # their stored results are of another build
    print(f"== {len(breaks)} breaks, {len(groups)} groups", flush=True)

    def by_likelihood(case: Break) -> tuple[Group, ...]:
        likely = LIKELY.get(case.area, ())
        return tuple(sorted(groups, key=lambda g: (g.name not in likely, seconds[g.name])))

    if options.first:
        items = [(case, by_likelihood(case)) for case in breaks]
    else:  # the longest groups first, so that none runs alone at the end
        items = [
            (case, (group,))
            for group in groups
            for case in breaks
            if not (options.untried and group.name in results.get(case.name, Result()).tried())
        ]
        items.sort(key=lambda item: -seconds[item[1][0].name])
    attempt = functools.partial(try_break, laboratory, seconds, options.limit)
    for (case, _), result in laboratory.parallel(attempt, items):
        results.setdefault(case.name, Result()).update(result)
        write_results(RESULTS, PAGE, results, every)
    missed = [case.name for case in breaks if not results[case.name].caught]
    print(f"\n{len(breaks) - len(missed)} of {len(breaks)} breaks caught; {PAGE.name} is written")
    for name in missed:
        print(f"  not caught: {name}")
    for name in laboratory.failing:
        print(f"  left out, because it fails with no break switched on: {name}")
    return int(bool(missed or laboratory.failing))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--only", default="", metavar="TEXT", help="breaks whose 'area: name' contains this")
    add("--nth", type=int, default=1, metavar="N", help="only every N-th of these breaks")
    add("--groups", metavar="A,B", help="test files and programs, such as test_jit")
    add("--first", action="store_true", help="stop at the first group that catches a break")
    add("--uncaught", action="store_true", help="only breaks that no group is known to catch")
    add("--untried", action="store_true", help="only pairs without a stored result")
    add("--jobs", type=int, default=os.cpu_count() or 2, help="compilers, and breaks at a time")
    add("--limit", type=float, default=900, help="seconds that a group may take at most")
    add("--keep", type=Path, metavar="FOLDER", help="a work folder that is kept and used again")
    add("--list", action="store_true", help="only list the breaks")
    add("--check", action="store_true", help="only check that each break fits the sources")
    options = parser.parse_args()
    breaks = [case for case in BREAKS if options.only in f"{case.area}: {case.name}"]
    breaks = breaks[:: options.nth]
    try:
        if not breaks:
            raise Failure(f"expected --only to be a part of a break's name: '{options.only}'.")
        if options.list:
            print(*(f"{case.area}: {case.name}" for case in breaks), sep="\n")
            return 0
        if options.check:
            print(f"{len(BREAKS)} breaks fit {len(broken_texts()) - 1} files")
            return 0
        if options.keep is not None:
            options.keep.mkdir(parents=True, exist_ok=True)
            return run(options, breaks, options.keep.resolve())
        with tempfile.TemporaryDirectory(prefix="fastact-") as folder:
            return run(options, breaks, Path(folder))
    except Failure as failure:
        print(f"mutants: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("mutants: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
