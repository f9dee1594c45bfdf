"""Categories, with a Dirichlet prior for their probabilities in each block (RELATIONS 3, 4).

The statistics of a block are the numbers of its cells in each category. ``prior`` has one entry
for each category.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import digamma, gammaln

from coblock.kernels import Floats, Gain, gain_function
from coblock.kernels.special import log_rising
from coblock.model.likelihoods import Rule, Statistics, maximise, quoted

BOUND = 7.0  # hyperparameters are between exp(-7) and exp(7)
MOST_CATEGORIES = 1000  # more are taken for names or numbers


@gain_function
def categorical_gain(statistics: Floats, plus: Floats, prior: Floats) -> float:
    """Return the gain of more cells: a Dirichlet-multinomial."""
    total, added, result = 0.0, 0.0, 0.0
    for v in range(statistics.size):
        if statistics[v] < -1e-7:
            return 0.0
        total += prior[v] + statistics[v]
        added += plus[v]
        if plus[v] != 0.0:
            result += log_rising(prior[v] + statistics[v], plus[v])
    return result - log_rising(total, added) if added != 0.0 else result


def category_name(value: object) -> str:
    """Return a category as text; whole numbers of a float column lose their point."""
    whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value) if whole else value)  # type: ignore[call-overload]


@dataclass(frozen=True, slots=True)
class Categorical:
    """Cells that hold one of several categories, with a Dirichlet prior.

    The first category is that of cells that are not stored, where these are observed.
    """

    categories: tuple[str, ...] = ()
    name: str = "categorical"

    @property
    def gain(self) -> Gain:
        """The gain of a block in log marginal."""
        return categorical_gain

    @property
    def n_real(self) -> int:
        """How many of the first hyperparameters may be negative."""
        return 0

    def for_values(self, values: Any) -> "Categorical":
        """Return the likelihood with the categories that occur, in the order of their names."""
        if self.categories:
            return self
        found = sorted({category_name(value) for value in values})
        if len(found) > MOST_CATEGORIES:
            msg = (
                f"The values have {len(found):,} categories, for example {quoted(found[0])}; "
                f"at most {MOST_CATEGORIES:,} are allowed. Choose likelihood='normal' or 'poisson' "
                "for numbers."
            )
            raise ValueError(msg)
        return Categorical(tuple(found))

    def encode(self, values: Any) -> Floats:
        """Return the position of each value among the categories; refuse others."""
        position = {category: float(v) for v, category in enumerate(self.categories)}
        names = [category_name(value) for value in values]
        unknown = [name for name in names if name not in position]
        if unknown:
            msg = (
                f"{len(unknown):,} of {len(values):,} values are no known category; the first is "
                f"{quoted(unknown[0])}. Correct them; known are: "
                f"{quoted(', '.join(self.categories))}."
            )
            raise ValueError(msg)
        return np.array([position[name] for name in names])

    def cell_statistics(self, values: Floats) -> Floats:
        """Return one row for each cell, 1 at its category."""
        return np.eye(len(self.categories))[np.asarray(values, dtype=np.int64)]

    def constant(self, values: Floats) -> float:
        """Return 0: the order of the cells is known."""
        return 0.0

    def initial_prior(self, mean: float) -> Floats:
        """Return a prior with the weight of one cell."""
        V = len(self.categories)
        return np.full((V, 1, 1), 1.0 / V)

    def log_marginal(
        self, statistics: Statistics, prior: Floats, count: Floats | None = None
    ) -> float:
        """Return the log marginal likelihood of all blocks."""
        total, added = sum(prior), sum(statistics)
        rises = (gammaln(g + n) - gammaln(g) for g, n in zip(prior, statistics, strict=True))
        value = sum(rises) - (gammaln(total + added) - gammaln(total))
        return float(np.sum(value if count is None else value * count))

    def predictive_mean(self, statistics: Statistics, prior: Floats) -> Floats:
        """Return the probability of each category, on the last axis."""
        weight = np.stack([g + n for g, n in zip(prior, statistics, strict=True)], axis=-1)
        return weight / weight.sum(axis=-1, keepdims=True)

    def log_predictive(self, values: Floats, statistics: Statistics, prior: Floats) -> Floats:
        """Return the log probability of the category of a further cell."""
        probability = self.predictive_mean(statistics, prior)
        chosen = np.asarray(values, dtype=np.int64)[..., None]
        return np.log(np.take_along_axis(probability, chosen, axis=-1)[..., 0])

    def expected_log(self, statistics: Statistics, prior: Floats) -> Statistics:
        """Return E[log probability] of each category (RELATIONS 11)."""
        total = digamma(sum(prior) + sum(statistics))
        pairs = zip(prior, statistics, strict=True)
        return tuple(digamma(g + n) - total for g, n in pairs)

    def learn_prior(
        self, statistics: Statistics, prior: Floats, rule: Rule, count: Floats | None = None
    ) -> Floats:
        """Return the prior under which the categories are most probable."""
        added = sum(statistics)
        if rule == "fixed" or np.size(added) == 0:
            return prior

        def slope(*g: float) -> list[float]:
            total = sum(g)
            weight = 1.0 if count is None else count
            common = np.sum(weight * (digamma(total + added) - digamma(total)))
            rises = (digamma(x + n) - digamma(x) for x, n in zip(g, statistics, strict=True))
            return [float(np.sum(weight * rise) - common) for rise in rises]

        value = maximise(
            lambda *g: self.log_marginal(statistics, np.array(g), count), slope, prior, BOUND
        )
        return value.reshape(prior.shape)
