"""fastact.functional: torch.nn.functional's signatures, and the operators' bits."""

import inspect
import re
import typing

import pytest
import torch

from op_table import ACTIVATIONS, OPERATORS, contract
from support import DTYPES, assert_same_bits, error_of, first_line, values

import fastact  # isort: skip

EVERY_ACTIVATION = True
functional = fastact.functional
pytorch = torch.nn.functional

by_operator = pytest.mark.parametrize("act", OPERATORS, ids=lambda act: act.name)


def function_name(act):
    """Returns the name in torch.nn.functional: logsigmoid for log_sigmoid."""
    joined = act.name.replace("_", "")
    return joined if hasattr(pytorch, joined) else act.name


def function_of(act):
    return getattr(functional, function_name(act))


def takes_inplace(function):
    return "inplace" in inspect.signature(function).parameters


def numbers_of(act, function):
    """Returns a row's parameters as the function's arguments, or None if it lacks one of them."""
    taken = inspect.signature(function).parameters
    schema = {a.name: a.default_value for a in act.packet().default._schema.arguments}
    rest = {k: v for k, v in act.parameters.items() if k not in taken}
    if any(v != schema[k] for k, v in rest.items()):
        return None
    return {k: v for k, v in act.parameters.items() if k in taken}


def signature_in(docstring):
    """Returns the parameters and defaults in the first line of a built-in function's docstring."""
    inside = re.search(r"\((.*?)\)", docstring).group(1)
    pairs = (part.partition("=")[::2] for part in inside.split(","))
    return [(name.strip(), eval(value) if value else None) for name, value in pairs]


def parameters_of(function):
    try:
        found = inspect.signature(function).parameters.values()
    except ValueError:
        return signature_in(function.__doc__)
    return [(p.name, None if p.default is p.empty else p.default) for p in found]


def test_gives_the_bits_of_the_operator(act, dtype):
    function = function_of(act)
    numbers = numbers_of(act, function)
    if numbers is None:
        pytest.skip("torch.nn.functional has no such parameter")
    x = values(257, dtype=dtype)
    expected = act.op(x)
    assert_same_bits(function(x, **numbers), expected)
    assert_same_bits(function(x, *numbers.values()), expected)
    if takes_inplace(function):
        for in_place in (function, getattr(functional, function_name(act) + "_")):
            options = {"inplace": True} if in_place is function else {}
            y = x.clone()
            assert in_place(y, **numbers, **options) is y
            assert_same_bits(y, expected)


@by_operator
def test_has_pytorchs_parameters_and_defaults(act):
    theirs = getattr(pytorch, function_name(act), None)
    if theirs is None:
        pytest.skip("PyTorch has no function of this name")
    assert parameters_of(function_of(act)) == parameters_of(theirs)


def test_prelu_has_pytorchs_parameters():
    assert parameters_of(functional.prelu) == parameters_of(pytorch.prelu)


@by_operator
def test_is_scripted(act):
    function = function_of(act)
    numbers = numbers_of(act, function) or {}
    x = values(65)
    scripted = torch.jit.script(function)
    assert_same_bits(scripted(x, **numbers), function(x, **numbers))
    if takes_inplace(function):
        y = x.clone()
        scripted(y, **numbers, inplace=True)
        assert_same_bits(y, function(x, **numbers))


def test_gelu_is_scripted_in_both_forms():
    @torch.jit.script
    def both(x):
        return fastact.functional.gelu(x), fastact.functional.gelu(x, approximate="tanh")

    x = values(65)
    for found, operator in zip(both(x), (torch.ops.fastact.gelu, torch.ops.fastact.gelu_tanh)):
        assert_same_bits(found, operator(x))


def test_compiled_without_a_graph_break(act, fresh_compiler):
    function = function_of(act)
    numbers = numbers_of(act, function) or {}
    x = values(33).requires_grad_()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    expected = function(x, **numbers)
    found = compiled(x, **numbers)
    assert_same_bits(found, expected)
    assert_same_bits(*(torch.autograd.grad(y.sum(), x)[0] for y in (found, expected)))


def test_prelu_gives_the_bits_of_the_operator(dtype):
    x, weight = values(4, 3, 5, dtype=dtype), values(3, dtype=dtype)
    expected = torch.ops.fastact.prelu(x, weight)
    assert_same_bits(functional.prelu(x, weight), expected)
    assert_same_bits(torch.jit.script(functional.prelu)(x, weight), expected)


def test_gelu_takes_the_forms_that_pytorch_takes():
    x = values(65)
    assert_same_bits(functional.gelu(x, approximate="tanh"), torch.ops.fastact.gelu_tanh(x))
    error = error_of(functional.gelu, x, approximate="erf")
    assert type(error) is type(error_of(pytorch.gelu, x, approximate="erf"))
    assert first_line(error) == (
        "fastact::gelu: expected approximate to be 'none' or 'tanh', but got 'erf'"
    )


@by_operator
def test_errors_are_the_operators(act):
    function = function_of(act)
    numbers = numbers_of(act, function) or {}
    error = error_of(function, torch.ones(3, dtype=torch.int32), **numbers)
    assert isinstance(error, NotImplementedError)
    assert first_line(error).startswith(f"fastact::{act.name}: expected self to be float32")
    rows = [row for row in ACTIVATIONS if row.name == act.name]
    for parameters, kind, message in {id(f): f for row in rows for f in row.forbidden}.values():
        error = error_of(function, torch.ones(3), **parameters)
        assert isinstance(error, kind) and message in str(error)


def test_subclasses_of_tensor_see_the_call():
    calls = []

    class Watched(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            calls.append(function)
            return super().__torch_function__(function, types, args, kwargs or {})

    y = functional.selu(torch.ones(3).as_subclass(Watched))
    assert isinstance(y, Watched) and calls


@by_operator
def test_docstring_says_what_the_header_promises(act):
    text = " ".join(function_of(act).__doc__.split())
    for order, lead in enumerate(("", "Of the derivative: ")):
        bounds = {str(d).removeprefix("torch."): contract(act.name)[d][order] for d in DTYPES}
        names = ("bfloat16", "float16", "float32", "float64")
        assert lead + ", ".join(f"{name} {bounds[name]:g}" for name in names) + "." in text
    for label in ("Shape: any", "Types: float32", "Special values:", "Raises: NotImplementedError"):
        assert label in text


def test_everything_is_annotated_and_documented():
    for name in functional.__all__:
        function = getattr(functional, name)
        hints = typing.get_type_hints(function)
        assert set(hints) == {*inspect.signature(function).parameters, "return"}, name
        assert function.__doc__, name
