"""group_norm and instance_norm: bits that depend on the group alone, ATen's semantics, derivatives,
and every way to call them. test_norms.py tests the kernel, layer_norm's, with a weight for each
element; here, several elements share one."""

import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.func import functionalize, jvp, vmap
from torch.nn import functional as F

import fastact as package

# isort: off
from rows import exact_norm, largest_error, moved, padded
from support import DTYPES, assert_same_bits, error_of, first_line, no_vmap_fallback, untouched
# isort: on

fastact = torch.ops.fastact
EPS = 1e-5
# PyTorch's group_norm rounds more often.
TOLERANCE = {torch.float64: 1e-11, torch.float32: 1e-4, torch.bfloat16: 2e-2, torch.float16: 4e-3}
# Shapes and numbers of groups: few and many channels in a group; one pixel; runs of fewer than 16
# elements; lengths that no packet divides; groups that several threads share; no spatial dimension.
SHAPES = (
    ((3, 6, 4, 5), 3),
    ((2, 8, 7, 7), 2),
    ((2, 64, 2), 4),
    ((4, 6), 2),
    ((2, 6, 1), 6),
    ((2, 32, 8, 8), 4),
    ((3, 12, 16, 16), 12),
    ((2, 10, 33, 31), 5),
    ((1, 3, 300, 301), 1),
    ((1, 600, 5, 5), 2),
)
# Which of weight and bias a call has.
PRESENT = ((True, True), (True, False), (False, True), (False, False))

every_shape = pytest.mark.parametrize(
    "shape, groups", SHAPES, ids=lambda v: "x".join(map(str, v)) if isinstance(v, tuple) else v
)


def inputs_of(shape, dtype=torch.float32, device="cpu", seed=0, mean=0):
    """Returns an input, a weight and a bias."""
    generator = torch.Generator().manual_seed(seed)
    sizes = (shape, shape[1:2], shape[1:2])
    numbers = [torch.randn(size, generator=generator, dtype=torch.float64) for size in sizes]
    numbers[0] += mean
    return [number.to(device, dtype) for number in numbers]


def with_gaps(x):
    """The same values with gaps between elements and samples."""
    return moved(x.reshape(x.shape[0], -1)).unflatten(1, x.shape[1:])


def shifted(x):
    """The same values in groups that are not aligned."""
    return padded(x.reshape(x.shape[0], -1), 1).unflatten(1, x.shape[1:])


def channels_first(x):
    """The same values; the channels are the outermost dimension in memory."""
    return x.transpose(0, 1).contiguous().transpose(0, 1)


LAYOUTS = (with_gaps, shifted, channels_first)


def present(which, *vectors):
    return [vector if is_present else None for vector, is_present in zip(vectors, which)]


def ours(x, groups, *vectors, eps=EPS):
    return fastact.group_norm(x, groups, *vectors, eps=eps)


def rows_and_vectors(x, groups, *vectors):
    """Returns the groups as rows, and each vector with one number for each element of a row, for
    each group: [rows, groups, n] and [groups, n]."""
    rows = x.reshape(x.shape[0], groups, -1)
    repeats = rows.shape[-1] // (x.shape[1] // groups)
    return rows, *(v.view(groups, -1).repeat_interleave(repeats, -1) for v in vectors)


def by_layer_norm(x, groups, weight, bias):
    """Returns the layer_norm of each group alone."""
    rows, w, b = rows_and_vectors(x, groups, weight, bias)
    result = [
        torch.stack(
            [fastact.layer_norm(row, row.shape, w[i], b[i]) for i, row in enumerate(sample)]
        )
        for sample in rows.unbind()
    ]
    return torch.stack(result).view(x.shape)


def gradients(x, groups, *vectors, g):
    leaves = [tensor.detach().requires_grad_() for tensor in (x, *vectors)]
    return torch.autograd.grad(ours(leaves[0], groups, *leaves[1:]), leaves, g)


def gradient_by_layer_norm(x, groups, weight, g):
    """Returns the gradient by x of the layer_norm of each group alone."""
    rows, w = rows_and_vectors(x, groups, weight)
    incoming = g.reshape(rows.shape)
    result = []
    for i in range(groups):
        row, ones = rows[:, i].contiguous(), torch.ones_like(w[i])
        _, *statistics = fastact._layer_norm_without_bias_with_statistics(row, ones, EPS, -1)
        result.append(fastact._layer_norm_backward(row, incoming[:, i], w[i], *statistics, EPS, -1))
    return torch.stack(result, 1).view(x.shape)


# ---- Bits and errors


@every_shape
@pytest.mark.kernels
def test_bits_are_those_of_layer_norm_of_each_group(shape, groups, dtype, device):
    """So they depend on the group alone. The gradient by x, too."""
    x, *vectors = inputs_of(shape, dtype, device, mean=100)
    assert_same_bits(ours(x, groups, *vectors), by_layer_norm(x, groups, *vectors))
    g, *_ = inputs_of(shape, dtype, device, seed=1)
    expected = gradient_by_layer_norm(x, groups, vectors[0], g)
    assert_same_bits(gradients(x, groups, *vectors, g=g)[0], expected)


@every_shape
@pytest.mark.kernels
def test_absent_vectors(shape, groups, dtype, device):
    x, weight, bias = inputs_of(shape, dtype, device)
    for which in PRESENT:
        given = present(which, weight, bias)
        neutral = [torch.ones_like(weight), torch.zeros_like(bias)]
        stand_ins = [n if v is None else v for n, v in zip(neutral, given)]
        assert torch.equal(ours(x, groups, *given), ours(x, groups, *stand_ins)), which


@every_shape
def test_bits_do_not_depend_on_layout_or_threads(shape, groups, dtype, device):
    x, *vectors = inputs_of(shape, dtype, device)
    expected = ours(x, groups, *vectors)
    apart = [moved(v.expand(2, -1))[0] for v in vectors]
    strided = [torch.stack((v, -v), 1)[:, 0] for v in vectors]
    for layout in LAYOUTS:
        for given in (vectors, apart, strided):
            assert torch.equal(ours(layout(x), groups, *given), expected)
    torch.set_num_threads(1)
    try:
        assert torch.equal(ours(x, groups, *vectors), expected)
    finally:
        torch.set_num_threads(2)
    for i in range(shape[0]):
        assert torch.equal(ours(x[i : i + 1], groups, *vectors), expected[i : i + 1])


@pytest.mark.kernels
def test_errors(dtype):
    """As ops/forms/layer_norm.h states, of the larger of 1 and |z|."""
    bound = 6.0 if dtype.itemsize >= 4 else 0.51
    for shape, groups in SHAPES[:4]:
        x, *_ = inputs_of(shape, dtype, mean=100)
        result = ours(x, groups).view(shape[0] * groups, -1)
        for row, found in zip(x.view(shape[0] * groups, -1), result):
            exact = exact_norm("layer_norm", row, eps=EPS)
            assert largest_error(found, exact, least=1.0) <= bound


@every_shape
def test_gradients_of_weight_and_bias(shape, groups, dtype, device):
    """Sums over the batch and the pixels of a channel, rounded once. They do not depend on strides,
    and samples with a gradient of 0 at the end change nothing."""
    x, *vectors = inputs_of(shape, dtype, device)
    g, *_ = inputs_of(shape, dtype, device, seed=1)
    expected = gradients(x, groups, *vectors, g=g)
    for layout in LAYOUTS:
        for a, b in zip(gradients(layout(x), groups, *vectors, g=layout(g)), expected):
            assert_same_bits(a.contiguous(), b)
    longer = [
        torch.cat((t, fill.expand(3, *shape[1:]))) for t, fill in ((x, x[:1]), (g, 0 * g[:1]))
    ]
    for a, b in zip(gradients(longer[0], groups, *vectors, g=longer[1])[1:], expected[1:]):
        assert_same_bits(a, b)
    leaves = [t.double().requires_grad_() for t in (x, *vectors)]
    exact = torch.autograd.grad(F.group_norm(leaves[0], groups, *leaves[1:]), leaves, g.double())
    unit = (x.numel() / shape[1]) ** 0.5 * TOLERANCE[dtype]
    for a, b in zip(expected[1:], exact[1:]):
        torch.testing.assert_close(a.double(), b, rtol=unit, atol=unit)


def test_sixteen_bits_are_float32_rounded_once(half, device):
    x, *vectors = inputs_of((3, 8, 9, 11), half, device)
    wide = [v.float() for v in vectors]
    expected = ours(x.float(), 4, *wide).to(half)
    assert_same_bits(ours(x, 4, *vectors), expected)
    assert_same_bits(ours(x, 4, *wide), expected)


@every_shape
def test_gpu_bits_are_cpu_bits(shape, groups, dtype, cuda):
    x, *vectors = inputs_of(shape, dtype)
    g, *_ = inputs_of(shape, dtype, seed=1)
    y, grads = ours(x, groups, *vectors), gradients(x, groups, *vectors, g=g)
    there = [v.to(cuda) for v in vectors]
    strided = [torch.stack((v, -v), 1)[:, 0] for v in there]
    for layout in (lambda t: t, *LAYOUTS):
        on_gpu, g_on_gpu = layout(x.to(cuda)), layout(g.to(cuda))
        for given in (there, [moved(v.expand(2, -1))[0] for v in there], strided):
            assert_same_bits(ours(on_gpu, groups, *given).contiguous(), y)
        for a, b in zip(gradients(on_gpu, groups, *there, g=g_on_gpu), grads):
            assert_same_bits(a.contiguous(), b)
    for which in PRESENT:
        on_cpu = ours(x, groups, *present(which, *vectors))
        assert_same_bits(ours(x.to(cuda), groups, *present(which, *there)), on_cpu)


@pytest.mark.parametrize("sizes", ((2, 12), (12, 3), (1, 6), (4, 4), (12, 1)))
def test_kernels_take_vectors_of_any_divisor(sizes, dtype, device):
    """Also if weight and bias differ in it, and along any dimension."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(5, 12, generator=generator, dtype=torch.float64).to(device, dtype)
    vectors = [
        torch.randn(size, generator=generator, dtype=torch.float64).to(device, dtype)
        for size in sizes
    ]
    whole = [v.repeat_interleave(12 // v.numel()) for v in vectors]
    expected = fastact._layer_norm(x, *whole, EPS, 1)
    assert_same_bits(fastact._layer_norm(x, *vectors, EPS, 1), expected)
    columns = [v[:, None] for v in vectors]
    assert_same_bits(fastact._layer_norm(x.t(), *columns, EPS, 0), expected.t().contiguous())
    expected = fastact._rms_norm(x, whole[0], EPS, 1)
    assert_same_bits(fastact._rms_norm(x, vectors[0], EPS, 1), expected)
    for size in (5, 8, 24):
        error = error_of(lambda: fastact._rms_norm(x, x.new_ones(size), EPS, 1))
        wanted = f"weight to broadcast to the shape of self, [5, 12], but got [{size}]"
        assert first_line(error) == f"fastact::rms_norm: expected {wanted}"


# ---- ATen's semantics


@pytest.mark.parametrize("which", PRESENT)
def test_semantics(which, dtype, device):
    for shape, groups in SHAPES:
        x, *vectors = inputs_of(shape, dtype, device)
        given = present(which, *vectors)
        with untouched(x):
            result = ours(x, groups, *given)
        expected = F.group_norm(x, groups, *given)
        torch.testing.assert_close(result, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
        assert result.stride() == expected.stride()


@pytest.mark.parametrize("shape", (
    (2, 6, 4, 5), (2, 6, 1, 1), (2, 1, 3, 4), (2, 6, 3, 4, 2), (2, 6, 1, 1, 1), (2, 1, 3, 4, 5)
))  # fmt: skip
def test_memory_formats(shape, device):
    """On a GPU, PyTorch's group_norm takes only contiguous inputs, and copies all others."""
    x, *vectors = inputs_of(shape, device=device)
    format = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    last = torch.empty_like(x, memory_format=format).copy_(x)
    result, expected = ours(last, 1, *vectors), F.group_norm(last, 1, *vectors)
    assert result.stride() == expected.stride()
    assert_same_bits(result.contiguous(), ours(x, 1, *vectors))
    if x[0, 0].numel() == 1:
        return
    for uses_input in (True, False):
        arguments = x.new_zeros(shape[1]), x.new_ones(shape[1]), *vectors, uses_input
        result = package.functional.instance_norm(last, *arguments)
        assert result.stride() == F.instance_norm(last, *arguments).stride()


def test_results_are_no_views(device):
    """A result that was computed without gradients can be changed in place."""
    x = torch.randn(2, 6, 5, device=device).requires_grad_()
    with torch.no_grad():
        results = ours(x, 3), fastact.instance_norm(x), fastact.layer_norm(x, (6, 5))
    for result in results:
        result += x
        assert result.requires_grad


def test_special_values(dtype, device):
    x, *vectors = inputs_of((3, 4, 5), dtype, device)
    x[0, 0, 1], x[1, 3, 2] = torch.nan, torch.inf
    result = ours(x, 2, *vectors)
    bad = torch.zeros_like(result, dtype=torch.bool)
    bad[0, :2], bad[1, 2:] = True, True
    assert torch.equal(result.isnan(), bad)


def test_out(dtype, device):
    x, *vectors = inputs_of((2, 6, 4, 5), dtype, device)
    expected = ours(x, 3, *vectors)
    op = fastact.group_norm.out
    out = torch.zeros(2, 6, 5, 4, dtype=dtype, device=device).transpose(2, 3)
    assert op(x, 3, *vectors, out=out) is out and out.stride() == (120, 20, 1, 4)
    assert torch.equal(out, expected)
    for target in (torch.empty(0, dtype=dtype, device=device), torch.empty_like(x), x.clone()):
        assert_same_bits(op(x, 3, *vectors, out=target), expected)
    same = x.clone()
    assert_same_bits(op(same, 3, *vectors, out=same), expected)
    wide = torch.empty(2, 6, 4, 5, dtype=torch.float64, device=device)
    assert_same_bits(op(x, 3, *vectors, out=wide), expected.double())
    left = torch.empty(3, 3, dtype=dtype, device=device)
    assert error_of(lambda: op(x, 4, *vectors, out=left)) and left.shape == (3, 3)


def test_no_elements(device):
    for shape, groups in (((0, 6, 2), 3), ((2, 6, 0), 2)):
        x = torch.zeros(shape, device=device, requires_grad=True)
        weight = torch.ones(6, device=device, requires_grad=True)
        result = ours(x, groups, weight)
        assert result.shape == shape
        for a, leaf in zip(torch.autograd.grad(result.sum(), (x, weight)), (x, weight)):
            assert torch.equal(a, torch.zeros_like(leaf))


def test_errors_of_arguments(device):
    x, w = torch.zeros(2, 6, 3, device=device), torch.ones(6, device=device)
    instance_norm, channels = fastact.instance_norm, "to divide the number of channels, 6, but got"
    cases = [
        (lambda: ours(x, 4), f"group_norm: expected num_groups {channels} 4"),
        (lambda: ours(x, 0), f"group_norm: expected num_groups {channels} 0"),
        (lambda: ours(x, -2), f"group_norm: expected num_groups {channels} -2"),
        (lambda: ours(w, 1),
         "group_norm: expected input to have at least 2 dimensions, but got 1"),
        (lambda: ours(x, 3, w[:3]),
         "group_norm: expected weight to have the shape [6], but got [3]"),
        (lambda: ours(x, 3, w, w.view(6, 1)),
         "group_norm: expected bias to have the shape [6], but got [6, 1]"),
        (lambda: ours(x, 3, w.double()),
         "group_norm: expected weight to have the type of input, Float, but got Double"),
        (lambda: ours(x.bfloat16(), 3, w.half()),
         "group_norm: expected weight to have the type of input, BFloat16, or to be Float, but got "
         "Half"),
        (lambda: ours(x, 3, w, w.to("meta")),
         f"group_norm: expected bias to be on the device of input, {x.device}, but got meta"),
        (lambda: ours(x.int(), 3), "group_norm: expected input to be float32, float64, bfloat16 or "
         "float16, but got Int"),
        (lambda: instance_norm(x, w[:3]),
         "instance_norm: expected weight to have the shape [6], but got [3]"),
        (lambda: instance_norm(w),
         "instance_norm: expected input to have at least 2 dimensions, but got 1"),
        (lambda: instance_norm(x, use_input_stats=False), "instance_norm: expected running_mean "
         "and running_var with use_input_stats=False, but got None"),
        (lambda: instance_norm(x, None, None, w, w[:5]),
         "instance_norm: expected running_var to have the shape [6], but got [5]"),
        (lambda: instance_norm(x, None, None, w[None]),
         "instance_norm: expected running_mean to have the shape [6], but got [1, 6]"),
        (lambda: instance_norm(x, None, None, w.to("meta")),
         f"instance_norm: expected running_mean to be on the device of input, {x.device}, but got "
         "meta"),
        (lambda: instance_norm(x, None, None, w.clone().requires_grad_()),
         "instance_norm: expected running_mean not to require a gradient, but got one that does"),
    ]  # fmt: skip
    for call, message in cases:
        with untouched(w):
            assert first_line(error_of(call)) == f"fastact::{message}"


# ---- Derivatives and transforms


@pytest.mark.parametrize("shape, groups", (((2, 4, 3), 2), ((3, 4), 2), ((2, 3, 2), 3)))
@pytest.mark.parametrize("which", PRESENT[:3])
def test_derivatives(shape, groups, which, device):
    every = [t.requires_grad_() for t in inputs_of(shape, torch.float64, device)]
    tensors = [every[0], *(t for t, is_given in zip(every[1:], which) if is_given)]

    def call(x, *given):
        given = iter(given)
        vectors = [next(given) if is_given else None for is_given in which]
        return ours(x, groups, *vectors, eps=1e-2)

    check = {"check_forward_ad": True, "check_batched_grad": True}
    assert gradcheck(call, tensors, **check, check_batched_forward_grad=True)
    assert gradgradcheck(call, tensors, check_fwd_over_rev=True, check_rev_over_rev=True)


def test_forward_mode(dtype, device):
    primals, tangents = (tuple(inputs_of((2, 6, 5), dtype, device, seed)) for seed in (0, 1))
    _, actual = jvp(lambda *p: ours(p[0], 3, *p[1:]), primals, tangents)
    doubles = [tuple(t.double() for t in group) for group in (primals, tangents)]
    _, wanted = jvp(lambda *p: F.group_norm(p[0], 3, *p[1:]), *doubles)
    tolerance = 512 * torch.finfo(dtype).eps
    torch.testing.assert_close(actual.double(), wanted, rtol=tolerance, atol=tolerance)


def test_vmap(device):
    x, weight, bias = inputs_of((2, 6, 5), device=device)
    many = torch.stack((x, x + 1, -x))
    weights = torch.stack((weight, bias, -weight))
    with no_vmap_fallback():
        for in_dims in (0, 1):
            moved_in = many.movedim(0, in_dims)
            result = vmap(lambda t: ours(t, 3, weight, bias), in_dims)(moved_in)
            assert_same_bits(result, torch.stack([ours(t, 3, weight, bias) for t in many]))
        result = vmap(lambda w: ours(x, 3, w, bias))(weights)
        assert_same_bits(result, torch.stack([ours(x, 3, w, bias) for w in weights]))
        result = vmap(lambda t, w: ours(t, 3, w))(many, weights)
        expected = [ours(t, 3, w) for t, w in zip(many, weights)]
        assert_same_bits(result, torch.stack(expected))


def test_functionalize_and_opcheck(device):
    x, weight, bias = inputs_of((2, 6, 5), device=device)
    write = functionalize(lambda x: fastact.group_norm.out(x, 3, out=torch.zeros_like(x)))
    assert_same_bits(write(x), ours(x, 3))
    rows = x.view(2, 3, 10).requires_grad_()
    vectors = [v.view(3, 2).requires_grad_() for v in (weight, bias)]
    torch.library.opcheck(fastact._layer_norm.default, (rows, *vectors, EPS, -1))
    _, mean, rstd = fastact._layer_norm_with_statistics(rows.detach(), *vectors, EPS, -1)
    torch.library.opcheck(
        fastact._layer_norm_backward.default,
        (rows, rows.detach(), vectors[0], mean, rstd, EPS, -1),
    )
    torch.library.opcheck(fastact.group_norm.default, (x, 3, weight, bias))
    running = [torch.zeros(6, device=device) for _ in range(2)]
    torch.library.opcheck(
        fastact.instance_norm.default,
        (x, weight, bias, *running),
        test_utils=("test_schema", "test_faketensor"),
    )


@pytest.mark.parametrize("backend", ("aot_eager", pytest.param("inductor", marks=pytest.mark.slow)))
def test_compile_and_export(backend, device, fresh_compiler):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.groups = package.nn.GroupNorm(3, 6)
            self.instances = package.nn.InstanceNorm2d(6, affine=True, track_running_stats=True)

        def forward(self, x):
            return self.instances(self.groups(x * 2)).sin()

    model = Model().to(device)
    x = inputs_of((2, 6, 4, 5), device=device)[0].requires_grad_()
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=backend)
    results = []
    for call in (model, compiled):
        model.instances.reset_running_stats()
        y = call(x)
        gradient = torch.autograd.grad(y.sum(), x)[0]
        statistics = model.instances.running_mean, model.instances.running_var
        results.append((y.detach(), gradient, *(s.clone() for s in statistics)))
    for eager, traced in zip(*results):
        torch.testing.assert_close(traced, eager)
    model.eval()
    program = torch.export.export(
        model, (x.detach(),), dynamic_shapes=({0: torch.export.Dim("n", min=2, max=99)},)
    )
    assert_same_bits(program.module()(x[:2]).detach(), model(x[:2]).detach())


def test_autocast(device):
    """As ATen: in float32 on a GPU; on a CPU, group_norm is on no list."""
    for dtype in DTYPES:
        x, *vectors = inputs_of((2, 6, 5), dtype, device)
        with torch.autocast(device, torch.bfloat16):
            assert ours(x, 3, *vectors).dtype == F.group_norm(x, 3, *vectors).dtype


# ---- instance_norm, functions and modules


@pytest.mark.parametrize("which", PRESENT)
def test_instance_norm(which, dtype, device):
    x, *vectors = inputs_of((3, 6, 4, 5), dtype, device)
    given = present(which, *vectors)
    assert_same_bits(fastact.instance_norm(x, *given), ours(x, 6, *given))
    statistics = [torch.rand(6, dtype=torch.float64, device=device).to(dtype) for _ in range(2)]
    running, theirs = [s.clone() for s in statistics], [s.clone() for s in statistics]
    close = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype]}
    result = package.functional.instance_norm(x, *running, *given, momentum=0.3)
    expected = F.instance_norm(x, *theirs, *given, momentum=0.3)
    torch.testing.assert_close(result, expected, **close)
    for a, b in zip(running, theirs):
        torch.testing.assert_close(a, b, **close)
    result = package.functional.instance_norm(x, *running, *given, use_input_stats=False)
    expected = F.instance_norm(x, *running, *given, use_input_stats=False)
    torch.testing.assert_close(result, expected, **close)
    for only in range(2):  # one statistic alone
        alone = [s.clone() if i == only else None for i, s in enumerate(statistics)]
        fastact.instance_norm(x, *given, *alone, momentum=0.3)
        assert_same_bits(alone[only], running[only])


def test_running_statistics_are_written_last(device):
    """They may be in the memory of the input or the weight."""
    x, weight, bias = inputs_of((3, 6, 4), device=device)
    expected = fastact.instance_norm(x, weight, bias)
    same = x.clone()
    assert_same_bits(fastact.instance_norm(same, weight, bias, same[0, :, 0]), expected)
    assert not torch.equal(same, x)
    shared = weight.clone()
    assert_same_bits(fastact.instance_norm(x, shared, bias, None, shared), expected)
    assert not torch.equal(shared, weight)
    same = x[..., :0]
    fastact.instance_norm(same, weight, bias, shared)
    assert not shared.isnan().any()


def test_running_statistics_have_no_tangents(device):
    x, *_ = inputs_of((3, 6, 4), device=device)
    running = torch.zeros(6, device=device), torch.ones(6, device=device)
    with forward_ad.dual_level():
        fastact.instance_norm(forward_ad.make_dual(x, x * x), None, None, *running)
        assert all(forward_ad.unpack_dual(each).tangent is None for each in running)
    assert not torch.equal(running[0], torch.zeros_like(running[0]))


def test_running_statistics_do_not_depend_on_the_device(dtype, cuda):
    x, *_ = inputs_of((3, 6, 4, 5), dtype)
    on_cpu, on_gpu = (
        [torch.ones(6, dtype=dtype, device=d) for _ in range(2)] for d in ("cpu", cuda)
    )
    fastact.instance_norm(x, None, None, *on_cpu)
    fastact.instance_norm(x.to(cuda), None, None, *on_gpu)
    for a, b in zip(on_gpu, on_cpu):
        assert_same_bits(a, b)


def test_functions_and_modules(device):
    x, *vectors = inputs_of((2, 6, 4, 5), device=device)
    assert_same_bits(package.functional.group_norm(x, 3, *vectors), ours(x, 3, *vectors))
    module = package.nn.GroupNorm(3, 6, device=device)
    for parameter, value in zip(module.parameters(), vectors, strict=True):
        parameter.data.copy_(value)
    assert isinstance(module, torch.nn.GroupNorm)
    assert repr(module) == repr(torch.nn.GroupNorm(3, 6))
    for call in (module, torch.jit.script(module)):
        assert_same_bits(call(x).detach(), ours(x, 3, *vectors))
    with pytest.raises(ValueError, match="more than 1 spatial element"):
        package.functional.instance_norm(x[..., :1, :1])
    for functions in (package.functional, F):
        with pytest.raises(ValueError, match="more than 1 value per channel"):
            functions.group_norm(x[:1, :3, :1, :1], 3)
        functions.group_norm(x[:2, :3, :1, :1], 3)


@pytest.mark.parametrize("dimensions", (1, 2, 3))
@pytest.mark.parametrize("tracks", (False, True))
def test_instance_norm_modules(dimensions, tracks, device):
    name = f"InstanceNorm{dimensions}d"
    options = {"affine": True, "track_running_stats": tracks, "device": device}
    module = getattr(package.nn, name)(6, **options)
    theirs = getattr(torch.nn, name)(6, **options)
    assert isinstance(module, getattr(torch.nn, name)) and repr(module) == repr(theirs)
    theirs.load_state_dict(module.state_dict())
    x = torch.randn(3, 6, *(4, 5, 2)[:dimensions], device=device)
    for _ in range(2):
        torch.testing.assert_close(module(x), theirs(x))
        torch.testing.assert_close(module(x[0]), theirs(x[0]))  # no batch
    module.eval(), theirs.eval()
    torch.testing.assert_close(module(x), theirs(x))
    for a, b in zip(module.buffers(), theirs.buffers()):
        torch.testing.assert_close(a, b)
    module.momentum = theirs.momentum = None
    torch.testing.assert_close(module.train()(x), theirs.train()(x))
    torch.testing.assert_close(torch.jit.script(module)(x), theirs(x))
