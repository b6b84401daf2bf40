"""All instruction sets, devices, lengths, offsets, strides and thread counts give the same bits."""

import json
from pathlib import Path

import pytest
import torch

import digests
from support import WITHOUT_FMA, form_of_fma, run_python

pytestmark = pytest.mark.kernels


def available_instruction_sets():
    for line in torch.ops.fastact.build_info().splitlines():
        name, _, rest = line.partition(":")
        if name == "cpu instruction sets":
            return rest.split()
    raise AssertionError("build_info names no instruction sets")


def report_of(instruction_set):
    """Returns the digests of a process that uses an instruction set. The process also compares all
    lengths, offsets, strides and thread counts."""
    printed = run_python(
        Path(digests.__file__), environment={"FASTACT_CPU_ISA": instruction_set}, timeout=600
    )
    report = json.loads(printed)
    assert f"cpu instruction set in use: {instruction_set}" in report["build_info"]
    return report["digests"]


@pytest.mark.slow
def test_instruction_sets_agree():
    first, *others = available_instruction_sets()
    expected = report_of(first)
    for other in others:
        assert report_of(other) == expected, other


@pytest.mark.slow
def test_baseline_on_a_processor_without_fma():
    """The C library's fma() then runs in software."""
    if form_of_fma(WITHOUT_FMA) == form_of_fma({}):
        pytest.skip("the C library has one fma() here")
    expected = digests.digests(short=True)
    environment = {**WITHOUT_FMA, "FASTACT_CPU_ISA": "baseline"}
    printed = run_python(Path(digests.__file__), "--short", environment=environment, timeout=600)
    assert json.loads(printed)["digests"] == expected


def test_cuda_agrees_with_the_cpu(cuda):
    assert digests.digests(cuda) == digests.digests()


def test_cuda_lengths_and_offsets(cuda):
    digests.check_everything(cuda, range(0, digests.LENGTHS + 1, 17))


def test_cuda_every_length(cuda):
    """Runs all lengths for the forms of one activation in each element size."""
    lengths = range(digests.LENGTHS + 1)
    for act in digests.ACTIVATIONS:
        for dtype in (torch.bfloat16, torch.float32):
            digests.check_lengths(act, dtype, act.op, 1, cuda, lengths)


@pytest.mark.slow
def test_unknown_instruction_set_is_an_error():
    script = (
        "import os, torch; torch.ops.load_library(os.environ['FASTACT_LIBRARY'])\n"
        "try:\n    torch.ops.fastact.relu(torch.ones(3))\nexcept Exception as e:\n    print(e)"
    )
    printed = run_python("-c", script, environment={"FASTACT_CPU_ISA": "sse9"})
    assert "fastact: expected FASTACT_CPU_ISA to be baseline" in printed
    assert ", but got sse9" in printed
