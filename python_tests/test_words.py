"""Sentences of README and docs agree with the code."""

import json
import re
import sys
from importlib.metadata import metadata

import pytest
import torch

from op_table import ACTIVATIONS, FORMULAS, OPERATORS, TOP_ORDER, contract
from support import REPOSITORY

pytestmark = pytest.mark.kernels

sys.path.append(str(REPOSITORY / "scripts" / "codegen"))

import operator_pages  # noqa: E402

import fastact  # noqa: E402  isort: skip
from fastact import _verify  # noqa: E402  isort: skip
from fastact._digests.inputs import SAMPLE  # noqa: E402  isort: skip
from fastact._fusion import sites  # noqa: E402  isort: skip


def words(page):
    """Returns a page as one line."""
    return " ".join((REPOSITORY / page).read_text().split())


def largest(dtype, order, names=None):
    """Returns the largest bound of any activation's contract, as the pages write it."""
    acts = [act for act in OPERATORS if names is None or act.name in names]
    return f"{max(contract(act.name)[dtype][order] for act in acts):g}"


def test_bounds_are_those_of_the_contracts():
    text = words("docs/explanation/computation.md")
    f32, f64 = torch.float32, torch.float64
    assert {largest(t, k) for t in (torch.bfloat16, torch.float16) for k in range(4)} == {"0.5"}
    row = "| bfloat16, float16 | correctly rounded | correctly rounded | correctly rounded |"
    assert row in text
    assert {largest(f32, 0, {name}) for name in ("selu", "elu", "celu")} == {"0.5"}
    value, first, second, third = (largest(f32, k) for k in range(4))
    exact = "correctly rounded for `selu`, `elu`, `celu` and [some others]"
    assert f"| float32 | within {value} ULP; {exact}" in text
    assert f"correctly-rounded) | within {first} ULP |" in text
    assert second == third and f"| within {first} ULP | within {second} ULP (third" in text
    assert f"| float64 (sampled) | within {largest(f64, 0)} ULP |" in text
    text = words("docs/faq.md")
    listed = names_in(text.partition("So are the float32 values of")[2].partition(". ")[0])
    assert listed == {"prelu", *(a.name for a in OPERATORS if largest(f32, 0, {a.name}) == "0.5")}
    text = words("docs/accuracy.md")
    assert f"float64, values are within {largest(f64, 0)} ULP" in text
    first, second, third = (largest(f64, k) for k in (1, 2, 3))
    assert f"the first three derivatives within {first}, {second} and {third} in the worst" in text
    worst = {
        act.name for act in OPERATORS for k in (1, 2, 3)
        if f"{contract(act.name)[f64][k]:g}" == largest(f64, k)
    }  # fmt: skip
    assert worst == {"gelu_tanh", "mish"} and "(tanh GELU and Mish)" in text


def test_other_parameters_have_the_bounds_that_are_said():
    sentence = (
        "With other finite parameters, the float64 bounds are twice as large. In the other types, "
        "bounds below 0.51 ULP become 0.51 ULP, and the bound of float32 Softplus values becomes "
        "2 ULP."
    )
    assert sentence in words("docs/accuracy.md")
    for act in ACTIVATIONS:
        if act.defaults is not None:
            for dtype, bounds in contract(act.name).items():
                wide = dtype == torch.float64
                expected = [2 * b if wide else max(b, 0.51) for b in bounds]
                if (act.name, dtype) == ("softplus", torch.float32):
                    expected[0] = 2.0  # from its header
                assert list(act.ulp[dtype]) == expected


def test_in_place_forms_that_keep_a_copy_are_counted():
    """test_memory.py tests the copies."""
    kept = [act.name for act in OPERATORS if act.in_place_keeps_input]
    sentence = f"{len(kept)} of the {len(OPERATORS)} in-place forms keep a copy of the input"
    assert sentence in words("README.md")
    sentence = f"autograd {len(kept)} of {len(OPERATORS)} keep a copy of their input"
    assert sentence in words("docs/reference/operators.md")


def test_the_table_says_what_each_activation_keeps():
    table = (REPOSITORY / "docs" / "reference" / "operators.md").read_text()
    for act in OPERATORS:
        pattern = rf"^\| \[`{act.name}[`(].* \| ([^|]*) \| ([^|]*) \|$"
        ((functional, in_place),) = re.findall(pattern, table, re.MULTILINE)
        assert functional == f"its {'input' if act.saves == 'input' else 'result'}", act.name
        assert (in_place == "a copy of its input") == act.in_place_keeps_input, act.name


def test_differences_from_aten_are_all_listed():
    text = operator_pages.OPERATORS_PAGE.read_text()
    assert operator_pages.beside_aten() in text, f"run {operator_pages.COMMAND}"
    for act in OPERATORS:
        for suffix in ("_double_backward", "_triple_backward"):
            assert not hasattr(torch.ops.aten, act.name + suffix)


def test_a_difference_from_aten_is_noticed(monkeypatch):
    before = operator_pages.beside_aten()
    monkeypatch.setattr(operator_pages, "OPERATORS", [a for a in OPERATORS if a.name == "gelu"])
    assert operator_pages.beside_aten() != before
    assert "`self, *, approximate=none` | `self` |" in operator_pages.beside_aten()


@pytest.mark.parametrize("name", ("elu", "leaky_relu", "softplus"))
def test_numbers_of_derivative_operators_have_the_defaults_that_are_said(name):
    """ATen's derivative operators have no defaults."""
    ours, aten = (getattr(ops, name) for ops in (torch.ops.fastact, torch.ops.aten))
    value = {a.name: a.default_value for a in aten.default._schema.arguments if a.name != "self"}
    for suffix in ("_backward", "_double_backward", "_triple_backward"):
        packet = getattr(torch.ops.fastact, name + suffix)
        found = {a.name: a.default_value for a in packet.default._schema.arguments}
        assert {k: found[k] for k in value} == value
    assert [a.name for a in ours.default._schema.arguments] == ["self", *value]
    theirs = getattr(torch.ops.aten, name + "_backward").default._schema.arguments
    assert all(a.default_value is None for a in theirs if a.name in value)


def test_make_prove_tries_what_is_said():
    text = words("docs/accuracy.md")
    derivatives = ("first", "second", "third")
    assert f"in every dtype to the {derivatives[TOP_ORDER - 1]} derivative" in text
    assert "For the 16-bit types it tests all inputs." in text
    up_to = derivatives[TOP_ORDER - 2]
    assert f"For float32 it tests all inputs up to the {up_to} derivative (f'')" in text
    assert f"and 2^{SAMPLE} fixed inputs for the {derivatives[TOP_ORDER - 1]}. For" in text
    assert f"For float64 it tests 2^{SAMPLE} fixed inputs" in text


def headers_with(pattern):
    """Returns the activations whose formula, or a shared header, contains the pattern."""
    shared = {"LogarithmInSegments": "logarithm_in_segments"}
    found = set()
    for act in OPERATORS:
        text = (FORMULAS / f"{act.name}.h").read_text()
        for word, header in shared.items():
            text += (FORMULAS / "shared" / f"{header}.h").read_text() if word in text else ""
        if re.search(pattern, text):
            found.add(act.name)
    return found


def test_kernels_page_names_every_activation_and_what_is_in_segments():
    page = (REPOSITORY / "docs" / "dev" / "kernels.md").read_text()
    table = page.partition("| kind | activations |")[2].partition("\n\n")[0]
    assert sorted(re.findall(r"`(\w+)`", table)) == sorted(
        ["prelu", *(act.name for act in OPERATORS)]
    )
    section = page.partition("### In segments")[2]
    values = re.search(r"^- the values of (.*),$", section, re.MULTILINE)[1]
    slopes = re.search(r"^- the first derivatives of (.*)\.$", section, re.MULTILINE)[1]
    assert set(re.findall(r"`(\w+)`", values)) == headers_with(r"table_of<Order>\(&")
    assert set(re.findall(r"`(\w+)`", slopes)) == headers_with(r"table_of<Order>\([^)]*, &")


def test_kernels_page_counts_the_approximated():
    catalogue = (REPOSITORY / "ops" / "catalogue.h").read_text()
    lines = catalogue.partition("#define FASTACT_APPROXIMATED(X)")[2].partition("#endif")[0]
    assert f"the {lines.count('X(')} activations of `FASTACT_APPROXIMATED`" in words(
        "docs/dev/kernels.md"
    )


def test_the_rule_about_underflow_is_said():
    sentence = "A derivative that underflows in the arithmetic that computes it counts as zero."
    assert sentence in words("docs/reference/operators.md")


@pytest.mark.parametrize("act", ACTIVATIONS, ids=lambda act: act.id)
def test_a_derivative_that_underflows_counts_as_zero(act):
    """Underflow in the compute type counts, not in float16, as for softsign's derivative."""
    for dtype in (torch.bfloat16, torch.float32, torch.float64):
        x = torch.tensor([-1e4, 1e4], dtype=dtype)
        for order in range(1, TOP_ORDER + 1):
            zero = act.ladder(*[torch.ones_like(x)] * order, x) == 0
            endless = act.ladder(*[torch.full_like(x, torch.inf)] * order, x)[zero]
            assert (endless == 0).all() and not endless.signbit().any()


def constants(*headers):
    """Returns the integer constants of headers, such as `int64_t kStep = int64_t{4} << 20;`."""
    pattern = r"\b(k\w+) = (?:int64_t\{)?(\d+)\}?(?: << (\d+))?;"
    text = "".join((REPOSITORY / "ops" / header).read_text() for header in headers)
    return {name: int(n) << int(shift or 0) for name, n, shift in re.findall(pattern, text)}


def test_tuning_page_has_the_constants_as_they_are():
    powers = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
    page = (REPOSITORY / "docs" / "dev" / "tuning.md").read_text().translate(powers)
    found = constants("cuda/tuning.h", "cpu/engine.h", "cpu/strided.h", "cpu/vector_avx2.h")
    said = re.findall(r"`(k\w+)`, (?:(\d+)(?: ([KM])iB)?)", page)
    units = {"": 1, "K": 1 << 10, "M": 1 << 20}
    numbers = {name: int(n) * units[unit] for name, n, unit in said}
    del numbers["kPacketsPerThread"]  # its value depends on the number of inputs
    assert "`kManyPacketsElements`, 223" in page and numbers.pop("kManyPacketsElements") == 223
    assert found["kManyPacketsElements"] == 1 << 23
    assert set(numbers) == {
        "kThreads", "kOnePacketBytes", "kPacketsOfRows", "kStreamedBytes", "kFetchAhead", "kStep",
        "kMaxRecomputed",
    }  # fmt: skip
    assert numbers == {name: found[name] for name in numbers}


def test_the_activations_are_all_named():
    text = words("README.md").partition("The activations are ")[2].partition(". Each has")[0]
    assert re.findall(r"`(\w+)`", text) and set(re.findall(r"`(\w+)`", text)) == {
        *(act.name for act in OPERATORS), "prelu",
    }  # fmt: skip


def test_the_changelog_lists_every_activation():
    text = words("CHANGELOG.md").partition(" activations in float32")
    listed = names_in(text[2].partition(". Every activation")[0])
    assert listed == {"prelu", *(act.name for act in OPERATORS)}
    assert int(text[0].rpartition(" ")[2]) == len(listed)


def test_supported_versions_are_those_of_the_build():
    makefile = (REPOSITORY / "Makefile").read_text()
    newest = re.search(r"^DEFAULT_TORCH := (.*)$", makefile, re.MULTILINE)[1]
    others = re.search(r"^TORCHES \?= \$\(DEFAULT_TORCH\) (.*)$", makefile, re.MULTILINE)[1].split()
    first, last = (".".join(v.split(".")[:2]) for v in (others[-1], newest))
    assert f"torch {first} to {last}" in words("CHANGELOG.md")
    if torch.__version__.startswith(newest):
        python = metadata("torch")["Requires-Python"].removeprefix(">=")
        assert f"`python3` ({python} or newer" in words("CONTRIBUTING.md")


PAGES = sorted(REPOSITORY.glob("*.md")) + sorted((REPOSITORY / "docs").rglob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_no_page_promises_what_was_not_run(page):
    """Compilers other than GCC, and releases: there is no git tag."""
    text = page.read_text()
    for sentence in re.findall(r"[^.|]*\b[Cc]lang\b(?!-)[^.|]*", text):
        assert "not supported" in sentence
    assert not re.search(r"/releases/tag/|/tree/v\d|git checkout v\d", text)


def test_every_version_says_which_bits_changed():
    """As docs/explanation/bits.md promises."""
    _, *versions = re.split(r"^## ", (REPOSITORY / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert versions
    for text in versions:
        assert re.search(r"^### Changed bits\n\n\S", text, re.MULTILINE), text.partition("\n")[0]


def test_verify_computes_as_many_digests_as_is_said():
    rows = json.loads(_verify.RECORDED.read_text())
    counted = sum(len(forms) for row in rows for forms in row["digests"].values())
    page = words("docs/explanation/bits.md")
    assert re.search(rf"\b{counted} digests of 4\.7 billion results", page)


def names_in(text):
    return set(re.findall(r"`(\w+)`", text))


def test_the_guide_lists_what_an_override_replaces():
    page = (REPOSITORY / "docs" / "guides" / "existing-models.md").read_text()
    table = page.partition("### What is replaced")[2].partition("\n\nAn override replaces")[0]
    cells = [row.split("|")[1] for row in table.splitlines() if "`" in row]
    with fastact.override_aten():
        kernels = {k.split("::")[1].split(" ")[0] for k in fastact.overridden_aten_kernels()}
    suffix = r"(_kernel|_forward|_backward|_data|\.\w+|_)+$"
    replaced = {
        re.sub(suffix, "", name).removeprefix("_").removeprefix("native_") for name in kernels
    }
    composed = {"selu", "relu6"}  # of PyTorch's elu and hardtanh
    known = {name.replace("logsigmoid", "log_sigmoid") for c in cells for name in names_in(c)}
    assert known - {"approximate"} == replaced | composed


def test_the_guide_names_what_is_fused_on_a_cpu():
    page = words("docs/guides/fusing.md")
    listed = re.search(r"only these activations are fused with their neighbours: (.*?)\. ", page)[1]
    fused = {act.name for act in OPERATORS} - set(torch.ops.fastact.not_faster_on_cpu())
    assert names_in(listed) == fused
    few = f"fewer than {sites.FEWEST_ON_CPU:,} elements"
    assert f"on a CPU, tensors with {few}, unless a batch norm" in page


def test_readme_names_the_supported_versions_of_torch():
    makefile = (REPOSITORY / "Makefile").read_text()
    newest = re.search(r"^DEFAULT_TORCH := (\d+\.\d+)\.", makefile, re.MULTILINE)[1]
    oldest = re.search(r"^TORCHES \?= .* (\d+\.\d+)\.\d+$", makefile, re.MULTILINE)[1]
    assert f"| torch | {oldest} to {newest} |" in words("README.md")
    assert f"{oldest} to {newest} today" in words("SECURITY.md")


# ---- Lengths and figures

# The generated reference, and what only developers read.
LONG_FOLDERS = ("docs/reference/", "docs/dev/")


def pages_for_users():
    folders = (
        REPOSITORY.glob("*.md"),
        *((REPOSITORY / f).rglob("*.md") for f in ("docs", "examples")),
    )
    names = sorted(str(path.relative_to(REPOSITORY)) for paths in folders for path in paths)
    return [name for name in names if not name.startswith(LONG_FOLDERS)]


def test_the_pages_have_at_most_25000_words():
    counts = {page: len((REPOSITORY / page).read_text().split()) for page in pages_for_users()}
    assert {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/faq.md"} <= set(counts)
    assert sum(counts.values()) <= 25_000, counts


@pytest.mark.parametrize("page", ("README.md", "CONTRIBUTING.md", "docs/performance.md"))
def test_these_pages_have_at_most_150_lines(page):
    assert len((REPOSITORY / page).read_text().splitlines()) <= 150


def results(name):
    return json.loads((REPOSITORY / "docs" / name).read_text())


def test_figures_in_readme_are_those_of_the_results():
    """Outside of the generated table, which test_report compares."""
    text = (REPOSITORY / "README.md").read_text()
    text = re.sub(r"<!-- measured: written.*?measured: end -->", "", text, flags=re.DOTALL)
    rows = results("digests/changes.json")["rows"]
    changed = {(r["op"], r["dtype"]): r["PyTorch"]["length"] for r in rows}
    # The recorded Xeon has the same count: scalar and vector code differ in the same results.
    assert re.findall(r"# (\d+) on an AMD EPYC", text) == [str(changed["mish", "float32"])]
    percentages = {f"{100 * changed[key] / 65536:.0f}" for key in changed}
    assert set(re.findall(r"(\d+) %", text)) <= percentages
    quoted = re.findall(r"([\d.]+) times", text)
    networks = words("docs/performance.md").partition("## Operators")[0]
    assert all(number in networks for number in quoted), quoted
