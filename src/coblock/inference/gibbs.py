"""Collapsed Gibbs sampling with sampled hyperparameters (MODEL 8, RELATIONS 10)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from coblock.inference.engine import Engine
from coblock.inference.phase import Clock, Outcome, label_record
from coblock.inference.posterior import fraction_changed
from coblock.kernels import Floats
from coblock.kernels.bernoulli import LARGEST, SMALLEST
from coblock.model.likelihoods import Rule
from coblock.model.partition import Partition
from coblock.model.result import Sample
from coblock.model.trace import SweepRecord

MOST_SAMPLES = 256  # kept sweeps, evenly spaced, that predictions average over
SHAPE, RATE = 1.0, 1.0  # of the Gamma hyperpriors of all hyperparameters


@dataclass(slots=True)
class GibbsSampler:
    """A chain over partitions; the second half of its sweeps is kept.

    Clusters keep their numbers from sweep to sweep, so that memberships can be averaged.
    """

    partition: Partition
    rng: np.random.Generator
    engine: Engine
    max_iter: int
    rule: Rule = "newton"
    number: int = 0
    samples: list[Sample] = field(default_factory=list)
    tally: list[Floats] = field(init=False)  # per domain (objects, K): kept sweeps in each cluster

    def __post_init__(self) -> None:
        """Start with an empty tally."""
        self.tally = [np.zeros((label.size, 0)) for label in self.partition.labels]

    @property
    def finished(self) -> bool:
        """Whether all sweeps are done; the fit counts them."""
        return False

    @property
    def may_stop(self) -> bool:
        """Whether the stop rule of the fit applies: a chain does all of its sweeps."""
        return False

    def sweeps(self, clock: Clock) -> Iterator[SweepRecord]:
        """Yield a record after each sweep."""
        partition = self.partition
        while True:
            before = [label.copy() for label in partition.labels]
            uniform = self.rng.random(sum(partition.relation.sizes))
            leave_one_out = self.engine.sweep_labels(partition, uniform, open_clusters=True)
            self._sample_hyperparameters()
            self.number += 1
            self._keep()
            change = fraction_changed(before, partition.labels)
            yield label_record(partition, self.number, change, leave_one_out, clock)

    def outcome(self) -> Outcome:
        """Return the fraction of the kept sweeps that each object spent in each cluster."""
        kept = self.number - self.max_iter // 2
        if kept <= 0:
            pairs = zip(self.partition.labels, self.partition.m, strict=True)
            q = [np.eye(m.size)[label] for label, m in pairs]
        else:
            q = [tally / kept for tally in self.tally]
        return Outcome(self.partition.hyper, q, samples=self.samples)

    def _keep(self) -> None:
        """Add the sweep to the averages if it is in the second half."""
        first = self.max_iter // 2
        if self.number <= first:
            return
        partition = self.partition
        for d, label in enumerate(partition.labels):
            more = partition.m[d].size - self.tally[d].shape[1]
            self.tally[d] = np.pad(self.tally[d], ((0, 0), (0, more)))
            self.tally[d][np.arange(label.size), label] += 1.0
        every = max((self.max_iter - first) // MOST_SAMPLES, 1)
        if (self.number - first) % every == 0:
            statistics = (partition.blocks.n, partition.blocks.N)
            likelihood, prior = partition.relation.likelihood, partition.hyper.prior
            labels = [label.copy() for label in partition.labels]
            self.samples.append(Sample(labels, likelihood.predictive_mean(statistics, prior)))

    def _sample_hyperparameters(self) -> None:
        """Draw alpha by auxiliary variables, the prior by slice sampling on the log scale."""
        if self.rule == "fixed":
            return
        partition, hyper, rng = self.partition, self.partition.hyper, self.rng
        hyper.alpha = [
            sample_concentration(alpha, int((m > 0).sum()), size, rng)
            for alpha, m, size in zip(
                hyper.alpha, partition.m, partition.relation.sizes, strict=True
            )
        ]
        likelihood, statistics = partition.relation.likelihood, partition.blocks.statistics()
        for row in range(len(hyper.prior)):

            def log_likelihood(x: float, row: int = row) -> float:
                prior = hyper.prior.copy()
                prior[row] = x
                return likelihood.log_marginal(statistics, prior)

            hyper.prior[row] = slice_sample(log_likelihood, hyper.prior[row].item(), rng)


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
