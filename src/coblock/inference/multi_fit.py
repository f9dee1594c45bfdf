"""From several relations to a result: starts, search, samples of the posterior."""

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from coblock.inference.multi_posterior import MultiChains
from coblock.inference.multi_search import MultiSearch, is_affordable
from coblock.inference.multi_start import spectral_points, start_labels
from coblock.inference.settings import SEARCH
from coblock.inference.start import thread_pools
from coblock.kernels import Indices
from coblock.model.dataset import Dataset
from coblock.model.multi_partition import MultiPartition
from coblock.model.multi_result import MultiRecord, MultiResult, rank_by_size

MOST_STARTS = 4  # spectral starts of a small data set


@dataclass(slots=True)
class MultiFit:
    """A fit under way: a search, then samples from the posterior around the best partition."""

    data: Dataset
    seed: int
    limits: tuple[int | None, ...]
    max_iter: int
    search: MultiSearch = field(init=False)
    chains: MultiChains | None = None
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
        """Whether the search has ended and the chains have, too."""
        if not self.search.finished:
            return False
        if self.chains is None:
            return not is_affordable(sum(self.data.sizes))
        return self.chains.finished

    def result(self) -> MultiResult:
        """Return the best partition with the samples; clusters are numbered by size."""
        best = self.best
        return MultiResult(
            data=self.data,
            labels=[rank_by_size(label) for label in best.labels],
            priors=best.priors,
            alpha=best.alpha,
            log_evidence=best.log_joint(),
            samples=[] if self.chains is None else self.chains.samples,
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
            if self.chains is None:
                modes = (self.best, self.search.modes, self.seed, self.limits)
                self.chains = MultiChains.from_modes(*modes)
            partition = self.chains.chains[0]
            moved = self.chains.sweep()
        clusters = tuple(m.size for m in partition.sizes)
        evidence = partition.log_joint()
        seconds = perf_counter() - began
        return MultiRecord(len(self.trace) + 1, phase, evidence, clusters, moved, seconds)


def make_starts(
    data: Dataset, limits: tuple[int | None, ...], rng: np.random.Generator
) -> list[list[Indices]]:
    """Return labels of starts, the one to use first last: spectral ones of many and few clusters.

    Small data sets get several starts: k-means clusters of the same vectors from other seeds.
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
    return starts[::-1]
