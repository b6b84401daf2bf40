"""Maps calls of ATen's activations and gradients to calls of FastAct's operators.

registration/aten/call.cpp has the same table for kernels. This one serves graphs that are traced.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_DEVICES = ("cpu", "cuda")

# at::selu() is at::elu() with SELU's constants.
_SELU = (1.6732632423543772848170429916717, 1.0507009873554804934193349852946, 1.0)


@dataclass(frozen=True)
class Call:
    """A call of FastAct's operator `name`, with its arguments by kind, each kind in order."""

    name: str
    tensors: tuple
    numbers: tuple[float, ...] = ()
    is_result: bool = False
    text: str = "none"

    @property
    def overload(self) -> torch._ops.OpOverload:
        return getattr(torch.ops.fastact, self.name).default

    def arguments(self) -> tuple:
        """All arguments in the order of the operator's schema."""
        tensors, numbers = iter(self.tensors), iter(self.numbers)
        return tuple(
            next(tensors)
            if isinstance(argument.type, torch.TensorType)
            else self.is_result
            if isinstance(argument.type, torch.BoolType)
            else next(numbers, 0.0)
            for argument in self.overload._schema.arguments
        )

    def __call__(self) -> torch.Tensor:
        return self.overload(*self.arguments())


def _of_elu(call: Call) -> Call:
    return replace(call, name="selu", numbers=()) if call.numbers == _SELU else call


def _of_elu_backward(call: Call) -> Call:
    """Also the gradient of at::selu() and at::celu(). The latter's passes an inverse of a float."""
    if call.numbers == _SELU:
        return replace(call, name="selu_backward", numbers=())
    alpha, scale, input_scale = call.numbers
    if scale == 1.0 != alpha and alpha and input_scale == 1.0 / torch.tensor(alpha).item():
        return replace(call, name="celu_backward", numbers=(alpha,))
    return call


def _of_gelu(call: Call) -> Call | None:
    if call.text == "tanh":
        return replace(call, name=call.name.replace("gelu", "gelu_tanh"))
    return call if call.text == "none" else None


def _without_buffer(call: Call) -> Call:
    return replace(call, tensors=call.tensors[:2])


def _of_prelu(call: Call) -> Call:
    x, weight = call.tensors
    return replace(call, name="_prelu", tensors=(weight, x))


# The operators whose names or arguments are not FastAct's.
_REWRITES: dict[str, Callable[[Call], Call | None]] = {
    "elu": _of_elu,
    "elu_backward": _of_elu_backward,
    "gelu": _of_gelu,
    "gelu_backward": _of_gelu,
    "log_sigmoid_forward": lambda call: replace(call, name="log_sigmoid"),
    "log_sigmoid_backward": _without_buffer,
    "_prelu_kernel": _of_prelu,
}

# ATen's kernels, as FASTACT_ATEN_OPERATORS in registration/aten/kernels.h lists them.
_VALUES = ("relu", "elu", "celu", "leaky_relu", "hardtanh", "threshold", "hardswish", "hardsigmoid",
           "sigmoid", "tanh", "silu", "gelu", "mish", "softplus", "softshrink",
           "hardshrink")  # fmt: skip
# ATen's gradient of celu is elu_backward; relu's is threshold_backward.
_GRADIENTS = (*(f"{name}_backward" for name in _VALUES if name not in ("relu", "celu")),
              "log_sigmoid_backward")  # fmt: skip
#: ATen's operators that have a stand-in, and their names.
OPERATORS = {
    getattr(torch.ops.aten, name).default: name
    for name in (*_VALUES, *_GRADIENTS, "_prelu_kernel", "log_sigmoid_forward")
}


@functools.cache
def _takes(name: str, numbers: tuple[float, ...], is_result: bool) -> bool:
    """Whether FastAct defines the operator for these parameters, by the operator's own checks.
    Parameters that are not finite are ATen's."""
    if not all(map(math.isfinite, numbers)):
        return False
    arguments = Call(name, ()).overload._schema.arguments
    count = sum(isinstance(argument.type, torch.TensorType) for argument in arguments)
    with torch.utils._python_dispatch._disable_current_modes():
        try:
            Call(name, (torch.empty(1, device="meta"),) * count, numbers, is_result)()
        except (RuntimeError, ValueError):
            return False
    return True


def _are_taken(call: Call, tensors: list[torch.Tensor]) -> bool:
    """Whether FastAct has kernels for such tensors."""
    first = tensors[0]
    if call.name == "log_sigmoid_backward" and tensors[0].shape != tensors[1].shape:
        return False  # the two do not broadcast
    if call.name == "_prelu" and torch.broadcast_shapes(*(t.shape for t in tensors)) != (
        tensors[1].shape
    ):
        return False
    return (
        first.dtype in _DTYPES
        and first.device.type in _DEVICES
        and all(t.layout == torch.strided for t in tensors)
        and all(t.dtype == first.dtype and t.device == first.device for t in tensors)
    )


def stand_in(
    overload: torch._ops.OpOverload, args: tuple, kwargs: dict, value: Callable = lambda x: x
) -> Call | None:
    """The call of FastAct's operator that computes what a call of ATen's does; None where ATen's
    serves, as under an override. `value` gives an argument's tensor, which may be a fake one."""
    name = OPERATORS.get(overload)
    if name is None:
        return None
    tensors, numbers, is_result, text = [], [], False, "none"
    for i, argument in enumerate(overload._schema.arguments):
        given = args[i] if i < len(args) else kwargs.get(argument.name, argument.default_value)
        if isinstance(argument.type, torch.TensorType):
            tensors.append(given)
        elif isinstance(argument.type, torch.StringType):
            text = given
        elif isinstance(argument.type, torch.BoolType):
            is_result = given
        elif isinstance(given, (bool, int, float)):
            numbers.append(float(given))
        else:  # a complex number, or one that is known only at run time
            return None
    call = Call(name, tuple(tensors), tuple(numbers), is_result, text)
    rewrite = _REWRITES.get(name)
    call = rewrite(call) if rewrite else call
    if call is None or not hasattr(torch.ops.fastact, call.name):
        return None
    if not _takes(call.name, call.numbers, call.is_result):
        return None
    return call if _are_taken(call, [value(t) for t in call.tensors]) else None
