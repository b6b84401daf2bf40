"""Accuracy: compares values and derivatives with exact mathematics, by bits where documented."""

import math

import numpy as np
import pytest
import torch

from contract import assert_within_contract
from op_table import TOP_ORDER
from oracle import (
    LongDouble,
    correctly_rounded,
    every_16_bit_value,
    exact_ulp_errors,
    from_bits,
    ulp_errors,
    ulp_of,
    wide,
)
from support import assert_same_bits, values

EVERY_ACTIVATION = True
pytestmark = [pytest.mark.kernels, pytest.mark.every_combination]

orders = pytest.mark.parametrize("order", range(TOP_ORDER + 1))
derivatives = pytest.mark.parametrize("order", range(1, TOP_ORDER + 1))


def with_unit_gradients(act, x, order):
    return act.ladder(*[torch.ones_like(x)] * order, x)


def finite(x):
    return x[x.isfinite()]


def float32_sample(device):
    """Returns 40,000 floats of every exponent and sign, denser where formulas change. The C++ tests
    try four million, `make prove` tries all, and `make digests` compares the bits of all."""
    grid = torch.arange(0, 1 << 32, 262_147, dtype=torch.int64)
    pieces = [grid]

    def around(value, count):
        centre = from_bits([0], torch.float32).fill_(value).view(torch.int32).item() & 0xFFFFFFFF
        pieces.append(torch.arange(centre - count, centre + count, dtype=torch.int64))

    for value in (-1e-38, -(2.0**-24), -0.5, -1.0, -17.0, -17.328679, -18.0, -20.0, 1.0):
        around(value, 500)
    for n in range(1, 60):  # where the exponential's range reduction changes its interval
        around(-(n - 0.5) * math.log(2), 50)
    pieces.append(torch.arange(0, 1000))  # +0 and the smallest subnormal numbers
    pieces.append(torch.arange(1 << 31, (1 << 31) + 1000))  # -0 and the negative subnormal numbers
    patterns = torch.cat(pieces) & 0xFFFFFFFF
    return patterns.to(torch.int32).view(torch.float32).to(device)


def assert_rounded_as_promised(act, actual, x, order):
    bound = act.ulp[x.dtype][order]
    if order > 0:  # a negative derivative that underflows may be a zero of any sign
        actual = actual.masked_fill(actual == 0, 0.0)
    if bound == 0.5:
        assert_same_bits(actual, correctly_rounded(act, x, order))
    else:
        keep = x.isfinite() & actual.isfinite()
        errors = ulp_errors(actual[keep], act.derivative, order, x[keep])
        assert errors.max() <= bound, (errors.max(), x[keep][int(errors.argmax())].item())


@orders
def test_every_16_bit_input(act, device, half, order):
    x = every_16_bit_value(half).to(device)
    assert_rounded_as_promised(act, with_unit_gradients(act, x, order), x, order)


@orders
def test_every_16_bit_input_in_place_and_out(act, device, half, order):
    """The in-place and out= forms give the same bits."""
    x = every_16_bit_value(half).to(device)
    expected = with_unit_gradients(act, x, order)
    if order == 0:
        assert_same_bits(act.out(x, torch.empty_like(x)), expected)
        assert_same_bits(act.op_(x.clone()), expected)
    elif order == 1:
        assert_same_bits(act.grad_input(torch.ones_like(x), x, torch.empty_like(x)), expected)
        leaf = x.clone().requires_grad_()
        gradient = act.gradient(torch.ones_like(x), x)
        assert_same_bits(torch.autograd.grad(act.op(leaf).sum(), leaf)[0], gradient)


@orders
def test_float32(act, device, order):
    x = float32_sample(device)
    assert_rounded_as_promised(act, with_unit_gradients(act, x, order), x, order)


def float64_sample(device):
    generator = np.random.default_rng(7)
    exponents = generator.uniform(-1070, 1020, 400)
    signs = generator.choice((-1.0, 1.0), 400)
    pieces = (
        generator.normal(0, 3, 750),
        -generator.uniform(0, 760, 750),
        -generator.uniform(0, 1e-3, 150),
        -math.log(2) * (generator.integers(0, 60, 300) + 0.5) + generator.normal(0, 1e-9, 300),
        signs * np.exp2(exponents),
        (0.0, 1.0, -1.0, 5e-324, -5e-324, 2.0**-1022, -(2.0**-1022), -709.8, -745.2, -800.0, 1e300),
    )
    return torch.from_numpy(np.concatenate(pieces)).to(device)


@orders
def test_float64(act, device, order):
    x = float64_sample(device)
    actual = with_unit_gradients(act, x, order)
    keep = actual.isfinite()
    floor = act.floor(torch.float64, order)
    errors = exact_ulp_errors(actual[keep], act.derivative, order, x[keep], floor)
    worst = int(errors.argmax())
    assert errors.max() <= act.ulp[torch.float64][order], (errors.max(), x[keep][worst].item())


@derivatives
def test_products_with_gradients(act, device, dtype, order):
    """The product is rounded once, or in float64 once for each gradient."""
    x = values(20000, dtype=dtype, device=device)
    gradients = [values(20000, dtype=dtype, device=device) for _ in range(order)]
    assert_within_contract(act, act.ladder(*gradients, x), *gradients, x)


@derivatives
def test_derivatives_from_the_result(act, device, dtype, order):
    """Derivatives from the result are exact except for one rounding and that of the constants."""
    if not act.takes_is_result:
        pytest.skip(f"{act.name} has no is_result")
    if dtype.itemsize == 2:
        result = finite(act.op(every_16_bit_value(dtype).to(device)))
    else:
        result = act.op(values(20000, dtype=dtype, device=device))
    actual = act.ladder(*[torch.ones_like(result)] * order, result, is_result=True)
    # A result may be rounded past its limit. The derivative would be negative there, and is 0.
    expected = np.maximum(act.from_result(LongDouble, wide(result), order), 0)
    constants = 2.0**-22 if dtype.itemsize == 2 else 2.0**-51
    errors = np.abs(wide(actual) - expected)
    assert (errors <= 0.51 * ulp_of(expected, dtype) + constants).all()


def test_in_place_gradient_deep_in_the_negative_tail(act, device, dtype):
    """The gradient is computed from the rounded result. Its error is up to half an ULP of the
    largest result."""
    if not act.takes_is_result:
        pytest.skip(f"{act.id} does not take its gradient from the result")
    leaf = torch.linspace(-40, 0, 40001, dtype=torch.float64).to(dtype).to(device).requires_grad_()
    (in_place,) = torch.autograd.grad(act.op_(leaf * 1).sum(), leaf)
    (functional,) = torch.autograd.grad(act.op(leaf).sum(), leaf)
    (theirs,) = torch.autograd.grad(act.aten_(leaf * 1).sum(), leaf)
    assert (in_place >= 0).all()
    expected = act.derivative(LongDouble, wide(leaf), 1)
    result = wide(act.op(leaf))
    # The slope of d multiplies the error of the result.
    slope = np.abs(act.from_result(LongDouble, result, 2)).max()
    ulp = ulp_of(result, dtype).max() * max(slope, 1)
    error = np.abs(wide(in_place) - expected).max()
    assert error <= 1.01 * ulp
    assert error <= 1.01 * np.abs(wide(theirs) - expected).max() + 0.51 * ulp
    # The functional form, which saves the input, keeps its relative accuracy.
    errors = ulp_errors(functional, act.derivative, 1, leaf)
    assert errors.max() <= act.ulp[dtype][1] + (0.001 if dtype == torch.float64 else 0)


def test_in_place_gradient_without_the_result(act, device, dtype):
    """A saved or exactly recovered input gives the bits of the functional form."""
    if act.takes_is_result:
        pytest.skip(f"{act.id} takes its gradient from the result")
    leaf = torch.cat([values(2000), torch.tensor(act.kinks)]).to(dtype).to(device).requires_grad_()
    (in_place,) = torch.autograd.grad(act.op_(leaf * 1).sum(), leaf)
    (functional,) = torch.autograd.grad(act.op(leaf).sum(), leaf)
    assert_same_bits(in_place, functional)


def test_the_oracle_itself(act):
    """Compares the oracle with known values."""
    one = torch.tensor([1.0, -1.0, 0.0, -0.0], dtype=torch.float64)
    rounded = correctly_rounded(act, one, 0).tolist()
    assert rounded[0] == pytest.approx(float(act.aten(one)[0]), rel=1e-15)
    assert rounded[1] == pytest.approx(float(act.aten(one)[1]), rel=1e-15, abs=1e-300)
    assert rounded[2:] == act.aten(one)[2:].tolist()
    assert math.copysign(1, rounded[3]) == math.copysign(1, act.at_minus_zero)
