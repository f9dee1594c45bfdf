"""A likelihood of a user: exponential waiting times with a Gamma(a, rate b) prior."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import digamma, gammaln

from coblock.kernels import gain_function
from coblock.model.likelihoods import check_numbers, maximise


@gain_function
def exponential_gain(statistics, plus, prior):
    """Return the gain of more cells."""
    if statistics[0] < -1e-7 or statistics[1] < -1e-7:
        return 0.0
    shape, rate = prior[0] + statistics[0], prior[1] + statistics[1]
    rise = math.lgamma(shape + plus[0]) - math.lgamma(shape)
    return rise - shape * math.log1p(plus[1] / rate) - plus[0] * math.log(rate + plus[1])


@dataclass(frozen=True)
class Exponential:
    """Exponential cells; the statistics of a block are its cells and the sum of their values."""

    name: str = "exponential"
    gain = staticmethod(exponential_gain)
    n_real = 0

    def for_values(self, values):
        return self

    def encode(self, values):
        return check_numbers(values)

    def cell_statistics(self, values):
        return np.stack((np.ones(len(values)), values), axis=-1)

    def constant(self, values):
        return 0.0

    def initial_prior(self, mean):
        return np.array([1.0, max(mean, 1e-3)]).reshape(2, 1, 1)

    def log_marginal(self, statistics, prior, count=None):
        n, x = statistics
        a, b = prior
        rise = gammaln(a + n) - gammaln(a)
        value = rise - a * np.log1p(x / b) - n * np.log(b + x)
        return float(np.sum(value if count is None else value * count))

    def predictive_mean(self, statistics, prior):
        shape, rate = prior[0] + statistics[0], prior[1] + statistics[1]
        return rate / np.maximum(shape - 1.0, 1e-3)

    def log_predictive(self, values, statistics, prior):
        shape, rate = prior[0] + statistics[0], prior[1] + statistics[1]
        return np.log(shape) + shape * np.log(rate) - (shape + 1.0) * np.log(rate + values)

    def expected_log(self, statistics, prior):
        shape, rate = prior[0] + statistics[0], prior[1] + statistics[1]
        return digamma(shape) - np.log(rate), -shape / rate

    def learn_prior(self, statistics, prior, rule, count=None):
        n, x = statistics
        each = np.ones(n.size) if count is None else count

        def slope(a, b):
            change = digamma(a + n) - digamma(a) - np.log1p(x / b)
            return each @ change, each @ (a / b - (a + n) / (b + x))

        def value(*p):
            return self.log_marginal(statistics, np.array(p), count)

        return maximise(value, slope, prior, 7.0).reshape(prior.shape)
