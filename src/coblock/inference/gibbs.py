"""Collapsed Gibbs sampling with sampled hyperparameters (MODEL 8)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from coblock.kernels import Floats
from coblock.kernels.hyperparameters import LARGEST, SMALLEST, block_log_likelihood
from coblock.model.hyperparameters import Priors, Rule
from coblock.model.partition import Partition
from coblock.model.result import Sample
from coblock.model.trace import Sweep

MOST_SAMPLES = 256  # of the kept sweeps, evenly spaced, that predictions average over
SHAPE, RATE = 1.0, 1.0  # of the Gamma priors of alpha, a and b


@dataclass(slots=True)
class GibbsRun:
    """A chain over partitions; the second half of its sweeps is kept.

    Clusters keep their numbers from sweep to sweep, so that memberships can be averaged.
    """

    partition: Partition
    rng: np.random.Generator
    max_iter: int
    rule: Rule = "newton"
    number: int = 0
    samples: list[Sample] = field(default_factory=list)
    _tally: list[Floats] = field(init=False)  # per domain (objects, K): how often kept there

    def __post_init__(self) -> None:
        """Nothing is kept yet."""
        self._tally = [np.zeros((label.size, 0)) for label in self.partition.labels]

    @property
    def memberships(self) -> list[Floats]:
        """Share of the kept sweeps that each object spent in each cluster."""
        kept = self.number - self.max_iter // 2
        if kept <= 0:
            pairs = zip(self.partition.labels, self.partition.m, strict=True)
            return [np.eye(m.size)[label] for label, m in pairs]
        return [tally / kept for tally in self._tally]

    @property
    def priors(self) -> Priors:
        """The current hyperparameters, as the variational methods have them."""
        partition, shape = self.partition, self.partition.n.shape
        a, b = np.full(shape, partition.a), np.full(shape, partition.b)
        return Priors(list(partition.alpha), a, b)

    def sweeps(self, began: float) -> Iterator[Sweep]:
        """Yield a report after each sweep."""
        partition = self.partition
        objects = sum(partition.relation.sizes)
        while True:
            before = [label.copy() for label in partition.labels]
            leave_one_out = partition.sweep(self.rng.random(objects))
            self._sample_hyperparameters()
            self.number += 1
            self._keep()
            pairs = zip(before, partition.labels, strict=True)
            clusters = [int((m > 0).sum()) for m in partition.m]
            yield Sweep(
                self.number,
                max(float(2.0 * (old != new).mean()) for old, new in pairs),
                leave_one_out,
                partition.log_joint(),
                clusters[0],
                clusters[-1],
                perf_counter() - began,
            )

    def _keep(self) -> None:
        """Add the sweep to the averages, if it is of the second half."""
        first = self.max_iter // 2
        if self.number <= first:
            return
        partition = self.partition
        for d, label in enumerate(partition.labels):
            more = partition.m[d].size - self._tally[d].shape[1]
            self._tally[d] = np.pad(self._tally[d], ((0, 0), (0, more)))
            self._tally[d][np.arange(label.size), label] += 1.0
        every = max((self.max_iter - first) // MOST_SAMPLES, 1)
        if (self.number - first) % every == 0:
            n, N, a, b = partition.n, partition.N, partition.a, partition.b
            labels = [label.copy() for label in partition.labels]
            self.samples.append(Sample(labels, (a + n) / (a + b + n + N)))

    def _sample_hyperparameters(self) -> None:
        """Draw alpha by auxiliary variables, a and b by slice sampling on the log scale."""
        if self.rule == "fixed":
            return
        partition, rng = self.partition, self.rng
        partition.alpha = [
            sample_concentration(alpha, int((m > 0).sum()), size, rng)
            for alpha, m, size in zip(
                partition.alpha, partition.m, partition.relation.sizes, strict=True
            )
        ]
        once = partition.blocks_in_use()
        n, N = partition.n[once], partition.N[once]
        a, b = partition.a, partition.b
        partition.a = a = slice_sample(lambda x: block_log_likelihood(n, N, x, b), a, rng)
        partition.b = slice_sample(lambda x: block_log_likelihood(n, N, a, x), b, rng)


def sample_concentration(
    alpha: float, clusters: int, objects: int, rng: np.random.Generator
) -> float:
    """Draw alpha given the number of clusters (Escobar and West 1995)."""
    log_eta = float(np.log(rng.beta(alpha + 1.0, objects)))
    rate = RATE - log_eta
    odds = (SHAPE + clusters - 1.0) / (objects * rate)
    shape = SHAPE + clusters - (rng.random() * (1.0 + odds) > odds)
    return float(np.clip(rng.gamma(shape) / rate, SMALLEST, LARGEST))


def slice_sample(
    log_likelihood: Callable[[float], float], x: float, rng: np.random.Generator, width: float = 1.0
) -> float:
    """Draw x given its likelihood and Gamma prior by a slice-sampling step in ln x (Neal 2003)."""

    def log_density(u: float) -> float:
        if not np.log(SMALLEST) <= u <= np.log(LARGEST):
            return -np.inf
        y = float(np.exp(u))
        return log_likelihood(y) + SHAPE * u - RATE * y  # the Jacobian adds one u

    at = float(np.log(x))
    height = log_density(at) - rng.exponential()
    low = at - width * rng.random()
    high = low + width
    while log_density(low) > height:
        low -= width
    while log_density(high) > height:
        high += width
    while True:
        new = rng.uniform(low, high)
        if log_density(new) >= height:
            return float(np.exp(new))
        low, high = (new, high) if new < at else (low, new)
