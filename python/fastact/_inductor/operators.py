"""Maps FastAct's operators to forms and operands, for compilers."""

import functools
from collections.abc import Container
from dataclasses import dataclass

import torch

from fastact._aten import DTYPES, by_kind

# The suffixes of an activation's operators, in the order of their forms.
_ORDERS = ("", "_backward", "_double_backward")
# The offset of the forms that compute a derivative from the result (`is_result`).
_FROM_RESULT = 3
_PRELU = ("_prelu", "_prelu_backward", "_prelu_weight_backward", "_prelu_weight_double_backward")
# The family of the fused form's steps (FusedSteps in ops/forms/fused.h), which are not operators.
STEPS = "fused"
_WITHOUT_PARAMETERS = ("prelu", STEPS)


@dataclass(frozen=True)
class Call:
    """A form of a family, with its parameters. If `of_elements` is false, 16-bit operands may be
    any float32 numbers. If `is_rounded` is false, a 16-bit result stays a float32 number."""

    family: str
    form: int
    parameters: tuple[float, ...]
    of_elements: bool = True
    is_rounded: bool = True


@dataclass(frozen=True)
class Operator:
    """An operator and its form. A fused operator has the form of its activation."""

    overload: torch._ops.OpOverload
    family: str
    form: int
    is_fused: bool = False

    def bind(self, args: tuple, kwargs: dict) -> tuple[list, Call] | None:
        """Returns the operands in the form's order (None if absent) and the call. Returns None if a
        parameter is known only at run time."""
        operands, numbers, is_result, _ = by_kind(self.overload, args, kwargs)
        if not all(isinstance(x, (float, int)) for x in numbers):
            return None
        form = self.form + (_FROM_RESULT if is_result else 0)
        return operands, Call(self.family, form, tuple(map(float, numbers)))


def operators(activations: list[str]) -> list[Operator]:
    """Returns the operators for the value, the first two derivatives and the fused form of these
    activations, and the operators of PReLU."""
    named = [
        (name + suffix, name, form, False)
        for name in activations
        for form, suffix in enumerate(_ORDERS)
    ]
    named += [(name, "prelu", form, False) for form, name in enumerate(_PRELU)]
    named += [(f"_fused_{name}", name, 0, True) for name in activations]
    return [
        Operator(getattr(torch.ops.fastact, name).default, family, form, is_fused)
        for name, family, form, is_fused in named
        if hasattr(torch.ops.fastact, name)
    ]


# In a kernel's name, the form of a value that is not rounded (ops/codegen/unrounded.h).
UNROUNDED = "unrounded"

_DTYPES = {dtype: str(dtype).removeprefix("torch.") for dtype in DTYPES}


@functools.cache
def _defaults(family: str) -> tuple[float, ...]:
    if family in _WITHOUT_PARAMETERS:
        return ()
    arguments = getattr(torch.ops.fastact, family).default._schema.arguments[1:]
    return tuple(argument.default_value for argument in arguments)


def chosen(
    call: Call, dtype: torch.dtype, names: Container[str], ordinary: dict[str, list]
) -> str | None:
    """Returns the name of the kernel for a call, or None. ops/codegen/given.h explains the names.
    `ordinary` contains the bounds of ordinary parameters."""
    form = f"{call.form}__{_DTYPES[dtype]}"
    if call.parameters == _defaults(call.family):
        kinds = ["defaults"]
    else:
        bounds = ordinary.get(f"{call.family}__{form}", [])
        within = all(float(a) <= x <= float(b) for x, (a, b) in zip(call.parameters, bounds))
        kinds = ["any", "ordinary"] if within else ["any"]
    forms = [form]
    if call.form == 0 and not call.is_rounded:
        forms.insert(0, f"{UNROUNDED}__{_DTYPES[dtype]}")
    keys = (f"{call.family}__{form}__{kind}" for form in forms for kind in kinds)
    return next((key for key in keys if key in names), None)
