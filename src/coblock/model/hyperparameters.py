"""The hyperparameters of a model: concentrations and the prior of the blocks (MODEL 8)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coblock.kernels import Floats, Indices
from coblock.model.likelihoods import Likelihood, Rule, Statistics
from coblock.model.priors import stick_concentration


@dataclass(slots=True)
class Hyperparameters:
    """A concentration for each domain, and the hyperparameters of the likelihood.

    ``prior`` has a row for each hyperparameter of the likelihood, and then shape (1, 1) if all
    blocks share it or (K1, K2) if each block has its own (``per_block``).
    """

    alpha: list[float]
    prior: Floats
    per_block: bool = False

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
        return Hyperparameters(list(self.alpha), self.prior.copy(), self.per_block)

    def select(self, keep: list[Indices]) -> "Hyperparameters":
        """Return those of these clusters of each domain, in this order."""
        prior = self.prior[:, keep[0]][:, :, keep[-1]] if self.per_block else self.prior.copy()
        return Hyperparameters(list(self.alpha), prior, self.per_block)

    def tables(self, clusters: tuple[int, int]) -> list[Floats]:
        """Return one table for each hyperparameter of the likelihood, an entry per block."""
        return [np.ascontiguousarray(np.broadcast_to(row, clusters)) for row in self.prior]

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
        learnt = likelihood.learn_prior(counts, self.prior[:, distinct], rule)
        for table, values in zip(self.prior, learnt, strict=True):
            table[distinct] = values
            if not distinct.all():
                table.T[distinct] = values
