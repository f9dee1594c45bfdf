"""Collapsed Gibbs sampling with sampled hyperparameters (MODEL 8, RELATIONS 10)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from coblock.inference.engine import Engine
from coblock.inference.phase import Clock, Outcome, label_record
from coblock.inference.settings import SEARCH
from coblock.kernels import Floats
from coblock.kernels.bernoulli import LARGEST, SMALLEST
from coblock.kernels.gibbs import rising_tables
from coblock.kernels.split_merge import split_or_merge
from coblock.model.labels import fraction_moved
from coblock.model.likelihoods import Likelihood, Rule, Statistics
from coblock.model.partition import Partition
from coblock.model.result import Sample
from coblock.model.trace import SweepRecord

MOST_SAMPLES = 256  # kept sweeps, evenly spaced, that predictions average over


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
    def converged(self) -> bool:
        """Whether the samples are within a tolerance: a chain has none."""
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
            if self.rule != "fixed":
                sample_hyperparameters(partition, self.rng)
            self.number += 1
            self._keep()
            moved = fraction_moved(before, partition.labels)
            yield label_record(partition, self.number, moved, leave_one_out, clock)

    def outcome(self) -> Outcome:
        """Return the fraction of the kept sweeps that each object spent in each cluster."""
        kept = self.number - self.max_iter // 2
        if kept <= 0:
            pairs = zip(self.partition.labels, self.partition.m, strict=True)
            q = [np.eye(m.size)[label] for label, m in pairs]
        else:
            q = [tally / kept for tally in self.tally]
        used = [each[:, each.any(axis=0)] for each in q]
        return Outcome(self.partition.hyper, used, samples=self.samples)

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
            self.samples.append(Sample.of(partition))


def split_and_merge(
    partition: Partition, rng: np.random.Generator, limits: tuple[int, ...] | None, count: int
) -> None:
    """Propose so many splits or merges of clusters in each domain.

    They leave the posterior unchanged and change many labels at once, where single labels would
    have to pass improbable partitions. A relation of one domain is left as it is.
    """
    if partition.relation.repeated:
        return
    rising = rising_tables(*(x.item() for x in partition.hyper.prior))
    for d, size in enumerate(partition.relation.sizes):
        if size < 2:
            continue
        pairs = np.array([rng.choice(size, 2, replace=False) for _ in range(count)], dtype=np.int32)
        orders = rng.permuted(np.tile(np.arange(size, dtype=np.int32), (count, 1)), axis=1)
        uniform, limit, at = rng.random((count, size + 1)), None if limits is None else limits[d], 0
        while at < count:
            growing = partition.make_room(d, limit, SEARCH.room)
            views = (partition.domain(d), partition.domain(-1 - d), rising)
            at, accepted = split_or_merge(*views, pairs, orders, uniform, growing, at)
            if accepted:
                partition.recount()


def sample_hyperparameters(partition: Partition, rng: np.random.Generator) -> None:
    """Draw the concentrations by auxiliary variables, and the block prior; fixed ones stay."""
    if partition.fixed:
        return
    relation, hyper = partition.relation, partition.hyper
    hyper.alpha = [
        sample_concentration(alpha, int((m > 0).sum()), size, rng, hyper.hyperprior)
        for alpha, m, size in zip(hyper.alpha, partition.m, relation.sizes, strict=True)
    ]
    likelihood, statistics = relation.likelihood, partition.blocks.statistics()
    hyper.prior = sample_prior(likelihood, statistics, hyper.prior, hyper.block_hyperprior, rng)


def sample_prior(
    likelihood: Likelihood,
    statistics: Statistics,
    prior: Floats,
    hyperprior: tuple[float, float],
    rng: np.random.Generator,
    count: Floats | None = None,
) -> Floats:
    """Draw the hyperparameters of a likelihood by slice sampling.

    The positive ones are multiplied by a common factor, then each by one of its own: the data
    determine their ratio much better than their size. To real ones a number is added. Blocks
    count ``count`` times; None: once.
    """
    shape, rate = hyperprior
    positive = np.arange(len(prior)) >= likelihood.n_real
    for rows in (positive, *np.eye(len(prior), dtype=bool)):

        def moved(u: float, rows: NDArray[np.bool_] = rows, start: Floats = prior) -> Floats:
            trial = start.copy()
            trial[rows & positive] *= np.exp(u)
            trial[rows & ~positive] += u
            return trial

        def log_density(u: float, moved: Callable[[float], Floats] = moved) -> float:
            trial = moved(u)
            size = trial[positive]
            if size.min() < SMALLEST or size.max() > LARGEST:
                return -np.inf
            weight = (shape * np.log(size) - rate * size).sum()  # the Jacobian adds one log
            weight -= 0.5 * (trial[~positive] ** 2).sum()
            return likelihood.log_marginal(statistics, trial, count) + float(weight)

        prior = moved(slice_sample(log_density, 0.0, rng))
    return prior


def sample_concentration(
    alpha: float,
    clusters: int,
    objects: int,
    rng: np.random.Generator,
    hyperprior: tuple[float, float],
) -> float:
    """Draw alpha given the number of clusters (Escobar and West 1995)."""
    a, b = hyperprior
    log_eta = float(np.log(rng.beta(alpha + 1.0, objects)))
    rate = b - log_eta
    odds = (a + clusters - 1.0) / (objects * rate)
    shape = a + clusters - (rng.random() * (1.0 + odds) > odds)
    return float(np.clip(rng.gamma(shape) / rate, SMALLEST, LARGEST))


def slice_sample(
    log_density: Callable[[float], float], at: float, rng: np.random.Generator, width: float = 1.0
) -> float:
    """Draw a number given its log density by a slice-sampling step from ``at`` (Neal 2003)."""
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
            return float(new)
        low, high = (new, high) if new < at else (low, new)
