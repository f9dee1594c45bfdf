"""Counts, with a Gamma(shape a, rate b) prior for the rate of each block (RELATIONS 4).

The statistics of a block are the sum n of its counts, which need not be whole numbers, and its
exposure T: the number of its observed cells, or the sum of their exposures. ``prior`` is (a, b).
The terms -ln x! of the cells are apart: no hyperparameter and no label changes them.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import digamma, gammaln

from coblock.kernels import Floats, Gain, gain_function
from coblock.kernels.bernoulli import LARGEST, SMALLEST
from coblock.kernels.poisson import gamma_ascent, gamma_marginals
from coblock.kernels.special import log_rising
from coblock.model.likelihoods import Rule, Statistics, check_counts

NEWTON_STEPS = 20  # most steps of an update
LEAST_MEAN = 1e-6  # of a weak prior


@gain_function
def poisson_gain(statistics: Floats, plus: Floats, prior: Floats) -> float:
    """Return the gain of more counts: a negative binomial without its constant."""
    shape, rate = prior[0] + statistics[0], prior[1] + max(statistics[1], 0.0)
    if statistics[0] < -1e-7 or statistics[1] < -1e-7:
        return 0.0
    rise = log_rising(shape, plus[0]) if plus[0] != 0.0 else 0.0
    return rise - shape * math.log1p(plus[1] / rate) - plus[0] * math.log(rate + plus[1])


@dataclass(frozen=True, slots=True)
class Poisson:
    """Poisson cells with a Gamma prior (RELATIONS 4, 11, 12, 13)."""

    name: str = "poisson"

    @property
    def gain(self) -> Gain:
        """The gain of a block in log marginal."""
        return poisson_gain

    @property
    def n_real(self) -> int:
        """How many of the first hyperparameters may be negative."""
        return 0

    def for_values(self, values: Any) -> "Poisson":
        """Return the likelihood itself: it does not depend on the values."""
        return self

    def encode(self, values: Any) -> Floats:
        """Return counts as numbers; refuse negative ones and fractions."""
        return check_counts(values)

    def cell_statistics(self, values: Floats) -> Floats:
        """Return (x, 1) for each cell."""
        return np.stack((values, np.ones(len(values))), axis=-1)

    def constant(self, values: Floats) -> float:
        """Return the sum of the terms -ln x!."""
        return -float(gammaln(values + 1.0).sum())

    def log_predictive(self, values: Floats, statistics: Statistics, prior: Floats) -> Floats:
        """Return the log probability of a further cell: negative binomial (RELATIONS 12)."""
        shape, rate = prior[0] + statistics[0], prior[1] + statistics[1]
        rise = gammaln(shape + values) - gammaln(shape) - gammaln(values + 1.0)
        return rise - shape * np.log1p(1.0 / rate) - values * np.log(rate + 1.0)

    def initial_prior(self, mean: float) -> Floats:
        """Return an exponential prior of this mean."""
        return np.array([1.0, 1.0 / max(mean, LEAST_MEAN)]).reshape(2, 1, 1)

    def log_marginal(
        self, statistics: Statistics, prior: Floats, count: Floats | None = None
    ) -> float:
        """Return the sum over blocks of the log marginal likelihood, without the terms -ln x!."""
        n, T = (np.ascontiguousarray(part).ravel() for part in statistics)
        if prior[0].size == 1:
            return gamma_marginals(n, T, prior[0].item(), prior[1].item(), count)
        a, b = (np.ascontiguousarray(part).ravel() for part in prior)
        blocks = zip(n, T, a, b, strict=True)
        each = [gamma_marginals(np.array([x]), np.array([t]), *ab) for x, t, *ab in blocks]
        return float(np.sum(each) if count is None else np.array(each) @ count)

    def predictive_mean(self, statistics: Statistics, prior: Floats) -> Floats:
        """Return the posterior mean rate of every block."""
        (n, T), (a, b) = statistics, prior
        return (a + n) / (b + T)

    def expected_log(self, statistics: Statistics, prior: Floats) -> Statistics:
        """Return E[ln rate] and -E[rate] (RELATIONS 11)."""
        (n, T), (a, b) = statistics, prior
        return digamma(a + n) - np.log(b + T), -(a + n) / (b + T)

    def learn_prior(
        self, statistics: Statistics, prior: Floats, rule: Rule, count: Floats | None = None
    ) -> Floats:
        """Return a and b that all blocks share and that make the counts more probable."""
        n, T = (np.ascontiguousarray(part).ravel() for part in statistics)
        used = T > 0.0
        n, T, count = n[used], T[used], None if count is None else count[used]
        if rule == "fixed" or n.size == 0:
            return prior
        a, b = gamma_ascent(n, T, prior[0].item(), prior[1].item(), NEWTON_STEPS, count)
        found, limit = np.array([a, b]).reshape(2, 1, 1), one_rate(n, T, count)
        values = [self.log_marginal((n, T), each, count) for each in (found, limit)]
        return limit if values[1] > values[0] else found


def one_rate(n: Floats, T: Floats, count: Floats | None = None) -> Floats:
    """Return the prior that gives all blocks the same rate, up to the bounds of its parameters."""
    pair = np.array([n.sum(), T.sum()] if count is None else [n @ count, T @ count])
    return np.clip(pair / pair.max() * LARGEST, SMALLEST, LARGEST).reshape(2, 1, 1)
