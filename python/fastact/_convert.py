"""Puts FastAct's operators into exported programs and TorchScript modules."""

import copy
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch.export import ExportedProgram

from fastact import _fusion
from fastact._errors import first_line
from fastact._report import Report


def convert(
    program: ExportedProgram | torch.jit.ScriptModule, sample: Sequence[torch.Tensor] = ()
) -> ExportedProgram | torch.jit.ScriptModule:
    """Returns a copy of a program that calls FastAct's operators by name. The program's own graph
    does not change. An exported program and its copy share parameters and buffers.

    In a `torch.export.ExportedProgram`, FastAct's activations and softmax replace ATen's. Batch
    norm at inference, bias, residual sums, gates and the clamped SwiGLU are fused with activations
    where that is faster. An activation that `run_decompositions()` has decomposed is not
    recognized.

    In a `torch.jit.ScriptModule` in inference mode, operators around an activation are fused with
    it. The copy is frozen. `sample` contains the arguments of a call. Without a sample, shapes are
    unknown and only batch norms are fused. With a sample, the copy's result is compared with the
    module's.

        program = fastact.convert(torch.export.export(model, args))

    Raises TypeError for anything else, and ValueError for a program that cannot be converted.
    """
    if isinstance(program, ExportedProgram):
        if sample:
            raise ValueError(
                "fastact.convert: expected no sample, because an ExportedProgram has shapes, but "
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
        new.name = old.name  # a copy changes some, such as "input", that the signature contains
    new = program._update(module, copy.deepcopy(program.graph_signature))
    try:
        facts = _fusion.replay(new.graph_module, keeps_output=True)
    except Exception as error:  # any error of a node
        raise ValueError(
            "fastact.convert: expected a program whose operators run on tensors without data, but "
            f"got: {first_line(error)}"
        ) from error
    _fusion.rewrite(facts, Report())
    names = {node.name for node in new.graph.nodes}
    for call in (call for call in new.module_call_graph if call.fqn and call.signature is not None):
        # A value that this submodule takes or returns is inside a fused operator.
        values = (*call.signature.inputs, *call.signature.outputs)
        if any(getattr(value, "name", None) not in names for value in values):
            call.signature = None
    new.validate()
    return new


# ---- TorchScript


def _scripted(module: torch.jit.ScriptModule, sample: Sequence[torch.Tensor]):
    with tempfile.TemporaryDirectory() as folder:
        before, after = (str(Path(folder, name)) for name in ("before.pt", "after.pt"))
        module.save(before)
        devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
        try:
            with torch.random.fork_rng(devices):
                torch.ops.fastact.optimize_archive(before, after, list(sample))
        except RuntimeError as error:
            reason = first_line(error).removeprefix("fastact::optimize: ")
            if "TorchScript interpreter" in reason:  # the last line has the operation's own error
                reason = str(error).strip().splitlines()[-1]
            raise ValueError(f"fastact.convert: {reason}") from error
        return torch.jit.load(after)
