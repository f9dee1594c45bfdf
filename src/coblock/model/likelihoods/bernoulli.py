"""Cells that are 0 or 1, with a Beta(a, b) prior for the link probability of each block.

The statistics of a block are its links n and its observed non-links N. ``prior`` is (a, b).
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import digamma

from coblock.kernels import Floats
from coblock.kernels.bernoulli import (
    LARGEST,
    SMALLEST,
    block_log_likelihood,
    log_beta_gains,
    newton_ascent,
    newton_ascent_per_block,
)
from coblock.model.likelihoods import Rule, Statistics

NEWTON_STEPS = 20  # most steps of an update; a start close to the optimum needs three to five
LEAST_MEAN = 1e-6  # of a weak prior; it keeps both counts positive


@dataclass(frozen=True, slots=True)
class Bernoulli:
    """Bernoulli cells with a Beta prior (MODEL 2, 8, 10, 13)."""

    name: str = "bernoulli"

    def initial_prior(self, mean: float) -> Floats:
        """Return a prior with the weight of one cell."""
        mean = min(max(mean, LEAST_MEAN), 1.0 - LEAST_MEAN)
        return np.array([mean, 1.0 - mean]).reshape(2, 1, 1)

    def log_marginal(self, statistics: Statistics, prior: Floats) -> float:
        """Return the sum over blocks of lnB(a + n, b + N) - lnB(a, b)."""
        n, N = statistics
        if prior[0].size == 1:
            return block_log_likelihood(n, N, prior[0].item(), prior[1].item())
        a, b, n, N = (np.ascontiguousarray(part).ravel() for part in (*prior, n, N))
        value = np.empty(n.size)
        log_beta_gains(a, b, n, N, value)
        return float(value.sum())

    def predictive_mean(self, statistics: Statistics, prior: Floats) -> Floats:
        """Return the posterior mean link probability of every block."""
        n, N = statistics
        a, b = prior
        return (a + n) / (a + b + n + N)

    def expected_log(self, statistics: Statistics, prior: Floats) -> Statistics:
        """Return E[log theta] and E[log(1 - theta)].

        eq:IRM_2dom_VB_posterior_ahat_kl, eq:IRM_2dom_VB_posterior_bhat_kl
        """
        a_hat, b_hat = prior[0] + statistics[0], prior[1] + statistics[1]
        both = digamma(a_hat + b_hat)
        return digamma(a_hat) - both, digamma(b_hat) - both

    def learn_prior(self, statistics: Statistics, prior: Floats, rule: Rule) -> Floats:
        """Return a and b that make the counts more probable; all blocks share them, or none do."""
        n, N = (np.ascontiguousarray(part) for part in statistics)
        if rule == "fixed" or n.size == 0:
            return prior
        shared = prior.shape[1:] == (1, 1)  # a prior of one block alone has one axis less
        if rule == "fixed-point":
            return np.array(fixed_point(n, N, *prior, shared=shared))
        if shared:
            a, b = newton_ascent(n, N, prior[0].item(), prior[1].item(), NEWTON_STEPS)
            return np.array([a, b]).reshape(2, 1, 1)
        a, b = prior[0].copy(), prior[1].copy()
        newton_ascent_per_block(n, N, a, b, 1)
        return np.array([a, b])


def fixed_point(n: Floats, N: Floats, a: Floats, b: Floats, *, shared: bool) -> list[Floats]:
    """Return one step of the fixed point of MODEL 8; blocks without cells do not change it.

    Each block alone: eq:IRM_2dom_CVB_lowerbound_a_kl_update and
    eq:IRM_2dom_CVB_lowerbound_b_kl_update. A shared prior adds up the blocks.
    """
    rises = [digamma(x + count) - digamma(x) for x, count in ((a, n), (b, N), (a + b, n + N))]
    if shared:
        rises = [rise.sum().reshape(a.shape) for rise in rises]
    moves = rises[2] > 0.0
    scale = np.where(moves, rises[2], 1.0)
    return [
        np.clip(np.where(moves, x * rise / scale, x), SMALLEST, LARGEST)
        for x, rise in zip((a, b), rises, strict=False)
    ]
