"""x86 code split into single instructions, for torch.compile's loops on CPUs."""

import struct
import sys

import pytest

from support import REPOSITORY

sys.path.append(str(REPOSITORY / "scripts"))

from straight_code import NotStraight, StraightCode  # noqa: E402

pytestmark = pytest.mark.kernels

DATA = {
    ".Lsix": struct.pack("<4f", 0.0, 6.0, 7.0, 8.0),
    ".Lsigns": struct.pack("<4f", -0.0, 0.0, 0.0, 0.0),
    ".Lfull": bytes(range(32)),
}


def taken_apart(*lines, operands=1, size=32):
    return StraightCode(size, DATA, operands).read(lines)


def hexadecimal(value):
    return struct.pack("<f", value).hex()


def test_registers_become_values():
    found = taken_apart("vaddps %ymm1, %ymm0, %ymm2", "vmulps %ymm2, %ymm2, %ymm0", operands=2)
    assert found["instructions"] == [
        ["vaddps %t[o1], %t[o2], %t[o0]", "v2", "", "v1", "v0"],
        ["vmulps %t[o1], %t[o2], %t[o0]", "v3", "", "v2", "v2"],
    ]
    assert found["result"] == "v3" and found["constants"] == {}


def test_a_copy_is_no_instruction():
    found = taken_apart("vmovaps %ymm0, %ymm5", "vaddps %ymm5, %ymm5, %ymm0")
    assert found["instructions"] == [["vaddps %t[o1], %t[o2], %t[o0]", "v1", "", "v0", "v0"]]


def test_a_copy_of_a_part_is_one():
    """A copy of a part clears the rest of the register."""
    assert len(taken_apart("vmovaps %xmm0, %xmm0")["instructions"]) == 1


def test_what_an_instruction_changes_is_read():
    found = taken_apart("vfmadd213ps %ymm1, %ymm0, %ymm1", "vmovaps %ymm1, %ymm0", operands=2)
    assert found["instructions"] == [["vfmadd213ps %t[o1], %t[o2], %t[o0]", "v2", "v1", "v1", "v0"]]


@pytest.mark.parametrize(
    "lines, expected",
    [
        (["vbroadcastss .Lsix+4(%rip), %ymm1"], hexadecimal(6.0)),
        (["movl $-2147483648, %eax", "vmovd %eax, %xmm1", "vpbroadcastd %xmm1, %ymm1"], "00000080"),
        (["movl $7, %r10d", "vpbroadcastd %r10d, %ymm1"], "07000000"),
        (["vxorps %xmm1, %xmm1, %xmm1"], "00000000"),
        (["vpxor %xmm1, %xmm1, %xmm1"], "00000000"),
        (["vpcmpeqd %ymm1, %ymm1, %ymm1"], "ffffffff"),
        (["vpcmpeqd %xmm1, %xmm1, %xmm1"], "ff" * 16 + "00" * 16),
        (["vmovaps .Lfull(%rip), %ymm1"], bytes(range(32)).hex()),
        (["vmovsd 8(%rdi), %xmm1", "vbroadcastsd 8(%rdi), %ymm1"], "@1"),
        (
            ["leaq .Lfastact_one(%rip), %rax", "vxorps %xmm1, %xmm1, %xmm1",
             "vcvtsd2ss (%rax), %xmm1, %xmm1", "vmulss .Lsix+8(%rip), %xmm1, %xmm1",
             "vbroadcastss %xmm1, %ymm1"],
            hexadecimal(7.0),
        ),
        (
            ["vmovss .Lsix+4(%rip), %xmm1", "vxorps .Lsigns(%rip), %xmm1, %xmm1",
             "vbroadcastss %xmm1, %ymm1"],
            hexadecimal(-6.0),
        ),
    ],
)  # fmt: skip
def test_constants(lines, expected):
    found = taken_apart(*lines, "vaddps %ymm1, %ymm0, %ymm0")
    assert list(found["constants"].values()) == [expected]
    assert len(found["instructions"]) == 1


def test_places_and_masks():
    found = taken_apart(
        "vcmpps $1, .Lsix+4(%rip){1to16}, %zmm0, %k1",
        "vmovaps %zmm0, %zmm0{%k1}{z}",
        "vmulps %zmm0, %zmm0, %zmm0{%k1}",
        size=64,
    )
    (name,) = found["constants"]
    assert found["instructions"] == [
        ["vcmpps $1, %g[o1], %g[o2], %[o0]", "k1", "", name, "v0"],
        ["vmovaps %g[o1], %g[o0]%{%[o2]%}%{z%}", "v2", "", "v0", "k1"],
        ["vmulps %g[o1], %g[o2], %g[o0]%{%[o3]%}", "v3", "v2", "v2", "v2", "k1"],
    ]


def test_a_vector_on_the_stack_is_a_value():
    """True for every position of the stack pointer."""
    found = taken_apart(
        "pushq %rbp", "movq %rsp, %rbp", "andq $-32, %rsp", "vmovaps %ymm0, -64(%rsp)",
        "subq $72, %rsp", "vmovapd %ymm1, 40(%rsp)", "vmovaps 8(%rsp), %ymm2",
        "vaddps %ymm2, %ymm2, %ymm1", "vsubps 8(%rsp), %ymm1, %ymm0", "leave", operands=2,
    )  # fmt: skip
    assert found["instructions"] == [
        ["vaddps %t[o1], %t[o2], %t[o0]", "v2", "", "v0", "v0"],
        ["vsubps %t[o1], %t[o2], %t[o0]", "v3", "", "v0", "v2"],
    ]


@pytest.mark.parametrize(
    "lines",
    [
        # Another place, a part, an overwritten one, another base, another width.
        ["vmovaps %ymm0, -64(%rsp)", "vmovaps -32(%rsp), %ymm0"],
        ["vmovaps %xmm0, -64(%rsp)"],
        ["vmovaps %ymm0, -64(%rsp)", "andq $-32, %rsp", "vmovaps -64(%rsp), %ymm0"],
        ["vmovaps %ymm0, -64(%rbp)"],
        ["vmovaps %ymm0, -64(%rsp)", "vmovaps -64(%rsp), %xmm0"],
        ["vmovaps %ymm0, -64(%rsp)", "vbroadcastss -64(%rsp), %ymm0"],
    ],
)
def test_what_is_no_value_on_the_stack(lines):
    with pytest.raises(NotStraight):
        taken_apart(*lines)


@pytest.mark.parametrize(
    "line",
    ["vmovd %xmm0, %eax", "jmp .L5", "vaddps (%rsp), %ymm0, %ymm0", "vaddps %ymm7, %ymm0, %ymm0",
     "vfmadd213ps %ymm0, %ymm0, %ymm7", "vzeroupper", "vaddps .Lsix+8(%rip), %ymm0, %ymm0",
     "vmovaps %ymm0, (%rdi)", "vcomisd %xmm0, %xmm0", "movq %rsp, %rax", "vunknown %ymm0, %ymm0"],
)  # fmt: skip
def test_what_is_not_straight(line):
    with pytest.raises(NotStraight):
        taken_apart(line)
