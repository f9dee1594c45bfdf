"""From several relations to a result: starts, search, samples of the posterior."""

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from coblock.inference.gibbs import sample_concentration, sample_prior, slice_sample
from coblock.inference.multi_search import MultiSearch, sweep_all
from coblock.inference.multi_start import spectral_points, start_labels
from coblock.inference.settings import SEARCH
from coblock.inference.start import thread_pools
from coblock.kernels import Floats, Indices
from coblock.kernels.degrees import PLAIN
from coblock.model.dataset import Dataset
from coblock.model.degrees import SHAPE_BOUNDS
from coblock.model.likelihoods.degrees import POISSON
from coblock.model.multi_partition import MultiPartition
from coblock.model.multi_result import MultiRecord, MultiResult, MultiSample, rank_by_size

MOST_STARTS = 4  # spectral starts of a small data set
FIRST_SWEEPS = 10  # of the chain, after which it must have moved
LEAST_MOVED = 0.01  # fraction of the labels; a chain that moves less is not averaged over
MOST_SWEEPS = 270  # of the chain
HYPERPRIOR = (1.0, 1.0)  # of concentrations in the posterior,
PRIOR_HYPERPRIOR = (1.0, 0.1)  # and of the hyperparameters of relations: Gamma, shape and rate


@dataclass(slots=True)
class MultiFit:
    """A fit under way: a search, then samples from the posterior around the best partition."""

    data: Dataset
    seed: int
    limits: tuple[int | None, ...]
    max_iter: int
    search: MultiSearch = field(init=False)
    chain: MultiPartition | None = None
    samples: list[MultiSample] = field(default_factory=list)
    trace: list[MultiRecord] = field(default_factory=list)
    rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        """Compute the starts."""
        self.rng = np.random.default_rng(self.seed)
        starts = make_starts(self.data, self.limits, self.rng)
        partition = MultiPartition.from_labels(self.data, starts.pop())
        self.search = MultiSearch(partition, self.rng, self.limits, starts)

    def run(self, callback: Callable[[MultiRecord], object] | None = None) -> None:
        """Sweep until the search has ended and the samples are drawn.

        The linear algebra uses one thread: its matrices are small.
        """
        began = perf_counter() - (self.trace[-1].seconds if self.trace else 0.0)
        while not self.finished and len(self.trace) < self.max_iter:
            with thread_pools().limit(limits=1):
                record = self._sweep(began)
            self.trace.append(record)
            if callback is not None and callback(record) is True:
                return

    @property
    def finished(self) -> bool:
        """Whether the search has ended and the chain has, too."""
        return self.search.finished and self._chain_has_ended()

    def _chain_has_ended(self) -> bool:
        """Return whether all samples are drawn, or the chain does not move, or is too costly."""
        sweeps = [record.moved for record in self.trace if record.phase == "posterior"]
        affordable = SEARCH.chain_visits // sum(self.data.sizes)
        if affordable < SEARCH.chain_burn_in + SEARCH.fewest_samples * SEARCH.sweeps_per_sample:
            return True
        if len(sweeps) >= FIRST_SWEEPS and np.mean(sweeps) < LEAST_MOVED:
            return True
        return len(sweeps) >= min(affordable, MOST_SWEEPS)

    def result(self) -> MultiResult:
        """Return the best partition with the samples; clusters are numbered by size."""
        best, sweeps = self.best, [r.moved for r in self.trace if r.phase == "posterior"]
        moves = bool(sweeps) and np.mean(sweeps) >= LEAST_MOVED
        return MultiResult(
            data=self.data,
            labels=[rank_by_size(label) for label in best.labels],
            priors=best.priors,
            alpha=best.alpha,
            log_evidence=best.log_bound(),
            samples=self.samples if moves else [],
            trace=self.trace,
            converged=self.finished,
        )

    @property
    def best(self) -> MultiPartition:
        """The best partition so far."""
        search = self.search
        if search.best is None or search.partition.log_joint() > search.best.log_joint():
            return search.partition
        return search.best

    def _sweep(self, began: float) -> MultiRecord:
        """Make one sweep of the search, or of the chain after it."""
        if not self.search.finished:
            phase, partition = "search", self.search.partition
            moved = self.search.sweep()
        else:
            phase = "posterior"
            if self.chain is None:
                self.chain = self.best.copy()
            partition = self.chain
            moved = sweep_all(partition, self.rng, self.limits, sampled=True, exact=True)
            draw_hyperparameters(partition, self.rng)
            sweeps = sum(record.phase == "posterior" for record in self.trace) + 1
            if sweeps > SEARCH.chain_burn_in and sweeps % SEARCH.sweeps_per_sample == 0:
                labels = [label.copy() for label in partition.labels]
                self.samples.append(MultiSample(labels, partition.priors, partition.alpha))
        clusters = tuple(m.size for m in partition.sizes)
        evidence = partition.log_joint()
        seconds = perf_counter() - began
        return MultiRecord(len(self.trace) + 1, phase, evidence, clusters, moved, seconds)


def make_starts(
    data: Dataset, limits: tuple[int | None, ...], rng: np.random.Generator
) -> list[list[Indices]]:
    """Return labels of starts, the one to use first last: spectral ones of many and few clusters.

    Small data sets get several starts: k-means clusters of the same vectors from other seeds. With
    degree correction the first one is there twice: the search uses the last one with infinite
    shapes of the degree laws at first (DEGREES D6).
    """
    seed = int(rng.integers(2**31))
    domains = range(len(data.domains))
    points = [spectral_points(data, d, SEARCH.start_clusters, seed) for d in domains]
    several = min(max(SEARCH.patience_objects // sum(data.sizes), 1), MOST_STARTS)
    numbers = [SEARCH.start_clusters] * several
    if several > 1:
        numbers.append(SEARCH.few_start_clusters)
    starts = []
    for number, clusters in enumerate(numbers):
        labels = start_labels(points, clusters, seed % 2**30 + number)
        pairs = zip(labels, limits, strict=True)
        starts.append([label if limit is None else label % limit for label, limit in pairs])
    if data.corrected:
        starts.append([label.copy() for label in starts[0]])
    return starts[::-1]


def draw_shapes(partition: MultiPartition, r: int, rng: np.random.Generator) -> Floats:
    """Draw the shapes of the degree laws of a relation; the logarithm has a uniform prior.

    Infinite ones stay.
    """
    blocks, shapes = partition.degree_blocks(r), partition.priors[r][2:].copy()
    for p, degree in enumerate(partition.place_degrees(r)):
        if shapes[p] < PLAIN:

            def log_density(x: float, p: int = p, degree: Floats = degree) -> float:
                if not SHAPE_BOUNDS[0] <= x <= SHAPE_BOUNDS[1]:
                    return -np.inf
                return blocks.shape_value(p, degree, float(np.exp(x)))

            shapes[p] = np.exp(slice_sample(log_density, float(np.log(shapes[p])), rng))
    return shapes


def draw_hyperparameters(partition: MultiPartition, rng: np.random.Generator) -> None:
    """Draw concentrations and the hyperparameters of all relations given the labels."""
    alpha = [
        sample_concentration(alpha, m.size, size, rng, HYPERPRIOR)
        for alpha, m, size in zip(
            partition.alpha, partition.sizes, partition.data.sizes, strict=True
        )
    ]
    priors = []
    for r, table in enumerate(partition.data.tables):
        (statistics, count), prior = partition.used_statistics(r), partition.priors[r]
        likelihood, rows, shapes = table.likelihood, prior.reshape(-1, 1, 1), prior[:0]
        if table.corrected:
            likelihood, rows, shapes = POISSON, rows[:2], draw_shapes(partition, r, rng)
        drawn = sample_prior(likelihood, statistics, rows, PRIOR_HYPERPRIOR, rng, count)
        priors.append(np.concatenate((drawn.ravel(), shapes)))
    partition.set_hyperparameters(priors, alpha)
