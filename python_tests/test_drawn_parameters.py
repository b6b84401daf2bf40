"""Activations with random and with infinite parameters."""

import math

import pytest
import torch

from contract import assert_within_contract
from drawn_parameters import COUNT, FAMILIES, SEED, Setting, check_exact, settings
from oracle import FORMATS, bits
from support import assert_same_bits

pytestmark = pytest.mark.kernels


@pytest.mark.parametrize("name", FAMILIES)
def test_drawn_parameters_are_exact(name, device, dtype):
    print(f"FASTACT_SETTINGS_SEED={SEED} FASTACT_SETTINGS={COUNT}")
    told = [setting for setting in settings(name) if setting.is_told]
    assert len(told) >= COUNT / 2
    for setting in told:
        check_exact(setting, dtype, device)


@pytest.mark.parametrize(
    "name, parameters, dtype, x",
    (
        # A subnormal product, which has fewer digits, times a factor above 1.
        ("elu", (6.5, 7.4, 0.2020290718529369), torch.float64, -4.49489810288e-312),
        ("celu", (12.0,), torch.float64, -1.1047e-320),
        # e^z - 1 where it is small compared with the extracted power of two.
        ("elu", (0.091, 6.0, -0.32308411738751847), torch.float64, -1.1487544985395597),
        # The product with beta is infinite, and so is the threshold in float.
        ("softplus", (3.5493452565536128, 1.0064423640643529e88), torch.bfloat16, 3.3895314e38),
    ),
)
def test_parameters_that_were_once_wrong(name, parameters, dtype, x, device):
    act = Setting(name, parameters).row(dtype)
    tensor = torch.tensor([x], dtype=dtype, device=device)
    assert_within_contract(act, act.ladder(tensor), tensor)


INF, NAN = math.inf, math.nan

# Parameters that are not finite, and zeros with a special meaning.
SPECIAL = (
    *(("leaky_relu", (slope,)) for slope in (INF, -INF, NAN)),
    *(("hardtanh", bounds) for bounds in ((-INF, 1.0), (-INF, INF), (NAN, 1.0), (-1.0, NAN))),
    *(("threshold", v) for v in ((INF, 1.0), (-INF, 1.0), (NAN, 1.0), (0.0, INF), (0.0, NAN))),
    ("hardshrink", (NAN,)),
    *(("elu", (alpha, 1.0, 1.0)) for alpha in (INF, -INF, NAN, 0.0)),
    *(("elu", (1.0, scale, 1.0)) for scale in (INF, NAN, 0.0)),
    *(("elu", (1.0, 1.0, rate)) for rate in (INF, -INF, NAN)),
    *(("elu", values) for values in ((INF, 1.0, 0.0), (INF, 1.0, INF))),
    *(("celu", (alpha,)) for alpha in (INF, -INF, NAN)),
    *(("softplus", (beta, 20.0)) for beta in (INF, -INF, NAN)),
    *(("softplus", (1.0, threshold)) for threshold in (INF, -INF, NAN)),
)


@pytest.mark.parametrize("name, parameters", SPECIAL)
def test_special_parameters_are_as_atens(name, parameters, device, dtype):
    """The results are those of the definition in IEEE arithmetic: ATen's infinities, NaNs and signs
    on a CPU. ATen's GPU kernels treat a zero as negative, so an infinite factor makes it NaN."""
    numbers = [-INF, -3.0, -0.5, -1e-3, -0.0, 0.0, 1e-3, 0.5, 3.0, INF, NAN]
    x = torch.tensor(numbers, dtype=dtype, device=device)
    expected = getattr(torch.ops.aten, name)(x.cpu().double(), *parameters).to(dtype)
    actual = getattr(torch.ops.fastact, name)(x, *parameters).cpu()
    torch.testing.assert_close(actual, expected, equal_nan=True)
    assert torch.equal(actual.signbit() & ~actual.isnan(), expected.signbit() & ~expected.isnan())
    assert (bits(actual)[actual.isnan()] == FORMATS[dtype].nan).all()


def test_softplus_with_a_beta_of_zero(device, dtype):
    """The value is log(2) / 0 for every number, also where ATen returns NaN; the slope is 1 / 2."""
    x = torch.tensor([-INF, -3.0, -0.0, 0.0, 3.0, INF], dtype=dtype, device=device)
    for beta in (0.0, -0.0):
        infinite = torch.full_like(x, math.copysign(INF, beta))
        assert_same_bits(torch.ops.fastact.softplus(x, beta), infinite)
        slope = torch.ops.fastact.softplus_backward(torch.ones_like(x), x, beta)
        assert_same_bits(slope, torch.full_like(x, 0.5))
        # Beyond the threshold the value is x, also for NaN.
        finite = torch.cat([x[1:-1], torch.full_like(x[:1], NAN)])
        beyond = torch.ops.fastact.softplus(finite, beta, -1.0)
        assert_same_bits(beyond[:-1], finite[:-1])
        assert beyond[-1].isnan()
