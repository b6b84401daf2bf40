"""DTensor: every operator on meshes of processes (distributed_cases.py), and the registration."""

import importlib
import json
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch._library.utils import is_tensor_like_type

from conftest import missing_gpu
from op_table import ACTIVATIONS
from support import REPOSITORY, assert_same_bits, error_of, package_path, run_python

import fastact  # isort: skip
from fastact import _distributed  # isort: skip
from fastact._digests.rows import ROWS  # isort: skip

if not torch.distributed.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)

from fastact._distributed import operators  # noqa: E402

CASES = REPOSITORY / "python_tests" / "distributed_cases.py"


@pytest.fixture(params=("gloo", "nccl"))
def group(request):
    """Returns a backend, and the number of processes for which there are devices. Four processes
    form more meshes than two; with the second torch, two are enough."""
    if request.param == "gloo":
        return "gloo", 4 if request.config.getoption("--strength") == 2 else 2
    if reason := missing_gpu():
        pytest.skip(reason)
    if torch.cuda.device_count() < 2:
        pytest.skip("expected 2 GPUs for NCCL, but found 1")
    return "nccl", 2


# One test, because its processes take seconds to start. Its message lists the failures.
@pytest.mark.slow
def test_every_operator_on_every_mesh(group, tmp_path):
    backend, world = group
    run_python(
        CASES, backend, world, tmp_path, environment={"OMP_WAIT_POLICY": "passive"}, timeout=600
    )
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(world)]
    failures = [failure for rank in found for failure in rank["failures"]]
    assert not failures, f"{len(failures)} failed, such as\n" + "\n".join(failures[:5])
    assert {rank["status"] for rank in found} == {
        f"sharding rules for {found[0]['rules']} operators"
    }
    assert min(rank["passed"] for rank in found) == max(rank["passed"] for rank in found) > 400
    table = json.loads((tmp_path / "table.json").read_text())
    for operator, row in table.items():
        for placement, (ours, theirs) in row.items():
            assert ours <= theirs, (operator, placement)


def test_devices_in_threads():
    """Two threads use two GPUs at the same time. Both get the bits of the CPU."""
    if reason := missing_gpu():
        pytest.skip(reason)
    if torch.cuda.device_count() < 2:
        pytest.skip("expected 2 GPUs, but found 1")
    ops = torch.ops.fastact
    x = torch.randn(100003)
    expected = [f(x) for f in (ops.gelu, ops.mish, lambda x: ops.silu_backward(x, x))]

    def calls(device):
        there = x.to(device)
        for _ in range(50):
            results = (ops.gelu(there), ops.mish(there), ops.silu_backward(there, there))
            for result, exact in zip(results, expected):
                assert result.device == torch.device(device)
                assert_same_bits(result, exact)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(calls, ("cuda:0", "cuda:1") * 2))


def test_every_operator_has_a_rule():
    """Checks every operator that computes a tensor and does not call another operator."""
    defined = {schema.name for schema in torch._C._jit_get_all_schemas()}
    covered = {op._schema.name for op in operators.overloads()}
    without = {name for name in defined if name.startswith("fastact::")} - covered
    composed = {
        f"fastact::{name}"
        for act in ACTIVATIONS
        for name in (
            f"fused_{act.name}",
            f"fused_{act.name}_",
            f"_fused_{act.name}_backward",
            f"_fused_{act.name}_with_preactivation",
            f"{act.name}_and_mul",
        )
    }
    composed |= {"fastact::clamped_swiglu", "fastact::_clamped_swiglu_backward", "fastact::glu"}
    # The random bits of an element depend on its index in the tensor of one process.
    random = {
        f"fastact::{name}"
        for name in (
            "selu_alpha_dropout",
            "_selu_alpha_dropout",
            "_selu_alpha_dropout_backward",
            "_alpha_dropout_mask",
            "rrelu",
            "rrelu_",
            "_rrelu",
            "_rrelu_backward",
        )
    }
    tools = {"fastact::build_info", "fastact::not_faster_on_cpu", "fastact::optimize_archive"}
    rows = (*ROWS, "group_norm", "instance_norm", "add_rms_norm", "add_layer_norm")
    composed |= {"fastact::prelu", *(f"fastact::{name}" for name in rows)}
    assert without == tools | composed | random


def test_elementwise_is_what_the_tag_says():
    """A result without the shape to which the inputs broadcast would be sharded wrongly."""
    for op in operators.overloads():
        if torch.Tag.pointwise not in op.tags:
            continue
        given = {
            argument.name: torch.empty(2, 6, 4, device="meta")
            if is_tensor_like_type(argument.type)
            else 1.0
            for argument in op._schema.arguments
            if is_tensor_like_type(argument.type) or not argument.has_default_value()
        }
        assert len(op._schema.returns) == 1 and op(**given).shape == (2, 6, 4), op


CALLS = {
    # inputs, results, dim; dimensions that can be sharded
    "elementwise": ([("a", (2, 3)), ("b", (2, 3))], [("", (2, 3))], None, [-2, -1]),
    "broadcast": ([("a", (2, 1)), ("b", (3,))], [("", (2, 3))], None, [-2, -1]),
    "packed": ([("self", (2, 6))], [("", (2, 3))], None, [-2]),
    "summed": ([("a", (2, 3))], [("", (3,))], None, [-2, -1]),
    "along a dimension": (
        [("self", (2, 3, 4)), ("bias", (3,))],
        [("", (2, 3, 4))],
        1,
        [-3, -2, -1],
    ),
    "along the last": ([("self", (2, 3, 4)), ("bias", (3,))], [("", (2, 3, 4))], -1, [-3, -2]),
    "no element": ([("a", (0, 1)), ("b", (4,))], [("", (0, 4))], None, [-2, -1]),
}


@pytest.mark.parametrize("dim", (1, -2))
def test_the_dimension_of_rows_is_not_cut(dim):
    shape = (2, 3, 4)
    for inputs in ([("self", shape)], [("grad_output", shape), ("output", shape)]):
        assert operators.Call(inputs, [("", shape)], dim, has_rows=True).dims() == [-3, -1]
    rows = {
        op._schema.name
        for op in operators.overloads()
        if any(argument.name == "dim" for argument in op._schema.arguments)
    }
    assert rows == operators.ROW_OPERATORS


@pytest.mark.parametrize("name", CALLS)
def test_dimensions_that_can_be_cut(name):
    inputs, results, dim, expected = CALLS[name]
    call = operators.Call(inputs, results, dim)
    assert call.dims() == expected
    for tensor, (_, shape) in zip((*call.inputs, *call.results), (*inputs, *results)):
        for cut in expected:
            own = call.cut(tensor, cut)
            assert own is None or shape[own] == call.size(cut)


# ---- registration


def in_a_new_process(script):
    return run_python("-c", script, environment={"PYTHONPATH": str(package_path().parent)}).strip()


@pytest.mark.slow
def test_import_leaves_dtensor_alone():
    """`import fastact` does not import DTensor, which may not be used."""
    script = "import sys, fastact; print('torch.distributed.tensor' in sys.modules)"
    assert in_a_new_process(script) == "False"


@pytest.mark.slow
@pytest.mark.parametrize(
    "before",
    (
        "import torch.distributed.tensor, fastact",
        # A caller may only check whether the module exists.
        "import fastact, importlib.util; importlib.util.find_spec('torch.distributed.tensor');"
        "import torch.distributed.tensor",
    ),
)
def test_rules_are_there_whichever_is_imported_first(before):
    script = f"{before}; print(fastact._distributed.status)"
    assert in_a_new_process(script).startswith("sharding rules for ")


def test_info_says_what_was_registered(capsys):
    fastact.show_config()
    assert f"DTensor: {_distributed.status}" in capsys.readouterr().out.splitlines()
    assert _distributed.status.startswith("sharding rules for ")


@pytest.fixture
def registered_anew(monkeypatch):
    """Registers the rules again after a test that changes them."""
    importlib.import_module("torch.distributed.tensor")  # the first import registers the rules
    monkeypatch.setattr(_distributed, "status", None)

    def forget():
        sys.modules.pop("fastact._distributed.sharding", None)
        vars(_distributed).pop("sharding", None)

    forget()
    yield
    monkeypatch.undo()
    forget()
    _distributed.register()


def test_another_torch(monkeypatch, registered_anew):
    """If DTensor's private interface has changed, a line says so, and the operators still work on
    plain tensors."""
    schema = importlib.import_module("torch.distributed.tensor._op_schema")
    monkeypatch.delattr(schema, "OpSpec")
    _distributed.register()
    assert _distributed.status.startswith(
        "sharding rules for no operators, because this torch's DTensor did not accept all: "
        "ImportError: cannot import name 'OpSpec'"
    )
    assert error_of(torch.ops.fastact.selu, torch.ones(3)) is None
