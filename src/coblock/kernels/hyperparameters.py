"""Derivatives of the collapsed likelihood with respect to its hyperparameters (MODEL 8)."""

import math

import numpy as np

from coblock.kernels import Floats, kernel
from coblock.kernels.special import digamma, log_beta_values, trigamma
from coblock.kernels.strands import total_of

SMALLEST, LARGEST = 1e-8, 1e8  # hyperparameters stay in here; beyond, the prior is a point mass
LONGEST_STEP = 2.0  # on the log scale
FLAT = 1e-10


@kernel
def block_log_likelihood(n: Floats, N: Floats, a: float, b: float) -> float:
    """Return the sum over blocks of lnB(a + n, b + N) - lnB(a, b).

    The part of eq:IRM_2dom_CVB_lowerbound_hyprm that depends on a and b.
    """
    value = np.empty(n.size)
    log_beta_values(n, N, a, b, value)
    return total_of(value)


@kernel
def sums_of_slopes(x: float, n: Floats) -> tuple[float, float]:
    """Return how first and second derivative of lnGamma change from x to x + n, in all."""
    first, second, start = np.empty(n.size), np.empty(n.size), (digamma(x), trigamma(x))
    for t in range(n.size):
        first[t] = digamma(x + n[t]) - start[0]
        second[t] = trigamma(x + n[t]) - start[1]
    return total_of(first), total_of(second)


@kernel
def block_derivatives(n: Floats, N: Floats, a: float, b: float) -> Floats:
    """Return the gradient (2) and Hessian (aa, ab, bb) of the above in (ln a, ln b)."""
    slope_a, bend_a = sums_of_slopes(a, n)
    slope_b, bend_b = sums_of_slopes(b, N)
    slope_both, bend_both = sums_of_slopes(a + b, n + N)
    g_a, g_b = slope_a - slope_both, slope_b - slope_both
    h_aa = a * a * (bend_a - bend_both) + a * g_a
    h_bb = b * b * (bend_b - bend_both) + b * g_b
    return np.array([a * g_a, b * g_b, h_aa, -a * b * bend_both, h_bb])


@kernel
def ascent_direction(d: Floats) -> tuple[float, float]:
    """Return Newton's step where the Hessian bends down, else a step along the gradient."""
    g_a, g_b, h_aa, h_ab, h_bb = d
    determinant = h_aa * h_bb - h_ab * h_ab
    if h_aa < 0.0 and determinant > 1e-12 * h_aa * h_bb:
        step_a = (h_ab * g_b - h_bb * g_a) / determinant
        step_b = (h_ab * g_a - h_aa * g_b) / determinant
    else:
        scale = 1.0 / max(abs(h_aa), abs(h_bb), abs(g_a), abs(g_b), FLAT)
        step_a, step_b = g_a * scale, g_b * scale
    longest = max(abs(step_a), abs(step_b))
    shrink = min(1.0, LONGEST_STEP / longest) if longest > 0.0 else 1.0
    return step_a * shrink, step_b * shrink


@kernel
def within(x: float) -> float:
    """Return the hyperparameter nearest to ``x`` that is allowed."""
    return min(max(x, SMALLEST), LARGEST)


@kernel
def climb_blocks(n: Floats, N: Floats, a: float, b: float, steps: int) -> tuple[float, float]:
    """Take safeguarded Newton steps in (ln a, ln b); the likelihood never falls."""
    value = block_log_likelihood(n, N, a, b)
    for _ in range(steps):
        step_a, step_b = ascent_direction(block_derivatives(n, N, a, b))
        fraction, climbed = 1.0, False
        while fraction > 1e-6 and not climbed:
            new_a = within(a * math.exp(fraction * step_a))
            new_b = within(b * math.exp(fraction * step_b))
            new_value = block_log_likelihood(n, N, new_a, new_b)
            climbed = new_value > value
            fraction *= 0.25
        if not climbed:
            break
        gain = new_value - value
        a, b, value = new_a, new_b, new_value
        if gain < FLAT * (1.0 + abs(value)):
            break
    return a, b


@kernel
def climb_each_block(n: Floats, N: Floats, a: Floats, b: Floats, steps: int) -> None:
    """Take the same steps for every block by itself, in place (the paper's per-block prior)."""
    for t in range(n.size):
        a[t], b[t] = climb_blocks(n[t : t + 1], N[t : t + 1], a[t], b[t], steps)
