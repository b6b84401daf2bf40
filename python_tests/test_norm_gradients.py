"""The operators that compute all gradients of a norm, for autograd and compilers."""

import itertools

import pytest
import torch

# isort: off
from support import assert_same_bits, error_of, first_line, untouched
# isort: on

fastact = torch.ops.fastact
EPS = 1e-5
FORMS = ("rms_norm", "layer_norm")
# Shapes of rows, and of the vector. ROWS: all rows share the vector. There are fewer and more than
# 32 rows, short rows, rows longer than a block in the cache, and more columns than a tile has.
# GROUPS: [images, groups, elements], with a vector [groups, channels]. There are one and many
# pixels, several groups in a task, and more pixels than a chunk has.
ROWS = tuple(
    ((rows, n), (n,))
    for rows, n in ((1, 5), (31, 64), (33, 257), (97, 768), (65, 5000), (2, 50257), (900, 3))
)
GROUPS = tuple(
    ((images, groups, channels * pixels), (groups, channels))
    for images, groups, channels, pixels in (
        *((1, 2, 3, 1), (40, 4, 4, 1), (2, 8, 2, 7), (5, 3, 1, 49), (3, 4, 5, 196)),
        *((2, 2, 3, 1024), (2, 1, 2, 4097)),
    )
)

every_form = pytest.mark.parametrize("name", FORMS)


def inputs_of(name, shape, vector, dtype, device="cpu", seed=0):
    """Returns the tensors that the operator takes. The rows are far from 0."""
    generator = torch.Generator().manual_seed(seed)
    make = lambda shape, mean=0.0: (  # noqa: E731
        (torch.randn(shape, generator=generator, dtype=torch.float64) + mean).to(device, dtype)
    )
    x, g, weight = make(shape, 10.0), make(shape), make(vector)
    if name == "rms_norm":
        return x, g, weight
    ones = torch.ones(shape[-1], dtype=dtype, device=device)
    return x, g, weight, *fastact._layer_norm_without_bias_with_statistics(x, ones, EPS, -1)[1:]


def all_gradients(name, *tensors, mask=None):
    results = 2 if name == "rms_norm" else 3
    mask = [True] * results if mask is None else mask
    return getattr(fastact, f"_{name}_gradients")(*tensors, EPS, -1, output_mask=mask)


def composed(name, x, g, weight, *statistics):
    """Returns the gradients one after the other: that of x by its own operator, and the sums by the
    operator for the gradients of a fused form, which has the order of ops/kernel.h."""
    by_self = getattr(fastact, f"_{name}_backward")(x, g, weight, *statistics, EPS, -1)
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    norm = fastact._rms_norm if name == "rms_norm" else fastact._layer_norm_without_bias
    z = norm(x.to(wide), torch.ones(x.shape[-1], dtype=wide, device=x.device), EPS, -1)
    if weight.dim() == 1:
        shape, of_vector = (-1, weight.numel()), (weight.numel(),)
    else:
        shape, of_vector = (x.shape[0], weight.numel(), -1), (weight.numel(), 1)
    g, z = g.to(wide).reshape(shape), z.reshape(shape)
    scale = torch.ones(of_vector, dtype=wide, device=x.device)

    def sums(factor, result):
        mask = [i == result for i in range(5)]
        bias = torch.zeros_like(scale)
        computed = fastact._fused_leaky_relu_backward(
            g, factor, scale, bias, None, None, 1.0, output_mask=mask
        )
        return computed[result].view(weight.shape)

    return (by_self, sums(z, 1), sums(g, 2))[: 2 if name == "rms_norm" else 3]


@every_form
@pytest.mark.parametrize("shape, vector", ROWS + GROUPS)
@pytest.mark.parametrize("threads", (1, 2))
@pytest.mark.kernels
def test_one_pass_has_the_bits_of_several(name, shape, vector, threads, dtype, device):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for kind in ("finite", "special"):
            tensors = inputs_of(name, shape, vector, dtype, device)
            if kind == "special":
                x, g = tensors[:2]
                x.view(-1)[x.numel() // 2] = torch.nan
                g.view(-1)[x.numel() // 3] = torch.inf
                g.view(-1)[x.numel() // 4] = -0.0
            for a, b in zip(all_gradients(name, *tensors), composed(name, *tensors), strict=True):
                assert_same_bits(a, b)
    finally:
        torch.set_num_threads(before)


@every_form
@pytest.mark.parametrize("shape, vector", ((ROWS[2]), (GROUPS[4])))
def test_masks_and_layouts(name, shape, vector, dtype, device):
    """No result depends on which others are wanted, nor on strides."""
    tensors = inputs_of(name, shape, vector, dtype, device)
    expected = all_gradients(name, *tensors)
    apart = [t.transpose(0, -1).contiguous().transpose(0, -1) for t in tensors[:2]]
    apart += [torch.stack((t, t), -1)[..., 0] for t in tensors[2:]]
    for mask in itertools.product((True, False), repeat=len(expected)):
        for given in (tensors, apart):
            with untouched(*given):
                results = all_gradients(name, *given, mask=mask)
            for result, wanted, each in zip(results, mask, expected, strict=True):
                assert (result is not None) == wanted
                if wanted:
                    assert_same_bits(result, each)


@every_form
@pytest.mark.parametrize("shape, vector", ROWS[2:4] + GROUPS[3:5])
def test_subnormal_sums_are_not_flushed(name, shape, vector):
    """A thread that flushes subnormal numbers gets the same sums."""
    x, g, *more = inputs_of(name, shape, vector, torch.float32)
    g = g * 1e-39
    expected = all_gradients(name, x, g, *more)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    try:
        flushed = all_gradients(name, x, g, *more)
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(threads)
    for a, b in zip(flushed, expected, strict=True):
        assert_same_bits(a, b)
    assert expected[1].any()


@every_form
def test_no_elements(name, dtype, device):
    for shape, vector in (((0, 3), (3,)), ((3, 0), (0,)), ((0, 2, 6), (2, 3))):
        for kind in (device, "meta"):
            tensors = [t.to(kind) for t in inputs_of(name, shape, vector, dtype, device)]
            results = all_gradients(name, *tensors)
            assert results[0].shape == shape and results[0].dtype == dtype
            for result in results[1:]:
                assert result.shape == vector and result.dtype.itemsize >= 4
                assert kind == "meta" or not result.any()


@every_form
def test_errors_of_arguments(name, device):
    x, g, weight, *more = inputs_of(name, (4, 6), (6,), torch.float32, device)
    op = getattr(fastact, f"_{name}_gradients")
    mask = [True] * (2 if name == "rms_norm" else 3)
    more_along_first = [t.view(1, 4) for t in more]
    cases = [
        (lambda: op(x, g, weight[:3], *more, EPS, -1, output_mask=mask), RuntimeError,
         "expected a weight for each element of a row, but got the shape [3] for [4, 6]"),
        (lambda: op(x, g, weight[0], *more, EPS, -1, output_mask=mask), RuntimeError,
         "expected a weight for each element of a row, but got the shape [] for [4, 6]"),
        (lambda: op(x[:, :4], g[:, :4], weight[:4], *more_along_first, EPS, 0, output_mask=mask),
         RuntimeError, "expected dim to be the last dimension, but got 0"),
        (lambda: op(x, g[:2], weight, *more, EPS, -1, output_mask=mask), RuntimeError,
         "expected self to have the shape of grad_output, [2, 6], but got [4, 6]"),
        (lambda: op(x, g, weight.double(), *more, EPS, -1, output_mask=mask), RuntimeError,
         "expected weight to have the type of grad_output, Float, but got Double"),
    ]  # fmt: skip
    for call, kind, message in cases:
        error = error_of(call)
        assert type(error) is kind, error
        assert first_line(error) == f"fastact::{name}_backward: {message}"


@every_form
def test_opcheck(name, device):
    for shape, vector in (((3, 4), (4,)), ((2, 2, 6), (2, 3))):
        tensors = inputs_of(name, shape, vector, torch.float32, device)
        mask = [True] * (2 if name == "rms_norm" else 3)
        op = getattr(fastact, f"_{name}_gradients").default
        torch.library.opcheck(op, (*tensors, EPS, -1), {"output_mask": mask})


# The shape of the vectors, and the call.
CALLS = {
    "rms_norm": ((6,), lambda x, w: fastact.rms_norm(x, (6,), w)),
    "layer_norm": ((6,), lambda x, w, b: fastact.layer_norm(x, (6,), w, b)),
    "layer_norm without bias": ((6,), lambda x, w: fastact.layer_norm(x, (6,), w)),
    "layer_norm of two dimensions": ((8, 6), lambda x, w, b: fastact.layer_norm(x, (8, 6), w, b)),
    "group_norm": ((6,), lambda x, w, b: fastact.group_norm(x.mT, 3, w, b)),
    "instance_norm": ((6,), lambda x, w, b: fastact.instance_norm(x.mT, w, b)),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    "backend, dynamic",
    (
        *(("aot_eager", dynamic) for dynamic in (False, True)),
        pytest.param("inductor", True, marks=pytest.mark.slow),
    ),
)
def test_compiled_gradients_have_the_bits_of_eager(call, backend, dynamic, device, fresh_compiler):
    vector, function = CALLS[call]
    compiled = torch.compile(function, fullgraph=True, dynamic=dynamic, backend=backend)
    for batch in (70, 5):
        leaves = [torch.randn(batch, 8, 6, device=device).requires_grad_()]
        leaves += [
            torch.randn(vector, device=device).requires_grad_()
            for _ in range(function.__code__.co_argcount - 1)
        ]
        g = torch.randn_like(function(*leaves))
        expected = torch.autograd.grad(function(*leaves), leaves, g)
        for a, b in zip(torch.autograd.grad(compiled(*leaves), leaves, g), expected, strict=True):
            assert_same_bits(a, b)
