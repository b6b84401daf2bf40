"""Checks FastAct's contract for any operands: special values by rule, all others by error bounds.

The oracle is the table row's mathematics in long double, independent of the library's formulas.
"""

import mpmath
import numpy as np
import torch

from oracle import FORMATS, LongDouble, bits, correctly_rounded, exact, ulp_of, wide


def _safe(y, dtype):
    """Returns where a partial product is far from the limits of the products' type (float32 for
    16-bit types, else double). Beyond the limits, the order of the products would matter."""
    magnitude = np.abs(y)
    exponent = 100 if dtype.itemsize == 2 else 1000
    return (magnitude > np.longdouble(2) ** -exponent) & (magnitude < np.longdouble(2) ** exponent)


def _partial_products(gradients):
    """Returns the product of each gradient with all gradients to its right."""
    products = [np.ones_like(gradients[0])]
    for gradient in reversed(gradients):
        products.append(gradient * products[-1])
    return products[1:]


def _assert_where(selected, actual, expected, operands):
    wrong = np.flatnonzero(selected & ~(actual == expected))
    if len(wrong):
        i = wrong[0]
        raise AssertionError(
            f"{len(wrong)} of {len(actual)} differ, first at {i}: {actual[i]}, expected "
            f"{expected[i]} of {[t.reshape(-1)[i].item() for t in operands]}"
        )


def assert_within_contract(act, actual, *operands, is_result=False):
    """Asserts that `actual` is D_k of k gradients and x, which broadcast and promote."""
    operands = [t.detach().to(actual.dtype).expand(actual.shape).cpu() for t in operands]
    actual = actual.detach().cpu()
    dtype, order = actual.dtype, len(operands) - 1
    if order == 0 and act.ulp[dtype][0] == 0.5:
        expected = correctly_rounded(act, operands[0], 0)
        _assert_where(
            np.ones(actual.numel(), bool),
            bits(actual).reshape(-1).numpy(), bits(expected).reshape(-1).numpy(), operands,
        )  # fmt: skip
        return

    *gradients, x = map(wide, operands)
    function = act.from_result if is_result else act.derivative
    nan_input = np.isnan(x)
    x = np.where(nan_input, 0, x)
    with np.errstate(all="ignore"):
        derivative = function(LongDouble, x, order) + np.zeros_like(x)
        absolute = 0.0
        if is_result:
            # The constants are rounded, and a result may be rounded past the limit, where the
            # derivative would be negative.
            derivative = np.maximum(derivative, 0) if order == 1 else derivative
            absolute = 2.0**-22 if dtype.itemsize == 2 else 2.0**-51
        factor = _partial_products(gradients)[-1] if gradients else np.ones_like(x)
        y = factor * derivative
        zero = ~nan_input & (derivative == 0) & (order > 0)
        unclear = np.zeros_like(zero)
        if is_result and order == 1:
            zero, unclear = unclear, derivative <= absolute
        if order > 0:
            unclear |= ~_safe(derivative, dtype)
            if dtype == torch.float32 and order == 1:
                # A formula's backward() may compute in float, where such a derivative underflows.
                unclear |= np.abs(derivative) < np.longdouble(2) ** -150
                # For an output that no input has, the derivative may overflow.
                unclear |= act.takes_output & (np.abs(derivative) > FORMATS[dtype].largest)
            # Infinities and NaNs decide, unless the other factors underflow first.
            for product in _partial_products([np.where(np.isfinite(g), g, 1) for g in gradients]):
                unclear |= (product != 0) & ~_safe(product, dtype)
        nan = nan_input | (~zero & ~unclear & np.isnan(y))
        ordinary = ~nan & ~zero & ~unclear
        largest = FORMATS[dtype].largest
        infinite = ordinary & (np.abs(y) > largest * (1 + 2 * torch.finfo(dtype).eps))
        finite = ordinary & (np.abs(y) <= largest)

    patterns = bits(actual).reshape(-1).numpy()
    _assert_where(nan, patterns, np.full_like(patterns, FORMATS[dtype].nan), operands)
    _assert_where(zero, patterns, np.zeros_like(patterns), operands)
    results = wide(actual)
    _assert_where(infinite, results, np.copysign(np.inf, y), operands)
    _assert_where(finite & (y != 0), np.signbit(results), np.signbit(y), operands)

    def too_far(y):
        with np.errstate(all="ignore"):
            allowed = act.allowed_error(dtype, order, x, derivative, factor, ulp_of)
            allowed = allowed + absolute * np.abs(factor)
            return finite & ~(np.abs(results - y) <= allowed)

    # The long double formula may have lost digits, so 200 bits decide.
    for i in np.flatnonzero(too_far(y)):
        decided = exact(function, float(x[i]), order)
        derivative[i] = np.longdouble(mpmath.nstr(decided, 30))
        y[i] = derivative[i] * factor[i]
    _assert_where(too_far(y), results, y, operands)
