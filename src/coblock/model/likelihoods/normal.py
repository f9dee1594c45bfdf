"""Real values, with unknown mean and variance in each block (RELATIONS 3, 4).

The statistics of a block are the number T of its cells and the sums of their values and of their
squares. Values are standardised first, so that the sum of squares keeps its digits. ``prior`` is
(mu, kappa, a, b): the variance has an inverse Gamma(a, b) prior, and given the variance, the mean
has a normal prior around mu with the weight of kappa cells.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import digamma, gammaln

from coblock.kernels import Floats, Gain, gain_function
from coblock.kernels.special import log_rising
from coblock.model.likelihoods import Rule, Statistics, check_numbers, maximise

BOUND = 7.0  # positive hyperparameters are between exp(-7) and exp(7)
LOG_TWO_PI = math.log(2.0 * math.pi)


@gain_function
def normal_gain(statistics: Floats, plus: Floats, prior: Floats) -> float:
    """Return the gain of more cells: a Student t process."""
    mu, kappa, a, b = prior[0], prior[1], prior[2], prior[3]
    T, total = statistics[0], statistics[0] + plus[0]
    if T < -1e-7 or total < -1e-7:
        return 0.0
    spread, grown = b, b
    if T > 1e-7:
        mean = statistics[1] / T
        spread += 0.5 * max(statistics[2] - T * mean * mean, 0.0)
        spread += 0.5 * kappa * T * (mean - mu) ** 2 / (kappa + T)
    T = max(T, 0.0)
    if total > 1e-7:
        mean = (statistics[1] + plus[1]) / total
        grown += 0.5 * max(statistics[2] + plus[2] - total * mean * mean, 0.0)
        grown += 0.5 * kappa * total * (mean - mu) ** 2 / (kappa + total)
    value = log_rising(a + 0.5 * T, 0.5 * plus[0]) - 0.5 * math.log1p(plus[0] / (kappa + T))
    value -= (a + 0.5 * T) * math.log(grown / spread) + 0.5 * plus[0] * math.log(grown)
    return value - 0.5 * plus[0] * LOG_TWO_PI


@dataclass(frozen=True, slots=True)
class Normal:
    """Normal cells with a normal-inverse-Gamma prior, on the scale of all values together."""

    location: float = 0.0
    scale: float = 0.0  # 0: not known yet
    name: str = "normal"

    @property
    def gain(self) -> Gain:
        """The gain of a block in log marginal."""
        return normal_gain

    @property
    def n_real(self) -> int:
        """How many of the first hyperparameters may be negative."""
        return 1

    def for_values(self, values: Any) -> "Normal":
        """Return the likelihood with the mean and the standard deviation of the values."""
        if self.scale > 0.0:
            return self
        numbers = check_numbers(values)
        if not numbers.size:
            return replace(self, scale=1.0)
        with np.errstate(over="ignore", invalid="ignore"):
            location, scale = float(numbers.mean()), float(numbers.std())
        if not np.isfinite((location, scale)).all():
            msg = (
                f"The {numbers.size:,} values are too large for their variance to be computed; the "
                f"largest is {numbers[np.abs(numbers).argmax()]:g}. Divide all by the same number."
            )
            raise ValueError(msg)
        return Normal(location, scale or 1.0)

    def encode(self, values: Any) -> Floats:
        """Return the values as numbers; refuse text and infinities."""
        return check_numbers(values)

    def cell_statistics(self, values: Floats) -> Floats:
        """Return (1, y, y squared) for each cell, y being its standardised value."""
        y = (values - self.location) / self.scale
        return np.stack((np.ones(len(y)), y, y * y), axis=-1)

    def constant(self, values: Floats) -> float:
        """Return the part of the log density that no label changes: that of the scale."""
        return -len(values) * math.log(self.scale)

    def initial_prior(self, mean: float) -> Floats:
        """Return a weak prior around the mean of all values."""
        return np.array([0.0, 0.1, 1.0, 0.1]).reshape(4, 1, 1)

    def log_marginal(
        self, statistics: Statistics, prior: Floats, count: Floats | None = None
    ) -> float:
        """Return the log marginal density of all blocks, without the constant."""
        T = statistics[0]
        _, kappa, a, b = prior
        _, kappa_T, a_T, b_T = self._posterior(statistics, prior)
        value = gammaln(a_T) - gammaln(a) + a * np.log(b) - a_T * np.log(b_T)
        value = value + 0.5 * np.log(kappa / kappa_T) - 0.5 * T * LOG_TWO_PI
        return float(np.sum(value if count is None else value * count))

    def predictive_mean(self, statistics: Statistics, prior: Floats) -> Floats:
        """Return the posterior mean of each block."""
        return self.location + self.scale * self._posterior(statistics, prior)[0]

    def log_predictive(self, values: Floats, statistics: Statistics, prior: Floats) -> Floats:
        """Return the log density of a further cell: Student's t (RELATIONS 12)."""
        mu, kappa, a, b = self._posterior(statistics, prior)
        width = 2.0 * b * (kappa + 1.0) / kappa  # 2 a times the squared scale
        y = (values - self.location) / self.scale - mu
        rise = gammaln(a + 0.5) - gammaln(a) - 0.5 * np.log(np.pi * width)
        return rise - (a + 0.5) * np.log1p(y * y / width) - math.log(self.scale)

    def expected_log(self, statistics: Statistics, prior: Floats) -> Statistics:
        """Return the expected natural parameters of each block (RELATIONS 11)."""
        mu, kappa, a, b = self._posterior(statistics, prior)
        precision = a / b
        level = digamma(a) - np.log(b) - 1.0 / kappa - LOG_TWO_PI - mu * mu * precision
        return 0.5 * level, mu * precision, -0.5 * precision

    def learn_prior(
        self, statistics: Statistics, prior: Floats, rule: Rule, count: Floats | None = None
    ) -> Floats:
        """Return the prior under which the values are most probable.

        kappa and a have Gamma(1, 1) hyperpriors: blocks of one cell do not tell them apart.
        """
        T = statistics[0]
        if rule == "fixed" or T.size == 0:
            return prior

        def value(*p: float) -> float:
            return self.log_marginal(statistics, np.array(p), count) - p[1] - p[2]

        def slope(*p: float) -> list[float]:
            mu, kappa, a, b = p
            mean = statistics[1] / np.maximum(T, 1e-300)
            _, kappa_T, a_T, b_T = self._posterior(statistics, np.array(p))
            rate, apart = a_T / b_T, mean - mu
            slopes = np.stack(
                [
                    rate * kappa * T * apart / kappa_T,
                    0.5 / kappa - 0.5 / kappa_T - 0.5 * rate * (T * apart / kappa_T) ** 2,
                    digamma(a_T) - digamma(a) + np.log(b) - np.log(b_T),
                    a / b - rate,
                ]
            )
            total = slopes.sum(axis=1) if count is None else slopes @ count
            return list(total - [0.0, 1.0, 1.0, 0.0])

        return maximise(value, slope, prior, BOUND, real=1).reshape(prior.shape)

    def _posterior(self, statistics: Statistics, prior: Floats) -> Statistics:
        """Return mu, kappa, a and b after the cells of each block."""
        T, S, Q = statistics
        mu, kappa, a, b = prior
        mean = S / np.maximum(T, 1e-300)
        spread = np.maximum(Q - T * mean * mean, 0.0) + kappa * T * (mean - mu) ** 2 / (kappa + T)
        return (kappa * mu + S) / (kappa + T), kappa + T, a + 0.5 * T, b + 0.5 * spread
