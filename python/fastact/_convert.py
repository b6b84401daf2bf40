"""Puts FastAct's operators into exported programs and TorchScript modules."""

import copy
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import fx
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram

from fastact import _fusion
from fastact._errors import first_line
from fastact._report import Report


def convert(
    program: ExportedProgram | torch.jit.ScriptModule, sample: Sequence[torch.Tensor] = ()
) -> ExportedProgram | torch.jit.ScriptModule:
    """Returns a copy of a program that calls FastAct's operators by name. The program's own graph
    does not change. An exported program and its copy share parameters and buffers.

    In a `torch.export.ExportedProgram`, FastAct's activations replace ATen's. Batch norm at
    inference, bias, residual sums, gates and the clamped SwiGLU are fused with them where that is
    faster. An activation that `run_decompositions()` has decomposed is not recognised.

    In a `torch.jit.ScriptModule` in inference mode, operators around an activation are fused with
    it. The copy is frozen. `sample` contains the arguments of a call. It gives the shapes, without
    which only batch norms are fused, and the copy's result is compared with the module's.

        program = fastact.convert(torch.export.export(model, args))

    Raises TypeError for anything else, and ValueError for a program that cannot be converted.
    """
    if isinstance(program, ExportedProgram):
        if sample:
            raise ValueError(
                "fastact.convert: expected no sample, as an ExportedProgram knows its shapes, but "
                f"got one of {len(sample)}"
            )
        return _exported(program)
    if isinstance(program, torch.jit.ScriptModule):
        return _scripted(program, sample)
    raise TypeError(
        "fastact.convert: expected a torch.export.ExportedProgram or a torch.jit.ScriptModule, but "
        f"got {type(program).__qualname__}"
    )


# ---- torch.export


def _exported(program: ExportedProgram) -> ExportedProgram:
    module = copy.deepcopy(program.graph_module)
    for old, new in zip(program.graph.nodes, module.graph.nodes, strict=True):
        new.name = old.name  # the signature has some that a copy does not keep, such as "input"
    inputs = [n.meta.get("val") for n in module.graph.nodes if n.op == "placeholder"]
    mode = detect_fake_mode(inputs) or FakeTensorMode(allow_non_fake_inputs=True)
    before = _results(module)
    try:
        facts = _fusion.replay(module, inputs, mode)
    except Exception as error:  # of any type, whatever a node raises
        raise ValueError(
            "fastact.convert: expected a program whose operators run on tensors without data, but "
            f"got: {first_line(error)}"
        ) from error
    _fusion.rewrite(facts, Report())
    _add_values(module, mode)
    signature, calls = copy.deepcopy((program.graph_signature, program.module_call_graph))
    names = {node.name for node in module.graph.nodes}
    for old, new in zip(before, _results(module), strict=True):
        if old != new:
            signature.replace_all_uses(old, new)
            _rename_results(calls, old, new)
    for call in calls:
        # The result of this submodule is inside a fused operator.
        arguments = call.signature.outputs if call.fqn and call.signature is not None else ()
        if any(getattr(argument, "name", None) not in names for argument in arguments):
            call.signature = None
    return ExportedProgram(
        root=module,
        graph=module.graph,
        graph_signature=signature,
        state_dict=program.state_dict,
        range_constraints=copy.copy(program.range_constraints),
        module_call_graph=calls,
        example_inputs=program.example_inputs,
        constants=program.constants,
        verifiers=program.verifiers,
    )


def _results(module: fx.GraphModule) -> list[str | None]:
    """Returns the names of the graph's results, with None for a result that is no node."""
    (output,) = module.graph.find_nodes(op="output")
    return [n.name if isinstance(n, fx.Node) else None for n in output.args[0]]


def _rename_results(calls: list, old: str, new: str) -> None:
    for call in calls:
        for argument in call.signature.outputs if call.signature is not None else ():
            if getattr(argument, "name", None) == old:
                argument.name = new


def _add_values(module: fx.GraphModule, mode: FakeTensorMode) -> None:
    """Gives new nodes their fake results, which an ExportedProgram needs."""
    for node in module.graph.nodes:
        if node.op == "call_function" and "val" not in node.meta:
            args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
            with mode:
                node.meta["val"] = node.target(*args, **kwargs)


# ---- TorchScript


def _scripted(module: torch.jit.ScriptModule, sample: Sequence[torch.Tensor]):
    with tempfile.TemporaryDirectory() as folder:
        before, after = (str(Path(folder, name)) for name in ("before.pt", "after.pt"))
        module.save(before)
        try:
            torch.ops.fastact.optimize_archive(before, after, list(sample))
        except RuntimeError as error:
            reason = first_line(error).removeprefix("fastact::optimize: ")
            raise ValueError(f"fastact.convert: {reason}") from error
        return torch.jit.load(after)
