"""The generated pages about speed: their statements about results. The committed pages are
current."""

import copy
import json
import re
import shutil
import sys

import pytest

import figures
from op_table import OPERATORS
from pages import README, error_of_finite_inputs, put_between_markers
from support import REPOSITORY

# Files of the repository, which are the same for each torch.
pytestmark = pytest.mark.kernels

sys.path += [str(REPOSITORY / "benchmarks"), str(REPOSITORY / "python" / "fastact")]

import performance  # noqa: E402
import plots  # noqa: E402
import readme  # noqa: E402
import results  # noqa: E402
import stored  # noqa: E402

NAMES = [act.id for act in OPERATORS][:8]
BEGIN = f"<!-- measured: written by `{performance.COMMAND}` -->"


def times(median, spread=0.001):
    low, high = median * (1 - spread), median * (1 + spread)
    return {"median": median, "low": low, "high": high, "rounds": 9}


def a_cell(op, dtype, form, over=2.0, device="cuda", elements=1 << 20, copied=0.9e-3):
    found = {"fastact": times(1e-3), "pytorch": times(over * 1e-3), "copy": times(copied)}
    threads = int(device == "cpu")
    return {
        "op": op, "form": form, "dtype": dtype, "elements": elements, "layout": "contiguous",
        "threads": threads, "device": device, "bytes": 1, "cache": "cold", "times": found,
        "absent": {},
    }  # fmt: skip


def a_machine(device, isa="avx2"):
    info = {"cpu instruction set in use": isa, "revision": "1f", "version": "0"}
    return {
        "device": device, "name": f"some {device}", "cores": 2, "threads": 2, "torch": "2",
        "cuda": "13", "date": "2098-01-02 03:04 UTC", "build_info": info, "isa": None,
        "system": "Linux", "copy": "",
    }  # fmt: skip


def operators(device, over=2.0, **changes):
    cells = [
        a_cell(op, dtype, form, over, device)
        for op in NAMES for dtype in plots.DTYPES for form in plots.FORMS
    ]  # fmt: skip
    return {"format": results.FORMAT, "machine": a_machine(device, **changes), "cells": cells}


def networks():
    rows = [
        {"network": name, "dtype": "bfloat16", "training": False, "contestant": "fuse_",
         "times": {"PyTorch": times(3e-3), "PyTorch compiled": times(2.5e-3)} | ours}
        for name, ours in (("resnet50", {"fuse_": times(2e-3)}), ("vit_b_16", {}))
    ]  # fmt: skip
    return {
        "machine": "some GPU", "torch": "2", "threads": 2, "device": "cuda", "date": "2098-01-02",
        "sizes": [None, 224, 64], "contestant": "fuse_", "rows": rows,
    }  # fmt: skip


def changes():
    rows = [
        {"op": op, "dtype": "float32", "elements": 1000,
         "PyTorch": {"length": 250, "compile": 1}, "FastAct": {"length": 0, "compile": 0}}
        for op in plots.CHANGING
    ]  # fmt: skip
    return {"machine": a_machine("cuda"), "rows": rows}


def compiled():
    rows = [
        {"op": op, "neighbour": neighbour, "dtype": "float32", "ratio": ratio, "times": {}}
        for op in ("gelu", "mish") for neighbour, ratio in (("gate", 0.8), ("residual", 3.0))
    ]  # fmt: skip
    neighbours = ["gate", "residual"]
    return {"machine": a_machine("cpu"), "elements": 8, "neighbours": neighbours, "rows": rows}


def calls():
    row = {"op": "selu", "door": "Python", "case": "forward", "device": "cpu",
           "ns": {"ours": 110.0, "peer": 100.0, "own": 50.0}}  # fmt: skip
    return {"format": results.FORMAT, "machine": a_machine("cpu"), "overhead": [row]}


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Writes the page from results, without figures, and returns it with README's part."""
    monkeypatch.setattr(performance, "drawings", lambda found, docs: {})

    def write(**found):
        folder = tmp_path / "new"
        folder.mkdir(exist_ok=True)
        for name, result in found.items():
            (folder / f"{name}.json").write_text(json.dumps(result))
        page_of_readme = tmp_path / "README.md"
        page_of_readme.write_text(f"before\n{BEGIN}\n<!-- measured: end -->\nafter\n")
        assert performance.write(folder, tmp_path / "docs", page_of_readme) == 0
        return (tmp_path / "docs" / "performance.md").read_text(), page_of_readme.read_text()

    return write


def in_one_line(page):
    return " ".join(page.split())


def every_result():
    return {
        "cuda": operators("cuda"), "cpu": operators("cpu"), "fuse": networks(),
        "changes": changes(), "compiled": compiled(), "overhead": calls(),
    }  # fmt: skip


def test_the_page_shows_every_kind_of_result(written):
    page, part = written(**every_result())
    page = in_one_line(page)
    assert "resnet50 1.50, vit_b_16 1.00" in page  # unfused parts take PyTorch's time
    assert "| resnet50 | 46.9 | 39.1 | 31.2 | 1.50 | 1.25 |" in page
    # What is not fused takes PyTorch's time.
    assert "| vit_b_16 | 46.9 | 39.1 | 46.9 | 1.00 | 0.83 |" in page
    assert f"FastAct is faster in {4 * len(NAMES)} and slower in 0." in page
    assert "(GPU: 2^20 elements; CPU with AVX2: 2^20 elements with 1 threads)" in page
    assert "bfloat16 backward 0.90 to 0.90" in page
    assert "geometric mean 1.55, from 0.80 (`gelu` float32, gate) to 3.00" in page
    assert "| `selu` | Python | forward | 110 | 100 |" in page
    assert part.startswith("before\n") and part.endswith("after\n")
    assert "0.90 to 0.90 of a memory copy's speed" in part and "at 1.50 (ResNet-50) times" in part
    cases = "32 cases (8 activations, 2 dtypes, forward and backward)"
    assert f"FastAct is faster in 32 of {cases} and equally fast in 0." in part


def test_a_ratio_close_to_1_is_neither_faster_nor_slower(written):
    for over, faster, slower in ((1.015, 0, 0), (0.985, 0, 0), (1.03, 32, 0), (0.97, 0, 32)):
        page, _ = written(cuda=operators("cuda", over))
        counted = "32 combinations of operator, dtype and direction, FastAct is "
        counted += f"faster in {faster} and slower in {slower}."
        assert counted in in_one_line(page)
        assert ("\nNone.\n" in page) == (slower == 0)


def test_readme_counts_slower_cases(written):
    result = operators("cuda", 0.9)
    smaller = {NAMES[0]: 0.5, NAMES[1]: 1.5}
    result["cells"] += [
        a_cell(op, "float32", "forward", over, elements=1 << 16) for op, over in smaller.items()
    ]
    _, part = written(cuda=result, fuse=networks())
    cases = "32 cases (8 activations, 2 dtypes, forward and backward)"
    counted = f"FastAct is faster in 0 of {cases}, slower in 32 and equally fast in 0."
    assert f"{counted} At smaller sizes, it is slower in [1 case](docs/" in part


def test_the_largest_ratio_is_not_one_that_includes_a_forward_pass(written):
    old, new = operators("cuda"), {**operators("cpu"), "graph_built_outside": True}
    for result in (old, new):
        device = result["machine"]["device"]
        for over, form in ((50.0, "backward"), (4.0, "forward")):
            result["cells"].append(a_cell("softsign", "float32", form, over, device))
    page = in_one_line(written(cuda=old, cpu=new)[0])
    assert "In the results for GPU, PyTorch's times for the backward passes of `softsign`," in page
    largest = re.findall(r"The largest ratio is (.*?)\.(?: |$)", page)
    assert largest == ["4.0 (`softsign`, float32 forward)", "50.0 (`softsign`, float32 backward)"]
    page = in_one_line(written(cuda={**old, "graph_built_outside": True})[0])
    assert "50.0 (`softsign`, float32 backward)" in page and "forward pass" not in page
    both = written(cuda=old, cpu={k: v for k, v in new.items() if k != "graph_built_outside"})
    assert "In all sections below, PyTorch's times for the" in in_one_line(both[0])


def test_losses_are_listed_from_the_worst(written):
    result = operators("cpu")
    for cell, over in zip(result["cells"], (0.9, 0.5)):
        cell["times"]["pytorch"] = times(over * 1e-3)
    noisy = result["cells"][2]
    noisy["times"] = {**noisy["times"], "pytorch": times(0.8e-3, 0.5)}  # within the spread
    page, _ = written(cpu=result)
    rows = re.findall(r"^\| `(\w+)` (\w+) (\w+) \| ([\d.]+) \|", page, re.MULTILINE)
    assert [row[3] for row in rows] == ["0.50", "0.90"]
    assert rows[0][2] == result["cells"][1]["form"]


def test_a_newer_machine_replaces_results_and_the_same_one_adds_to_them(written, tmp_path):
    first, second = operators("cpu"), operators("cpu")
    for cell in second["cells"]:
        cell["elements"] = 1 << 24
    written(cpu=first)
    written(cpu=second)
    path = stored.path_of(tmp_path / "docs", "operators", "avx2")
    sizes = {cell["elements"] for cell in results.read(path)["cells"]}
    assert sizes == {1 << 20, 1 << 24}
    machine = second["machine"]
    for changes in (
        {"machine": {**machine, "torch": "3"}},
        {"machine": {**machine, "build_info": {**machine["build_info"], "revision": "2a"}}},
        {"graph_built_outside": True},
    ):
        written(cpu=first)
        written(cpu={**second, **changes})
        found = results.read(path)
        assert {cell["elements"] for cell in found["cells"]} == {1 << 24}
        assert "system" not in found["machine"]


def test_results_of_other_programs_are_left_alone(written):
    page, part = written(other=[1, 2], another={"rows": [{"op": "gelu"}]})
    assert "## " not in page.replace("## Losses", "") and "**Fast**" not in part


def test_an_infinite_error_of_infinite_inputs_does_not_count():
    outline = {"positive": [1.0, 7.0], "negative": [0.5]}
    state = {"format": 1, "pytorch": {"max_ulp": float("inf"), "outline": outline}}
    assert error_of_finite_inputs(state, "pytorch") == 7
    assert error_of_finite_inputs({**state, "format": 2}, "pytorch") == float("inf")


def test_a_page_without_the_place_is_left_alone(tmp_path):
    page = tmp_path / "README.md"
    page.write_text("text")
    with pytest.raises(ValueError, match="expected the lines"):
        put_between_markers("measured", performance.COMMAND, "text", page)
    assert page.read_text() == "text"


# ---- Figures


def test_figures_can_be_read(tmp_path):
    """Data are inside the axes, axes have labels, and colours have a variant for dark pages."""
    pytest.importorskip("matplotlib")
    found = stored.Stored(
        {"gpu": operators("cuda", 0.3), "avx2": operators("cpu", 30.0)},
        networks={"gpu": networks()}, compiled={"avx2": compiled()}, changes=changes(),
    )  # fmt: skip
    drawings = performance.drawings(found, tmp_path)
    assert len(drawings) == 5
    for path, draw in drawings.items():
        with figures.drawing() as pyplot:
            figure = draw(pyplot)
            for axis in figure.axes:
                figures.check_inside(axis)
                assert axis.get_xlabel() and axis.get_title()
                assert 0 < len(axis.containers) <= 6 and axis.patches
            figures.save(figure, path)
        figures.check_colours(path)


def test_a_colour_without_one_for_a_dark_page_is_noticed(tmp_path):
    pytest.importorskip("matplotlib")
    with figures.drawing() as pyplot:
        figure, axis = pyplot.subplots()
        axis.plot([0, 1], color="#123456")
        path = figures.save(figure, tmp_path / "figure.svg")
    with pytest.raises(AssertionError, match="#123456"):
        figures.check_colours(path)


# ---- The committed pages


def test_the_committed_page_is_current(tmp_path):
    docs = tmp_path / "docs"
    for name in ("performance", "digests", "figures", "accuracy"):
        if (stored.DOCS / name).exists():
            shutil.copytree(stored.DOCS / name, docs / name, ignore=shutil.ignore_patterns("*.svg"))
    page_of_readme = tmp_path / "README.md"
    shutil.copy(README, page_of_readme)
    assert performance.write(tmp_path / "nothing", docs, page_of_readme) == 0
    assert (docs / "performance.md").read_text() == (stored.DOCS / "performance.md").read_text()
    assert page_of_readme.read_text() == README.read_text(), f"run {performance.COMMAND}"
    for folder in ("performance", "figures"):
        drawn = {path.name: path for path in (docs / folder).glob("*.svg")}
        committed = {path.name: path for path in (stored.DOCS / folder).glob("*.svg")}
        assert set(drawn) == set(committed)
        if figures.is_pinned_version():
            for name, path in drawn.items():
                assert path.read_text() == committed[name].read_text(), f"{name}: make report"


def test_readmes_table_quotes_the_stored_results():
    part = readme.measured(stored.load())
    assert part in README.read_text()
    names = re.findall(r"\*\*(.*?)\*\*", part)
    assert names == ["Same bits", "Accurate", "Fast", "Integrated"]


def test_every_figure_of_the_pages_has_an_alternative_text():
    for page in (README, *stored.DOCS.rglob("*.md")):
        for text, target in re.findall(r"!\[(.*?)\]\((\S+?)\)", page.read_text()):
            assert len(text) > 10, f"{page.name}: {target}"
            assert (page.parent / target).is_file(), f"{page.name}: {target}"


def test_stored_results_are_told_without_the_machines_kernel():
    machine = copy.deepcopy(a_machine("cpu"))
    assert "system" not in results.told(machine)
    for path in (stored.DOCS / "performance").glob("*.json"):
        assert '"system"' not in path.read_text(), path.name
