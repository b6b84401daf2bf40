"""Shapes, strides, aliasing, versions and errors of the value operators: the same as PyTorch's."""

import itertools
import re

import pytest
import torch

from support import (
    DTYPES,
    LAYOUTS,
    assert_same_bits,
    error_of,
    first_line,
    make,
    untouched,
    values,
    whole_storage,
)

UNSUPPORTED = (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.complex64, torch.complex128, torch.float8_e4m3fn,
)  # fmt: skip
# PyTorch writes here without an error, in an order that it does not define.
SELF_OVERLAPPING = ("overlapping_windows",)
layouts = pytest.mark.parametrize("layout", LAYOUTS)


def assert_our_error(error, act, kind=RuntimeError):
    """Our errors name the operator, what it expected and what it got."""
    assert isinstance(error, kind), repr(error)
    pattern = rf"fastact::{act.name}\w*: expected .+, but got .+"
    assert re.match(pattern, first_line(error)), first_line(error)


@layouts
def test_functional_result_lies_as_in_pytorch(act, device, dtype, layout):
    x = make(layout, dtype, device)
    with untouched(x):
        y, expected = act.op(x), act.aten(x)
    assert (y.shape, y.stride(), y.dtype) == (expected.shape, expected.stride(), dtype)
    assert y.untyped_storage().nbytes() == expected.untyped_storage().nbytes()
    assert y.storage_offset() == 0 and not y._is_view()
    torch.testing.assert_close(y, expected)
    assert_same_bits(y, act.op(x.clone(memory_format=torch.contiguous_format)))


@layouts
def test_in_place_follows_pytorch(act, device, layout):
    x, theirs = make(layout, device=device), make(layout, device=device)
    expected_error = error_of(act.aten_, theirs)
    if expected_error is not None:
        with untouched(x), pytest.raises(RuntimeError) as raised:
            act.op_(x)
        assert first_line(raised.value) == first_line(expected_error)
        return
    expected, memory = act.op(x), whole_storage(x)
    version, stride = x._version, x.stride()
    assert act.op_(x) is x
    assert x._version == version + 1 and x.stride() == stride
    if layout in SELF_OVERLAPPING:
        return
    assert_same_bits(x, expected)
    # Nothing of the storage outside the tensor has changed.
    x.copy_(make(layout, device=device))
    assert torch.equal(whole_storage(x), memory)


@layouts
def test_out_follows_pytorch(act, device, layout):
    out, theirs = make(layout, device=device), make(layout, device=device)
    x = values(*out.shape, device=device)
    expected_error = error_of(act.aten_out, x, theirs)
    if expected_error is not None:
        with untouched(x, out), pytest.raises(RuntimeError) as raised:
            act.out(x, out)
        assert first_line(raised.value) == first_line(expected_error)
        return
    memory, version, stride = whole_storage(out), out._version, out.stride()
    assert act.out(x, out) is out
    assert out._version == version + 1 and out.stride() == stride
    if layout in SELF_OVERLAPPING:
        return
    assert_same_bits(out, act.op(x))
    out.copy_(make(layout, device=device))
    assert torch.equal(whole_storage(out), memory)


@layouts
def test_out_reads_any_layout(act, device, dtype, layout):
    x = make(layout, dtype, device)
    out = torch.full(x.shape, 7.0, dtype=dtype, device=device)
    assert_same_bits(act.out(x, out), act.op(x))


@layouts
def test_empty_out_takes_the_layout_that_pytorch_gives(act, device, layout):
    x = make(layout, device=device)
    out, theirs = torch.empty(0, device=device), torch.empty(0, device=device)
    act.aten_out(x, theirs)
    assert act.out(x, out) is out
    assert (out.shape, out.stride()) == (theirs.shape, theirs.stride())
    assert_same_bits(out, act.op(x))


@layouts
def test_empty_out_of_another_dtype_takes_the_same_layout(act, device, layout):
    x = make(layout, device=device)
    out, theirs = (torch.empty(0, dtype=torch.float64, device=device) for _ in range(2))
    torch.sigmoid(x, out=theirs)
    act.out(x, out)
    assert (out.shape, out.stride()) == (theirs.shape, theirs.stride())
    assert_same_bits(out, act.op(x).double())


def test_out_of_another_shape_is_resized_with_a_warning(act, device, capfd, recwarn):
    x, out = values(3, 4, device=device), values(5, device=device)
    assert act.out(x, out) is out
    assert out.shape == x.shape
    assert_same_bits(out, act.op(x))
    # Some versions print the warnings of operators called by torch.ops, others hand them to Python.
    heard = capfd.readouterr().err + "".join(str(w.message) for w in recwarn)
    assert "An output with one or more elements was resized" in heard


def test_out_of_the_right_shape_warns_of_nothing(act, device, capfd, recwarn):
    x = values(3, 4, device=device)
    act.out(x, torch.empty(0, device=device))
    act.out(x, torch.empty_like(x))
    assert capfd.readouterr().err == "" and not recwarn.list


@pytest.mark.parametrize("pair", list(itertools.permutations(DTYPES, 2)), ids=str)
def test_out_of_another_floating_dtype(act, device, pair):
    """The result is cast, as by PyTorch's operators of floating-point functions."""
    x = values(50, dtype=pair[0], device=device)
    out = torch.empty(50, dtype=pair[1], device=device)
    assert error_of(torch.sigmoid, x, out=out.clone()) is None
    with untouched(x):
        assert act.out(x, out) is out
    assert_same_bits(out, act.op(x).to(pair[1]))


@pytest.mark.parametrize("wrong", (torch.bool, torch.int32, torch.int64), ids=str)
def test_out_of_an_integer_dtype_is_an_error(act, device, wrong):
    x = values(4, device=device)
    for shape in ((4,), (0,)):
        out = torch.zeros(shape, dtype=wrong, device=device)
        assert error_of(torch.sigmoid, x, out=out.clone()) is not None
        with untouched(x, out):
            assert_our_error(error_of(act.out, x, out), act)


def test_out_on_another_device_is_an_error(act, device):
    x = values(4, device=device)
    out = torch.empty(4, device="meta")
    assert error_of(act.aten_out, x, out) is not None
    with untouched(x):
        assert_our_error(error_of(act.out, x, out), act)


@pytest.mark.parametrize("wrong", UNSUPPORTED, ids=lambda d: str(d).removeprefix("torch."))
def test_unsupported_dtype_is_an_error(act, device, wrong):
    x = torch.ones(4, device=device).to(wrong)
    out = torch.ones(4, device=device).to(wrong)
    calls = ((act.op, x), (act.op_, x), (act.out, x, out), (act.ladder, x, x))
    calls += ((act.ladder, x, x, x), (act.ladder, x, x, x, x), (act.grad_input, x, x, out))
    for call, *arguments in calls:
        before = [t.clone() for t in arguments]
        error = error_of(call, *arguments)
        assert_our_error(error, act, NotImplementedError)
        assert "float32, float64, bfloat16 or float16, but got " in str(error)
        assert all(torch.equal(t, b) for t, b in zip(arguments, before) if wrong.itemsize > 1)
        assert [t._version for t in arguments] == [0] * len(arguments)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "convert",
    (
        lambda x: x.to_sparse(),
        lambda x: x.to_sparse_csr(),
        lambda x: x.to_mkldnn(),
        lambda x: torch.quantize_per_tensor(x, 1.0, 0, torch.quint8),
        lambda x: torch.nested.nested_tensor([x, x]),
    ),
    ids=("sparse", "sparse_csr", "mkldnn", "quantized", "nested"),
)
def test_unsupported_layout_is_an_error(act, convert):
    x = convert(torch.ones(2, 2))
    for call in (act.op, act.op_):
        error = error_of(call, x)
        assert isinstance(error, RuntimeError) and f"fastact::{act.name}" in str(error), error


def test_out_may_be_the_input(act, device, dtype):
    x = values(3, 50, dtype=dtype, device=device)
    expected = act.op(x)
    assert act.out(x, x) is x and x._version == 1
    assert_same_bits(x, expected)


def test_out_may_share_all_memory_with_the_input(act, device):
    x = values(6, 10, device=device)
    expected = act.op(x)
    act.out(x, x.view(6, 10))
    assert_same_bits(x, expected)


@pytest.mark.parametrize(
    "views",
    (
        lambda base: (base[:60], base[1:61]),
        lambda base: (base[1:61], base[:60]),
        lambda base: (base.view(10, 10), base.view(10, 10).t()),
        lambda base: (base[:99:3], base[1:34]),
        lambda base: (base[:20], base[:40].view(2, 20)[:, ::2].reshape(-1).as_strided((20,), (2,))),
    ),
    ids=("shifted_up", "shifted_down", "transposed", "strided_and_dense", "dense_and_strided"),
)
def test_partial_overlap_is_an_error(act, device, views):
    """Raises PyTorch's error, even if PyTorch does not detect the overlap because of gaps."""
    base = values(100, device=device)
    x, out = views(base)
    expected = error_of(torch.neg, base[:50], out=base[1:51])
    with untouched(base), pytest.raises(RuntimeError) as raised:
        act.out(x, out)
    assert first_line(raised.value) == first_line(expected)


@pytest.mark.parametrize(
    "views",
    (
        lambda base: (base[::2], base[1::2]),
        lambda base: (base.view(10, 10)[:, :5], base.view(10, 10)[:, 5:]),
        lambda base: (base.view(10, 10)[:, :5], base.view(10, 10)[:, :5]),
        lambda base: (base.view(10, 10)[:, :5].t(), base.view(10, 10)[:, :5].t()),
        lambda base: (base.view(10, 10)[:, 0], base.view(10, 10)[:, 3]),
        lambda base: (base[:30:3], base[31:61:3]),
        lambda base: (base.view(5, 20)[:, 2:10:2], base.view(10, 10)[::2, 1:9:2]),
    ),
    ids=("odd_and_even", "halves", "same", "same_transposed", "columns", "apart", "interleaved"),
)
def test_out_may_interleave_with_the_input(act, device, views):
    base = values(100, device=device)
    x, out = views(base)
    kept = x.clone()
    act.out(x, out)
    assert_same_bits(out, act.op(kept))
    assert x.data_ptr() == out.data_ptr() or torch.equal(x, kept)


@pytest.mark.parametrize(
    "views",
    (
        lambda base: (base[:, 0::2], base[:, 1::2]),
        lambda base: (base[:, 0::2], base[0::2, 1::2].repeat_interleave(2, 0)),
        lambda base: (base[0::2, 0::2], base[1::2, 1::2]),
        lambda base: (base[:500, 0::2], base[0::2, 1::2]),
        lambda base: (base.view(100, 10, 1000)[:, :, ::2], base.view(100, 10, 1000)[:, :, 1::2]),
        lambda base: (base[:, :1].as_strided((1000, 1), (1000, 1)), base[:, :1]),
    ),
    ids=("columns", "copy", "both", "other_strides", "three_dimensions", "one_column"),
)
def test_large_views_that_interleave(device, views):
    """Whether they overlap does not depend on how many elements they have."""
    x, out = views(values(1000, 1000, device=device))
    expected = torch.ops.fastact.gelu(x)
    assert_same_bits(torch.ops.fastact.gelu.out(x, out=out), expected)


def test_large_views_that_overlap(device):
    base = values(1000, 1000, device=device)
    for x, out in (
        (base[:, :-1], base[:, 1:]),
        (base[:, 0:900:2], base[:, 100::2]),
        (base[0::2, 1::2], base[:500, 1::2]),
        (base.view(100, 10, 1000)[:, :, ::2], base[::10, :500].unsqueeze(1).expand(100, 10, 500)),
    ):
        with untouched(base), pytest.raises(RuntimeError, match="single memory location|more than"):
            torch.ops.fastact.gelu.out(x, out=out)


def test_elements_of_other_sizes_that_overlap(device):
    """The first bytes of all elements differ, but each float32 contains an element of x."""
    storage = values(64, device=device).to(torch.bfloat16)
    x, out = storage[1::4], storage.view(torch.float32)[::2]
    with untouched(storage), pytest.raises(RuntimeError, match="single memory location"):
        torch.ops.fastact.gelu.out(x, out=out)
    x, out = storage[2::4], storage.view(torch.float32)[::2]
    expected = torch.ops.fastact.gelu(x).float()
    assert_same_bits(torch.ops.fastact.gelu.out(x, out=out), expected)


def test_negative_view_and_zero_tensor(act, device):
    """Lazy tensors of PyTorch: a view with the sign flipped, and zeros without memory."""
    x = values(9, device=device)
    assert_same_bits(act.op(torch._neg_view(x)), act.op(-x))
    target = x.clone()
    act.op_(torch._neg_view(target))
    assert_same_bits(target, -act.op(-x))
    zero = torch._efficientzerotensor(3, device=device)
    assert torch.equal(act.op(zero) + 0, act.aten(torch.zeros(3, device=device)))


def test_jagged_nested_tensor(act):
    """Nested tensors of the jagged layout take every operator with the pointwise tag."""
    rows = [values(2, 4), values(5, 4)]
    nested = torch.nested.nested_tensor(rows, layout=torch.jagged)
    for ours, row in zip(act.op(nested).unbind(), rows):
        assert_same_bits(ours, act.op(row))


def test_versions(act, device):
    x = values(4, device=device)
    out = torch.empty_like(x)
    act.op(x)
    act.out(x, out)
    assert (x._version, out._version) == (0, 1)
    act.op_(x)
    assert x._version == 1
    act.op_(x[1:])
    assert x._version == 2
    act.grad_input(x, x, out)
    assert (x._version, out._version) == (2, 2)
    empty = torch.empty(0, device=device)
    act.op_(empty)
    assert empty._version == 1


def test_subclass_and_parameter(act, device):
    """A Parameter gives a plain tensor; a subclass keeps its type, as with PyTorch's operators."""

    class Mine(torch.Tensor):
        pass

    x = values(4, device=device)
    assert type(act.op(torch.nn.Parameter(x))) is torch.Tensor
    assert type(act.op(x.as_subclass(Mine))) is type(act.aten(x.as_subclass(Mine)))
