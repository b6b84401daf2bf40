"""torch.library.opcheck of the operators that test_combinations.py calls, directly or not."""

import warnings

import torch
from torch.overrides import TorchFunctionMode

from combinations import Call, drawn
from op_table import ACTIVATIONS
from operator_rows import OPTIONAL, fused_parameters
from support import first_line

# Suffixes of the operators below fused_<activation>: _fused_<activation><suffix>.
BELOW_FUSED = ("", "_backward", "_with_preactivation")
FORMS = ("functional", "in_place", "out")


class Recorder(TorchFunctionMode):
    """Records calls of FastAct's operators."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if str(function).startswith("fastact."):
            self.calls.append((function, args, kwargs or {}))
        return function(*args, **(kwargs or {}))


def run_opcheck(operator, args, kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            torch.library.opcheck(operator, args, kwargs)
        except Exception as error:
            lines = [line for line in str(error).splitlines() if line.strip()]
            shown = "".join(lines[-1:])
            raise AssertionError(
                f"{operator}: {type(error).__name__}: {first_line(error)} ... {shown}"
            ) from error


def check_form(form, c):
    """Runs opcheck on the operator that a row calls."""
    call = Call(c)
    with torch.no_grad(), Recorder() as recorder:
        if form == "functional":
            call.operator(**call.tensors)
        elif form == "in_place":
            c.row.call_({n: t.clone() for n, t in call.tensors.items()}, c.dim)
        else:
            like = call.operator(**call.tensors)
            recorder.calls.clear()
            c.row.call(call.tensors, c.dim, out=torch.empty_like(like))
    ((operator, args, kwargs),) = recorder.calls
    if isinstance(operator, torch._ops.OpOverloadPacket):
        written = next((o for o in operator.overloads() if o in kwargs), "default")
        operator = getattr(operator, written)
    if form != "functional":
        args = tuple(t.detach() if isinstance(t, torch.Tensor) else t for t in args)
        kwargs = {n: t.detach() if isinstance(t, torch.Tensor) else t for n, t in kwargs.items()}
    run_opcheck(operator, args, kwargs)


def check_below_fused(suffix, c):
    """Runs opcheck on an operator below fused_<activation>, with this call's operands."""
    call = Call(c)
    (act,) = (a for a in ACTIVATIONS if "fused_" + a.id == c.operator)
    numbers = list(fused_parameters(act).values())
    rank = call.tensors["self"].dim()
    operands = [
        c.row.align(n, call.tensors[n], rank, c.dim) if n in call.tensors else None
        for n in ("self", *OPTIONAL)
    ]
    operator = getattr(torch.ops.fastact, f"_fused_{act.name}{suffix}").default
    keywords = {}
    if not suffix:
        arguments = (*operands, *numbers)
    elif suffix == "_with_preactivation":
        arguments = (*(t if t is None else t.detach() for t in operands), *numbers)
    else:
        with torch.no_grad():
            result = call.operator(**call.tensors)
        g = drawn([], tuple(result.shape), "factor", result.dtype, c.seed)
        operands = [t if t is None else t.detach() for t in operands]
        mask = [n in call.needs for n in ("self", *OPTIONAL)]
        arguments, keywords = (g, *operands, *numbers), {"output_mask": mask}
    run_opcheck(operator, arguments, keywords)
