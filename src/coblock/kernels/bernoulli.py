"""Bernoulli cells with a Beta prior: marginals, gains and the fit of the prior (MODEL 5, 8, 10).

``a`` and ``b`` are the prior counts of links and of non-links, ``n`` and ``N`` the observed ones.
All functions named ``..._gains`` write one entry for each block, in loops that vectorise.
"""

import math

import numpy as np

from coblock.kernels import Floats, inlined, inlined_kernel, inner, kernel
from coblock.kernels.special import (
    digamma,
    log,
    log_rising_balance,
    log_rising_difference,
    trigamma,
    unrolled_sum,
)

SMALLEST, LARGEST = 1e-8, 1e8  # bounds of a hyperparameter; beyond, the prior is a point mass
LONGEST_STEP = 2.0  # of Newton's method, on the log scale
FLAT = 1e-10  # gain relative to the value below which Newton's method ends


@inlined_kernel
def log_beta_gain(n_rest: float, N_rest: float, n_plus: float, N_plus: float) -> float:
    """Return lnB(n_rest + n_plus, N_rest + N_plus) - lnB(n_rest, N_rest)."""
    return log_rising_balance(n_rest, n_plus, N_rest, N_plus, n_rest + N_rest)


@kernel
def log_beta_gains(
    n_rest: Floats, N_rest: Floats, n_plus: Floats, N_plus: Floats, out: Floats
) -> None:
    """Write :func:`log_beta_gain` of many blocks."""
    for t in range(out.size):
        out[t] = log_beta_gain(n_rest[t], N_rest[t], n_plus[t], N_plus[t])


@kernel
def same_gains(n_rest: Floats, N_rest: Floats, n_plus: float, N_plus: float, out: Floats) -> None:
    """Write the gains of many blocks to which the same cells are added."""
    for t in range(out.size):
        out[t] = log_beta_gain(n_rest[t], N_rest[t], n_plus, N_plus)


@kernel
def block_values(n: Floats, N: Floats, a: float, b: float, out: Floats) -> None:
    """Write the log marginals lnB(a + n, b + N) - lnB(a, b) of blocks with one prior."""
    for t in range(out.size):
        out[t] = log_beta_gain(a, b, n[t], N[t])


@inlined_kernel
def no_link_gain(n: float, N: float, m: float) -> float:
    """Return the gain of ``m`` non-links: lnB(n, N + m) - lnB(n, N)."""
    return log_rising_difference(N, n + N, m)


@inlined_kernel
def member_no_link_gain(n: float, N: float, m: float) -> float:
    """Return the gain of ``m`` non-links that are taken out of the counts first.

    0 where there are fewer non-links than that. What is left of the counts may be a prior of
    ``SMALLEST``, which rounding lowers.
    """
    rest = max(N - m, SMALLEST)
    gain = no_link_gain(n, rest, m)
    return gain if N - m > -0.5 else 0.0


@kernel
def link_gains(n: Floats, N: Floats, m: float, links: float, out: Floats) -> None:
    """Write the gains of ``links`` links among ``m`` cells less those of ``m`` non-links.

    lnB(n + links, N + m - links) - lnB(n, N + m): the sum of both counts cancels.
    """
    rest = m - links
    for t in range(out.size):
        out[t] = log_rising_difference(n[t], N[t] + rest, links)


@kernel
def few_link_gains(n: Floats, N: Floats, m: float, links: int, out: Floats) -> None:
    """Write :func:`link_gains` of up to 16 links, a whole number, as the log of a ratio.

    Rising factorials of counts below 1e13 with so many factors do not overflow.
    """
    rest = m - links
    for t in range(out.size):
        upper, lower = 1.0, 1.0
        for step in range(links):
            upper *= n[t] + step
            lower *= N[t] + rest + step
        out[t] = log(upper / lower)


@kernel
def block_log_likelihood(
    n: Floats, N: Floats, a: float, b: float, count: Floats | None = None
) -> float:
    """Return the sum over blocks of lnB(a + n, b + N) - lnB(a, b).

    The part of eq:IRM_2dom_CVB_lowerbound_hyprm that depends on a and b. ``count`` says how often
    each block counts; None: once.
    """
    value = np.empty(n.size)
    block_values(n, N, a, b, value)
    if count is not None:
        value *= count
    return unrolled_sum(value)


@inner
def polygamma_differences(x: float, n: Floats, count: Floats | None = None) -> tuple[float, float]:
    """Return the sums over n of the changes of digamma and trigamma from x to x + n."""
    first, second, start = np.empty(n.size), np.empty(n.size), (digamma(x), trigamma(x))
    for t in range(n.size):
        first[t] = digamma(x + n[t]) - start[0]
        second[t] = trigamma(x + n[t]) - start[1]
    if count is not None:
        first *= count
        second *= count
    return unrolled_sum(first), unrolled_sum(second)


@kernel
def block_derivatives(
    n: Floats, N: Floats, a: float, b: float, count: Floats | None = None
) -> Floats:
    """Return the gradient (2) and Hessian (aa, ab, bb) of the above in (ln a, ln b)."""
    sum_a, second_a = polygamma_differences(a, n, count)
    sum_b, second_b = polygamma_differences(b, N, count)
    sum_both, second_both = polygamma_differences(a + b, n + N, count)
    g_a, g_b = sum_a - sum_both, sum_b - sum_both
    h_aa = a * a * (second_a - second_both) + a * g_a
    h_bb = b * b * (second_b - second_both) + b * g_b
    return np.array([a * g_a, b * g_b, h_aa, -a * b * second_both, h_bb])


@inner
def ascent_direction(d: Floats) -> tuple[float, float]:
    """Return Newton's step where the Hessian is negative definite, else a gradient step."""
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


@inlined
def log_hyperprior(a: float, b: float, shape: float, rate: float) -> float:
    """Return the log density of Gamma hyperpriors of a and b, up to a constant."""
    return (shape - 1.0) * math.log(a * b) - rate * (a + b)


@kernel
def newton_ascent(
    n: Floats,
    N: Floats,
    a: float,
    b: float,
    steps: int,
    count: Floats | None = None,
    shape: float = 1.0,
    rate: float = 0.0,
) -> tuple[float, float]:
    """Return a and b after safeguarded Newton steps in (ln a, ln b).

    The likelihood times the Gamma hyperpriors of this shape and rate never falls; (1, 0) is none.
    """
    value = block_log_likelihood(n, N, a, b, count) + log_hyperprior(a, b, shape, rate)
    for _ in range(steps):
        derivatives = block_derivatives(n, N, a, b, count)
        derivatives += np.array([shape - 1.0, shape - 1.0, 0.0, 0.0, 0.0])
        derivatives -= rate * np.array([a, b, a, 0.0, b])
        step_a, step_b = ascent_direction(derivatives)
        fraction, improved = 1.0, False
        while fraction > 1e-6 and not improved:
            new_a = min(max(a * math.exp(fraction * step_a), SMALLEST), LARGEST)
            new_b = min(max(b * math.exp(fraction * step_b), SMALLEST), LARGEST)
            new_value = block_log_likelihood(n, N, new_a, new_b, count)
            new_value += log_hyperprior(new_a, new_b, shape, rate)
            improved = new_value > value
            fraction *= 0.25
        if not improved:
            break
        gain = new_value - value
        a, b, value = new_a, new_b, new_value
        if gain < FLAT * (1.0 + abs(value)):
            break
    return a, b


@kernel
def newton_ascent_per_block(
    n: Floats, N: Floats, a: Floats, b: Floats, steps: int, shape: float, rate: float
) -> None:
    """Apply :func:`newton_ascent` to each block alone, in place (the paper's per-block prior)."""
    for t in range(n.size):
        one = slice(t, t + 1)
        a[t], b[t] = newton_ascent(n[one], N[one], a[t], b[t], steps, None, shape, rate)
