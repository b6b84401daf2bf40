"""FastAct's operators as a compiler sees them: which form each is, of which operands."""

import functools
from collections.abc import Container
from dataclasses import dataclass

import torch

from fastact._aten import DTYPES, arguments

# The operators of one element, by what follows an activation's name: of each the form's number.
_ORDERS = {"": 0, "_backward": 1, "_double_backward": 2}
# Where a derivative is taken from the result (`is_result`), its form comes behind the others.
_FROM_RESULT = 3
_PRELU = {
    "_prelu": 0,
    "_prelu_backward": 1,
    "_prelu_weight_backward": 2,
    "_prelu_weight_double_backward": 3,
}
# The family of the fused form's steps (FusedSteps in ops/forms/fused.h), which are no operators.
STEPS = "fused"
_WITHOUT_PARAMETERS = ("prelu", STEPS)


@dataclass(frozen=True)
class Call:
    """A form of a family, with its parameters. Without `of_elements`, its operands of 16 bits may
    be any float32 numbers, whatever is around the call. Without `is_rounded`, its result of 16 bits
    goes on as a float32 number."""

    family: str
    form: int
    parameters: tuple[float, ...]
    of_elements: bool = True
    is_rounded: bool = True


@dataclass(frozen=True)
class Operator:
    """An operator: its form, or the activation's whose fused operator it is, and how a call's
    arguments are operands and parameters."""

    overload: torch._ops.OpOverload
    family: str
    form: int
    is_fused: bool = False

    def bind(self, args: tuple, kwargs: dict) -> tuple[list, Call] | None:
        """The operands in the form's order, None for one that is absent, and the call; None with a
        parameter that is known only at run time."""
        values = arguments(self.overload, args, kwargs).values()
        operands, parameters, form = [], [], self.form
        for argument, value in zip(self.overload._schema.arguments, values):
            if isinstance(argument.type, (torch.TensorType, torch.OptionalType)):
                operands.append(value)
            elif isinstance(argument.type, torch.BoolType):
                form += _FROM_RESULT if value else 0
            elif isinstance(value, (float, int)):
                parameters.append(float(value))
            else:
                return None
        return operands, Call(self.family, form, tuple(parameters))


def operators(activations: list[str]) -> list[Operator]:
    """Of each of these activations the value, its two first derivatives and the fused operator, and
    PReLU's."""
    named = [
        (name + suffix, name, form, False)
        for name in activations
        for suffix, form in _ORDERS.items()
    ]
    named += [(name, "prelu", form, False) for name, form in _PRELU.items()]
    named += [(f"_fused_{name}", name, 0, True) for name in activations]
    return [
        Operator(getattr(torch.ops.fastact, name).default, family, form, is_fused)
        for name, family, form, is_fused in named
        if hasattr(torch.ops.fastact, name)
    ]


# A value's form for a result that is not rounded (ops/codegen/unrounded.h), in a kernel's name.
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
    """Which of these kernels serves a call, by the names that ops/codegen/given.h explains; None
    where none does. `ordinary` has the bounds of ordinary parameters."""
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
