"""Poisson cells with a Gamma prior: log marginals and the fit of the prior (RELATIONS 4, 13).

``a`` is the shape and ``b`` the rate of the prior, ``n`` the sum of the counts of a block and
``T`` its exposure. Counts need not be whole numbers.
"""

import math

import numpy as np

from coblock.kernels import Floats, inlined, kernel
from coblock.kernels.bernoulli import FLAT, LARGEST, SMALLEST, ascent_direction
from coblock.kernels.special import digamma, log, log_rising, trigamma, unrolled_sum


@inlined
def gamma_marginal(n: float, T: float, a: float, b: float) -> float:
    """Return a ln b - lnGamma(a) + lnGamma(a + n) - (a + n) ln(b + T)."""
    return log_rising(a, n) - n * log(b + T) - a * log((b + T) / b)


@kernel
def gamma_marginals(n: Floats, T: Floats, a: float, b: float, count: Floats | None = None) -> float:
    """Return the sum over blocks of :func:`gamma_marginal`, each counted so often."""
    value = np.empty(n.size)
    for t in range(n.size):
        value[t] = gamma_marginal(n[t], T[t], a, b)
    if count is not None:
        value *= count
    return unrolled_sum(value)


@kernel
def gamma_derivatives(
    n: Floats, T: Floats, a: float, b: float, count: Floats | None = None
) -> Floats:
    """Return the gradient (2) and Hessian (aa, ab, bb) of the above in (ln a, ln b)."""
    terms = np.empty((5, n.size))
    first_a, first_b, second_aa, second_ab, second_bb = terms
    start, start_second = digamma(a), trigamma(a)
    for t in range(n.size):
        rate = 1.0 / (b + T[t])
        first_a[t] = digamma(a + n[t]) - start - log((b + T[t]) / b)
        first_b[t] = a / b - (a + n[t]) * rate
        second_aa[t] = trigamma(a + n[t]) - start_second
        second_ab[t] = 1.0 / b - rate
        second_bb[t] = (a + n[t]) * rate * rate - a / (b * b)
    if count is not None:
        terms *= count
    g_a, g_b = a * unrolled_sum(first_a), b * unrolled_sum(first_b)
    h_aa, h_bb = a * a * unrolled_sum(second_aa) + g_a, b * b * unrolled_sum(second_bb) + g_b
    return np.array([g_a, g_b, h_aa, a * b * unrolled_sum(second_ab), h_bb])


@kernel
def gamma_ascent(
    n: Floats, T: Floats, a: float, b: float, steps: int, count: Floats | None = None
) -> tuple[float, float]:
    """Return a and b after safeguarded Newton steps in (ln a, ln b); the value never falls."""
    value = gamma_marginals(n, T, a, b, count)
    for _ in range(steps):
        step_a, step_b = ascent_direction(gamma_derivatives(n, T, a, b, count))
        fraction, improved = 1.0, False
        while fraction > 1e-6 and not improved:
            new_a = min(max(a * math.exp(fraction * step_a), SMALLEST), LARGEST)
            new_b = min(max(b * math.exp(fraction * step_b), SMALLEST), LARGEST)
            new_value = gamma_marginals(n, T, new_a, new_b, count)
            improved = new_value > value
            fraction *= 0.25
        if not improved:
            break
        gain = new_value - value
        a, b, value = new_a, new_b, new_value
        if gain < FLAT * (1.0 + abs(value)):
            break
    return a, b
