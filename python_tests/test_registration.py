"""Registration: schemas, tags, Meta and fake tensors, tracing, and PyTorch's operator checker."""

import re

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functionalize, grad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from fastact._digests.rows import ROWS  # isort: skip
from op_table import ACTIVATIONS, GRADIENT_NAMES, REPRESENTATIVES, SUFFIXES, TOP_ORDER
from support import LAYOUTS, assert_same_bits, error_of, first_line, make, smooth_values, values

every_activation = pytest.mark.parametrize("act", ACTIVATIONS, ids=lambda act: act.id)


def all_overloads():
    """Returns every overload that the library registers."""
    found = []
    for schema in torch._C._jit_get_all_schemas():
        namespace, _, name = schema.name.partition("::")
        if namespace == "fastact":
            packet = getattr(torch.ops.fastact, name)
            found.append(getattr(packet, schema.overload_name or "default"))
    return sorted(found, key=str)


def expected_schemas(act):
    """Returns the expected schemas as torch prints them, with ATen's argument names and order."""
    return (str(torch._C.parse_schema(schema)) for schema in written_schemas(act))


def written_schemas(act):
    defaults = act.parameters if act.defaults is None else act.defaults
    parameters = "".join(
        f", float {name}" + (f"={defaults[name]}" if name in defaults else "")
        for name in act.parameters
    )
    flag = ", bool is_result=False" if act.has_is_result else ""
    operand = "output" if act.takes_output else "self"
    name = f"fastact::{act.name}"
    yield f"{name}(Tensor self{parameters}) -> Tensor"
    yield f"{name}_(Tensor(a!) self{parameters}) -> Tensor(a!)"
    yield f"{name}.out(Tensor self{parameters}, *, Tensor(a!) out) -> Tensor(a!)"
    for order in range(1, TOP_ORDER + 1):
        tensors = ", ".join(f"Tensor {g}" for g in (*GRADIENT_NAMES[order], operand))
        yield f"{name}{SUFFIXES[order]}({tensors}{parameters}{flag}) -> Tensor"
        if order == 1:
            arguments = f"{tensors}{parameters}{flag}, *, Tensor(a!) grad_input"
            yield f"{name}{SUFFIXES[order]}.grad_input({arguments}) -> Tensor(a!)"


@every_activation
def test_schemas(act):
    found = {str(o._schema) for o in all_overloads()}
    assert set(expected_schemas(act)) <= found
    suffix = "|".join(map(re.escape, ("_", *SUFFIXES)))
    ours = {s for s in found if re.match(rf"fastact::{act.name}({suffix})[.(]", s)}
    assert ours == set(expected_schemas(act))


def test_nothing_else_is_registered():
    expected = {s for act in ACTIVATIONS for s in expected_schemas(act)}
    found = {str(o._schema) for o in all_overloads()}
    families = ("fastact::prelu(", "fastact::_prelu", "fastact::fused_", "fastact::_fused_")
    families += tuple(f"fastact::{act.name}_and_mul" for act in ACTIVATIONS)
    families += ("fastact::selu_alpha_dropout(", "fastact::_selu_alpha_dropout")
    families += ("fastact::_alpha_dropout_mask(", "fastact::glu")
    families += ("fastact::rrelu", "fastact::_rrelu")
    families += ("fastact::clamped_swiglu", "fastact::_clamped_swiglu")
    rows = (*ROWS, "var", "group_norm", "instance_norm", "add_rms_norm", "add_layer_norm")
    families += tuple(f"fastact::{prefix}{name}" for prefix in ("", "_") for name in rows)
    others = {s for s in found - expected if not s.startswith(families)}
    assert others == {
        "fastact::build_info() -> str",
        "fastact::not_faster_on_cpu() -> str[]",
        "fastact::optimize_archive(str input, str output, Tensor[] sample) -> str",
    }


@every_activation
def test_tags(act):
    for overload in all_overloads():
        name = overload._schema.name
        # test_fused.py tests halves of one tensor. Whether dropout drops an element depends on its
        # place.
        if name.endswith(("_and_mul", "_alpha_dropout")):
            continue
        if name.startswith(f"fastact::{act.name}"):
            assert torch.Tag.pt2_compliant_tag in overload.tags
            assert torch.Tag.pointwise in overload.tags
            if hasattr(torch.Tag, "out_variant") and overload._overloadname != "default":
                assert torch.Tag.out_variant in overload.tags


def arguments_for(overload, act, device, requires_grad):
    """Returns tensors and keyword arguments for an overload's schema."""
    tensors, keywords = [], {}
    for argument in overload._schema.arguments:
        if not isinstance(argument.type, torch.TensorType):
            continue
        written = argument.alias_info is not None and argument.alias_info.is_write
        operand = argument.name in ("self", "output")
        fixed = written or operand and overload._schema.name.endswith("_triple_backward")
        t = smooth_values(act, 3, 4, device=device, requires_grad=requires_grad and not fixed)
        if argument.kwarg_only:
            keywords[argument.name] = t
        else:
            tensors.append(t * 1 if written and requires_grad else t)
    return tuple(tensors), keywords


@pytest.mark.parametrize("requires_grad", (False, True))
@pytest.mark.parametrize("number", range(8))
def test_opcheck(act, device, requires_grad, number):
    """Checks schema, autograd registration, fake tensors, and AOT dispatch with dynamic shapes."""
    names = [s.split("(")[0] for s in expected_schemas(act)]
    if number >= len(names):
        return
    name, _, overload_name = names[number].removeprefix("fastact::").partition(".")
    overload = getattr(getattr(torch.ops.fastact, name), overload_name or "default")
    if overload_name and requires_grad:
        return  # out= forms have no autograd
    tensors, keywords = arguments_for(overload, act, device, requires_grad)
    options = {}
    for options in act.derivative_options if "backward" in name else ({},):
        torch.library.opcheck(overload, tensors, {**act.parameters, **keywords, **options})
    if not overload_name and not name.endswith("_"):
        strided = tuple(t.detach().t()[::2].requires_grad_(t.requires_grad) for t in tensors)
        torch.library.opcheck(overload, strided, {**act.parameters, **options})


def test_opcheck_in_place_on_a_result(act, device):
    x = smooth_values(act, 3, 4, device=device)
    torch.library.opcheck(act.packet("_").default, (x * 2,), act.parameters)


def geometry(t):
    """Returns a tensor's geometry, without the arbitrary strides of dimensions of size 1."""
    strides = [s for s, n in zip(t.stride(), t.shape) if n != 1]
    return t.shape, strides, t.dtype, t.device.type


@pytest.mark.parametrize("layout", LAYOUTS)
def test_meta_lies_like_pytorch(act, layout, dtype):
    """Ignores strides of dimensions of size 1, in which PyTorch's Meta and CPU kernels differ."""
    real = make(layout, dtype)
    x = torch.empty_strided(real.shape, real.stride(), dtype=dtype, device="meta")
    for ours, theirs in (
        (act.op(x), act.aten(x)),
        (act.ladder(x, x), torch.mul(x, x)),
        (act.ladder(x, x, x), torch.addcmul(x, x, x)),
        (act.ladder(x, x, x, x), torch.addcmul(x, x, x)),
    ):
        assert geometry(ours) == geometry(theirs)
    out = torch.empty(0, dtype=dtype, device="meta")
    assert act.out(x, out) is out and out.shape == x.shape
    if real.numel():
        assert geometry(act.op(x))[:3] == geometry(act.op(real))[:3]
        assert geometry(act.ladder(x, x))[:3] == geometry(act.ladder(real, real))[:3]


def test_meta_broadcasts_and_promotes(act):
    g = torch.empty(3, 1, dtype=torch.float64, device="meta")
    x = torch.empty(4, dtype=torch.bfloat16, device="meta")
    for tensors in ((g, x), (g, g, x), (g, g, g, x)):
        result = act.ladder(*tensors)
        assert (result.shape, result.dtype) == ((3, 4), torch.float64)


def test_meta_raises_where_the_cpu_does(act):
    def calls(device):
        x = torch.empty(4, device=device)
        integers = torch.ones(4, dtype=torch.int32, device=device)
        yield lambda: act.op(integers)
        yield lambda: act.op_(integers)
        yield lambda: act.ladder(x, integers.to(torch.complex64))
        yield lambda: act.ladder(x, torch.empty(3, device=device))
        yield lambda: act.out(x, torch.empty(4, dtype=torch.int64, device=device))
        yield lambda: act.grad_input(x, x, torch.empty(4, dtype=torch.bool, device=device))

    for real, fake in zip(calls("cpu"), calls("meta")):
        expected, error = error_of(real), error_of(fake)
        assert type(error) is type(expected) is not type(None)
        if "fastact::" in str(expected):
            assert first_line(error) == first_line(expected)


SYMBOLIC_LAYOUTS = ("contiguous", "channels_last", "permuted", "every_second_column")
# Each kind with one layout. The first results of relu and selu differ in strides, so both have all.
IN_SYMBOLIC_LAYOUTS = [
    pytest.param(act, layout, id=f"{act.id}-{layout}")
    for i, act in enumerate(REPRESENTATIVES)
    for k, layout in enumerate(SYMBOLIC_LAYOUTS)
    if act.name in ("relu", "selu") or k == i % len(SYMBOLIC_LAYOUTS)
]


@pytest.mark.parametrize("act, layout", IN_SYMBOLIC_LAYOUTS)
def test_fake_tensors_with_symbolic_shapes(act, device, layout):
    """Sizes stay symbolic, strides are PyTorch's, and no size is specialized."""
    environment = ShapeEnv()
    mode = FakeTensorMode(shape_env=environment)
    real = make(layout, device=device)
    context = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC] * real.dim())
    fake = mode.from_tensor(real, symbolic_context=context)
    with mode:
        for ours, theirs in (
            (act.op(fake), act.aten(fake)),
            (act.ladder(fake, fake), torch.mul(fake, fake)),
            (act.ladder(fake, fake, fake, fake), torch.mul(fake, fake)),
            (act.op_(fake * 1), act.aten_(fake * 1)),
        ):
            assert all(isinstance(s, torch.SymInt) for s in ours.shape)
            assert ours.shape == theirs.shape and ours.stride() == theirs.stride()
            assert (ours.dtype, ours.device) == (theirs.dtype, theirs.device)
    assert not [g for g in environment.guards if re.fullmatch(r"Eq\(s\d+, \d+\)", str(g.expr))]


def graph_targets(graph):
    return [str(n.target) for n in graph.graph.nodes if n.op == "call_function"]


@pytest.mark.parametrize("mode", ("real", "fake", "symbolic"))
def test_make_fx(act, device, mode):
    x = values(4, 5, device=device)

    def f(x):
        return grad(lambda x: act.op(x).sum())(x)

    graph = make_fx(f, tracing_mode=mode)(x)
    assert any(f"fastact.{act.name}_backward" in t for t in graph_targets(graph))
    assert_same_bits(graph(x), f(x))


def test_functionalized_graph_mutates_nothing(act, device):
    """In-place and out= calls become the functional operator."""

    def f(x):
        y = x.clone()
        act.op_(y[1:])
        z = torch.empty_like(x)
        act.out(y, z)
        act.grad_input(x, y, z)
        return y, z

    x = values(4, device=device)
    graph = make_fx(functionalize(f))(x)
    ours = [t for t in graph_targets(graph) if t.startswith("fastact.")]
    assert ours and all(t.endswith(".default") and f"{act.name}_.default" not in t for t in ours)
    for a, b in zip(graph(x), f(x)):
        assert_same_bits(a, b)
