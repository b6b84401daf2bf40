"""The benchmark suite: what it counts, compares and writes. No test asserts a time."""

import copy
import importlib.util
import json
import sys
import time
from functools import partial

import pytest
import torch

from op_table import OPERATORS
from support import DTYPES, REPOSITORY, Calls, dtype_name, run_python

# One version of torch is enough to test the tools in benchmarks/.
pytestmark = pytest.mark.kernels

BENCHMARKS = REPOSITORY / "benchmarks"
sys.path.append(str(BENCHMARKS))
sys.path.append(str(REPOSITORY / "python" / "fastact"))

import _timing as timing  # noqa: E402

import bars  # noqa: E402
import cells  # noqa: E402
import changes  # noqa: E402
import compare  # noqa: E402
import contestants  # noqa: E402
import isa  # noqa: E402
import measure  # noqa: E402
import memory  # noqa: E402
import overhead  # noqa: E402
import results  # noqa: E402
import steadiness  # noqa: E402


def load_main():
    spec = importlib.util.spec_from_file_location("benchmarks_main", BENCHMARKS / "__main__.py")
    main = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(main)
    return main


main = load_main()
ACT = OPERATORS[0].id


def a_cell(form="forward", dtype="float32", elements=1 << 10, layout="contiguous", **changes):
    return cells.Cell(ACT, form, dtype, elements, layout, 1, "cpu", **changes)


def times(median, spread=0.01):
    low, high = median * (1 - spread), median * (1 + spread)
    return {"median": median, "low": low, "high": high, "rounds": 9}


def planted(ours=1e-3, theirs=2e-3, **changes):
    """Returns a stored cell with the given times."""
    return {
        **a_cell(**changes).as_dict(),
        "bytes": 8192,
        "cache": "warm",
        "times": {"fastact": times(ours), "pytorch": times(theirs), "copy": times(5e-4)},
        "absent": {},
    }


# ---- The command


@pytest.mark.parametrize(
    "arguments, sentence",
    (
        (("--op", "nothing"), "invalid choice: 'nothing'"),
        (("--dtype", "int8"), "invalid choice: 'int8'"),
        (("--form", "sideways"), "invalid choice: 'sideways'"),
        (("--quick", "--full"), "not allowed with"),
        (("--size", "99"), "expected --size from 0 to 34, but got 99"),
        (("--seconds", "0"), "expected --seconds above 0, but got 0"),
        (("--isa", "sse9"), "invalid choice: 'sse9'"),
        (("--isa", "avx2", "--device", "cuda"), "expected --device cpu with --isa, but got cuda"),
        (("--probes", "-1"), "expected at least 0 for --probes, but got -1"),
        (("--jobs", "0"), "expected at least 1 for --jobs, but got 0"),
        (("--compare", "missing.json"), "expected a result of this benchmark in missing.json"),
        (("--compare", str(REPOSITORY / "README.md")), "expected a result of this benchmark in"),
        (("--bars", "--compare", "a.json"), "not allowed with"),
    ),
)
def test_wrong_command_lines(arguments, sentence, capsys):
    with pytest.raises(SystemExit) as stopped:
        main.parse(list(arguments))
    assert stopped.value.code == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.slow
def test_a_small_run_has_every_contestant(tmp_path):
    """Runs one cell for each form, from the command line to the file."""
    arguments = ["--device", "cpu", "--op", ACT, "--dtype", "bfloat16", "--size", "8"]
    arguments += ["--section", "cells", "--seconds", "0.001", "--probes", "0"]
    run_python(BENCHMARKS, "--quick", *arguments, "--results", tmp_path)
    result = results.read(tmp_path / "cpu.json")
    assert result["machine"]["torch"] == torch.__version__
    assert result["machine"]["build_info"]["torch"]
    assert {cell["form"] for cell in result["cells"]} == set(cells.FORMS)
    for cell in result["cells"]:
        assert (cell["op"], cell["dtype"], cell["elements"]) == (ACT, "bfloat16", 256)
        assert cell["cache"] == "warm"
        assert set(cell["times"]) == {"fastact", "pytorch", "copy"} and not cell["absent"]
        for found in cell["times"].values():
            assert 0 < found["low"] <= found["median"] <= found["high"]
            assert found["rounds"] >= timing.FEWEST_ROUNDS


@pytest.mark.slow
def test_both_sides_are_held_to_an_instruction_set(tmp_path):
    arguments = ["--isa", "avx2", "--op", ACT, "--dtype", "float32", "--form", "out"]
    arguments += ["--size", "8", "--section", "cells", "--seconds", "0.001", "--probes", "0"]
    run_python(BENCHMARKS, "--quick", *arguments, "--results", tmp_path)
    result = results.read(tmp_path / "cpu-avx2.json")
    assert result["cells"] and result["machine"]["isa"] == "avx2"
    assert ", avx2, torch" in results.title(result)


def test_a_side_that_is_not_held_is_an_error(monkeypatch):
    for name in isa.ENVIRONMENTS["avx2"]:
        others = {other: v for other, v in isa.ENVIRONMENTS["avx2"].items() if other != name}
        assert list(isa.missing("avx2", others)) == [name]
    assert isa.missing("avx2", isa.ENVIRONMENTS["avx2"]) == isa.missing(None, {}) == {}
    for sets in (
        {"FastAct": "avx2", "PyTorch": "avx512"},
        {"FastAct": "avx512", "PyTorch": "avx2"},
    ):
        info = {"cpu instruction set in use": sets["FastAct"]}
        monkeypatch.setattr(isa, "build_info", lambda info=info: info)
        capability = sets["PyTorch"].upper()
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda c=capability: c)
        (side,) = (side for side, used in sets.items() if used == "avx512")
        sentence = f"expected both sides to use avx2, but {side} uses avx512"
        with pytest.raises(isa.Unmet, match=sentence):
            isa.check("avx2")
    isa.check(None)


def test_a_round_has_each_contestant_once_in_any_order():
    turns = []

    class Clock:
        def sample(self, contestant):
            turns.append(contestant)
            return float(contestant) + 1.0

    for _ in range(20):  # a busy machine does few rounds in the time of one call
        found = timing.in_turn({name: name for name in "012"}, Clock(), 0.01)
        medians = {name: times.median for name, times in found.items()}
        assert medians == {"0": 1.0, "1": 2.0, "2": 3.0}
    rounds = {tuple(turns[i : i + 3]) for i in range(0, len(turns), 3)}
    assert all(sorted(order) == ["0", "1", "2"] for order in rounds)
    assert len(rounds) == 6


def test_a_result_of_another_format_is_refused(tmp_path):
    path = tmp_path / "other.json"
    results.write(path, {"cells": []})
    assert results.read(path)["cells"] == []
    path.write_text(json.dumps({"format": results.FORMAT + 1}))
    with pytest.raises(ValueError, match="expected a result of format 1 in .*, but got 2"):
        results.read(path)


# ---- Cells


@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_name)
def test_bytes_are_those_that_a_form_moves(dtype):
    tensor = 1000 * dtype.itemsize
    moved = {
        form: a_cell(form, dtype_name(dtype), 1000).bytes_moved / tensor for form in cells.FORMS
    }
    assert moved == {"forward": 2, "in-place": 2, "out": 2, "backward": 3, "training": 5}


def test_layouts_are_what_they_are_called():
    made = {name: a_cell(layout=name, elements=1 << 12).tensor() for name in cells.LAYOUTS}
    assert all(tensor.numel() == 1 << 12 for tensor in made.values())
    assert made["contiguous"].is_contiguous()
    assert made["channels_last"].is_contiguous(memory_format=torch.channels_last)
    assert not made["channels_last"].is_contiguous()
    assert made["chunk"].stride() == (2 * cells.ROW, 1)
    assert made["every_second_column"].stride() == (2 * cells.ROW, 2)
    assert made["odd_offset"].storage_offset() == 1


@pytest.mark.parametrize("form", cells.FORMS)
def test_contestants_compute_the_same(form):
    cell = a_cell(form, "float64", 64)
    with torch.set_grad_enabled(form == "training"):
        present, _ = contestants.contestants(cell)
        found = []
        for name in ("fastact", "pytorch"):
            if present[name].prepare:
                present[name].prepare()
            result = present[name].call()
            found.append((result[0] if form == "training" else result).clone())
            again = present[name].call()
            if form != "training":
                assert (again.data_ptr() == result.data_ptr()) == (form in ("in-place", "out"))
    torch.testing.assert_close(found[0], found[1])


@pytest.mark.parametrize("act", OPERATORS, ids=lambda a: a.id)
def test_backward_takes_the_gradient_first(act):
    cell = cells.Cell(act.id, "backward", "float64", 64, "contiguous", 1, "cpu")
    operands = contestants.Operands(cell)
    expected = act.aten_backward(operands.grad, operands.x)
    assert not torch.allclose(expected, act.aten_backward(operands.x, operands.grad))
    for contestant in (contestants.fastact, contestants.pytorch):
        torch.testing.assert_close(contestant(cell, operands).call(), expected)


@pytest.mark.parametrize(
    "act", [act for act in OPERATORS if act.is_backward_by_autograd], ids=lambda act: act.id
)
def test_a_timed_backward_pass_runs_no_forward_pass(act):
    cell = cells.Cell(act.id, "backward", "float64", 64, "contiguous", 1, "cpu")
    operands = contestants.Operands(cell)
    x = operands.x.detach().requires_grad_()
    y = getattr(torch.ops.aten, act.name, act.aten)(x)
    with Calls() as of_autograd:
        torch.autograd.grad(y, x, operands.grad, retain_graph=True)
    expected = {
        contestants.pytorch: of_autograd.names,
        contestants.fastact: [f"fastact::{act.name}_backward"],
    }
    for contestant, names in expected.items():
        timed = contestant(cell, operands).call
        for _ in range(2):
            with torch.no_grad(), Calls() as calls:
                timed()
            assert calls.names == names


@pytest.mark.parametrize("selection", ("quick", "default", "every", "full"))
@pytest.mark.parametrize("device", ("cpu", "cuda"))
def test_selections_hold_each_cell_once(device, selection, monkeypatch):
    monkeypatch.setattr(cells, "available_memory", lambda device: 1 << 60)
    ops = [act.id for act in OPERATORS]
    found = cells.select(selection, device, ops)
    assert len({cell.key for cell in found}) == len(found)
    assert {cell.op for cell in found} == set(cells.SWEPT if selection == "quick" else ops)
    assert any(cell.compiled for cell in found) == (selection != "every")
    only = cells.select(selection, device, ops[:1], dtypes=["bfloat16"], forms=["backward"])
    assert only and {(c.op, c.dtype, c.form) for c in only} == {(ops[0], "bfloat16", "backward")}
    monkeypatch.setattr(cells, "available_memory", lambda device: 1 << 20)
    small = cells.select(selection, device, ops)
    assert len(small) < len(found) and all(cell.memory_needed <= 1 << 20 for cell in small)


def test_a_compiler_that_fails_is_said_and_the_rest_is_measured(monkeypatch, capsys):
    def broken(function, **options):
        def call(*tensors):
            raise RuntimeError("no compiler here\nmore")

        return call

    monkeypatch.setattr(torch, "compile", broken)
    wanted = [a_cell(compiled=True), a_cell(elements=2048, compiled=True)]
    found = measure.measure(wanted, 0.001, 1 << 20)
    assert capsys.readouterr().err.count("RuntimeError: no compiler here") == 1
    for cell in found:
        assert cell["absent"] == {"compile": "RuntimeError: no compiler here"}
        assert set(cell["times"]) == {"fastact", "pytorch", "copy"}


def test_a_large_tensor_is_called_cold():
    assert measure.cache_state(a_cell(elements=1 << 10), 1 << 20) == "warm"
    assert measure.cache_state(a_cell(elements=1 << 20), 1 << 20) == "cold"
    on_gpu = cells.Cell(ACT, "forward", "float32", 16, "contiguous", 0, "cuda")
    assert measure.cache_state(on_gpu, 1 << 20) == "cold"


# ---- Verdicts


def test_compare_finds_a_planted_slow_down_and_no_more():
    old = [planted(elements=1 << power) for power in range(8, 14)]
    new = copy.deepcopy(old)
    new[2]["times"]["fastact"] = times(1.2e-3)
    new[3]["times"]["fastact"] = times(0.8e-3)
    new[4]["times"]["fastact"] = times(1.2e-3, spread=0.4)  # overlaps the old spread
    new[5]["times"]["fastact"] = times(1.02e-3, spread=0.001)  # within the noise of two runs
    old[5]["times"]["fastact"] = times(1e-3, spread=0.001)
    new.append(planted(elements=1 << 20))  # not in the old result
    faster, slower = compare.changes(old, new)
    assert [b["elements"] for _, b in slower] == [1 << 10]
    assert [b["elements"] for _, b in faster] == [1 << 11]


def test_bars_catch_a_cell_below_them():
    measured = []
    for cell in bars.cells("cpu", 1):
        stored = {**cell.as_dict(), "times": {"fastact": times(1), "pytorch": times(6)}}
        measured.append(stored)
    assert measured and bars.missed(measured, "cpu", 1) == []
    measured[0]["times"]["pytorch"] = times(1)
    (sentence,) = bars.missed(measured, "cpu", 1)
    assert cells.label(measured[0]) in sentence and "but got 1.000" in sentence
    del measured[0]["times"]["pytorch"]
    (sentence,) = bars.missed(measured, "cpu", 1)
    assert "no time of the pytorch" in sentence


def test_bars_against_the_copy_are_missed_without_one():
    (cell, *_) = bars.cells("cuda", 1)
    stored = {**cell.as_dict(), "times": {"fastact": times(1), "pytorch": times(6)}}
    assert "no time of the copy" in bars.missed([stored], "cuda", 1)[0]


def test_probes_that_disagree_are_unsteady():
    fair = {"selu fastact": 0.5, "selu pytorch": 1.0}
    assert steadiness.unsteady([fair, {**fair, "selu pytorch": 1.2}]) == []
    (sentence,) = steadiness.unsteady([fair, {**fair, "selu pytorch": 13.0}, fair])
    assert sentence.startswith("selu pytorch: 1.00 to 13.00 ns an element in 3 probes")


def test_unsteady_bars_are_missed(monkeypatch, tmp_path, capsys):
    def measured(wanted, *_):
        all_met = {"fastact": times(1), "pytorch": times(6), "copy": times(6)}
        return [{**cell.as_dict(), "times": all_met} for cell in wanted]

    monkeypatch.setattr(measure, "measure", measured)
    monkeypatch.setattr(steadiness, "probe", lambda ops: {"x pytorch": 13.0})
    options = main.parse(["--bars", "--device", "cpu", "--results", str(tmp_path)])
    for fresh, status in ((13.0, 0), (1.0, 1)):
        probes = [{"x pytorch": fresh}]
        monkeypatch.setattr(steadiness, "fresh_probes", lambda ops, processes: probes)
        assert main.measure_bars(options) == status
        assert ("every bar is met" in capsys.readouterr().out) == (status == 0)
    assert results.read(tmp_path / "cpu-bars.json")["unsteady"]


# ---- Overhead and memory


def test_overhead_has_both_libraries_behind_each_door(act, capsys):
    rows = overhead.measure([act], "cpu", 0.0)
    assert {row["door"] for row in rows} >= set(overhead.DOORS)
    for row in rows:
        name = act.name + ("_" if row["case"].startswith("in-place") else "")
        assert "ours" in row["ns"] and min(row["ns"].values()) > 0
        assert ("peer" in row["ns"]) == hasattr(torch.ops.aten, name)
    found = {"op": "x", "door": "C++", "case": "forward", "ns": {"ours": 104.0, "peer": 100.0}}
    assert overhead.line(found).endswith("1.040  ABOVE")
    assert overhead.line({**found, "ns": {"ours": 103.0, "peer": 100.0}}).endswith("1.030")


def test_peak_memory_is_the_most_held_at_a_time(device):
    def work():
        a = torch.empty(1 << 20, dtype=torch.uint8, device=device)
        b = torch.empty(2 << 20, dtype=torch.uint8, device=device)
        del a, b
        torch.empty(1 << 20, dtype=torch.uint8, device=device)

    assert memory.peak(work, device) == 3 << 20


# ---- What is stored


def test_cells_of_several_runs_are_put_together():
    planted_cells = [planted(elements=1 << power) for power in (8, 12)]
    unsteady = [f"{ACT} fastact: 1.00 to 2.00 ns", "x pytorch: 1.00"]
    first = {"machine": results.machine("cpu"), "cells": planted_cells, "unsteady": unsteady}
    again = planted(ours=2e-3, elements=1 << 8)
    other = {**planted(elements=1 << 8), "op": "y"}
    second = {"machine": first["machine"], "cells": [again, other], "unsteady": ["y fastact: 1.00"]}
    (result,) = results.combined([first, second])
    assert result["cells"] == [again, *first["cells"][1:], other]
    assert result["unsteady"] == ["x pytorch: 1.00", "y fastact: 1.00"]


def test_what_is_stored_of_a_cell_is_what_was_measured(tmp_path):
    path = tmp_path / "stored.json"
    one, other = planted(), planted(elements=1 << 11)
    one["times"]["fastact"] = {"median": 1.23456e-6, "low": 0.1e-6, "high": 2.5e-6, "rounds": 9}
    del other["times"]["copy"]
    results.write_packed(path, {"machine": {}, "cells": [one, other], "probes": [{}]})
    found = results.read(path)
    first, second = (cell["times"] for cell in found["cells"])
    expected = {"median": 1.235e-6, "low": 0.1e-6, "high": 2.5e-6}
    assert first["fastact"] == pytest.approx(expected)
    assert first["copy"]["median"] == pytest.approx(5e-4) and "copy" not in second
    assert [cells.key_of(cell) for cell in found["cells"]] == list(map(cells.key_of, (one, other)))
    assert "probes" not in found and found["machine"] == {}


# ---- The copy


@pytest.mark.parametrize("form", cells.FORMS)
def test_the_copy_of_a_cpu_is_the_fastest_of_several(form, monkeypatch):
    tried = []
    pick = contestants.fastest

    def fastest(calls):
        tried.append(len(calls))
        return pick(calls)

    monkeypatch.setattr(contestants, "fastest", fastest)
    cell = a_cell(form, elements=1 << 12)
    contestants.copy(cell, contestants.Operands(cell)).call()
    assert tried == {"forward": [4], "in-place": [1], "out": [2], "backward": [2],
                     "training": [4, 2]}[form]  # fmt: skip


def test_the_fastest_call_is_taken():
    delays = {"a": 3e-3, "b": 1e-3, "c": 2e-3}
    calls = [partial(time.sleep, delay) for delay in delays.values()]
    assert contestants.fastest(calls) is calls[1]


def test_every_copy_copies(monkeypatch):
    a, b, out = (torch.randint(1 << 40, (5000,)) for _ in range(3))
    monkeypatch.setattr(torch.Tensor, "bitwise_not_", lambda t: t.copy_(a))
    ways = contestants.copies_of_a_cpu(a, b, out, 1)
    for form, calls in ways.items():
        for call in calls:
            out.zero_()
            assert torch.equal(call(), a ^ b if form == "backward" else a)


# ---- Results that change


def test_results_that_change_are_counted(monkeypatch):
    """A function whose results depend on the length, and one whose compiled form differs."""
    monkeypatch.setattr(torch, "compile", lambda function, dynamic: lambda x: function(x) + 1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    x = torch.arange(1.0, 9.0)
    assert changes.changes(lambda v: v + (len(v) > 1) * (v > 3), x) == {"length": 5, "compile": 8}
    assert changes.changes(lambda v: v * float("nan"), x) == {"length": 0, "compile": 0}
    zeros = torch.tensor([0.0, -0.0])
    assert changes.differing(zeros, torch.zeros(2)) == 1  # the bits count
