def bent_identity(m, x, k):
    one, half = m.number(1), m.number("0.5")

    def form(parts):
        def f(x):
            t, slope, q = parts(x)  # 1 / s, x / s and x / (s + 1)
            cube = half * t * t * t
            return {0: x * (one + half * q), 1: one + half * slope, 2: cube}.get(
                k, m.number(-3) * slope * cube * t
            )

        return f

    def inner(x):
        s = m.sqrt(x * x + one)
        return one / s, x / s, x / (s + one)

    def outer(sign):
        """The same in 1 / |x|, for infinities too."""

        def parts(x):
            u = m.number(sign) / x
            r = m.sqrt(one + u * u)
            return u / r, m.number(sign) / r, m.number(sign) / (r + u)

        return form(parts)

    def not_above(x):
        return m.where(x < -1, outer(-1), form(inner), x)

    return m.where(x > 1, outer(1), not_above, x)
