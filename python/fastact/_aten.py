"""Maps calls of ATen's activations, softmax and their gradients to calls of FastAct's operators.

The override uses this table for Inductor's graphs, and _fusion/ uses it for captured graphs.
registration/aten/call.cpp contains the same table for kernels.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch.fx import Node

from fastact._build import ACTIVATIONS
from fastact._errors import first_line

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)

# The gradients whose two tensors do not broadcast.
_OF_EQUAL_SHAPES = ("log_sigmoid_backward", "softmax_backward", "log_softmax_backward")

# at::selu() is at::elu() with SELU's constants.
_SELU = (1.6732632423543772848170429916717, 1.0507009873554804934193349852946, 1.0)


def operator(name: str) -> torch._ops.OpOverload | None:
    """Returns FastAct's operator, or None if this build does not contain it."""
    packet = getattr(torch.ops.fastact, name, None)
    return packet and packet.default


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def arguments(op: torch._ops.OpOverload, args: tuple, kwargs: dict) -> dict[str, object]:
    """Returns a call's arguments by name, with defaults, in the order of the schema."""
    schema = op._schema.arguments
    given = {a.name: value for a, value in zip(schema, args)} | kwargs
    return {a.name: given.get(a.name, a.default_value) for a in schema}


def by_kind(op: torch._ops.OpOverload, args: tuple, kwargs: dict) -> tuple[list, list, bool, str]:
    """Returns a call's tensors (including absent tensors), its numbers, its bool and its string."""
    tensors, numbers, is_result, text = [], [], False, "none"
    for argument, value in zip(op._schema.arguments, arguments(op, args, kwargs).values()):
        if isinstance(argument.type, (torch.TensorType, torch.OptionalType)):
            tensors.append(value)
        elif isinstance(argument.type, torch.StringType):
            text = value
        elif isinstance(argument.type, torch.BoolType):
            is_result = value
        else:
            numbers.append(value)
    return tensors, numbers, is_result, text


@dataclass(frozen=True)
class Call:
    """A call of FastAct's operator `name`, with its arguments by kind, each kind in order."""

    name: str
    tensors: tuple
    numbers: tuple[float | Node, ...] = ()
    is_result: bool = False
    text: str = "none"
    #: Of a row operator: the dimension of the rows, and the argument dtype.
    dim: int | None = None
    dtype: torch.dtype | None = None
    #: The type to which the result is converted, if any.
    result_dtype: torch.dtype | None = None

    @property
    def overload(self) -> torch._ops.OpOverload | None:
        return operator(self.name)

    def arguments(self) -> dict[str, object]:
        """Returns all arguments by name, in the order of the operator's schema."""
        tensors, numbers, found = iter(self.tensors), iter(self.numbers), {}
        for argument in self.overload._schema.arguments:
            if isinstance(argument.type, torch.TensorType):
                found[argument.name] = next(tensors)
            elif argument.name in ("dim", "dtype"):
                found[argument.name] = getattr(self, argument.name)
            elif isinstance(argument.type, torch.BoolType):
                found[argument.name] = self.is_result
            else:
                found[argument.name] = next(numbers, 0.0)
        return found

    def __call__(self) -> torch.Tensor:
        result = self.overload(*self.arguments().values())
        return result if self.result_dtype is None else result.to(self.result_dtype)

    def why_unfit(self, tensors: Sequence[torch.Tensor]) -> str | None:
        """Returns why FastAct cannot compute the call with these tensors, fake or real, or None."""
        first = tensors[0]
        if any(t.layout != torch.strided or t.is_quantized for t in tensors):
            return "its input is not a plain tensor"
        dtype = self.dtype or first.dtype
        if dtype not in DTYPES:
            return f"its input is {str(dtype).removeprefix('torch.')}"
        if first.device.type not in ("cpu", "cuda"):
            return f"its input is on {first.device.type}"
        if any(t.dtype != first.dtype or t.device != first.device for t in tensors):
            return "its tensors differ in type or device"
        shapes = [t.shape for t in tensors]
        if self.name in _OF_EQUAL_SHAPES and shapes[0] != shapes[1]:
            return "its tensors differ in shape"  # they do not broadcast
        if self.dim is not None:
            rank = max(first.dim(), 1)
            return None if -rank <= self.dim < rank else "it has no such dimension"
        if self.name == "_prelu" and torch.broadcast_shapes(*shapes) != shapes[1]:
            return "its weight is larger than its input"
        if not all(map(is_number, self.numbers)):
            return None  # a number that is known only at run time
        return _why_refused(replace(self, tensors=(None,) * len(self.tensors)))


@functools.cache
def _why_refused(call: Call) -> str | None:
    """Returns the operator's error for a call's parameters, or None if it accepts them."""
    if not all(map(math.isfinite, call.numbers)):
        return "one of its parameters is not finite"
    with torch.utils._python_dispatch._disable_current_modes():
        meta = (torch.empty(1, device="meta"),) * len(call.tensors)
        try:
            replace(call, tensors=meta)()
        except (RuntimeError, ValueError) as error:
            return first_line(error)
    return None


def _of_elu(call: Call) -> Call:
    return replace(call, name="selu", numbers=()) if call.numbers == _SELU else call


def _of_elu_backward(call: Call) -> Call:
    """at::selu() and at::celu() also have this gradient. celu's passes the inverse of a float."""
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


# The operators whose names or arguments are not FastAct's.
_REWRITES: dict[str, Callable[[Call], Call | None]] = {
    "elu": _of_elu,
    "elu_backward": _of_elu_backward,
    "gelu": _of_gelu,
    "gelu_backward": _of_gelu,
    "log_sigmoid_forward": lambda call: replace(call, name="log_sigmoid"),
    "log_sigmoid_backward": lambda call: replace(call, tensors=call.tensors[:2]),
    "_prelu_kernel": lambda call: replace(call, name="_prelu", tensors=call.tensors[::-1]),
}

#: FastAct's row operators.
ROWS = ("softmax", "log_softmax")
# ATen's row operators, by their qualified names and overloads, with FastAct's.
_OF_ROWS = {
    key: ours
    for name in ROWS
    for key, ours in {
        (f"aten::{name}", "int"): name,
        (f"aten::special_{name}", "default"): name,
        (f"aten::_{name}", "default"): name,
        (f"aten::_{name}_backward_data", "default"): f"{name}_backward",
    }.items()
}

#: The names of ATen's operators that FastAct's operators can replace, except row operators.
NAMES = frozenset(
    [*ACTIVATIONS, *(f"{name}_backward" for name in ACTIVATIONS)]
    + ["log_sigmoid_forward", "_prelu_kernel", "prelu"]
)
#: The operators that this torch has as kernels. prelu calls _prelu_kernel.
OPERATORS = [
    getattr(torch.ops.aten, name).default
    for name in sorted(NAMES - {"prelu"})
    if hasattr(torch.ops.aten, name)
] + [
    getattr(torch.ops.aten, name.removeprefix("aten::")).default
    for name, _ in _OF_ROWS
    if name.startswith("aten::_")
]


def _stand_in_of_rows(name: str, given: dict[str, object]) -> Call | None:
    """Returns the call of a FastAct row operator for the arguments of ATen's."""
    tensors = tuple(given[key] for key in ("self", "grad_output", "output") if key in given)
    dtype = torch.float32 if given.get("half_to_float") else given.get("dtype")
    call = Call(name, tensors, dim=given["dim"], dtype=dtype, result_dtype=given.get("input_dtype"))
    return call if call.overload is not None and isinstance(call.dim, int) else None


def stand_in(op: torch._ops.OpOverload, args: tuple, kwargs: dict) -> Call | None:
    """Returns the call of FastAct's operator that replaces a call of ATen's or FastAct's operator,
    in place or not, or None if there is no such operator. Call.why_unfit() says whether it can
    compute the given tensors. Tensors and numbers may be nodes of a graph."""
    if (rows := _OF_ROWS.get((op._schema.name, op._overloadname))) is not None:
        return _stand_in_of_rows(rows, arguments(op, args, kwargs))
    namespace, _, name = op._schema.name.partition("::")
    name = name.removesuffix("_")
    if name not in NAMES or namespace not in ("aten", "fastact") or op._overloadname != "default":
        return None
    tensors, numbers, is_result, text = by_kind(op, args, kwargs)
    if not all(isinstance(x, (bool, int, float, Node)) for x in numbers):
        return None  # complex numbers, and numbers that are known only at run time
    numbers = (x if isinstance(x, Node) else float(x) for x in numbers)
    call = Call(name, tuple(tensors), tuple(numbers), is_result, text)
    if namespace == "aten" and name in _REWRITES:
        call = _REWRITES[name](call)
    return call if call is not None and call.overload is not None else None
