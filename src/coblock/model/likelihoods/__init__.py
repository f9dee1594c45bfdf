"""Distributions of the cells of a block, with a conjugate prior integrated out (RELATIONS 3, 4).

One module for each likelihood, with the same methods. A likelihood knows the sufficient
statistics of a block and the hyperparameters of its prior; it knows nothing of clusters,
relations or methods of inference. The compiled loops that use it are in :mod:`coblock.kernels`,
in the module of the same name.
"""

from typing import Literal, Protocol, TypeAlias

from coblock.kernels import Floats

Statistics: TypeAlias = tuple[Floats, ...]  # one array for each statistic, an entry per block
Rule = Literal["newton", "fixed-point", "fixed"]


class Likelihood(Protocol):
    """What inference, prediction and files need of a likelihood.

    ``prior`` has one row for each hyperparameter; its other axes broadcast against the blocks.
    """

    @property
    def name(self) -> str:
        """Name of the likelihood in settings and files."""

    def initial_prior(self, mean: float) -> Floats:
        """Return weak hyperparameters that expect cells of this mean, of shape (rows, 1, 1)."""

    def log_marginal(self, statistics: Statistics, prior: Floats) -> float:
        """Return the log marginal likelihood of all blocks together."""

    def predictive_mean(self, statistics: Statistics, prior: Floats) -> Floats:
        """Return the posterior mean of a cell of each block."""

    def expected_log(self, statistics: Statistics, prior: Floats) -> Statistics:
        """Return the expected natural parameters of each block for variational Bayes."""

    def learn_prior(self, statistics: Statistics, prior: Floats, rule: Rule) -> Floats:
        """Return hyperparameters under which the statistics are more probable, or the same."""
