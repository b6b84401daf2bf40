"""The benchmark suite: what it counts, compares and writes. No assertion is about time."""

import copy
import importlib.util
import json
import re
import shutil
import sys
import time
from functools import partial

import pytest
import torch

import figures
from op_table import OPERATORS
from pages import put_between_markers
from support import DTYPES, REPOSITORY, dtype_name, run_python

# The tools in benchmarks/, of which the newest torch is enough to show that they work.
pytestmark = pytest.mark.kernels

BENCHMARKS = REPOSITORY / "benchmarks"
sys.path.append(str(BENCHMARKS))
sys.path.append(str(REPOSITORY / "python" / "fastact"))

import _timing as timing  # noqa: E402

import bars  # noqa: E402
import cells  # noqa: E402
import compare  # noqa: E402
import contestants  # noqa: E402
import isa  # noqa: E402
import measure  # noqa: E402
import memory  # noqa: E402
import overhead  # noqa: E402
import performance  # noqa: E402
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
    """A stored cell with times as given."""
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
        (("--report", str(REPOSITORY / "README.md")), "expected a result of this benchmark in"),
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
    """From the command line to the file, one cell a form."""
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
    held = performance.section({**result, "measured": {"cells": result["machine"]}})
    assert any("ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2" in line for line in held)


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

    found = timing.in_turn({name: name for name in "012"}, Clock(), 0.05)
    assert {name: times.median for name, times in found.items()} == {"0": 1.0, "1": 2.0, "2": 3.0}
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
    new[4]["times"]["fastact"] = times(1.2e-3, spread=0.4)  # touches the old spread
    new[5]["times"]["fastact"] = times(1.02e-3, spread=0.001)  # less than runs differ by
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


# ---- The page


def a_result():
    return {
        "machine": results.machine("cpu"),
        "cells": [
            planted(elements=1 << 8),
            planted(elements=1 << 12),
            planted(ours=3e-3, elements=1 << 16),  # loses
            planted(form="backward", elements=1 << 16),
            planted(layout="chunk", elements=1 << 16),
        ],
        "overhead": [
            {"op": ACT, "door": "Python", "case": "forward", "device": "cpu",
             "ns": {"ours": 110.0, "peer": 100.0, "own": 50.0}}
        ],
        "memory": [
            {"op": ACT, "form": "in-place", "dtype": "float32", "layers": 10, "batch": 8,
             "features": 4, "bytes": {"fastact": 1 << 20, "pytorch": 2 << 20}}
        ],
        "binary": {"bytes": 1 << 20, "bytes_by_architecture": {"sm_90": 1 << 19},
                   "load_seconds": 0.002},
        "unsteady": ["x pytorch: 1.00 to 13.00 ns"],
    }  # fmt: skip


def test_cells_of_several_runs_are_put_together():
    first = {**a_result(), "unsteady": [f"{ACT} fastact: 1.00 to 2.00 ns", "x pytorch: 1.00"]}
    again = planted(ours=2e-3, elements=1 << 8)
    other = {**planted(elements=1 << 8), "op": "y"}
    second = {"machine": first["machine"], "cells": [again, other], "unsteady": ["y fastact: 1.00"]}
    (result,) = results.combined([first, second])
    assert result["cells"] == [again, *first["cells"][1:], other]
    assert result["unsteady"] == ["x pytorch: 1.00", "y fastact: 1.00"]


def test_a_note_is_told():
    result = a_result()
    result["machine"]["note"] = "Beside other work."
    assert "Beside other work." in performance.section(results.combined([result])[0])


ROW = re.compile(r"^\| (\w+) .* / ", re.MULTILINE)
RATIOS = re.compile(r"(?<=\| )(-|\d+\.\d\d)(~?) / \**\d+\.\d\d\**(~?)(?= \|)")


def test_unsteady_ratios_are_marked(tmp_path):
    for who, ours, theirs in (("fastact", "~", "~"), ("pytorch", "", "~")):
        result = {**a_result(), "unsteady": [f"{ACT} {who}: 1.00 to 13.00 ns"]}
        text = "\n".join(performance.section(results.combined([result])[0]))
        assert f"| 0.50{ours} / 2.00{theirs} | 0.50{ours} / 2.00{theirs} | 0.17{ours} / " in text
        assert f"**0.67**{theirs} |" in text and f"{ACT} forward float32 2^16 1 thread ~ |" in text
        assert "~" not in "\n".join(performance.section(results.combined([a_result()])[0]))


def test_cells_are_counted_beside_the_copy():
    """a_result() has ratios of 0.50 and 0.17 alone; of these three one is beyond each limit."""
    text = "\n".join(performance.section(results.combined([a_result()])[0]))
    assert (
        "5 of 5 cells take longer than 1.1 of the copy's time, 0 less than 1 / 1.3 of it." in text
    )
    cells_of = [planted(elements=1 << power) for power in (8, 9, 10)]
    for cell, copied in zip(cells_of, (0.90e-3, 0.92e-3, 1.4e-3)):
        cell["times"]["copy"] = times(copied)
    sentence = performance.beside_the_copy(performance.matrix(cells_of))
    assert sentence.startswith("1 of 3 cells") and ", 1 less than" in sentence


def test_the_page_says_what_its_tables_show():
    """Its sentences, README's table, and the marks, of whatever machines the page has."""
    _, *sections = re.split(r"^(?=## )", performance.PAGE.read_text(), flags=re.MULTILINE)
    assert performance.summary(sections) in performance.README.read_text()
    for text in sections:
        if "### Of copy / over PyTorch" not in text:
            (stored,) = re.findall(r"^Each cell: .*\((.*)\)\.$", text, re.MULTILINE)
            (result,) = results.combined([results.read(performance.PAGE.parent / stored)])
            assert "\n".join(performance.section(result, text)).strip() in text
            continue
        ratios = text.partition("### Of copy / over PyTorch")[2].partition("\n\n###")[0]
        assert f"\n\n{performance.beside_the_copy(ratios.splitlines())}.\n" in text
        unsteady = set(re.findall(r"^Unsteady: (\w+)\S* (\w+):", text, re.MULTILINE))
        for line in ratios.splitlines():
            if name := ROW.match(line):
                ours = "~" if (name[1], "fastact") in unsteady else ""
                theirs = "~" if (name[1], "pytorch") in unsteady else ours
                found = RATIOS.findall(line)
                assert found and all((a, b) == (ours, theirs) for _, a, b in found), line


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


def test_the_report_shows_everything_and_marks_what_loses(tmp_path):
    readme = tmp_path / "README.md"
    begin = f"<!-- performance: written by `{performance.COMMAND}` -->"
    readme.write_text(f"before\n{begin}\nSTALE\n<!-- performance: end -->\nafter\n")
    result = a_result()
    page = tmp_path / "performance.md"
    assert performance.write([json.loads(json.dumps(result))], page, readme) == 0
    text = page.read_text()
    assert results.title(result) in text and result["machine"]["date"] in text
    row = "| 0.50 / 2.00 | 0.50 / 2.00 | 0.17 / **0.67** |"
    assert f"| {ACT} forward float32 1 thread {row}" in text
    assert "Slower than PyTorch: 1 of 5 cells" in text
    assert f"| {ACT} forward float32 2^16 1 thread | 3 ms (" in text
    assert "Unsteady: x pytorch: 1.00 to 13.00 ns." in text
    assert (
        "**1.100**" in text
        and "| 1.00 | 2.00 |" in text
        and "code for sm_90, uncompressed, 0.50 MiB" in text
    )
    figures = sorted((tmp_path / "performance").glob("*.svg"))
    drawn = 1 if importlib.util.find_spec("matplotlib") else 0  # a GPU machine may have none
    assert len(figures) == drawn and all(f"performance/{f.name})" in text for f in figures)
    written = readme.read_text()
    assert written.startswith("before\n") and "<!-- performance: end -->\nafter\n" in written
    assert "STALE" not in written and "| `selu` | - | - | - | - | - | - |" in written


def test_several_runs_on_a_machine_are_one_part_of_the_report(tmp_path):
    readme = tmp_path / "README.md"
    begin = f"<!-- performance: written by `{performance.COMMAND}` -->"
    readme.write_text(f"{begin}\n<!-- performance: end -->\n")
    older, newer = (json.loads(json.dumps(a_result())) for _ in range(2))
    newer["machine"]["date"] = "2099-01-01 00:00 UTC"
    older["binary"]["bytes"] = 7 << 20
    del newer["overhead"], newer["memory"]
    page = tmp_path / "performance.md"
    performance.write([older, newer], page, readme)
    text = page.read_text()
    assert text.count("\n## ") == 1 and "7.00 MiB" not in text
    date = older["machine"]["date"]
    assert "2099-01-01 00:00 UTC, FastAct" in text and f"Of another run, {date}, FastAct" in text
    assert "): the cost of a call, memory.\n" in text and "**1.100**" in text


def test_other_machines_keep_their_part_of_the_report(tmp_path):
    readme = tmp_path / "README.md"
    begin = f"<!-- performance: written by `{performance.COMMAND}` -->"
    readme.write_text(f"{begin}\n<!-- performance: end -->\n")
    cpu, gpu = (json.loads(json.dumps(a_result())) for _ in range(2))
    gpu["machine"] |= {"device": "cuda", "name": "Some GPU", "cuda": "13.0"}
    page = tmp_path / "performance.md"
    performance.write([gpu, cpu], page, readme)
    both = page.read_text()
    assert both.index(results.title(cpu)) < both.index("## Some GPU, CUDA 13.0")
    cpu["machine"]["date"] = "2099-01-01 00:00 UTC"
    performance.write([cpu], page, readme)
    date = gpu["machine"]["date"]
    assert page.read_text() == both.replace(date, "2099-01-01 00:00 UTC", 1)
    performance.write([gpu], page, readme)
    assert page.read_text().count("\n## ") == 2 and "2099-01-01" in page.read_text()


def test_instruction_sets_of_a_machine_have_a_section_each(tmp_path):
    readme = tmp_path / "README.md"
    begin = f"<!-- performance: written by `{performance.COMMAND}` -->"
    readme.write_text(f"{begin}\n<!-- performance: end -->\n")
    page = tmp_path / "performance.md"
    of_set = {}
    for name in ("avx2", "avx512"):
        of_set[name] = json.loads(json.dumps(a_result()))
        of_set[name]["machine"]["build_info"]["cpu instruction set in use"] = name
        of_set[name]["machine"]["isa"] = name
        performance.write([of_set[name]], page, readme)
    text = page.read_text()
    assert text.count("\n## ") == 2 and ", avx2, torch" in text and ", avx512, torch" in text
    of_set["avx2"]["machine"]["date"] = "2099-01-01 00:00 UTC"
    of_set["avx2"]["machine"]["torch"] = "99.0"
    performance.write([of_set["avx2"]], page, readme)
    text = page.read_text()
    assert text.count("\n## ") == 2 and ", avx2, torch 99.0" in text and ", avx512, torch" in text
    if importlib.util.find_spec("matplotlib"):
        assert len(list((tmp_path / "performance").glob("*.svg"))) == 2


def a_long_result(isa="avx2"):
    """Two activations, enough rows for a summary; one cell loses, of mish in float64."""
    result = {**json.loads(json.dumps(a_result())), "unsteady": ["gelu fastact: 1.00 to 2.00 ns"]}
    result["machine"]["build_info"]["cpu instruction set in use"] = isa
    result["machine"] |= {"isa": isa, "date": "2099-01-01 00:00 UTC"}
    result["cells"] = [
        {**planted(form=form, dtype=dtype, elements=1 << power), "op": op, "threads": threads,
         "times": {"fastact": times(1e-3), "pytorch": times(power * 1e-4), "copy": times(1e-3)}}
        for op in ("gelu", "mish")
        for form in cells.FORMS_OF_ONE_CALL
        for dtype in cells.DTYPE_NAMES
        for threads in range(1, 1 + performance.LONGEST_TABLE // 32 + 1)
        for power in (12, 16, 20)
    ]  # fmt: skip
    losing = [c for c in result["cells"] if c["op"] == "mish" and c["dtype"] == "float64"][-1]
    losing["times"]["pytorch"] = times(0.51234e-3)
    return result


def written(tmp_path, *found):
    """The page, after a report of these results beside what is there."""
    readme, page = tmp_path / "README.md", tmp_path / "performance.md"
    if not readme.exists():
        begin = f"<!-- performance: written by `{performance.COMMAND}` -->"
        readme.write_text(f"{begin}\n<!-- performance: end -->\n")
    assert performance.write(json.loads(json.dumps(found)), page, readme) == 0
    return page.read_text()


def test_a_long_result_is_a_summary_beside_all_of_its_cells(tmp_path):
    result = a_long_result()
    text = written(tmp_path, result)
    assert len(text.splitlines()) < 150 and len(result["cells"]) > 1200
    least = "1.20 (1.60)"
    assert f"| gelu ~ | {least} | {least} | {least} | {least} |\n" in text
    assert f"| mish | {least} | **0.51** (1.60) | {least} | {least} |\n" in text
    assert "| forward 1 thread | 1.20 (1.20) | 1.60 (1.60) | 2.00 (2.00) |\n" in text
    total = len(result["cells"])
    assert f"Slower than PyTorch: 1 of {total} cells" in text
    error = performance.largest_error({"op": "mish", "dtype": "float64", "form": "backward"})
    assert f"| 1 ms (990 us..1.01 ms) | 512 us | 0.51 | {error} |" in text
    assert f"0 of {total} cells take longer than 1.1" in text
    (stored,) = (tmp_path / "performance").glob("*.json")
    assert f"Each cell: [{stored.name}](performance/{stored.name})." in text
    again = results.read(stored)
    assert {cells.key_of(cell) for cell in again["cells"]} == set(
        map(cells.key_of, result["cells"])
    )
    assert "system" not in stored.read_text()
    assert written(tmp_path, again) == text  # from what is stored alone
    assert f"0 of {total} cells take longer" in text


def test_a_cell_that_loses_has_pytorchs_error(tmp_path, monkeypatch):
    states = [
        {"activation": "mish", "dtype": "float32", "order": k, "format": form,
         "pytorch": {"max_ulp": error}}
        for k, form, error in ((0, 1, 7e30), (0, 2, 0.5), (0, 2, 2.25), (1, 1, 123456.0))
    ]  # fmt: skip
    path = tmp_path / "results.json"
    path.write_text(json.dumps(states))
    monkeypatch.setattr(performance, "ACCURACY", path)
    performance.proven.cache_clear()
    cell = {"op": "mish", "dtype": "float32"}
    found = [performance.largest_error({**cell, "form": f}) for f in ("forward", "backward")]
    missing = performance.largest_error({**cell, "form": "forward", "dtype": "float16"})
    performance.proven.cache_clear()
    assert [*found, missing] == ["2.2", "1.2e+05†", ""]


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


def test_parts_that_a_run_lacks_stay(tmp_path):
    older = a_result()
    older["machine"]["build_info"]["cpu instruction set in use"] = "avx2"
    before = written(tmp_path, older)
    newer = a_long_result()
    for name in ("overhead", "memory", "binary"):
        del newer[name]
    for _ in range(2):  # the second time they are of a run that is named already
        text = written(tmp_path, newer)
        assert text.count("\n## ") == 1 and "### Over PyTorch: the least" in text
        for part in performance.PARTS.values():
            (line,) = [line for line in before.splitlines() if line.startswith(part)]
            assert text.count(line) == 1
        assert "**1.100**" in text and "| 1.00 | 2.00 |" in text and "1.00 MiB; its code" in text
        parts = "the cost of a call, memory, the library"
        assert f"Of another run, {performance.run_of(older['machine'])}: {parts}.\n" in text


def test_what_is_stored_tells_which_run_measured_what(tmp_path):
    older, newer = a_result(), a_long_result()
    older["machine"] |= newer["machine"] | {"date": "2098-01-01 00:00 UTC"}
    for name in ("overhead", "memory"):
        del newer[name]
    text = written(tmp_path, older, newer)
    assert "Of another run, 2098-01-01" in text and "): the cost of a call, memory.\n" in text
    (stored,) = (tmp_path / "performance").glob("*.json")
    assert written(tmp_path, results.read(stored)) == text


def test_figures_that_the_page_does_not_show_are_removed(tmp_path):
    (tmp_path / "performance").mkdir()
    for name in ("stale.svg", "stale.json", "kept.txt"):
        (tmp_path / "performance" / name).write_text("")
    text = written(tmp_path, a_result())
    names = {path.name for path in (tmp_path / "performance").iterdir()}
    assert names - {"kept.txt"} == set(re.findall(r"\(performance/(.*?)\)", text))


# ---- Figures


def a_point(op, dtype, power, fastact, over, doubtful=False):
    names = {"op": op, "dtype": dtype, "elements": 1 << power}
    return names | performance.point(fastact, over, doubtful)


POINTS = [
    a_point(op, dtype, power, fastact=1 - place / 50, over=0.5 + power / 10, doubtful=op == "gelu")
    for place, op in enumerate(performance.LOOKS)
    for dtype in cells.DTYPE_NAMES
    for power in (10, 20, 28)
]
BEYOND = [a_point("selu", "float32", 30, 0.31, 0.2), a_point("relu", "float16", 30, 1.25, 1.24)]


@pytest.mark.parametrize("plot", (performance._copy_speed, performance._over_pytorch))
def test_speed_figures_can_be_read(plot):
    pytest.importorskip("matplotlib")
    with figures.drawing() as pyplot:
        figure = plot(POINTS + BEYOND, "A machine, 2026-01-01", pyplot)
        assert [axis.get_title() for axis in figure.axes] == list(cells.DTYPE_NAMES)
        for axis in figure.axes:
            figures.check_inside(axis)
        handles = figure.legends[0].legend_handles
        figures.check_told_apart(handles)
        names = [handle.get_label().removesuffix(" ~") for handle in handles]
        assert set(names) >= set(performance.LOOKS) and handles[2].get_label() == "gelu ~"
        assert "A machine, 2026-01-01" in figure.get_suptitle()
        assert figure.axes[0].get_ylabel() and figure.axes[-1].get_xlabel() == "number of elements"
        if plot == performance._copy_speed:
            assert all(axis.get_ylim() == (0.5, 1.05) for axis in figure.axes)
            named = {text.get_text() for axis in figure.axes for text in axis.texts}
            assert "FastAct selu 0.31" in named and "FastAct relu 1.25" in named
        else:
            assert (
                figure.axes[0].get_yscale() == "log"
                and "logarithmic" in figure.axes[0].get_ylabel()
            )
        pyplot.close(figure)


def test_a_figure_has_the_points_of_the_page_or_of_the_result():
    result = {**a_result(), "unsteady": [f"{ACT} pytorch: 1.00 to 13.00 ns"]}
    found = performance.points_of(result)
    text = "\n".join(performance.section(results.combined([result])[0]))
    assert [p["elements"] for p in found] == [1 << 8, 1 << 12, 1 << 16]
    for exact, shown in zip(found, performance.points_of_table(text), strict=True):
        ratios = [[p.pop(name) for name in ("fastact", "pytorch", "over")] for p in (exact, shown)]
        assert ratios[0] == pytest.approx(ratios[1], rel=0.03)
        assert exact == shown and exact["doubtful"]


@pytest.mark.slow
def test_the_figures_are_those_of_the_page(tmp_path):
    """Drawn with the numbers that the page shows, or that are stored beside it."""
    if not figures.is_pinned_version():
        pytest.skip("another matplotlib")
    folder = performance.PAGE.parent / performance.FIGURES
    shutil.copytree(folder, tmp_path / performance.FIGURES)
    for name in (performance.PAGE, performance.README):
        shutil.copy(name, tmp_path)
    for path in (tmp_path / performance.FIGURES).glob("*.svg"):
        path.unlink()
    stored = [results.read(path) for path in folder.glob("*.json")]
    performance.write(stored, tmp_path / "performance.md", tmp_path / "README.md")
    assert (tmp_path / "performance.md").read_text() == performance.PAGE.read_text()
    found, committed = (
        {path.name: path.read_text() for path in place.iterdir()}
        for place in (tmp_path / performance.FIGURES, folder)
    )
    assert set(found) == set(committed)
    for name in found:
        assert found[name] == committed[name], f"{name}: make performance-report"


def a_machine(device, date, ours=1e-3, without=None):
    """A section of the page with all that README's table is about, and a cell more."""
    measured = [
        {**planted(ours=ours, form=form, elements=elements), "op": op, "dtype": dtype}
        for op in performance.SHOWN
        for form in performance.SHOWN_FORMS
        for dtype in ("float32", "bfloat16")
        for elements in (1 << 16, 1 << 20)
        if (op, elements) != (without, 1 << 20)
    ]
    measured.append({**planted(ours=9e-3, elements=1 << 12), "op": "mish", "dtype": "float64"})
    result = {**json.loads(json.dumps(a_result())), "cells": measured}
    result["machine"] |= {"date": date}
    if device == "cuda":
        result["machine"] |= {"device": "cuda", "name": "Some GPU", "cuda": "13.0"}
        for cell in measured:
            cell |= {"device": "cuda", "threads": 0}
    (result,) = results.combined([result])
    return "\n".join(performance.section(result))


def test_readmes_table_shows_gains_and_losses():
    gpu = a_machine("cuda", "2030-01-02 00:00 UTC", ours=4e-3)
    cpu = a_machine("cpu", "2030-01-01 00:00 UTC", without="silu")
    text = performance.summary([cpu, gpu])
    for op in performance.SHOWN:
        assert f"| `{op}` |" + " **0.50** (0.12) |" * 4 + " 2.00 (0.50) |" * 2 in text
    assert "- GPU: Some GPU, CUDA 13.0, torch" in text
    assert ", 2030-01-02; 2^20 bfloat16 and 2^20 float32 numbers. Of 41 cells" in text
    assert "is slower in 41, at worst in `mish forward float64` of 2^12: 0.22." in text
    assert ", 2030-01-01; 2^16 float32 numbers, one thread. Of 37 cells" in text
    assert "is slower in 1, at worst in `mish forward float64` of 2^12: 0.22." in text


def test_readmes_table_is_about_the_newest_machine_that_has_all():
    older, newer = (a_machine("cpu", f"20{year}-01-01 00:00 UTC") for year in (30, 31))
    partly = a_machine("cpu", "2032-01-01 00:00 UTC").replace("| mish backward", "| other backward")
    for sections in ([older, newer, partly], [partly, newer, older]):
        text = performance.summary(sections)
        assert ", 2031-01-01; 2^20 float32" in text and text.count("- CPU: ") == 1
        assert "- GPU:" not in text and "| `mish` | - | - | - | - | 2.00 (0.50) |" in text


def test_readme_has_the_place_for_the_report():
    text = (REPOSITORY / "README.md").read_text()
    assert f"<!-- performance: written by `{performance.COMMAND}` -->" in text
    assert "<!-- performance: end -->" in text


def test_a_page_without_the_place_is_left_alone(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("nothing here\n")
    with pytest.raises(ValueError, match="expected the lines"):
        put_between_markers("performance", performance.COMMAND, "text", page)
    assert page.read_text() == "nothing here\n"
