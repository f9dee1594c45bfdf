"""Special functions without cancellation at large counts."""

import math

from coblock.kernels import kernel

STIRLING_FROM = 16.0  # the Stirling series below is exact to 1e-16 from here on
NOTHING = 1e-14  # of x: a smaller step changes lnGamma by less than rounding does
SERIES_FROM = 15.0  # the same for the series of its derivatives


@kernel
def stirling_rest(x: float) -> float:
    """Return lnGamma(x) - (x - 1/2) ln x + x - ln(2 pi)/2 for x >= 16."""
    z = 1.0 / (x * x)
    series = 1 / 1260 - z * (1 / 1680 - z * (1 / 1188))
    return (1 / 12 - z * (1 / 360 - z * series)) / x


@kernel
def log_rising(x: float, d: float) -> float:
    """Return lnGamma(x + d) - lnGamma(x), the log rising factorial, for x > 0 and d >= 0."""
    if d <= NOTHING * min(x, STIRLING_FROM):
        return 0.0
    if x < STIRLING_FROM:
        return math.lgamma(x + d) - math.lgamma(x)
    smooth = (x - 0.5 + d) * math.log1p(d / x) + d * (math.log(x) - 1.0)
    return smooth + (stirling_rest(x + d) - stirling_rest(x))


@kernel
def log_beta_gain(n_rest: float, N_rest: float, n_plus: float, N_plus: float) -> float:
    """Return lnB(n_rest + n_plus, N_rest + N_plus) - lnB(n_rest, N_rest)."""
    gain = log_rising(n_rest, n_plus) + log_rising(N_rest, N_plus)
    return gain - log_rising(n_rest + N_rest, n_plus + N_plus)


@kernel
def trigamma(x: float) -> float:
    """Return the second derivative of lnGamma for x > 0."""
    total = 0.0
    while x < SERIES_FROM:
        total += 1.0 / (x * x)
        x += 1.0
    z = 1.0 / (x * x)
    series = 1 / 42 - z * (1 / 30 - z * (5 / 66 - z * (691 / 2730)))
    return total + 1.0 / x + 0.5 * z + (1 / 6 - z * (1 / 30 - z * series)) * z / x


@kernel
def digamma(x: float) -> float:
    """Return the derivative of lnGamma for x > 0."""
    total = 0.0
    while x < SERIES_FROM:
        total -= 1.0 / x
        x += 1.0
    z = 1.0 / (x * x)
    series = 1 / 252 - z * (1 / 240 - z * (1 / 132 - z * (691 / 32760)))
    return total + math.log(x) - 0.5 / x - (1 / 12 - z * (1 / 120 - z * series)) * z
