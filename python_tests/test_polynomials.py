"""Computes the polynomials and constants of the formulas again, and compares them."""

import re
import sys
from dataclasses import replace

import pytest
from mpmath import mpf

from support import REPOSITORY

pytestmark = pytest.mark.kernels

sys.path.append(str(REPOSITORY / "scripts" / "coefficients"))

import fit_polynomials as fits  # noqa: E402
import fit_segments as segments  # noqa: E402


def test_every_polynomial_is_known():
    """A new polynomial needs a name and an entry in the script."""
    standing = {h: fits.polynomials_of(h).keys() for h in fits.HEADERS if fits.polynomials_of(h)}
    assert standing == {h: named.keys() for h, named in fits.POLYNOMIALS.items()}


@pytest.mark.parametrize("header", fits.HEADERS)
def test_no_polynomial_is_without_a_name(header):
    assert not re.search(r"\bpolynomial\([^;]*0x", fits.HEADERS[header].read_text())


@pytest.mark.parametrize("header", fits.HEADERS)
def test_no_set_of_coefficients_stands_twice(header):
    elsewhere = {
        (other, name): standing.constants
        for other in fits.POLYNOMIALS
        for name, standing in fits.polynomials_of(other).items()
    }
    for name, standing in fits.polynomials_of(header).items():
        same = [key for key, other in elsewhere.items() if other == standing.constants]
        assert same == [(header, name)]


@pytest.mark.parametrize("header", fits.POLYNOMIALS)
def test_polynomials_are_found_again_or_near_the_best(header):
    standing = fits.polynomials_of(header)
    for name, fit in fits.POLYNOMIALS[header].items():
        verdict = fits.compare(fit, standing[name])
        assert verdict.held, (name, verdict.text)


@pytest.mark.parametrize("header", fits.POLYNOMIALS)
def test_a_wrong_digit_is_noticed(header):
    """Changes the last digit of the first and of the last coefficient."""
    standing = fits.polynomials_of(header)
    for name, fit in fits.POLYNOMIALS[header].items():
        right = standing[name]
        for k in (0, -1):
            changed = list(right.constants)
            changed[k] += mpf(2) ** (fits.mp.frexp(changed[k])[1] - right.digits)
            assert not fits.compare(fit, replace(right, constants=changed)).held, (name, k)


@pytest.mark.parametrize("header", fits.POLYNOMIALS)
def test_a_better_bound_than_the_polynomial_has_is_noticed(header):
    standing = fits.polynomials_of(header)
    for name, fit in fits.POLYNOMIALS[header].items():
        claimed = f"{float(standing[name].bound) + 0.1:.1f}"
        assert not fits.compare(fit, replace(standing[name], bound=claimed)).held, name


def test_constants_are_exact():
    for header in fits.CONSTANTS:
        assert fits.compare_constants(header) == []


@pytest.mark.parametrize("header", fits.CONSTANTS)
def test_a_wrong_digit_of_a_constant_is_noticed(header, monkeypatch):
    right = fits.constants_of(header)
    for name, values in fits.CONSTANTS[header].items():
        for k, value in enumerate(values):
            changed = (*values[:k], value * (1 + mpf(2) ** -52), *values[k + 1 :])
            monkeypatch.setattr(fits, "constants_of", lambda _, n=name, c=changed: {**right, n: c})
            assert len(fits.compare_constants(header)) == 1, name


def test_selu_has_the_constants_of_its_source():
    """They preserve mean 0 and variance 1: Klambauer et al., equation 14."""
    mp = fits.mp
    c = mp.erfc(1 / mp.sqrt(2)) * mp.exp(mpf(1) / 2)
    d = mp.erfc(mp.sqrt(2)) * mp.exp(2)
    scale = mp.sqrt(2 * d + mp.pi * c**2 - 2 * (2 + mp.pi) * c + mp.pi + 2)
    assert abs(fits.LAMBDA - (1 - c) * mp.sqrt(2 * mp.pi) / scale) < mpf("1e-30")
    assert abs(fits.LAMBDA_ALPHA - 2 / scale) < mpf("1e-30")


@pytest.mark.parametrize("name", segments.FUNCTIONS)
def test_segments_are_found_again(name):
    """The script finds the tables again, with the error bounds in the header."""
    assert segments.path_of(name).read_text() == segments.header_of(name)


def test_remez_finds_a_known_polynomial():
    """The best line for e^x on [-1, 1] has the slope sinh(1)."""
    fit = fits.Fit("e^x", fits.mp.exp, mpf(-1), mpf(1), lambda x: mpf(1), within=1.0)
    samples = fits.sampled(fit, 40)
    line = fits.minimax(fit, 1, samples)
    assert abs(line[1] - fits.mp.sinh(1)) < 1e-3
    assert abs(fits.largest_error(fit, line, samples) - mpf("0.2788")) < 1e-3
