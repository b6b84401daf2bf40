"""Tests of the proof: its oracle, compared with other libraries, its inputs, digests and
verdicts."""

import importlib.util
import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from fractions import Fraction

import gmpy2
import mpmath
import numpy as np
import pytest
import torch

import figures
from drawn_parameters import FAMILIES
from op_table import ACTIVATIONS, OPERATORS, TOP_ORDER, contract
from oracle import FORMATS, bits
from support import DTYPES, REPOSITORY, build_info, dtype_name, library_path

PROVE = REPOSITORY / "prove"
sys.path += [
    str(PROVE),
    str(REPOSITORY / "scripts" / "checks"),
    str(REPOSITORY / "python" / "fastact"),
]

from _digests import inputs, kernels  # noqa: E402
from _digests.kernels import PRELU, compute, digest_of, prelu_kernels  # noqa: E402
from _digests.rows import LENGTHS, ROWS  # noqa: E402

import accuracy  # noqa: E402
import digest  # noqa: E402
import digest_page  # noqa: E402
import error_figures  # noqa: E402
import exact  # noqa: E402
import oracle  # noqa: E402
import prelu  # noqa: E402
import prove_selftest  # noqa: E402
import report  # noqa: E402
from enclosure import DOUBLE, EXTENDED, Enclosing  # noqa: E402

pytestmark = pytest.mark.kernels

REFERENCE = json.loads((PROVE / "digests.json").read_text())
SMALL = (torch.bfloat16, torch.float16)


def environment():
    return {**os.environ, "FASTACT_LIBRARY": str(library_path())}


def prove(*arguments):
    return subprocess.run(
        [sys.executable, PROVE, *arguments], capture_output=True, text=True, env=environment()
    )


# ---- The oracle


def test_mpfr_rounds_as_the_processor_does():
    """Compares rounding to the number formats of exact.py with conversions of numpy and torch."""
    generator = random.Random(1)
    doubles = [generator.uniform(-4, 4) * 2.0 ** generator.randint(-160, 130) for _ in range(20000)]
    doubles += [2.0**k * (1 + j / 2048) for k in range(-150, 129) for j in (0, 1, 3, 4, 8, 12)]
    for dtype in (torch.float32, torch.float16):
        # Both convert from double in one rounding; numpy has no bfloat16.
        numpy_type = {torch.float32: np.float32, torch.float16: np.float16}[dtype]
        with np.errstate(over="ignore"):
            expected = np.array(doubles).astype(numpy_type).astype(float)
        assert [float(exact._round(gmpy2.mpfr(d), dtype)) for d in doubles] == expected.tolist()
    singles = torch.tensor(doubles, dtype=torch.float64).float()
    expected = singles.to(torch.bfloat16).double().tolist()
    rounded = [
        float(exact._round(gmpy2.mpfr(d), torch.bfloat16)) for d in singles.double().tolist()
    ]
    assert rounded == expected


@pytest.mark.parametrize("order", range(TOP_ORDER + 1))
def test_enclosures_hold_what_mpmath_says(act, order):
    """Compares enclosures with mpmath at random points of every magnitude, in both arithmetics."""
    x = accuracy.inputs_of(act, torch.float64, 0, 1 << 14, "cpu")[::37]
    x = torch.cat([x[x.isfinite()], x[x.isfinite()].float().double().clamp(-1e30, 1e30)])
    for arithmetic, values in (
        (DOUBLE, x[x.abs() > 1e-290]),
        (EXTENDED, x.numpy().astype(np.longdouble)),
    ):
        with np.errstate(all="ignore"):
            enclosure = act.derivative(arithmetic, arithmetic.input(values), order)
        centre = np.broadcast_to(np.asarray(enclosure.value), len(values))
        error = np.broadcast_to(np.asarray(enclosure.error), len(values))
        for i in range(len(values)):
            if not np.isfinite(centre[i]):
                continue
            true = oracle.exact(act.derivative, float(values[i]), order)
            with mpmath.workprec(200):
                distance = abs(true - _mpmath(centre[i]))
                bound = _mpmath(error[i]) * (1 + 2.0**-30) + abs(true) * mpmath.ldexp(1, -180)
                assert distance <= bound, (float(values[i]), distance)


def _mpmath(number):
    fraction, exponent = np.frexp(number)
    high = float(fraction)
    return mpmath.ldexp(mpmath.mpf(high) + mpmath.mpf(float(fraction - high)), int(exponent))


@pytest.mark.parametrize("arithmetic", [DOUBLE, EXTENDED], ids=["double", "80-bit"])
def test_the_error_of_an_exact_sum_is_what_it_loses(arithmetic):
    """For 2^25 float32 numbers x, 1 - 2x is a tie. The enclosure is exact and needs no MPFR."""
    x = torch.linspace(0.1, 3, 999).float().double()
    few_bits, all_bits = x, x * x * x
    for values, is_exact in ((few_bits, True), (all_bits, arithmetic is EXTENDED)):
        values = values if arithmetic is DOUBLE else values.numpy().astype(np.longdouble)
        enclosure = 1 - 2 * arithmetic.input(values)
        lost = [
            1 - 2 * Fraction(*v.item().as_integer_ratio()) - Fraction(*r.item().as_integer_ratio())
            for v, r in zip(values, enclosure.value, strict=True)
        ]
        assert [abs(e) for e in lost] == [
            Fraction(*e.item().as_integer_ratio()) for e in enclosure.error
        ]
        assert is_exact == (not any(lost))


def test_a_wrong_enclosure_stops_the_proof(monkeypatch):
    monkeypatch.setattr(Enclosing, "LIBRARY_ULP", -(2.0**30))
    act = next(a for a in ACTIVATIONS if a.name == "selu")
    x = torch.full((10,), -1.5)
    with pytest.raises(exact.OracleError, match="the enclosure at -1.5 is wrong"):
        exact.exact(act, x, 0)


# ---- Inputs


def test_every_pattern_is_every_pattern():
    for dtype in SMALL:
        patterns = bits(inputs.every_pattern(dtype, 0, 1 << 16, "cpu")).unique()
        assert len(patterns) == 1 << 16
    pieces = [bits(inputs.every_pattern(torch.float32, i << 28, 4, "cpu")) for i in range(16)]
    expected = [(i << 28) + j for i in range(16) for j in range(4)]
    assert [p & 0xFFFFFFFF for p in torch.cat(pieces).tolist()] == expected


@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_name)
def test_mixed_inputs_do_not_depend_on_how_they_are_cut(dtype):
    whole = inputs.mixed(dtype, 1, 0, 4 * inputs.BLOCK, "cpu")
    for i in range(4):
        piece = inputs.mixed(dtype, 1, i * inputs.BLOCK, inputs.BLOCK, "cpu")
        assert torch.equal(bits(piece), bits(whole[i * inputs.BLOCK : (i + 1) * inputs.BLOCK]))
    assert 0.4 < (whole < 0).double().mean() < 0.6
    assert whole.isnan().any() and not torch.equal(
        whole, inputs.mixed(dtype, 2, 0, len(whole), "cpu")
    )
    stripes = whole.view(-1, 2, inputs._STRIPE * 8 // dtype.itemsize)
    ordinary = stripes[:, 1].double().abs()
    reach = 8 if dtype == torch.float16 else 16
    assert ordinary.min() >= 2.0**-reach and ordinary.max() < 2.0**reach


@pytest.mark.slow
@pytest.mark.parametrize("dtype, reach", ((torch.float64, 2.0**-40), (torch.float32, 2.0**-12)))
def test_samples_are_dense_around_the_branch_points(dtype, reach):
    """Tests SELU, which has a kink and branch points."""
    act = next(act for act in OPERATORS if act.name == "selu")
    x = accuracy.inputs_of(act, dtype, 0, 1 << 23, "cpu", whole=False)
    for point in torch.tensor((0.0, *act.kinks, *act.branch_points), dtype=dtype):
        near = bits(x[(x - point).abs() <= reach * max(abs(point), torch.finfo(dtype).tiny)])
        assert len(near) > 1000, point
        assert (near.unique().diff() == 1).sum() > 1000, point


def test_a_float32_sample_has_every_kind_of_number():
    """The sample contains infinities, NaNs, zeros and subnormals of both signs."""
    act = OPERATORS[0]
    x, more = (
        accuracy.inputs_of(act, torch.float32, first, 1 << 22, "cpu", whole=False)
        for first in (0, 1 << 22)
    )
    for found in (x.isnan(), x == 0, x.abs() < torch.finfo(torch.float32).tiny, x.abs() > 1e30):
        assert (found & x.signbit()).any() and (found & ~x.signbit()).any()
    assert len(bits(x).unique()) > 1 << 20
    assert len(torch.cat([bits(x), bits(more)]).unique()) > 1.5 * len(bits(x).unique())


@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_name)
@pytest.mark.parametrize("order", range(TOP_ORDER + 1))
def test_what_is_tried_by_default(order, dtype):
    """As docs/dev/testing.md says: all 16-bit inputs, and all of float32 up to f''."""
    assert order in prove_main().ORDERS
    job = accuracy.Job(OPERATORS[0], dtype, order, "cpu")
    whole = dtype in SMALL or (dtype == torch.float32 and order <= 2)
    assert job.inputs == (1 << 8 * dtype.itemsize if whole else 1 << 27)


# ---- Digests


def kernel_of(act, dtype, form):
    (kernel,) = (k for k in digest.kernels(act, dtype) if k.form == form)
    return kernel


def test_a_digest_sees_one_bit_and_one_exchange():
    results = torch.randn(1 << 12, generator=torch.Generator().manual_seed(0))
    expected = digest_of(results, 0)
    assert digest_of(results.clone(), 0) == expected
    assert digest_of(results, 1 << 12) != expected
    for index in (0, 1, 2047, 4095):
        for bit in (0, 22, 31):
            changed = results.clone()
            changed.view(torch.int32)[index] ^= -(1 << 31) if bit == 31 else 1 << bit
            assert digest_of(changed, 0) != expected
    exchanged = results.clone()
    exchanged[0:2], exchanged[6:8] = results[6:8].clone(), results[0:2].clone()
    assert digest_of(exchanged, 0) != expected
    # Errors that would cancel in a sum change the digest.
    two = results.clone()
    two.view(torch.int32)[0] += 1
    two.view(torch.int32)[2] -= 1
    assert digest_of(two, 0) != expected


def test_the_reference_knows_no_other_operators():
    drawn = {f"{name}-drawn" for name in FAMILIES}
    rows = {f"{name}-length={length}" for name in ROWS for length in LENGTHS}
    assert set(REFERENCE) <= {*(act.id for act in ACTIVATIONS), *drawn, PRELU, *rows}


def test_the_reference_has_one_digest_a_line():
    assert (PROVE / "digests.json").read_text() == digest.one_digest_a_line(REFERENCE)


def test_every_operator_has_reference_digests(act, dtype):
    if act.id not in REFERENCE:
        pytest.skip(f"{act.id} has none yet: prove --digest --update, see docs/dev/testing.md")
    assert_all_stored(REFERENCE[act.id][dtype_name(dtype)], digest.kernels(act, dtype))


def test_prelu_has_reference_digests(dtype):
    assert_all_stored(REFERENCE[PRELU][dtype_name(dtype)], prelu_kernels(dtype))


@pytest.mark.parametrize("name", ROWS)
def test_rows_have_reference_digests(name, dtype):
    by_length = itertools.groupby(digest.kernels_of_rows(name, dtype), lambda k: k.name)
    for key, of_length in by_length:
        assert_all_stored(REFERENCE[key][dtype_name(dtype)], of_length)


@pytest.mark.parametrize("name", FAMILIES)
def test_drawn_parameters_have_reference_digests(name, dtype):
    stored = REFERENCE[f"{name}-drawn"][dtype_name(dtype)]
    assert_all_stored(stored, digest.drawn_kernels(name, dtype))


@pytest.mark.parametrize("name", FAMILIES)
def test_drawn_parameters_have_the_reference_digests(name, dtype):
    """Settings with another seed or in another order would have other digests."""
    kernel = next(digest.drawn_kernels(name, dtype))
    expected = REFERENCE[kernel.name][dtype_name(dtype)][kernel.form]["all"]
    assert compute(kernel, "cpu", part=False) == expected


def assert_all_stored(stored, kernels):
    kernels = list(kernels)
    assert set(stored) == {k.form for k in kernels}
    for kernel in kernels:
        assert stored[kernel.form]["of"] == kernel.space.description
        assert stored[kernel.form].keys() == {"of", "all", "part"}


@pytest.mark.parametrize("path", digest.PATHS)
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_name)
def test_results_have_the_reference_digest_on_every_path(act, device, dtype, path):
    """Tests a few forms on a part of their spaces; `make digests` tests all."""
    if act.id not in REFERENCE:
        pytest.skip(f"{act.id} has no reference digests yet, see docs/dev/testing.md")
    if path == "threads" and device == "cuda":
        pytest.skip("a GPU has no number of threads")
    forms = ["value", "derivative_1"] + (["gradients_1"] if path == "dense" else [])
    for form in forms:
        kernel = kernel_of(act, dtype, form)
        value = compute(kernel, torch.device(device).type, True, digest.PATHS[path])
        assert value == REFERENCE[act.id][dtype_name(dtype)][form]["part"], form


@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_name)
def test_prelu_has_the_reference_digests(device, dtype):
    for kernel in prelu_kernels(dtype):
        value = compute(kernel, torch.device(device).type, True)
        assert value == REFERENCE[PRELU][dtype_name(dtype)][kernel.form]["part"], kernel.form


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("path", digest.PATHS)
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_name)
def test_rows_have_the_reference_digests_on_every_path(name, device, dtype, path):
    if path == "threads" and device == "cuda":
        pytest.skip("a GPU has no number of threads")
    for kernel in digest.kernels_of_rows(name, dtype):
        value = compute(kernel, device, True, digest.PATHS[path])
        stored = REFERENCE[kernel.name][dtype_name(dtype)][kernel.form]
        assert value == stored["part"] == stored["all"], (kernel.name, kernel.form)


def test_equal_digests_are_recorded(capsys, monkeypatch, tmp_path):
    """Runs with different digests, or of only some operators, are not recorded."""
    main = prove_main()
    isa = build_info()["cpu instruction set in use"]
    options = main.parse(
        ["--digest", "--part", "--isa", isa, "--workers", "1", "--dtype", "bfloat16"]
    )
    options.results = tmp_path
    path = tmp_path / "digests" / f"{isa}-dense.json"
    options.activations = [next(a for a in OPERATORS if a.name == "relu")]
    monkeypatch.setattr(main, "prelu_kernels", lambda dtype: ())
    monkeypatch.setattr(main, "ROWS", ())
    threads = torch.get_num_threads()
    try:
        assert main.compare_digests(options) == 0
        assert "all equal" in capsys.readouterr().out and not path.exists()
        options.dtype = None
        assert main.compare_digests(options) == 0
        assert str(path) in capsys.readouterr().out
        found = json.loads(path.read_text())
        path.unlink()
        monkeypatch.setattr(kernels, "digest_of", lambda results, first: 1)
        assert main.compare_digests(options) == 1
        assert not path.exists()
    finally:
        torch.set_num_threads(threads)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", found["date"]) and found["instruction_set"] == isa
    assert re.match(r"gcc \d+\.\d", found["compiler"]) and found["torch"] == torch.__version__
    assert (found["of"], found["path"]) == ("part", "dense") and found["results"] > 1 << 16


# ---- Verdicts


def test_16_bit_contracts_hold_for_every_input(act, device):
    """Tests one type and order for each activation; test_numbers.py tests all of them."""
    number = ACTIVATIONS.index(act)
    dtype, order = SMALL[number // 4 % 2], number % (TOP_ORDER + 1)
    job = accuracy.Job(act, dtype, order, torch.device(device).type)
    ours, _ = job.piece(0, 1 << 16)
    assert ours.beyond_contract == 0, ours
    assert ours.max_ulp <= job.bound
    if job.bound == 0.5:
        assert ours.misrounded == 0


@pytest.mark.parametrize("act", ACTIVATIONS, ids=lambda act: act.id)
@pytest.mark.parametrize("dtype", SMALL, ids=dtype_name)
def test_16_bit_contracts_hold_next_to_ties(act, device, dtype):
    """Tests all activations and orders near 0. There, for example, the third derivative of silu is
    almost -x / 2, and half of an odd subnormal number is a tie."""
    for first in (0, 1 << 15):
        x = inputs.every_pattern(dtype, first, 1 << 8, device)
        for order in range(TOP_ORDER + 1):
            job = accuracy.Job(act, dtype, order, torch.device(device).type)
            target = exact.exact(act, x, order)
            found = accuracy.tally(x, accuracy.ours(act, x, order), target, job.bound, True)
            assert found.beyond_contract == 0, (order, found)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64), ids=dtype_name)
@pytest.mark.parametrize("order", range(TOP_ORDER + 1))
def test_wide_contracts_hold_on_a_sample(act, device, dtype, order):
    job = accuracy.Job(act, dtype, order, torch.device(device).type)
    # float32: -0.0 and its neighbours, ordinary values, the largest of both signs and their
    # neighbours.
    firsts = (0x80000000, 0xC0000000, 0x3F800000, 0x7F7F0000, 0xFF7F0000)
    for first in firsts if dtype == torch.float32 else (0,):
        ours, _ = job.piece(first, 1 << 17)
        assert ours.beyond_contract == 0, (hex(first), ours)


def spoil(results, x, kind):
    """Returns results with one error of the named kind."""
    results = results.clone()
    patterns = results.view(FORMATS[x.dtype].integer)
    where = {
        "nan": x.isnan(),
        "infinity": x == torch.inf,
        "zero": (x == 0) & x.signbit(),
        "sign": results == 0,
        "subnormal": (x.abs() < torch.finfo(x.dtype).smallest_normal) & (x != 0),
        "misrounded": x == 1.5,
    }[kind].nonzero()[0]
    if kind == "nan":
        results[where] = 1.0
    elif kind == "sign":
        results[where] *= -1
    else:
        patterns[where] ^= 1
    return results


@pytest.mark.parametrize(
    "name, dtype", (("relu", torch.bfloat16), ("sigmoid", torch.float16)), ids=str
)
def test_a_tally_counts_each_kind_of_mistake(name, dtype):
    act = next(act for act in OPERATORS if act.name == name)
    x = inputs.every_pattern(dtype, 0, 1 << 16, "cpu")
    target = exact.exact(act, x, 0)
    right = target.expected.clone()
    right.view(FORMATS[dtype].integer)[x.isnan()] = FORMATS[dtype].nan
    before = accuracy.tally(x, right, target, 0.5, True)
    kinds = (*accuracy.SPECIAL, "misrounded")
    for kind in kinds:
        if kind == "sign" and not (right == 0).any():
            continue  # sigmoid is positive
        # The sign of a zero is a part of the contract, whatever the bound.
        for bound in (0.5, 1e9) if kind == "sign" else (0.5,):
            after = accuracy.tally(x, spoil(right, x, kind), target, bound, True)
            assert getattr(before, kind) == 0 and getattr(after, kind) == 1, kind
            assert after.beyond_contract == before.beyond_contract + 1, kind
        # Zeros and subnormal numbers are finite, so wrong ones also count as misrounded.
        assert after.misrounded == (kind in ("zero", "subnormal", "misrounded")), kind
    assert after.max_ulp > 0.5 and after.max_at == 1.5  # the misrounded one


def test_errors_at_infinity_are_not_errors_of_finite_inputs():
    """PyTorch's hardswish is NaN at -inf, one input, and -0 below -3, which are signs of zeros."""
    act = next(a for a in OPERATORS if a.name == "hardswish")
    _, theirs = accuracy.Job(act, torch.bfloat16, 0, "cpu").piece(0, 1 << 16)
    assert theirs.infinity == 1 and theirs.max_ulp < float("inf")
    x = inputs.every_pattern(torch.bfloat16, 0, 1 << 16, "cpu")
    assert theirs.sign == int(((x <= -3) & x.isfinite() & (act.aten(x) == 0)).sum()) > 10_000
    target = exact.exact(act, x, 0).expected
    differ = (bits(act.aten(x)) != bits(target)) & x.isfinite() & ~((target == 0) & (x <= -3))
    assert theirs.misrounded == int(differ.sum())


# ---- PReLU


@pytest.mark.parametrize("form", prelu.FORMS, ids=lambda form: form.operator)
def test_prelu_is_the_nearest_number(device, dtype, form):
    job = prelu.PreluJob(form, dtype, torch.device(device).type)
    ours, theirs = job.piece(0, 1 << 17)
    assert ours.beyond_contract == ours.misrounded == 0 and 0.25 < ours.max_ulp <= 0.5, ours
    assert (theirs.max_ulp >= 0) == (form.aten is not None)


@pytest.mark.parametrize("form", prelu.FORMS, ids=lambda form: form.operator)
def test_a_misrounded_prelu_is_noticed(dtype, form, monkeypatch):
    def spoilt(*operands):
        results = right(*operands).clone()
        where = ((operands[-1] < 0) & results.isfinite() & (results != 0)).nonzero()[7]
        results.view(FORMATS[dtype].integer)[where] ^= 1
        return results

    right = getattr(torch.ops.fastact, form.operator)
    monkeypatch.setattr(torch.ops.fastact, form.operator, spoilt)
    ours, _ = prelu.PreluJob(form, dtype, "cpu").piece(0, 1 << 17)
    assert ours.beyond_contract == ours.misrounded == 1 and ours.max_ulp > 0.5


def test_the_contract_is_read_from_the_header(act):
    text = (REPOSITORY / "ops" / "activations" / f"{act.name}.h").read_text()
    for dtype in DTYPES:
        (line,) = (t for t in text.splitlines() if t.startswith(f"//   {dtype_name(dtype)} "))
        assert line.split()[2:] == [f"{bound:g}" for bound in contract(act.name)[dtype]]


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64), ids=dtype_name)
def test_values_beyond_the_enclosures_range(dtype):
    """Tests inputs for which e^-x overflows double and the 80-bit format."""
    (act,) = (a for a in ACTIVATIONS if a.name == "elu" and a.parameters["input_scale"] == -1)
    x = torch.tensor([-3e38, -1.0, -3e38], dtype=dtype)
    for order in range(TOP_ORDER + 1):
        expected = exact.exact(act, x, order).expected
        assert expected[[0, 2]].abs().isinf().all() and expected[1].isfinite()


def test_pytorch_may_have_no_derivative():
    (hard,) = (a for a in ACTIVATIONS if a.name == "hardsigmoid")
    job = accuracy.Job(hard, torch.bfloat16, 2, "cpu")
    ours, theirs = job.piece(0, 1 << 16)
    assert ours.beyond_contract == 0 and theirs == accuracy.Tally()


@pytest.fixture
def report_to(tmp_path, monkeypatch):
    """Makes the report write to a folder, without figures, and returns the folder."""
    monkeypatch.setattr(report, "PAGE", tmp_path / "accuracy.md")
    monkeypatch.setattr(report, "FIGURES", tmp_path / "figures")
    monkeypatch.setattr(report, "RECORD", tmp_path / "figures" / "results.json")
    monkeypatch.setattr(digest_page, "PAGE", tmp_path / "digests.md")
    monkeypatch.setattr(digest_page, "RECORD", tmp_path / "digests" / "results.json")
    monkeypatch.setattr(digest_page, "CHANGES", tmp_path / "digests" / "changes.json")
    # Drawing would take a second for each write().
    monkeypatch.setattr(report, "draw", lambda act, states, pyplot: act)
    monkeypatch.setattr(report, "BARS", {})
    monkeypatch.setattr(report.figures, "save", lambda act, path: path.write_text(act.id))
    return tmp_path


def save(folder, machine, act, dtype, order, done, theirs=None, ours=None):
    """Saves a state like an interrupted or finished run."""
    job = accuracy.Job(act, dtype, order, "cpu")
    where = {"device": machine, "instruction_set": "", "torch": "2", "library": "1f"}
    tally = ours or accuracy.Tally(max_ulp=0.25 + order, misrounded=order, profile={"520": 0.25})
    tallies = {"fastact": tally, "pytorch": theirs or accuracy.Tally()}
    accuracy.save_state(folder / machine / f"{job.name}.json", job, where, done, 60.0, tallies)


def test_the_report_says_what_it_lacks(report_to):
    act = OPERATORS[0]
    for order in (0, 1):
        save(report_to, "some", act, torch.float32, order, 1 << 32)
    save(report_to, "other", act, torch.bfloat16, 0, 1 << 16)
    save(report_to, "other", act, torch.float16, 0, 1 << 15)  # interrupted
    assert report.write(report_to) == 0
    text = " ".join((report_to / "accuracy.md").read_text().split())
    assert "3 combinations of activation, parameters, dtype and derivative" in text
    assert "8,590,000,128 inputs in all. The contract holds for every one." in text
    assert f"lacks the value of `{OPERATORS[1].id}`, " in text
    assert "and `prelu` in float32 and bfloat16." in text
    assert "lacks the value of all operators in float64 and float16." in text
    assert "and `prelu` (by weight) in float32." in text
    assert "third derivative of all operators in float32, float64, bfloat16 and float16." in text
    assert "## float32" not in text  # because most activations have no results
    assert (report_to / "figures" / f"{act.id}.svg").exists()


def test_a_broken_contract_is_named(report_to):
    broken = accuracy.Tally(max_ulp=9, beyond_contract=1)
    save(report_to, "some", OPERATORS[1], torch.bfloat16, 0, 1 << 16, ours=broken)
    assert report.write(report_to) == 0
    text = " ".join((report_to / "accuracy.md").read_text().split())
    assert f"The contract is broken for: {OPERATORS[1].id} bfloat16 f" in text
    # An earlier contract was narrower than today's.
    earlier = {"activation": OPERATORS[1].id, "dtype": "float32", "order": 0, "contract": -1.0}
    for error, nan, is_broken in ((0, 0, False), (9, 0, True), (0, 1, True)):
        found = {"max_ulp": error, "beyond_contract": 5, "nan": nan}
        assert report.is_broken({**earlier, "fastact": found}) == is_broken


def test_the_record_keeps_other_machines_and_older_results(report_to):
    act = OPERATORS[0]
    (report_to / "none").mkdir()
    assert report.write(report_to / "none") == 1
    save(report_to / "first", "some", act, torch.bfloat16, 0, 1 << 16)
    assert report.write(report_to / "first") == 0
    before = (report_to / "accuracy.md").read_text()
    assert report.write(report_to / "none") == 0  # from the record only
    assert (report_to / "accuracy.md").read_text() == before
    assert "library" not in report.RECORD.read_text()
    save(report_to / "second", "other", act, torch.bfloat16, 0, 1 << 16)
    newer = accuracy.Tally(max_ulp=0.75)
    save(report_to / "second", "some", act, torch.bfloat16, 0, 1 << 16, theirs=newer)
    assert report.write(report_to / "second") == 0
    states = json.loads(report.RECORD.read_text())
    found = {s["environment"]["device"]: s["pytorch"]["max_ulp"] for s in states}
    assert found == {"some": 0.75, "other": -1.0}


def a_run(**changes):
    return {
        "date": "2098-01-02", "machine": "some", "instruction_set": "avx2", "compiler": "gcc 12",
        "torch": "2", "revision": "1f", "of": "part", "path": "dense", "digests": 1044,
        "results": 5255462912, **changes,
    }  # fmt: skip


def test_the_page_of_digests_has_a_line_for_each_processor(report_to):
    save(report_to / "new", "some", OPERATORS[0], torch.bfloat16, 0, 1 << 16)
    runs = (
        a_run(),
        a_run(date="2097-01-01", revision="old"),
        a_run(path="tails"),
        a_run(machine="x"),
    )
    for number, run in enumerate(runs):
        path = report_to / "new" / "digests" / f"{number}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(run))
    rows = [{"op": "gelu", "dtype": "float32", "elements": 65536,
             "PyTorch": {"length": 12051}, "FastAct": {"length": 0}}]  # fmt: skip
    machine = {"name": "GPU", "cpu": "CPU", "torch": "2", "date": "2098-01-02 03:04"}
    digest_page.CHANGES.parent.mkdir()
    digest_page.CHANGES.write_text(json.dumps({"machine": machine, "rows": rows}))
    assert report.write(report_to / "new") == 0
    text = (report_to / "digests.md").read_text()
    dated = "part, 2098-01-02, 1f"
    assert f"| some | avx2 | 2 | gcc 12 | {dated} |  |  | {dated} |  |" in text
    assert f"| x | avx2 | 2 | gcc 12 | {dated} |  |  |  |  |" in text and "old" not in text
    assert "1,044 digests of 5,255,462,912 results" in text
    assert "| `gelu`, float32 | 12,051 | 0 |" in text and "on GPU and CPU" in " ".join(text.split())


@pytest.mark.parametrize(
    "largest, misrounded, text",
    ((0.5, 0, "0.5"), (0.5, 3, "> 0.5"), (0.25, 0, "0.25"), (0.5000000001, 2, "0.5000000001"),
     (0.500012, 9, "0.500012"), (1.234, 1, "1.23"), (2.1e6, 1, "2.1e6"), (torch.inf, 1, "inf")),
)  # fmt: skip
def test_an_error_gets_the_digits_that_it_needs(largest, misrounded, text):
    found = {"max_ulp": largest, "misrounded": misrounded}
    state = {"format": accuracy.FORMAT, "fastact": found, "pytorch": found}
    assert report.ulp(state, "fastact") == text
    # In format 1 the misrounded results may be zeros, which have no error.
    earlier = report.ulp({**state, "format": 1}, "pytorch")
    assert earlier == ("0.5" if text == "> 0.5" else text)


@pytest.mark.slow
def test_the_committed_pages_are_what_the_records_say(tmp_path, monkeypatch):
    """No text of these pages was edited, and the figures show the recorded numbers."""
    committed = {path.name: path for path in report.FIGURES.glob("*.svg")}
    for module, name in ((report, "PAGE"), (digest_page, "PAGE")):
        monkeypatch.setattr(module, name, tmp_path / getattr(module, name).name)
    monkeypatch.setattr(report, "FIGURES", tmp_path)
    records = {path: path.read_text() for path in (report.RECORD, digest_page.RECORD)}
    assert report.write(tmp_path / "none") == 0
    for path, text in records.items():
        assert path.read_text() == text, path.name
    for name in ("accuracy.md", "digests.md"):
        assert (tmp_path / name).read_text() == (REPOSITORY / "docs" / name).read_text(), name
    drawn = {path.name: path for path in tmp_path.glob("*.svg")}
    assert set(committed) == set(drawn) == {f"{n}.svg" for n in (*report.BARS, *ids())}
    for name, path in drawn.items():
        figures.check_colours(path)
        if figures.is_pinned_version():
            assert path.read_text() == committed[name].read_text(), f"{name}: make report"


def ids():
    return [act.id for act in OPERATORS]


# ---- Figures

PROFILE = {"508": 0.4, "510": 2.5, "400": 0.75, "1532": 0.003}  # 1, 1.5, tiny, -1


def test_an_outline_has_the_largest_errors_of_the_shown_bins():
    found = error_figures.outline({"profile": PROFILE})
    positive, negative = (found[sign] for sign in error_figures.SIGNS)
    edges = error_figures.edges()
    assert len(positive) == len(negative) == len(edges) - 1
    assert edges[:3] == [0, 2**-5, 1.25 * 2**-5] and edges[-1] == 1024
    assert positive[edges.index(1.0)] == 0.4 and positive[edges.index(1.5)] == 2.5
    assert positive[0] == 0.75 and sum(positive) == 0.4 + 2.5 + 0.75
    assert not any(negative)  # too small for the figure
    assert error_figures.outline({"outline": found}) == found and error_figures.outline({}) is None


def test_no_line_is_drawn_where_there_is_no_error():
    xs, ys = error_figures.steps(error_figures.outline({"profile": PROFILE}))
    drawn = [(x, y) for x, y in zip(xs, ys) if y == y]
    assert drawn == [(0, 0.75), (2**-5, 0.75), (1, 0.4), (1.25, 0.4), (1.5, 2.5), (1.75, 2.5)]
    assert xs == sorted(xs) and xs[0] == -1024 and xs[-1] == 1024


def test_every_accuracy_figure_can_be_read():
    """Lines are inside the axes and differ in grey, the data contain no zero, and labels have units
    and parameters."""
    pytest.importorskip("matplotlib")
    states = json.loads(report.RECORD.read_text())
    for act in OPERATORS:
        both = [error_figures.with_outline(states, act, order) for order in (0, 1)]
        with figures.drawing() as pyplot:
            figure = error_figures.draw(act, both, pyplot)
            for axis, state in zip(figure.axes, both, strict=True):
                figures.check_inside(axis)
                figures.check_told_apart(axis.get_lines())
                lines = {line.get_label(): line.get_ydata() for line in axis.get_lines()}
                assert set(lines) >= {"FastAct", "PyTorch"}
                for name, (label, _) in error_figures.CONTESTANTS.items():
                    assert not any(y <= error_figures.FLOOR for y in lines[label])
                    said = f"{label}: no error above" in axis.texts[0].get_text()
                    assert said == bool(np.isnan(lines[label]).all())
                    of_state = error_figures.outline(state[name])
                    assert not said or not any(map(any, of_state.values()))
                assert "linear" in axis.get_xlabel() and "float32" in axis.get_title()
                for parameter, value in act.parameters.items():
                    assert f"{parameter}={value}".removesuffix(".0") in axis.get_title()
            assert "(ULP)" in figure.axes[0].get_ylabel()
            pyplot.close(figure)


@pytest.mark.parametrize("name", error_figures.BARS)
def test_bars_of_the_accuracy_page_can_be_read(name):
    pytest.importorskip("matplotlib")
    found = report.newest(json.loads(report.RECORD.read_text()))
    with figures.drawing() as pyplot:
        figure = error_figures.BARS[name](found, pyplot)
        for axis in figure.axes:
            figures.check_inside(axis)
            assert len(axis.containers) == 2 and re.search(r"\(ULP|\(%\)", axis.get_xlabel())
        pyplot.close(figure)


# ---- The command


@pytest.mark.parametrize(
    "arguments, sentence",
    (
        (("--op", "nothing"), "invalid choice: 'nothing'"),
        (("--dtype", "int8"), "invalid choice: 'int8'"),
        (("--isa", "sse9"), "invalid choice: 'sse9'"),
        (("--device", "cuda", "--isa", "avx2"), "expected"),
        (("--digest", "--report"), "not allowed with"),
        (("--workers", "0"), "expected at least 1 for --workers, but got 0"),
        (("--sample", "41"), "expected 17 to 40 for --sample, but got 41"),
    ),
)
def test_wrong_command_lines(arguments, sentence, capsys):
    """Runs in this process; the next test starts a process."""
    with pytest.raises(SystemExit) as ended:
        prove_main().parse(list(arguments))
    assert ended.value.code == 2 and sentence in capsys.readouterr().err


def test_a_wrong_command_line_ends_the_command():
    done = prove("--op", "nothing")
    assert done.returncode == 2
    assert "invalid choice: 'nothing'" in done.stderr and "Traceback" not in done.stderr


def prove_main():
    """Returns the module that `python prove` runs."""
    spec = importlib.util.spec_from_file_location("prove_main", PROVE / "__main__.py")
    main = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(main)
    return main


def test_a_broken_contract_ends_with_exit_code_1(tmp_path, monkeypatch, capsys):
    """Runs in this process, with a contract that no result meets."""
    main, act = prove_main(), OPERATORS[0]
    options = main.parse(
        ["--op", act.id, "--dtype", "float64", "--order", "0", "--results", str(tmp_path)]
        + ["--workers", "1", "--sample", "17"]
    )
    threads = torch.get_num_threads()
    try:
        assert main.prove(options) == 0
        assert "BROKEN" not in capsys.readouterr().out
        monkeypatch.setitem(act.__dict__, "ulp", {torch.float64: (-1.0,)})
        assert main.prove(options) == 1
    finally:
        torch.set_num_threads(threads)
    assert "BROKEN: expected at most -1.0 ULP everywhere" in capsys.readouterr().out


@pytest.mark.slow
def test_an_interrupted_run_goes_on(tmp_path):
    arguments = ("--op", "selu", "--dtype", "float32", "--order", "0", "--results", tmp_path)
    # Background jobs of a shell ignore SIGINT, and so would their children.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [sys.executable, PROVE, *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    signal.signal(signal.SIGINT, before)
    while not (states := list(tmp_path.glob("*/*.json"))) and process.poll() is None:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    state = json.loads(states[0].read_text())
    assert 0 < state["inputs"] < state["of"]
    # The next run starts from this state.
    job = accuracy.Job(ACTIVATIONS[0], torch.float32, 0, "cpu")
    done, seconds, tallies = accuracy.load_state(states[0], job, state["environment"])
    assert (done, seconds) == (state["inputs"], state["seconds"])
    assert tallies["pytorch"].misrounded == state["pytorch"]["misrounded"]
    # Results of another library are not continued.
    assert accuracy.load_state(states[0], job, {**state["environment"], "library": ""})[0] == 0


def test_what_the_self_test_breaks_is_there():
    for case in prove_selftest.BREAKS:
        for file, text, _ in case.replacements:
            assert (REPOSITORY / file).read_text().count(text) == 1, (case.name, file, text)
