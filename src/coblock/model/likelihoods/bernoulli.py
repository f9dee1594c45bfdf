"""Cells that are 0 or 1, with a Beta(a, b) prior for the link probability of each block.

The statistics of a block are its links n and its observed non-links N. ``prior`` is (a, b).
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import digamma, gammaln

from coblock.kernels import Floats, Gain, gain_function
from coblock.kernels.bernoulli import (
    LARGEST,
    SMALLEST,
    block_log_likelihood,
    log_beta_gain,
    log_beta_gains,
    newton_ascent,
    newton_ascent_per_block,
    no_link_gain,
)
from coblock.model.likelihoods import Rule, Statistics, check_numbers

FEW_CELLS = 12  # up to which a gain is the log of a product
NEWTON_STEPS = 20  # most steps of an update; a start close to the optimum needs three to five
LEAST_RISE = 1e-10  # smaller differences of digammas are lost in rounding
LEAST_MEAN = 1e-6  # of a weak prior; it keeps both counts positive


@gain_function
def bernoulli_gain(statistics: Floats, plus: Floats, prior: Floats) -> float:
    """Return the gain of more links and non-links: a Beta-Bernoulli."""
    if statistics[0] < -1e-7 or statistics[1] < -1e-7:
        return 0.0
    a, b = prior[0] + statistics[0], prior[1] + max(statistics[1], 0.0)
    links, zeros = int(plus[0]), int(-plus[1])
    few = plus[0] == links and plus[1] == -zeros and 0 <= links <= zeros <= FEW_CELLS
    if few and b > zeros > 0:  # links, and unseen cells, in the place of zeros
        more, less = 1.0, 1.0
        for t in range(links):
            more *= a + t
        for t in range(zeros - links):
            more *= a + b - 1.0 - t
        for t in range(zeros):
            less *= b - 1.0 - t
        return math.log(more / less)
    if plus[0] == 0.0:
        return no_link_gain(a, b, plus[1])
    return log_beta_gain(a, b, plus[0], plus[1])


@dataclass(frozen=True, slots=True)
class Bernoulli:
    """Bernoulli cells with a Beta prior (MODEL 2, 8, 10, 13)."""

    name: str = "bernoulli"

    @property
    def gain(self) -> Gain:
        """The gain of a block in log marginal."""
        return bernoulli_gain

    @property
    def n_real(self) -> int:
        """How many of the first hyperparameters may be negative."""
        return 0

    def for_values(self, values: Any) -> "Bernoulli":
        """Return the likelihood itself: it does not depend on the values."""
        return self

    def encode(self, values: Any) -> Floats:
        """Return the values as numbers; refuse others than 0 and 1."""
        numbers = check_numbers(values)
        wrong = (numbers != 0) & (numbers != 1)
        if wrong.any():
            msg = (
                f"{wrong.sum():,} of {numbers.size:,} values are neither 0 nor 1; the first is "
                f"{numbers[wrong][0]:g}. Choose likelihood='poisson' for counts, or 'normal'."
            )
            raise ValueError(msg)
        return numbers

    def cell_statistics(self, values: Floats) -> Floats:
        """Return (1, 0) for links and (0, 1) for others."""
        return np.stack((values, 1.0 - values), axis=-1)

    def constant(self, values: Floats) -> float:
        """Return 0: there is no other part."""
        return 0.0

    def log_predictive(self, values: Floats, statistics: Statistics, prior: Floats) -> Floats:
        """Return the log probability of a further cell."""
        mean = self.predictive_mean(statistics, prior)
        return np.log(np.where(values > 0, mean, 1.0 - mean))

    def initial_prior(self, mean: float) -> Floats:
        """Return a prior with the weight of one cell."""
        mean = min(max(mean, LEAST_MEAN), 1.0 - LEAST_MEAN)
        return np.array([mean, 1.0 - mean]).reshape(2, 1, 1)

    def log_marginal(
        self, statistics: Statistics, prior: Floats, count: Floats | None = None
    ) -> float:
        """Return the sum over blocks of lnB(a + n, b + N) - lnB(a, b)."""
        n, N = statistics
        if prior[0].size == 1:
            return block_log_likelihood(n, N, prior[0].item(), prior[1].item(), count)
        a, b, n, N = (np.ascontiguousarray(part).ravel() for part in (*prior, n, N))
        value = np.empty(n.size)
        log_beta_gains(a, b, n, N, value)
        return float(value.sum() if count is None else value @ count)

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

    def learn_prior(
        self, statistics: Statistics, prior: Floats, rule: Rule, count: Floats | None = None
    ) -> Floats:
        """Return a and b, shared by all blocks, that make the counts more probable."""
        n, N = (np.ascontiguousarray(part) for part in statistics)
        if rule == "fixed" or n.size == 0:
            return prior
        if rule != "newton":
            step = vb_fixed_point if rule == "vb-fixed-point" else fixed_point
            return np.array(step(n, N, *prior, shared=True))
        a, b = newton_ascent(n, N, prior[0].item(), prior[1].item(), NEWTON_STEPS, count)
        found, limit = np.array([a, b]).reshape(2, 1, 1), point_mass(n, N, count)
        values = [self.log_marginal(statistics, each, count) for each in (found, limit)]
        return limit if values[1] > values[0] else found


def learn_each_prior(
    statistics: Statistics, prior: Floats, rule: Rule, hyperprior: tuple[float, float]
) -> Floats:
    """Return a and b of each block that are more probable given its counts (MODEL 8).

    The Gamma hyperprior, given by shape and rate, keeps them finite: a block is one draw from its
    prior, of which the likelihood alone makes a point mass.
    """
    n, N = (np.ascontiguousarray(part) for part in statistics)
    if rule == "fixed" or n.size == 0:
        return prior
    if rule != "newton":
        shape, rate = hyperprior
        step = vb_fixed_point if rule == "vb-fixed-point" else fixed_point
        return np.array(step(n, N, *prior, shape=shape, rate=rate))
    a, b = prior[0].copy(), prior[1].copy()
    newton_ascent_per_block(n, N, a, b, 1, *hyperprior)
    return np.array([a, b])


def log_gamma_density(x: Floats, hyperprior: tuple[float, float]) -> float:
    """Return the sum of the log densities of a Gamma distribution with this shape and rate."""
    shape, rate = hyperprior
    density = (shape - 1.0) * np.log(x) - rate * x
    return float(density.sum() + x.size * (shape * np.log(rate) - gammaln(shape)))


def point_mass(n: Floats, N: Floats, count: Floats | None = None) -> Floats:
    """Return the prior that gives all blocks the same link probability, up to its bounds.

    It is the best one for a single block, and for blocks that differ no more than by chance.
    Newton's method ends before, where the likelihood is nearly flat.
    """
    total = np.array([n.sum(), N.sum()] if count is None else [n @ count, N @ count])
    share = total / max(total.sum(), 1.0)
    return np.clip(share * LARGEST, SMALLEST, LARGEST).reshape(2, 1, 1)


def fixed_point(
    n: Floats,
    N: Floats,
    a: Floats,
    b: Floats,
    *,
    shape: float = 1.0,
    rate: float = 0.0,
    shared: bool = False,
) -> list[Floats]:
    """Return one step of the fixed point of MODEL 8; blocks without cells do not change it.

    Each block alone: eq:IRM_2dom_CVB_lowerbound_a_kl_update and
    eq:IRM_2dom_CVB_lowerbound_b_kl_update, with a Gamma hyperprior of this shape and rate; (1, 0)
    is none. A shared prior adds up the blocks.
    """
    rises = [digamma(x + count) - digamma(x) for x, count in ((a, n), (b, N), (a + b, n + N))]
    if shared:
        rises = [rise.sum().reshape(a.shape) for rise in rises]
    moves = rises[2] > 0.0
    scale = np.where(moves, rises[2] + rate, 1.0)
    return [
        np.clip(np.where(moves, (x * rise + shape - 1.0) / scale, x), SMALLEST, LARGEST)
        for x, rise in zip((a, b), rises, strict=False)
    ]


def vb_fixed_point(
    n: Floats,
    N: Floats,
    a: Floats,
    b: Floats,
    *,
    shape: float = 1.0,
    rate: float = 0.0,
    shared: bool = False,
) -> list[Floats]:
    """Return one step of VB's own fixed point, from the posteriors Beta(a + n, b + N).

    Each block alone: eq:IRM_2dom_VB_posterior_lowerbound_a_kl_update and
    eq:IRM_2dom_VB_posterior_lowerbound_b_kl_update, with the hyperprior of :func:`fixed_point`. A
    shared prior adds up the blocks. Its limits are those of :func:`fixed_point`.
    """
    updated = []
    for x, count in ((a, n), (b, N)):
        before = digamma(a + b) - digamma(x) + np.zeros_like(count)
        after = digamma(a + b + n + N) - digamma(x + count)
        if shared:
            before, after = (rise.sum().reshape(a.shape) for rise in (before, after))
        moves = np.minimum(before, after) > LEAST_RISE
        scale = np.where(moves, after + rate, 1.0)
        new = (x * before + shape - 1.0) / scale
        updated.append(np.clip(np.where(moves, new, x), SMALLEST, LARGEST))
    return updated
