"""Each polynomial of the formulas is what scripts/fit_polynomials.py says of it."""

import sys

import pytest
from mpmath import mpf

from support import REPOSITORY

pytestmark = pytest.mark.kernels

sys.path.append(str(REPOSITORY / "scripts"))

import fit_polynomials as fits  # noqa: E402


def entries(header):
    """(fit, constants, digits) of each polynomial of a header."""
    for fit, (constants, digits) in zip(
        fits.POLYNOMIALS[header], fits.polynomials_of(header), strict=True
    ):
        yield fit, constants[fit.skipped :], digits


def test_every_polynomial_is_known():
    """A new one gets an entry in the script."""
    assert {h for h in fits.HEADERS if fits.polynomials_of(h)} == set(fits.POLYNOMIALS)


@pytest.mark.parametrize("header", fits.POLYNOMIALS)
def test_polynomials_are_found_again_or_near_the_best(header):
    for fit, constants, digits in entries(header):
        verdict = fits.compare(fit, constants, digits)
        assert verdict.held, (fit.what, verdict.text)


@pytest.mark.parametrize("header", fits.POLYNOMIALS)
def test_a_wrong_digit_is_noticed(header):
    """In the last place of an interpolated one; else by 2^-9 in one of the two that matter most."""
    for fit, constants, digits in entries(header):
        for k in range(2):
            changed = list(constants)
            if fit.within is None:
                exponent = fits.mp.frexp(changed[k])[1] - digits
                changed[k] += mpf(2) ** exponent
            elif abs(changed[k]) < abs(changed[1]) / 16:
                continue  # the constant of a function that is almost 0 there
            else:
                changed[k] *= 1 + mpf(2) ** -9
            assert not fits.compare(fit, changed, digits).held, (fit.what, k)


def test_remez_finds_a_known_polynomial():
    """The best line for e^x on [-1, 1] has the slope sinh(1)."""
    fit = fits.Fit("e^x", fits.mp.exp, mpf(-1), mpf(1), lambda x: mpf(1), within=1.0)
    samples = fits.sampled(fit, 40)
    line = fits.minimax(fit, 1, samples)
    assert abs(line[1] - fits.mp.sinh(1)) < 1e-3
    assert abs(fits.largest_error(fit, line, samples) - mpf("0.2788")) < 1e-3
