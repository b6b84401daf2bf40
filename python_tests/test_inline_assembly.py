"""The formulas as inline assembly, which the build extracts from PTX."""

import json
import os
import re
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch._inductor import virtualized

import ptx
from op_table import ACTIVATIONS, SUFFIXES
from oracle import LongDouble, bits, every_16_bit_value, ulp_of, wide
from support import DTYPES, REPOSITORY, assert_same_bits, dtype_name, values

sys.path.append(str(REPOSITORY / "scripts" / "codegen"))

import inline_assembly  # noqa: E402

from fastact._inductor import assembly, composed, operators  # isort: skip

ENTRY = """\
.visible .entry {name}(
\t.param .u64 {name}_param_0,
\t.param .u64 {name}_param_1,
\t.param .u64 {name}_param_2
)
{{
{body}
\tret;

}}
"""
HEAD = """\
\t.reg .pred \t%p<2>;
\t.reg .f32 \t%f<4>;
\t.reg .b64 \t%rd<7>;


\tld.param.u64 \t%rd1, [k_param_0];
\tld.param.u64 \t%rd2, [k_param_1];
\tld.param.u64 \t%rd3, [k_param_2];
\tcvta.to.global.u64 \t%rd4, %rd3;
\tcvta.to.global.u64 \t%rd5, %rd1;
\tcvta.to.global.u64 \t%rd6, %rd2;
\tld.global.f32 \t%f1, [%rd5];
"""
STORE = "\tst.global.f32 \t[%rd4], %f1;"


def extracted(tmp_path, body, name="k"):
    path = tmp_path / "k.ptx"
    path.write_text(ENTRY.format(name=name, body=body))
    kernels = inline_assembly.read(path)["kernels"]
    return kernels.get(name, {}).get("assembly"), kernels.get(name, {}).get("operands")


def test_operands_and_result(tmp_path):
    body = HEAD + "\tld.global.f32 \t%f2, [%rd5+4];\n\tadd.rn.f32 \t%f1, %f1, %f2;\n" + STORE
    text, operands = extracted(tmp_path, body)
    assert operands == 2
    assert text.endswith(
        "mov.f32 %fastact_f1, $1; mov.f32 %fastact_f2, $2; "
        "add.rn.f32 %fastact_f1, %fastact_f1, %fastact_f2; mov.b32 $0, %fastact_f1; }"
    )


def test_parameters(tmp_path):
    body = HEAD + "\tld.global.f64 \t%fd1, [%rd6+8];\n\tcvt.rn.f32.f64 \t%f1, %fd1;\n" + STORE
    assert "mov.f64 %fastact_fd1, @1; cvt.rn.f32.f64" in extracted(tmp_path, body)[0]


def test_names_are_its_own(tmp_path):
    """A $ marks an operand, and a register of the same name would hide an operand's register."""
    body = (
        HEAD + "\tsetp.lt.f32 \t%p1, %f1, 0f00000000;\n\t@%p1 bra \t$L__BB0_2;\n"
        "\tneg.f32 \t%f1, %f1;\n\n$L__BB0_2:\n" + STORE
    )
    text, _ = extracted(tmp_path, body)
    assert "@%fastact_p1 bra fastact_BB0_2; neg.f32" in text
    assert "fastact_BB0_2: mov.b32 $0" in text
    assert "%f1" not in text.replace("%fastact_f1", "") and "$L" not in text


def test_blocks_keep_their_names(tmp_path):
    body = (
        HEAD + "\t// begin inline asm\n\t{.reg .b32 %temp;\n\tmov.b64 {%temp, %r1}, %fd6;}\n"
        "\t// end inline asm\n" + STORE
    )
    text, _ = extracted(tmp_path, body)
    assert "{ .reg .b32 %temp; mov.b64 {%temp, %fastact_r1}, %fastact_fd6; }" in text


def test_a_table_is_named_and_read(tmp_path):
    table = "_ZN45_INTERNAL_15kPackedSegmentsIL_ZNS0_13kGeluSegmentsEEEE"
    body = (
        HEAD + f"\tmov.u64 \t%rd5, {table};\n\tadd.s64 \t%rd6, %rd5, %rd4;\n"
        "\tld.global.nc.v2.f32 \t{%f1, %f2}, [%rd6+128];\n" + STORE
    )
    path = tmp_path / "k.ptx"
    path.write_text(
        f".global .align 16 .b8 {table}[24] = {{1{', 0' * 14}, 128}};\n"
        + ENTRY.format(name="k", body=body)
    )
    found = inline_assembly.read(path)
    assert found["kernels"]["k"]["table"] == "kGeluSegments"
    assert "mov.u64 %fastact_rd5, fastact_table;" in found["kernels"]["k"]["assembly"]
    assert found["tables"] == {
        "kGeluSegments": ["0000000000000001", "8000000000000000", "0000000000000000"]
    }


@pytest.mark.parametrize(
    "foreign",
    ["call.uni (retval0), f, (param0);", "ld.local.f32 \t%f1, [%SP+4];", "bar.sync \t0;",
     "ld.global.f32 \t%f2, [%rd9];", "st.global.f32 \t[%rd5], %f1;"],
)  # fmt: skip
def test_what_is_not_straight_is_left_out(tmp_path, capsys, foreign):
    assert extracted(tmp_path, HEAD + f"\t{foreign}\n" + STORE) == (None, None)
    assert "k is called, not inlined" in capsys.readouterr().err


@pytest.fixture(scope="module")
def arithmetics():
    """Returns the package's assembly.json, or the file that FASTACT_ASSEMBLY names."""
    path = Path(os.environ.get("FASTACT_ASSEMBLY", assembly._FILE))
    if not path.is_file():
        pytest.skip("libfastact was built without CUDA")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assembly, "_FILE", path)
        assembly._assembly.cache_clear()
        yield json.loads(path.read_text())
    assembly._assembly.cache_clear()


@pytest.fixture(scope="module")
def extracts(arithmetics):
    return arithmetics["ieee"]


@pytest.fixture(scope="module")
def kernels(extracts):
    return extracts["kernels"]


def test_the_build_extracts_every_form(kernels):
    """There is a kernel for each activation, type and form."""
    for act in ACTIVATIONS:
        for order in range(3):
            for dtype in DTYPES:
                key = f"{act.name}__{order}__{dtype_name(dtype)}"
                assert {f"{key}__defaults", f"{key}__any"} & set(kernels), key


PRELU = ("_prelu", "_prelu_backward", "_prelu_weight_backward", "_prelu_weight_double_backward")
# The operands of the steps of the fused form (FusedStep). A step is tested as a fused operator
# whose activation is the identity.
STEPS = ("self scale", "self scale bias", "self bias", "self gate")
PARAMETERS = {
    "hardtanh": (-3.0, 0.1),
    "threshold": (-1.0, -7.0),
    "softshrink": (0.1,),
    "hardshrink": (0.25,),
    "elu": (0.5, 1.5, 2.0),
    "celu": (7.5,),
    "softplus": (2.0, 3.0),
    "leaky_relu": (0.2,),
}
SPECIAL = (0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e-40, -1e-40, 20.0, -20.0, 1e30, -1e30)


def with_parameters(code, parameters):
    for i, value in enumerate(parameters):
        code = code.replace(f"@{i};", f"0d{struct.pack('>d', value).hex().upper()};")
    return code


def result_of(name, kernel, tables, count=2000):
    """Returns the results of a kernel's code in the interpreter, and of the operator on the CPU."""
    family, form, dtype, given = name.split("__")
    form, dtype = int(form), getattr(torch, dtype)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    operands = [values(count, dtype=dtype) for _ in range(kernel["operands"])]
    for operand in operands:
        operand[torch.randperm(count)[: len(SPECIAL)]] = torch.tensor(SPECIAL).to(dtype)
    parameters = PARAMETERS[family] if given != "defaults" else ()
    if family == "fused":
        given = dict(zip(STEPS[form].split(), operands))
        expected = torch.ops.fastact.fused_leaky_relu(**given, negative_slope=1.0)
    elif family == "prelu":
        expected = getattr(torch.ops.fastact, PRELU[form])(*operands)
    else:
        order = form - 3 if form > 3 else form
        op = getattr(torch.ops.fastact, family + SUFFIXES[order])
        expected = op(*operands, *parameters, **({"is_result": True} if form > 3 else {}))
    code = with_parameters(kernel["assembly"], parameters)
    table = [int(word, 16) for word in tables.get(kernel.get("table"), ())]
    found = ptx.run(code, [bits(x.to(wide)).numpy().astype(np.uint64) for x in operands], table)
    if dtype.itemsize == 2:  # rounded as a GPU stores it
        found = ptx.to_half(found, "bf16" if dtype == torch.bfloat16 else "f16")
    found = torch.from_numpy(found.astype(f"u{dtype.itemsize}").view(f"i{dtype.itemsize}"))
    found = found.view(dtype)
    if family == "fused" and STEPS[form] != "self gate":  # any NaN, because f makes it canonical
        found = torch.where(torch.isnan(found) & torch.isnan(expected), expected, found)
    return found, expected


def test_the_code_has_the_operators_bits(extracts):
    for name, kernel in extracts["kernels"].items():
        if "__unrounded__" in name:
            continue
        found, expected = result_of(name, kernel, extracts["tables"])
        try:
            assert_same_bits(found, expected)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


def test_another_digit_has_other_bits(kernels):
    """The comparison finds a changed digit."""
    kernel = dict(kernels["silu__0__float32__defaults"])
    constant = re.findall(r"0f3[EF][0-9A-F]{6}", kernel["assembly"])[0]
    other = f"{constant[:-1]}{int(constant[-1], 16) ^ 4:X}"
    kernel["assembly"] = kernel["assembly"].replace(constant, other)
    found, expected = result_of("silu__0__float32__defaults", kernel, {})
    assert not torch.equal(bits(found), bits(expected))


# ---- Results that are not rounded to 16 bits


# The activations with a form for unrounded results, by arithmetic.
UNROUNDED = {
    "ieee": {"relu", "leaky_relu", "relu6", "hardtanh", "hardswish", "softsign", "softshrink",
             "hardshrink", "sigmoid"},
    "fast": {"softsign", "sigmoid"},
}  # fmt: skip


def numbers_for(dtype):
    """Returns all 16-bit numbers, and float32 numbers of every and of ordinary magnitude."""
    drawn = torch.randint(-(1 << 31), 1 << 31, (1 << 14,), dtype=torch.int32).view(torch.float32)
    ordinary = values(1 << 14, dtype=dtype).float() * values(1 << 14, dtype=dtype).float()
    return torch.cat([every_16_bit_value(dtype).float(), drawn, ordinary])


def test_the_build_extracts_unrounded_forms(arithmetics):
    for arithmetic, expected in UNROUNDED.items():
        names = arithmetics[arithmetic]["kernels"]
        assert {name.split("__")[0] for name in names if "__unrounded__" in name} == expected


@pytest.mark.parametrize("arithmetic", UNROUNDED)
def test_unrounded_code_is_exact_enough(arithmetics, arithmetic, half):
    """The results are within 0.005 ULP of the exact value, also for unrounded operands."""
    x = numbers_for(half)
    finite = torch.isfinite(x)
    operand = bits(x).numpy().astype(np.uint32).astype(np.uint64)
    kernels, ordinary = arithmetics[arithmetic]["kernels"], arithmetics["ieee"]["ordinary"]
    tested = set()
    for act in ACTIVATIONS:
        parameters = tuple(act.parameters.values())
        call = operators.Call(act.name, 0, parameters, is_rounded=False)
        key = operators.chosen(call, half, kernels, ordinary)
        if key is None or "__unrounded__" not in key:
            continue
        tested.add(act.name)
        code = with_parameters(kernels[key]["assembly"], parameters)
        y = torch.from_numpy(ptx.to_floats(ptx.run(code, [operand]), "f32"))
        exact = act.derivative(LongDouble, wide(x[finite]), 0)
        errors = np.abs(wide(y[finite]) - exact) / ulp_of(exact, half)
        worst = errors.argmax()
        assert errors[worst] <= 0.005, (key, errors[worst], x[finite][worst])
        ends, expected = y[~finite].to(half), act.op(x[~finite].to(half))
        torch.testing.assert_close(ends, expected, rtol=0, atol=0, equal_nan=True)
    assert tested == UNROUNDED[arithmetic]


class Texts:
    """Fakes Inductor's operations: inline assembly returns its text."""

    def inline_asm_elementwise(self, *operands, asm, **settings):
        return asm

    def to_dtype(self, x, dtype):
        return x


@pytest.mark.parametrize("arithmetic", UNROUNDED)
def test_which_code_is_chosen(arithmetics, monkeypatch, arithmetic):
    """The short code is chosen for an unrounded 16-bit value whose operands are elements."""
    monkeypatch.setattr(assembly, "arithmetic", lambda device: arithmetic)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))

    def text(dtype, *call, **how):
        call = operators.Call(*call, **how)
        with virtualized.V.set_ops_handler(Texts()):
            return assembly.element(call, dtype, torch.device("cuda", 0))("x", "y").value

    def kernel(arithmetic, key):
        return arithmetics[arithmetic]["kernels"][key]["assembly"]

    bfloat16 = torch.bfloat16
    for name, of_value, of_unrounded in (
        ("hardswish", "ieee", "ieee"), ("softsign", "ieee", arithmetic),
        ("sigmoid", arithmetic, arithmetic),
    ):  # fmt: skip
        short = kernel(of_unrounded, f"{name}__unrounded__bfloat16__defaults")
        value = kernel(of_value, f"{name}__0__bfloat16__defaults")
        assert text(bfloat16, name, 0, (), is_rounded=False) == short
        assert text(bfloat16, name, 0, ()) == value
    for dtype, form in ((bfloat16, 1), (torch.float32, 0)):
        for is_rounded in (True, False):
            expected = kernel("ieee", f"hardswish__{form}__{dtype_name(dtype)}__defaults")
            assert text(dtype, "hardswish", form, (), is_rounded=is_rounded) == expected
    silu = kernel(arithmetic, "silu__0__bfloat16__defaults")
    assert text(bfloat16, "silu", 0, (), is_rounded=False) == silu
    for is_rounded, key in ((True, "relu__0__bfloat16"), (False, "relu__unrounded__bfloat16")):
        found = text(bfloat16, "relu", 0, (), is_rounded=is_rounded)
        assert found == kernel("ieee", f"{key}__defaults")
    sloped = kernel("ieee", "leaky_relu__unrounded__float16__ordinary")
    found = text(torch.float16, "leaky_relu", 0, (0.2,), is_rounded=False)
    assert found == with_parameters(sloped, (0.2,))


class OfTensors:
    """Fakes Inductor's operations as Triton may compile them for a GPU: the maximum and minimum of
    two zeros may be either of them."""

    abs, gt, le, lt, where = torch.abs, torch.gt, torch.le, torch.lt, torch.where

    def constant(self, value, dtype):
        return torch.tensor(value, dtype=dtype)

    def maximum(self, a, b):
        return torch.where((a == 0) & (b == 0), 0.0, torch.maximum(a, b))

    def minimum(self, a, b):
        return torch.where((a == 0) & (b == 0), 0.0, torch.minimum(a, b))


@pytest.mark.parametrize(
    ("name", "parameters"),
    (
        ("relu", ()), ("relu6", ()), ("hardtanh", (-1.0, 1.0)), ("hardtanh", (0.0, 1.0)),
        ("hardtanh", (-1.0, -0.0)), ("hardshrink", (0.5,)), ("threshold", (0.5, 0.25)),
    ),
)  # fmt: skip
def test_selections_of_inductors_operations(half, name, parameters):
    """Inductor's own operations give the operator's bits for every value."""
    x = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int16).view(half)
    x = x[~x.isnan()]  # a GPU's conversion makes them one NaN
    call = operators.Call(name, 0, parameters)
    with virtualized.V.set_ops_handler(OfTensors()):
        found = composed.element(call, half, torch.device("cuda", 0))(x.float())
    assert_same_bits(found.value.to(half), getattr(torch.ops.fastact, name)(x, *parameters))
