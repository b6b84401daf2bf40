"""Selects the cases of a parametrized test: a covering array instead of all combinations.

A covering array of strength 2 contains every pair of values of any two parameters. An array of
strength 1 contains every value of each parameter. The strength is 2, and 1 for the oldest torch.
The nightly run takes all combinations. Tests marked `every_combination` also do, unless the
strength is 1.
"""

from collections import defaultdict

from allpairspy import AllPairs

from support import NIGHTLY


def indices_of(values):
    """Returns the index of each value, in the order of their first appearance. Values are compared
    by identity, because some do not support ==."""
    found = {}
    return tuple(found.setdefault(id(value), len(found)) for value in values)


def axes(cases):
    """Returns a tuple for each varying parameter: the index of its value in each case. Parameters
    that one decorator sets have equal tuples, and count as one."""
    names = cases[0].callspec.params
    columns = {indices_of([case.callspec.params[name] for case in cases]) for name in names}
    return sorted(column for column in columns if len(set(column)) > 1)


def covering_array(cases, strength):
    """Returns cases of one test that contain every combination of values of any `strength`
    parameters."""
    columns = axes(cases)
    if len(columns) <= strength:
        return cases
    by_values = dict(zip(zip(*columns), cases))
    values = [sorted(set(column)) for column in columns]
    found = AllPairs(values, filter_func=lambda row: is_possible(row, by_values), n=strength)
    rows = list(found)
    if [sorted(set(column)) for column in zip(*rows)] != values:
        return cases  # the test omits so many combinations that AllPairs has missed a value
    return [by_values[tuple(row)] for row in rows]


def in_latin_square(count, *places):
    """Returns true for one in `count` combinations of three values, chosen as in a Latin square:
    they contain every pair of values of two dimensions if the third has at least `count` values.
    `places` are the indices of the values. Returns true for all combinations in the nightly run."""
    return NIGHTLY or sum(places) % count == 0


def is_possible(row, by_values):
    """Returns false for a row that is not among the cases, because the test omits it. AllPairs also
    asks for the beginnings of rows, which are possible."""
    return len(row) < len(next(iter(by_values))) or tuple(row) in by_values


def selected(items, strength):
    """Returns the cases to run, in their order. They are the same on each device."""
    tests = defaultdict(list)
    for item in items:
        device = item.callspec.params.get("device") if hasattr(item, "callspec") else None
        tests[item.module, item.originalname or item.name, device].append(item)
    kept = set()
    for cases in tests.values():
        whole = NIGHTLY or not hasattr(cases[0], "callspec")
        whole = whole or strength == 2 and cases[0].get_closest_marker("every_combination")
        kept.update(cases if whole else covering_array(cases, strength))
    return [item for item in items if item in kept]
