"""Degree-corrected relations: counts with a factor for each object at each place (DEGREES).

The blocks are those of the Poisson likelihood: the sum n of the counts and the exposure T. The
counts of binary cells are those of DEGREES D4. ``prior`` is (a, b), then the shape of the degree
law of each place; symmetric places share one. Exposures may be too small where unseen cells weigh
much (DEGREES D3); less than 0 is 0.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from coblock.kernels import Floats, Gain, gain_function
from coblock.kernels.special import log_rising
from coblock.model.likelihoods import Likelihood, Rule, Statistics
from coblock.model.likelihoods.poisson import Poisson

POISSON = Poisson()
START_SHAPE = 1.0
PREFIX = "degree-corrected "


@gain_function
def corrected_gain(statistics: Floats, plus: Floats, prior: Floats) -> float:
    """Return the gain of more counts and exposure: that of Poisson cells."""
    if statistics[0] < -1e-7:
        return 0.0
    shape = prior[0] + max(statistics[0], 0.0)
    before = prior[1] + max(statistics[1], 0.0)
    after = prior[1] + max(statistics[1] + plus[1], 0.0)
    rise = log_rising(shape, plus[0]) if plus[0] != 0.0 else 0.0
    return rise - plus[0] * math.log(after) - shape * math.log(after / before)


@dataclass(frozen=True, slots=True)
class DegreeCorrected:
    """Poisson cells whose objects have factors; the values are counts or binary.

    Predictions take the product of the expected factors as a third statistic; without it, it is 1.
    """

    base: Likelihood  # of the values: Bernoulli or Poisson
    shapes: int = 2  # places with a degree law of their own

    @property
    def name(self) -> str:
        """Name of the likelihood in files and summaries."""
        return PREFIX + self.base.name

    @property
    def binary(self) -> bool:
        """Whether the cells are 0 or 1."""
        return self.base.name == "bernoulli"

    @property
    def gain(self) -> Gain:
        """The gain of a block in log marginal."""
        return corrected_gain

    @property
    def n_real(self) -> int:
        """How many of the first hyperparameters may be negative."""
        return 0

    def for_values(self, values: Any) -> "DegreeCorrected":
        """Return the likelihood itself: it does not depend on the values."""
        return self

    def encode(self, values: Any) -> Floats:
        """Return the values as numbers; refuse those that do not fit."""
        return self.base.encode(values)

    def cell_statistics(self, values: Floats) -> Floats:
        """Return (x, 1) for each cell; links act as the count 1 at first."""
        return POISSON.cell_statistics(values)

    def constant(self, values: Floats) -> float:
        """Return the sum of the terms -ln x!; 0 for binary cells."""
        return POISSON.constant(values)

    def initial_prior(self, mean: float) -> Floats:
        """Return an exponential prior of this mean, and the first shapes."""
        shapes = np.full((self.shapes, 1, 1), START_SHAPE)
        return np.concatenate((POISSON.initial_prior(mean), shapes))

    def log_marginal(
        self, statistics: Statistics, prior: Floats, count: Floats | None = None
    ) -> float:
        """Return the log marginal of all blocks, without the terms of degrees."""
        n, T = statistics
        return POISSON.log_marginal((n, np.maximum(T, 0.0)), prior[:2], count)

    def predictive_mean(self, statistics: Statistics, prior: Floats) -> Floats:
        """Return the mean count of a cell, or the probability of a link (DEGREES D7)."""
        n, T, *factor = statistics
        rate = (prior[0] + n) / (prior[1] + np.maximum(T, 0.0))
        for each in factor:
            rate = rate * each
        return -np.expm1(-rate) if self.binary else rate

    def log_predictive(self, values: Floats, statistics: Statistics, prior: Floats) -> Floats:
        """Return the log probability of a further cell, at the expected factors."""
        if self.binary:
            mean = self.predictive_mean(statistics, prior)
            return np.log(np.where(values > 0, mean, 1.0 - mean))
        n, T, *factor = statistics
        exposure = np.prod(factor, axis=0) if factor else np.ones_like(n)
        rate = (prior[1] + np.maximum(T, 0.0)) / exposure
        return POISSON.log_predictive(values, (n, rate), np.array([prior[0], 0.0 * prior[1]]))

    def expected_log(self, statistics: Statistics, prior: Floats) -> Statistics:
        """Return E[ln rate] and -E[rate]."""
        n, T = statistics
        return POISSON.expected_log((n, np.maximum(T, 0.0)), prior[:2])

    def learn_prior(
        self, statistics: Statistics, prior: Floats, rule: Rule, count: Floats | None = None
    ) -> Floats:
        """Return a and b that make the counts more probable; the shapes stay."""
        n, T = statistics
        learnt = POISSON.learn_prior((n, np.maximum(T, 0.0)), prior[:2], rule, count)
        return np.concatenate((learnt, prior[2:]))
