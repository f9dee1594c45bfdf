"""The hyperparameters of a model: concentrations and the prior of the blocks (MODEL 8)."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, digamma, gammaln, zeta

from coblock.kernels import Floats, Indices
from coblock.kernels.bernoulli import LARGEST, SMALLEST
from coblock.kernels.special import log_rising
from coblock.model.likelihoods import Likelihood, Rule, Statistics
from coblock.model.likelihoods.bernoulli import learn_each_prior

EACH_HYPERPRIOR = (2.0, 1.0)  # shape and rate where each block has its own a and b (MODEL 8)


@dataclass(slots=True)
class Hyperparameters:
    """A concentration for each domain, and the hyperparameters of the likelihood.

    ``prior`` has a row for each hyperparameter of the likelihood, and then shape (1, 1) if all
    blocks share it or (K1, K2) if each block has its own (``per_block``). Hyperpriors are Gamma
    distributions, given by shape and rate. They matter where hyperparameters are sampled, that of
    the concentrations also where the search compares numbers of clusters, and that of the
    likelihood also where each block has its own, which are those of binary cells.
    """

    alpha: list[float]
    prior: Floats
    per_block: bool = False
    hyperprior: tuple[float, float] = (1.0, 1.0)  # of each concentration
    block_hyperprior: tuple[float, float] = (1.0, 0.1)  # of each hyperparameter of the likelihood

    @classmethod
    def initial(
        cls,
        likelihood: Likelihood,
        mean: float,
        clusters: tuple[int, int],
        domains: int,
        *,
        per_block: bool = False,
    ) -> "Hyperparameters":
        """Return weak hyperparameters that expect cells of this mean."""
        prior = likelihood.initial_prior(mean)
        if per_block:
            prior = np.broadcast_to(prior, (len(prior), *clusters)).copy()
        return cls([1.0] * domains, prior, per_block)

    def copy(self) -> "Hyperparameters":
        """Return hyperparameters that share no memory with these."""
        return replace(self, alpha=list(self.alpha), prior=self.prior.copy())

    def select(self, keep: list[Indices]) -> "Hyperparameters":
        """Return those of these clusters of each domain, in this order."""
        prior = self.prior[:, keep[0]][:, :, keep[-1]] if self.per_block else self.prior.copy()
        return replace(self, alpha=list(self.alpha), prior=prior)

    def for_each_block(
        self, clusters: tuple[int, int], hyperprior: tuple[float, float] | None = None
    ) -> "Hyperparameters":
        """Return hyperparameters of which each block has its own, all with the values of these."""
        prior, block_hyperprior = np.array(self.tables(clusters)), hyperprior or EACH_HYPERPRIOR
        return replace(self, prior=prior, per_block=True, block_hyperprior=block_hyperprior)

    def tables(self, clusters: tuple[int, int]) -> list[Floats]:
        """Return one table for each hyperparameter of the likelihood, an entry per block."""
        tables = np.empty((len(self.prior), *clusters))
        tables[:] = self.prior
        return list(tables)

    def learn(
        self,
        likelihood: Likelihood,
        m: list[Floats],
        statistics: Statistics,
        distinct: NDArray[np.bool_],
        rule: Rule,
    ) -> None:
        """Update all hyperparameters; the collapsed bound at these counts never falls.

        ``distinct`` selects each block once. Where it leaves out the lower half of the tables,
        they are symmetric.
        """
        self.alpha = [
            stick_concentration(m_d, alpha, rule) for m_d, alpha in zip(m, self.alpha, strict=True)
        ]
        counts = tuple(table[distinct] for table in statistics)
        if not self.per_block:
            self.prior = likelihood.learn_prior(counts, self.prior, rule)
            return
        learnt = learn_each_prior(counts, self.prior[:, distinct], rule, self.block_hyperprior)
        for table, values in zip(self.prior, learnt, strict=True):
            table[distinct] = values
            if not distinct.all():
                table.T[distinct] = values


CLOSE = 1e-10  # change of ln alpha below which Newton's method has converged


def crp_log_probability(m: Floats, alpha: float) -> float:
    """Return log p(z | alpha) of a partition into clusters of these sizes (eq:CRP_def)."""
    m = m[m > 0]
    return float(m.size * np.log(alpha) + gammaln(m).sum() - log_rising(alpha, m.sum()))


def crp_concentration(
    clusters: int, objects: int, alpha: float = 1.0, hyperprior: tuple[float, float] = (1.0, 0.0)
) -> float:
    """Return the concentration under which the number of clusters is most probable (MODEL 10).

    The hyperprior of the concentration is Gamma with this shape and rate; (1, 0) is none.
    """
    shape, rate = hyperprior
    powers = clusters + shape - 1.0

    def slope(alpha: float) -> tuple[float, float]:
        first = powers / alpha + digamma(alpha) - digamma(alpha + objects) - rate
        second = zeta(2.0, alpha) - zeta(2.0, alpha + objects) - powers / alpha**2
        return float(first), float(second)

    return newton_on_log_scale(slope, alpha)


def stick_log_marginal(m: Floats, alpha: float) -> float:
    """Return log p(z | alpha) with sticks integrated out, K - 1 of them random.

    eq:IRM_2dom_CVB_z_1_marginal with the errata of MODEL 12.
    """
    return float((np.log(alpha) + betaln(1.0 + m[:-1], alpha + tails(m)[:-1])).sum())


def stick_concentration(m: Floats, alpha: float, rule: str) -> float:
    """Return a concentration under which the sizes are more probable, with truncated sticks.

    One step of eq:IRM_2dom_CVB_alpha_1_update, which is also that of VB
    (eq:IRM_2dom_VB_posterior_lowerbound_alpha_1_update), with K - 1 random sticks (MODEL 12), or
    its optimum.
    """
    if rule == "fixed" or m.size == 1:
        return alpha
    M = tails(m)[:-1]
    if rule in {"fixed-point", "vb-fixed-point"}:
        rise = digamma(M + alpha + m[:-1] + 1.0) - digamma(M + alpha)
        return float(np.clip((m.size - 1) / rise.sum(), SMALLEST, LARGEST))

    def slope(alpha: float) -> tuple[float, float]:
        whole = m[:-1] + M + alpha + 1.0
        first = M.size / alpha + (digamma(M + alpha) - digamma(whole)).sum()
        second = (zeta(2.0, M + alpha) - zeta(2.0, whole)).sum() - M.size / alpha**2
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
    low, high = np.log(SMALLEST), np.log(LARGEST)
    at = np.clip(np.log(x), low, high)
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
