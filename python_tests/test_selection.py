"""The cases that selection.py chooses, and the budgets of .ci/run."""

import inspect
import itertools
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from selection import covering_array, in_latin_square
from support import NIGHTLY, REPOSITORY, in_one_case

pytestmark = pytest.mark.kernels

STEP_TIMES = REPOSITORY / "scripts" / "checks" / "step_times.py"


def cases_of(**parameters):
    """Returns stand-ins for pytest's items: one for each combination of the parameters' values."""
    names = list(parameters)
    return [
        SimpleNamespace(callspec=SimpleNamespace(params=dict(zip(names, values))))
        for values in itertools.product(*parameters.values())
    ]


def pairs_of(cases):
    """Returns all pairs of values of two parameters that occur in the cases."""
    return {
        pair for case in cases for pair in itertools.combinations(case.callspec.params.items(), 2)
    }


SIZES = ((7, 31, 4), (2, 3, 2), (5, 5, 5, 5), (34, 2, 8, 2))


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_every_pair_is_chosen(sizes):
    cases = cases_of(**{f"p{i}": range(size) for i, size in enumerate(sizes)})
    chosen = covering_array(cases, 2)
    assert pairs_of(chosen) == pairs_of(cases)
    assert len(chosen) < len(cases) and all(case in cases for case in chosen)


@pytest.mark.parametrize("sizes", (*SIZES, (7, 31)), ids=str)
def test_every_value_is_chosen(sizes):
    cases = cases_of(**{f"p{i}": range(size) for i, size in enumerate(sizes)})
    chosen = covering_array(cases, 1)
    assert len(chosen) == max(sizes) and all(case in cases for case in chosen)
    for i, size in enumerate(sizes):
        assert {case.callspec.params[f"p{i}"] for case in chosen} == set(range(size))


def test_a_latin_square_contains_every_pair():
    sizes = 25, 4, 3
    square = [row for row in itertools.product(*map(range, sizes)) if in_latin_square(3, *row)]
    assert NIGHTLY or len(square) == 100
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert len({(row[i], row[j]) for row in square}) == sizes[i] * sizes[j]


def test_one_case_runs_every_combination():
    seen = []

    @in_one_case(letter="ab", number=(1, 2))
    def test(extra, letter, number):
        seen.append((extra, letter, number))
        assert number != 2 or letter != "b", "wrong"

    assert list(inspect.signature(test).parameters) == ["extra"]
    with pytest.raises(AssertionError, match="{'letter': 'b', 'number': 2}: wrong"):
        test(extra=0)
    assert seen == [(0, letter, number) for letter in "ab" for number in (1, 2)]


@pytest.mark.parametrize("sizes", ((5, 7), (5,)), ids=str)
def test_as_few_parameters_as_the_strength_keep_all_combinations(sizes):
    cases = cases_of(**{f"p{i}": range(size) for i, size in enumerate(sizes)}, c=("only",))
    assert covering_array(cases, len(sizes)) == cases


def test_combinations_that_a_test_leaves_out_are_not_chosen():
    cases = [
        case
        for case in cases_of(a=range(4), b=range(5), c=range(6))
        if case.callspec.params["a"] != 2 or case.callspec.params["b"] == 3
    ]
    for strength in (1, 2):
        chosen = covering_array(cases, strength)
        assert all(case in cases for case in chosen)
        assert {case.callspec.params["a"] for case in chosen} == set(range(4))


def step_times(*arguments):
    command = [sys.executable, STEP_TIMES, *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def test_the_budgets_are_within_the_limit(tmp_path):
    code, _, error = step_times("check", REPOSITORY / ".ci" / "budgets")
    assert (code, error) == (0, "")
    too_much = tmp_path / "budgets"
    too_much.write_text("# seconds\nlint: 600\ntest: 3001\n")
    code, _, error = step_times("check", too_much)
    assert code == 1 and "expected budgets of at most 3600 s in all, but got 3601 s" in error


def test_every_step_has_a_budget():
    run = (REPOSITORY / ".ci" / "run").read_text()
    steps = re.findall('^(?:budgeted|if_fits) "(.*?)"', run, re.MULTILINE)
    budgets = (REPOSITORY / ".ci" / "budgets").read_text().splitlines()
    assert steps == [line.rpartition(":")[0] for line in budgets if not line.startswith("#")]


@pytest.mark.parametrize(
    "text, message",
    (
        ("lint 600", "expected 'NAME: SECONDS', but got 'lint 600'"),
        ("lint: soon", "expected 'NAME: SECONDS', but got 'lint: soon'"),
        ("lint: 1\nlint: 2", "expected each step once, but got 'lint' again"),
    ),
)
def test_bad_budgets_are_errors(tmp_path, text, message):
    (tmp_path / "budgets").write_text(text)
    code, _, error = step_times("check", tmp_path / "budgets")
    assert code == 1 and message in error


def test_the_table_warns_of_a_step_that_overruns_its_budget(tmp_path):
    budgets, times = tmp_path / "budgets", tmp_path / "times"
    budgets.write_text("lint: 10\nall tests: 20\nlast: 5\n")
    times.write_text("lint: 11\nall tests: 20\n")
    code, table, _ = step_times("table", budgets, times)
    assert code == 0
    assert [line.split() for line in table.splitlines()] == [
        ["step", "seconds", "budget"],
        ["lint", "11", "10"],
        ["all", "tests", "20", "20"],
        ["last", "not", "run", "5"],
        ["all", "31", "35"],
        ["warning:", "lint", "took", "11", "s,", "and", "its", "budget", "is", "10", "s"],
    ]
    times.write_text("another: 1\n")
    code, _, error = step_times("table", budgets, times)
    assert code == 1 and "expected a budget for each step, but got none for 'another'" in error
