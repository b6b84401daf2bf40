"""NaN, infinities, zeros and subnormal numbers follow documented rules on every backend.

A used NaN operand gives the canonical NaN. A derivative that is exactly zero gives +0 for every
gradient. All derivatives of a NaN input are NaN.
"""

import itertools
import math

import pytest
import torch

from op_table import TOP_ORDER
from oracle import FORMATS, bits, correctly_rounded, exact_ulp_errors, from_bits
from support import DTYPES, assert_same_bits, in_one_case

EVERY_ACTIVATION = True
pytestmark = [pytest.mark.kernels, pytest.mark.every_combination]

every_type = in_one_case(dtype=DTYPES)
derivatives = in_one_case(dtype=DTYPES, order=range(1, TOP_ORDER + 1))


def nans(dtype, device):
    """Returns quiet and signalling NaNs of both signs with payloads."""
    digits, width = FORMATS[dtype].digits, 8 * dtype.itemsize
    infinity = ((1 << (width - digits)) - 1) << (digits - 1)
    quiet = infinity | 1 << (digits - 2)
    patterns = [infinity | 1, infinity | 3, quiet, quiet | 1, quiet | 5, (1 << (width - 1)) - 1]
    patterns += [p | 1 << (width - 1) for p in patterns]
    result = from_bits(patterns, dtype, device)
    assert result.isnan().all()
    return result


def canonical(t):
    return torch.full_like(bits(t), FORMATS[t.dtype].nan).view(t.dtype)


def specials(dtype, device):
    """Returns zeros, infinities, the largest, smallest normal and subnormal numbers, and others."""
    info = torch.finfo(dtype)
    positive = [
        0.0,
        math.inf,
        info.max,
        info.tiny,
        info.smallest_normal * info.eps,
        1.0,
        2.5,
        100.0,
    ]
    positive += [info.tiny * (1 - info.eps), info.eps, 17.5]
    return torch.tensor(positive + [-v for v in positive], dtype=torch.float64).to(dtype).to(device)


@every_type
def test_value_of_nan_is_canonical(act, device, dtype):
    x = nans(dtype, device)
    for repeat in (1, 100):  # shorter and longer than the vector loops
        x = x.repeat(repeat)
        assert_same_bits(act.op(x), canonical(x))
        assert_same_bits(act.op(x[::2]), canonical(x[::2]))
        assert_same_bits(act.op_(x.clone()), canonical(x))


@derivatives
def test_nan_input_has_a_nan_derivative(act, device, dtype, order):
    x = nans(dtype, device)
    for options, gradient in itertools.product(act.derivative_options, (1.0, 0.0, math.inf)):
        gradients = [torch.full_like(x, gradient)] * order
        assert_same_bits(act.ladder(*gradients, x, **options), canonical(x))


@every_type
def test_nan_input_has_a_nan_gradient_in_every_form(act, device, dtype):
    x = nans(dtype, device).requires_grad_()
    for form in (act.op, lambda x: act.op_(x.clone())):
        (gradient,) = torch.autograd.grad(form(x).sum(), x)
        assert_same_bits(gradient, canonical(x))


@every_type
def test_special_values(act, device, dtype):
    x = specials(dtype, device)
    expected = correctly_rounded(act, x, 0)
    if act.ulp[dtype][0] == 0.5:
        assert_same_bits(act.op(x), expected)
    else:
        actual, finite = act.op(x), expected.isfinite()
        errors = exact_ulp_errors(actual[finite], act.derivative, 0, x[finite])
        assert errors.max() <= act.ulp[dtype][0]
        assert torch.equal(actual[~finite], expected[~finite])
        assert torch.equal(actual.signbit(), expected.signbit())


# Activations whose value at -0.0 has another sign than ATen's. softshrink is always +0, ATen's is
# -0 in short tensors. tanhshrink is -0, and ATen subtracts -0 from -0. On a CPU with AVX2 and
# without AVX-512, ATen's gelu is oneDNN's, which returns +0 in contiguous tensors. On a GPU, ATen
# returns +0 for relu and relu6, and another zero for elu with a negative input_scale.
OTHER_ZEROS = {"cpu": {"softshrink", "tanhshrink", "gelu"}}
OTHER_ZEROS["cuda"] = {"softshrink", "tanhshrink", "relu", "relu6", "elu"}


@every_type
def test_zeros_keep_their_sign(act, device, dtype):
    zeros = torch.tensor([0.0, -0.0] * 40, dtype=dtype, device=device)
    signs = correctly_rounded(act, zeros, 0)
    for x, expected in ((zeros, signs), (zeros[:1], signs[:1]), (zeros[1::2], signs[1::2])):
        assert_same_bits(act.op(x), expected)
        if act.is_pytorchs and act.name not in OTHER_ZEROS[torch.device(device).type]:
            assert torch.equal(act.op(x).signbit(), act.aten(x).signbit())


@in_one_case(dtype=DTYPES, bounds=((-1.0, 0.0), (-1.0, -0.0), (0.0, 1.0), (-0.0, 1.0), (0.0, 0.0)))
def test_zeros_at_a_bound_keep_their_sign(device, dtype, bounds):
    zeros = torch.tensor([0.0, -0.0] * 40, dtype=dtype, device=device)
    for x in (zeros, zeros[:2]):
        assert_same_bits(torch.ops.fastact.hardtanh(x, *bounds), x)
    if device == "cpu":
        assert_same_bits(torch.nn.functional.hardtanh(zeros, *bounds), zeros)


@derivatives
def test_derivatives_at_special_values(act, device, dtype, order):
    """With unit gradients, both zeros have the derivative of zero, and a zero derivative is +0."""
    x = specials(dtype, device)
    expected = correctly_rounded(act, x, order)
    actual = act.ladder(*[torch.ones_like(x)] * order, x)
    # A negative derivative that underflows may be a zero of any sign.
    nonzero = actual != 0
    assert torch.equal(actual.signbit() & nonzero, expected.signbit())
    zero = [act.exactly_zero(v, order) for v in x.tolist()]
    assert_same_bits(actual[zero], torch.zeros_like(actual[zero]))
    finite = expected.isfinite()
    floor = act.floor(dtype, order)
    errors = exact_ulp_errors(actual[finite], act.derivative, order, x[finite], floor)
    assert errors.max(initial=0) <= act.ulp[dtype][order]
    torch.testing.assert_close(actual[~finite], expected[~finite], rtol=0, atol=0)


@derivatives
def test_gradients_meet_derivatives(act, device, dtype, order):
    """Compares every combination of special gradients at every kind of point with the rule."""
    gradient_values = (0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan)
    points = (-math.inf, -2.0, -0.5, -0.0, 0.0, 0.5, 2.0, math.inf, math.nan)
    rows = list(itertools.product(points, *[gradient_values] * order))
    columns = [torch.tensor(c, dtype=dtype, device=device) for c in zip(*rows)]
    x, gradients = columns[0], columns[1:]
    of_points = correctly_rounded(act, torch.tensor(points, dtype=dtype, device=device), order)
    derivative = of_points.double().cpu().repeat_interleave(len(rows) // len(points))
    product = torch.stack([g.double().cpu() for g in gradients]).prod(0) * derivative
    zero = torch.tensor([not math.isnan(r[0]) and act.exactly_zero(r[0], order) for r in rows])
    expected = torch.where(zero, torch.zeros_like(product), product).to(dtype)
    expected = torch.where(expected.isnan(), canonical(expected), expected)
    actual = act.ladder(*gradients, x).cpu()
    ordinary = expected.isfinite() & (expected != 0)
    torch.testing.assert_close(actual[ordinary], expected[ordinary])
    assert_same_bits(actual[~ordinary], expected[~ordinary])


@every_type
def test_gradient_at_minus_infinity(act, device, dtype):
    """If the derivative vanishes, every gradient gives +0; from a rounded result, almost 0."""
    if not act.exactly_zero(-math.inf, 1):
        pytest.skip(f"{act.name} does not saturate")
    leaf = torch.full((5,), -math.inf, dtype=dtype, device=device).requires_grad_()
    incoming = torch.tensor([1.0, -1.0, math.inf, -math.inf, math.nan], dtype=dtype, device=device)
    (gradient,) = torch.autograd.grad(act.op(leaf), leaf, incoming)
    assert_same_bits(gradient, torch.zeros_like(gradient))
    (gradient,) = torch.autograd.grad(act.op_(leaf.clone()), leaf, incoming)
    assert (gradient[:2].abs() <= torch.finfo(dtype).eps).all()


@every_type
def test_leaky_relu_with_a_slope_beyond_float(device, dtype):
    """The product overflows for the smallest input, except in float64. PyTorch raises an error."""
    least = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    x = torch.tensor([-1.0, -least, least, 1.0], dtype=dtype, device=device)
    below_zero = [-1e300, -least * 1e300] if dtype == torch.float64 else [-math.inf] * 2
    expected = torch.tensor([*below_zero, *x[2:]], dtype=dtype, device=device)
    assert_same_bits(torch.ops.fastact.leaky_relu(x, 1e300), expected)


@every_type
def test_elu_with_an_input_scale_of_zero_or_nan(device, dtype):
    """The results below 0 are 0 (ATen's is NaN for -inf), and NaN for NaN."""
    x = torch.tensor([-math.inf, -1.0, -0.0, 0.0, 1.0, math.inf], dtype=dtype, device=device)
    for alpha, zero in ((1.0, -0.0), (-1.0, 0.0)):
        expected = torch.tensor([zero, zero, *x[2:]], dtype=dtype, device=device)
        assert_same_bits(torch.ops.fastact.elu(x, alpha, 1.0, 0.0), expected)
        # Signs are ignored: ATen's zeros differ between GPU and CPU.
        assert torch.equal(torch.ops.aten.elu(x, alpha, 1.0, 0.0)[1:], expected[1:])
    nan = torch.ops.fastact.elu(x, 1.0, 1.0, math.nan)
    assert nan[:2].isnan().all() and torch.equal(nan[2:], x[2:])


@every_type
def test_elu_overflows_to_infinity(device, dtype):
    """With a negative input_scale, e^z exceeds the range of the type, then that of double."""
    start = math.log(torch.finfo(dtype).max) + 1
    x = -torch.linspace(start, start + 1000, 100_001, dtype=torch.float64).to(device, dtype)
    y = torch.ops.fastact.elu(x, 1.0, 1.0, -1.0)
    assert_same_bits(y, torch.full_like(y, math.inf))
