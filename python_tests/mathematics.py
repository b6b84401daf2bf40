"""The exact mathematics of the activations: the value (k = 0) and three derivatives, written over
the arithmetics `m` of oracle.py."""

from dataclasses import dataclass

from oracle import Multiprecision

SELU_SCALE = "1.0507009873554804934193349852946"
SELU_ALPHA = "1.6732632423543772848170429916717"


def selu(m, x, k):
    scale = m.number(SELU_SCALE)
    slope = scale * m.number(SELU_ALPHA)
    if k == 0:
        return m.where(x > 0, lambda x: scale * x, lambda x: slope * m.expm1(x), x)
    positive = scale if k == 1 else m.number("0")
    return m.where(x > 0, lambda x: positive, lambda x: slope * m.exp(x), x)


def selu_from_result(m, r, k):
    scale = m.number(SELU_SCALE)
    slope = scale * m.number(SELU_ALPHA)
    positive = scale if k == 1 else m.number("0")
    negative = {1: lambda r: r + slope, 2: lambda r: m.number("1"), 3: lambda r: m.number("0")}[k]
    return m.where(r > 0, lambda r: positive, negative, r)


def relu(m, x, k):
    if k == 0:
        return m.where(x > 0, lambda x: x, lambda x: m.number("0"), x)
    return m.where(x > 0, lambda x: m.number("1" if k == 1 else "0"), lambda x: m.number("0"), x)


def leaky_relu(m, x, k, slope):
    positive = {0: lambda x: x, 1: lambda x: m.number(1)}.get(k, lambda x: m.number(0))
    negative = {0: lambda x: m.number(slope) * x, 1: lambda x: m.number(slope)}
    return m.where(x > 0, positive, negative.get(k, lambda x: m.number(0)), x)


def clamp(m, x, k, low, high):
    """x, clamped to [low, high]."""
    outside = (lambda x: m.number(low), lambda x: m.number(high)) if k == 0 else (zero(m),) * 2

    def inside(x):
        return x if k == 0 else m.number(int(k == 1))

    def above_low(x):
        return m.where(x < high, inside, outside[1], x)

    return m.where(x > low, above_low, outside[0], x)


def zero(m):
    return lambda x: m.number(0)


def threshold(m, x, k, threshold, value):
    above = {0: lambda x: x, 1: lambda x: m.number(1)}.get(k, zero(m))
    return m.where(x > threshold, above, lambda x: m.number(value if k == 0 else 0), x)


def shrink(m, x, k, lambd, shift):
    """0 for |x| <= lambd; otherwise x, moved by shift towards 0."""

    def beyond(sign):
        forms = {0: lambda x: x - m.number(sign * shift), 1: lambda x: m.number(1)}
        return forms.get(k, zero(m))

    def not_above(x):
        return m.where(x < -lambd, beyond(-1), zero(m), x)

    return m.where(x > lambd, beyond(1), not_above, x)


def piecewise(m, x, k, bound, middle, beyond):
    """0 for x <= -bound, beyond(x) for x >= bound, middle(x) between them."""

    def above(x):
        return m.where(x < bound, middle, beyond, x)

    return m.where(x > -bound, above, zero(m), x)


def hardsigmoid(m, x, k):
    middle = {0: lambda x: (x + m.number(3)) / m.number(6), 1: lambda x: m.number(1) / m.number(6)}
    one = m.number(int(k == 0))
    return piecewise(m, x, k, 3, middle.get(k, zero(m)), lambda x: one)


def hardswish(m, x, k):
    middle = {
        0: lambda x: x * (x + m.number(3)) / m.number(6),
        1: lambda x: (x + m.number("1.5")) / m.number(3),
        2: lambda x: m.number(1) / m.number(3),
    }
    beyond = {0: lambda x: x, 1: lambda x: m.number(1)}
    return piecewise(m, x, k, 3, middle.get(k, zero(m)), beyond.get(k, zero(m)))


def softsign(m, x, k):
    def side(sign):
        def form(x):
            t = m.number(1) / (m.number(1) + m.number(sign) * x)
            if k == 0:
                return m.number(sign) * (m.number(1) - t)
            power = t * t * {1: m.number(1), 2: t, 3: t * t}[k]
            return m.number({1: 1, 2: -2 * sign, 3: 6}[k]) * power

        return form

    def middle(sign):
        """Avoids the cancellation in 1 - t."""
        return lambda x: x / (m.number(1) + m.number(sign) * x)

    def not_above(x):
        if k == 0:
            return m.where(x > -1, middle(-1), side(-1), x)
        return m.where(x < 0, side(-1), zero(m) if k == 2 else side(1), x)

    def above(x):
        return m.where(x < 1, middle(1), side(1), x) if k == 0 else side(1)(x)

    return m.where(x > 0, above, not_above, x)


def squared_relu(m, x, k):
    positive = {0: lambda x: x * x, 1: lambda x: m.number(2) * x, 2: lambda x: m.number(2)}
    return m.where(x > 0, positive.get(k, zero(m)), zero(m), x)


def elu(m, x, k, alpha, scale, rate):
    """`rate` is a function of m, because 1 / alpha may not be a decimal number."""
    positive = {0: lambda x: m.number(scale) * x, 1: lambda x: m.number(scale)}.get(k, zero(m))
    # The negative side is zero, even at minus infinity.
    is_flat = not (scale and alpha and rate(Multiprecision))

    def negative(x):
        factor = m.number(scale) * m.number(alpha)
        for _ in range(k):
            factor = factor * rate(m)
        if is_flat:
            return factor if k else factor * m.number("-0")
        return factor * (m.exp if k else m.expm1)(rate(m) * x)

    # A zero keeps its sign, even if the rate is negative.
    return m.where(x >= 0 if k == 0 else x > 0, positive, negative, x)


def elu_from_result(m, r, k, alpha, scale, rate):
    positive = m.number(scale if k == 1 else 0)
    negative = {
        1: lambda r: rate(m) * (r + m.number(scale) * m.number(alpha)),
        2: lambda r: rate(m),
        3: zero(m),
    }[k]
    return m.where(r > 0, lambda r: positive, negative, r)


# Above FAR and below -FAR, the transcendental activations equal their limits in every type. Their
# formulas would multiply an infinite exponential by zero there.
FAR = 2.0**60


def between(m, x, low, middle, high, far=FAR):
    """low(x) below -far, high(x) beyond far, middle(x) between them."""

    def not_above(x):
        return m.where(x < -far, low, middle, x)

    return m.where(x > far, high, not_above, x)


def limit(m, k, value, slope):
    """Returns the limit at an infinity: a value ("x": x itself), a slope, and 0 for higher
    orders."""

    def form(x):
        if k == 0:
            return x if value == "x" else m.number(value)
        return m.number(slope if k == 1 else 0)

    return form


@dataclass(frozen=True)
class Logistic:
    """Logistic functions of z, which has the sign of x: sigma(z), sigma(-z), their product and
    sigma(-z) - sigma(z), each with relative accuracy in both tails."""

    rising: object
    falling: object
    slope: object
    difference: object


def logistic(m, x, z):
    """`z` is a function of x, so that conditions compare exact numbers."""

    def near_one(sign):
        return lambda x: 1 / (1 + m.exp(sign * z(x)))

    def near_zero(sign):
        def form(x):
            e = m.exp(sign * z(x))
            return e / (1 + e)

        return form

    def difference(sign):
        return lambda x: sign * m.expm1(-sign * z(x)) / (1 + m.exp(-sign * z(x)))

    rising = m.where(x > 0, near_one(-1), near_zero(1), x)
    falling = m.where(x > 0, near_zero(-1), near_one(1), x)
    return Logistic(
        rising, falling, rising * falling, m.where(x > 0, difference(1), difference(-1), x)
    )


def gated(m, x, k, w, *slopes):
    """x sigma(w(x)); `slopes` are the derivatives of w, zero beyond the last."""

    def middle(x):
        s = logistic(m, x, w)
        if k == 0:
            return x * s.rising
        w1, w2, w3 = (*(slope(x) for slope in slopes), *(0 * x,) * (3 - len(slopes)))
        if k == 1:
            return s.rising * (1 + x * s.falling * w1)
        bend = s.difference * w1 * w1 + w2
        if k == 2:
            return s.slope * (2 * w1 + x * bend)
        third = (1 - 6 * s.slope) * w1 * w1 * w1 + 3 * s.difference * w1 * w2 + w3
        return s.slope * (3 * bend + x * third)

    return between(m, x, limit(m, k, "-0", 0), middle, limit(m, k, "x", 1))


def silu(m, x, k):
    return gated(m, x, k, lambda x: x, lambda x: m.number(1))


def quick_gelu(m, x, k):
    rate = m.number("1.702")
    return gated(m, x, k, lambda x: rate * x, lambda x: rate)


def gelu_tanh(m, x, k):
    linear = m.sqrt(m.number(8) / m.pi())
    cubic = linear * m.number("0.044715")
    return gated(
        m, x, k,
        lambda x: x * (linear + cubic * x * x),
        lambda x: linear + 3 * cubic * x * x,
        lambda x: 6 * cubic * x,
        lambda x: 6 * cubic,
    )  # fmt: skip


def sigmoid(m, x, k):
    """The derivatives are functions of the result: y (1 - y) and its derivatives."""
    if k > 0:
        return {1: lambda y: y * (1 - y), 2: lambda y: 1 - 2 * y, 3: lambda y: m.number(-2)}[k](x)
    return between(
        m, x, limit(m, 0, 0, 0), lambda x: logistic(m, x, lambda x: x).rising, limit(m, 0, 1, 0)
    )


def tanh(m, x, k):
    """The derivatives are functions of the result: 1 - y^2 and its derivatives."""
    forms = {
        0: m.tanh,
        1: lambda y: (1 - y) * (1 + y),
        2: lambda y: -2 * y,
        3: lambda y: m.number(-2),
    }
    return forms[k](x)


def gelu(m, x, k):
    def middle(x):
        if k <= 1:
            cumulative = m.number("0.5") * m.erfc(-x / m.sqrt(m.number(2)))
            if k == 0:
                return x * cumulative
        density = m.exp(m.number("-0.5") * x * x) / m.sqrt(2 * m.pi())
        if k == 1:
            return cumulative + x * density
        return density * ((2 - x * x) if k == 2 else x * (x - 2) * (x + 2))

    return between(m, x, limit(m, k, "-0", 0), middle, limit(m, k, "x", 1))


def softplus(m, x, k, beta, threshold):
    """log(1 + e^(beta x)) / beta; x above the threshold."""
    if beta < 0:
        # Rotated by 180 degrees about the origin.
        return (-1) ** (k + 1) * softplus(m, -x, k, -beta, threshold)
    rate = m.number(beta)

    def middle(x):
        if k == 0:
            rising = m.where(
                x > 0,
                lambda x: rate * x + m.log1p(m.exp(-rate * x)),
                lambda x: m.log1p(m.exp(rate * x)),
                x,
            )
            return rising / rate
        s = logistic(m, x, lambda x: rate * x)
        return (s.rising, rate * s.slope, rate * rate * s.slope * s.difference)[k - 1]

    def below(x):
        ends = limit(m, k, 0, 0), limit(m, k, "x", 1)
        return between(m, x, ends[0], middle, ends[1], FAR / beta)

    return m.where(x > threshold / beta, limit(m, k, "x", 1), below, x)


def log_sigmoid(m, x, k):
    def middle(x):
        if k == 0:
            return m.where(
                x > 0,
                lambda x: -m.log1p(m.exp(-x)),
                lambda x: x - m.log1p(m.exp(x)),
                x,
            )
        s = logistic(m, x, lambda x: x)
        return (s.falling, -s.slope, -s.slope * s.difference)[k - 1]

    return between(m, x, limit(m, k, "x", 1), middle, limit(m, k, "-0", 0))


def mish(m, x, k):
    def side(sign):
        """With e = e^-|x|, tanh(log(1 + e^x)) = n / d."""

        def form(x):
            e = m.exp(-sign * x)
            if sign > 0:
                n = 1 + 2 * e
                d = n + 2 * e * e
                slope, h, s = 4 * e * e * (1 + e) / (d * d), (1 + e) / d, 1 / (1 + e)
            else:
                n = e * (e + 2)
                d = n + 2
                slope, h, s = 4 * e * (1 + e) / (d * d), e * (1 + e) / d, e / (1 + e)
            if k == 0:
                return x * n / d
            if k == 1:
                return n / d + x * slope
            rate = 1 + s - 4 * h
            if k == 2:
                return slope * (2 + x * rate)
            bend = rate * rate + s * (1 - s) - 4 * h * (1 + s - 2 * h)
            return slope * (3 * rate + x * bend)

        return form

    def middle(x):
        return m.where(x > 0, side(1), side(-1), x)

    return between(m, x, limit(m, k, "-0", 0), middle, limit(m, k, "x", 1))


def tanhshrink(m, x, k):
    def series(x):
        """Uses tanh's continued fraction, where x - tanh(x) would cancel."""
        z = x * x
        c = 61 + 0 * x
        for n in range(59, 1, -2):
            c = n + z / c
        g = z / c
        return x * g / (1 + g)

    def near(x):
        return x - m.tanh(x)

    # For large |x|, any precision rounds tanh(x) to 1, and x - 1 may be halfway between two
    # numbers. 1 - |tanh(x)| is below 2^-287 there, so 2^-140 can replace it.
    def above(x):
        return m.where(x < 100, near, lambda x: x - 1 + 2.0**-140, x)

    def below(x):
        return m.where(x > -100, near, lambda x: x + 1 - 2.0**-140, x)

    if k == 0:
        return m.where(x < 1, lambda x: m.where(x > -1, series, below, x), above, x)
    t = m.tanh(x)
    e = m.where(x > 0, lambda x: m.exp(-2 * x), lambda x: m.exp(2 * x), x)
    s = 4 * e / ((1 + e) * (1 + e))  # 1 - t^2
    return (t * t, 2 * t * s, 2 * s * (s - 2 * t * t))[k - 1]
