"""Priors of a partition: Chinese restaurant process and truncated sticks (MODEL 2, 4, 8, 10)."""

from collections.abc import Callable

import numpy as np
from scipy.special import betaln, digamma, gammaln, polygamma

from coblock.kernels import Floats
from coblock.kernels.bernoulli import LARGEST, SMALLEST
from coblock.kernels.special import log_rising

CLOSE = 1e-10  # change of ln alpha below which Newton's method has converged


def crp_log_probability(m: Floats, alpha: float) -> float:
    """Return log p(z | alpha) of a partition into clusters of these sizes (eq:CRP_def)."""
    m = m[m > 0]
    return float(m.size * np.log(alpha) + gammaln(m).sum() - log_rising(alpha, m.sum()))


def crp_concentration(clusters: int, objects: int, alpha: float = 1.0) -> float:
    """Return the concentration under which the number of clusters is most probable (MODEL 10)."""

    def slope(alpha: float) -> tuple[float, float]:
        first = clusters / alpha + digamma(alpha) - digamma(alpha + objects)
        second = polygamma(1, alpha) - polygamma(1, alpha + objects) - clusters / alpha**2
        return float(first), float(second)

    return newton_on_log_scale(slope, alpha)


def stick_log_marginal(m: Floats, alpha: float) -> float:
    """Return log p(z | alpha) with sticks integrated out, K - 1 of them random.

    eq:IRM_2dom_CVB_z_1_marginal with the errata of MODEL 12.
    """
    return float((np.log(alpha) + betaln(1.0 + m[:-1], alpha + tails(m)[:-1])).sum())


def stick_concentration(m: Floats, alpha: float, rule: str) -> float:
    """Return a concentration under which the sizes are more probable, with truncated sticks.

    One step of eq:IRM_2dom_CVB_alpha_1_update with K - 1 random sticks (MODEL 12), or its optimum.
    """
    if rule == "fixed" or m.size == 1:
        return alpha
    M = tails(m)[:-1]
    if rule == "fixed-point":
        rise = digamma(M + alpha + m[:-1] + 1.0) - digamma(M + alpha)
        return float(np.clip((m.size - 1) / rise.sum(), SMALLEST, LARGEST))

    def slope(alpha: float) -> tuple[float, float]:
        whole = m[:-1] + M + alpha + 1.0
        first = M.size / alpha + (digamma(M + alpha) - digamma(whole)).sum()
        second = (polygamma(1, M + alpha) - polygamma(1, whole)).sum() - M.size / alpha**2
        return float(first), float(second)

    return newton_on_log_scale(slope, alpha)


def expected_log_sticks(m: Floats, alpha: float) -> Floats:
    """Return E[log pi_k] under variational Bayes; the last stick is 1.

    eq:IRM_2dom_VB_posterior_alphahat_1k, eq:IRM_VB_posterior_betahat_1k
    """
    a_hat, b_hat = 1.0 + m[:-1], alpha + tails(m)[:-1]
    both = digamma(a_hat + b_hat)
    own = np.append(digamma(a_hat) - both, 0.0)
    return own + np.append(0.0, np.cumsum(digamma(b_hat) - both))


def tails(m: Floats) -> Floats:
    """Return M_k, the members of later clusters (eq:IRM_2dom_CVB_M_1k_2l_E)."""
    return np.append(np.cumsum(m[::-1])[::-1][1:], 0.0)


def newton_on_log_scale(slope: Callable[[float], tuple[float, float]], x: float) -> float:
    """Return the root of a slope in ln x by Newton steps inside a shrinking bracket.

    ``slope`` returns first and second derivative in x of a function with one maximum.
    """
    low, high, at = np.log(SMALLEST), np.log(LARGEST), np.log(x)
    for _ in range(100):
        x = float(np.exp(at))
        first, second = slope(x)
        gradient, curvature = x * first, x * x * second + x * first
        low, high = (at, high) if gradient > 0 else (low, at)
        new = at - gradient / curvature if curvature < 0 else np.inf
        if not low < new < high:
            new = 0.5 * (low + high)
        if abs(new - at) < CLOSE:
            break
        at = new
    return float(np.clip(np.exp(at), SMALLEST, LARGEST))
