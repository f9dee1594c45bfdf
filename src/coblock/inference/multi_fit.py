"""From several relations to a result: starts, search, samples, or one of the plain methods."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Protocol

import numpy as np

from coblock.inference.convergence import last_change
from coblock.inference.multi_gibbs import (
    draw_hyperparameters,
    draw_labels,
    gibbs_result,
    is_kept,
    take_sample,
)
from coblock.inference.multi_posterior import MultiChains
from coblock.inference.multi_search import MultiSearch
from coblock.inference.multi_start import spectral_points, start_labels
from coblock.inference.multi_variational import (
    MultiVariational,
    make_variational,
    random_labels,
    soft_result,
    start_memberships,
)
from coblock.inference.settings import CHAINS, SEARCH, Settings
from coblock.inference.start import most_probable, soft_labels, thread_pools
from coblock.kernels import Indices
from coblock.model.dataset import Dataset
from coblock.model.multi_batches import Scorer, use_scorer
from coblock.model.multi_partition import MultiPartition
from coblock.model.multi_result import MultiRecord, MultiResult, MultiSample, rank_by_size
from coblock.model.multi_state import MultiState
from coblock.model.trace import SweepRecord

STARTS = (4, 8)  # spectral starts of data sets of few objects: fewest and most;
START_CELLS = 40_000  # divided by the stored cells: how many in between. Of 10 seeds on nations
# with features, 9 end within 0.11 % of the best evidence known with 8 starts, 7 with 4


@dataclass(slots=True)
class MultiFit:
    """A fit under way, through the phases of its settings.

    By default a search, then samples from the posterior around the best partition. The fields hold
    the complete state between two sweeps, so that the fit can be checkpointed.
    """

    data: Dataset
    seed: int
    limits: tuple[int | None, ...]
    settings: Settings
    search: MultiSearch | None = None  # where the settings ask for one
    soft: MultiVariational | None = None  # sweeps of CVB0, ACVB0 or VB
    chains: MultiChains | None = None  # samples around the partition found
    chain: MultiPartition | None = None  # Gibbs sampling,
    samples: list[MultiSample] = field(default_factory=list)  # and its samples
    trace: list[MultiRecord] = field(default_factory=list)
    rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        """Compute the starts."""
        self.rng = np.random.default_rng(self.seed)
        init, phase = self.settings.init, self.settings.phases[0]
        if phase == "search":
            if init == "random":
                starts = [random_labels(self.data, self.limits, self.rng)]
            else:
                starts = make_starts(self.data, self.limits, self.rng)
            partition = MultiPartition.from_labels(self.data, starts.pop())
            self.search = MultiSearch(partition, self.rng, self.limits, starts)
            return
        q = start_memberships(self.data, self.limits, init, self.rng)
        if phase == "gibbs":
            self.chain = MultiPartition.from_labels(self.data, most_probable(q), learn=False)
        else:
            state = MultiState.initial(self.data, q)
            self.soft = make_variational(state, self.settings, random=init == "random")

    def run(self, callback: Callable[[MultiRecord], object] | None = None) -> None:
        """Sweep until the last phase has ended, or there are no sweeps left.

        The linear algebra uses one thread: its matrices are small.
        """
        began = perf_counter() - (self.trace[-1].seconds if self.trace else 0.0)
        while not self.finished and len(self.trace) < self.settings.max_iter:
            with thread_pools().limit(limits=1):
                record = self._sweep(began)
            self.trace.append(record)
            if callback is not None and callback(record) is True:
                return

    @property
    def phase(self) -> str:
        """Name of the present phase."""
        searching = self.search is not None and not self.search.finished
        return self.settings.phases[0 if searching else -1]

    @property
    def finished(self) -> bool:
        """Whether the last phase has ended; Gibbs goes on while there are sweeps left."""
        phase, settings = self.phase, self.settings
        if phase == "posterior":
            if self.chains is None:
                return not (settings.averages and CHAINS.is_affordable(self.data))
            return self.chains.finished
        if phase == "variational" and self.soft is not None and self.trace:
            return self.soft.may_stop and last_change(self.trace, settings) < settings.tol
        return False

    def result(self) -> MultiResult:
        """Return what has been found so far; clusters are numbered by size."""
        if self.soft is not None:
            return soft_result(self.soft, self.trace, done=self.finished)
        if self.search is None:
            assert self.chain is not None
            kept = (self.samples, self.trace, self.settings.max_iter)
            return gibbs_result(self.data, self.chain, *kept)
        best = self.best
        return MultiResult(
            data=self.data,
            labels=[rank_by_size(label) for label in best.labels],
            priors=best.priors,
            alpha=best.alpha,
            log_evidence=best.log_bound(),
            samples=[] if self.chains is None else self.chains.samples,
            trace=self.trace,
            converged=self.finished,
        )

    @property
    def best(self) -> MultiPartition:
        """The best partition of the search so far."""
        search = self.search
        assert search is not None
        if search.best is None or search.partition.log_joint() > search.best.log_joint():
            return search.partition
        return search.best

    def _sweep(self, began: float) -> MultiRecord:
        """Make one sweep of the present phase."""
        phase, number = self.phase, len(self.trace) + 1
        if phase == "variational":
            return self._sweep_softly(began)
        if phase == "search":
            assert self.search is not None
            partition = self.search.partition
            moved = self.search.sweep()
        elif phase == "gibbs":
            assert self.chain is not None
            partition = self.chain
            moved = draw_labels(partition, self.rng)
            draw_hyperparameters(partition, self.rng)
            if is_kept(number, self.settings.max_iter):
                self.samples.append(take_sample(partition))
        else:
            assert self.search is not None
            if self.chains is None:
                modes = (self.best, self.search.modes, self.seed, self.limits)
                self.chains = MultiChains.from_modes(*modes)
            partition = self.chains.chains[0]
            moved = self.chains.sweep()
        clusters = tuple(m.size for m in partition.sizes)
        evidence, seconds = partition.log_joint(), perf_counter() - began
        return MultiRecord(number, phase, evidence, clusters, moved, seconds, 2.0 * moved)

    def _sweep_softly(self, began: float) -> MultiRecord:
        """Make one sweep of CVB0, ACVB0 or VB, which may follow a search."""
        if self.soft is None:
            best = self.best.copy()
            best.renumber()
            q = soft_labels(best.labels, 1.0)
            state = MultiState(self.data, q, list(best.priors), list(best.alpha))
            self.soft = make_variational(state, self.settings)
        totals, change, bound = self.soft.advance()
        return MultiRecord(
            sweep=len(self.trace) + 1,
            phase="variational",
            log_evidence=bound,
            clusters=self.soft.state.clusters,
            moved=None,
            seconds=perf_counter() - began,
            change=change,
            leave_one_out=totals.leave_one_out,
        )


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
    cells = max(sum(len(table.stored[0]) for table in data.tables), 1)
    most = min(max(START_CELLS // cells, STARTS[0]), STARTS[1])
    several = min(max(SEARCH.several_objects // sum(data.sizes), 1), most)
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


class SharingEngine(Protocol):
    """Scores batches of large domains elsewhere, such as on the workers of a cluster."""

    def share_relations(self, data: Dataset, settings: Settings) -> AbstractContextManager[Scorer]:
        """Return the scorer of a fit, which is open as long as the fit."""
        ...


@contextmanager
def use_engine(engine: SharingEngine | None, data: Dataset, settings: Settings) -> Iterator[None]:
    """Score batches by an engine; without one, the threads of this process do."""
    if engine is None:
        yield
    elif not hasattr(engine, "share_relations"):
        msg = f"engine must be a coblock.distributed.DaskEngine or None, not {engine!r}."
        raise TypeError(msg)
    else:
        with engine.share_relations(data, settings) as scorer, use_scorer(scorer):
            yield


def binary_record(record: SweepRecord, n_domains: int, settings: Settings) -> MultiRecord:
    """Return the record of a sweep of :class:`IRM` as that of several relations."""
    soft = record.moved is None and settings.phases[-1] == "variational"
    return MultiRecord(
        record.sweep,
        settings.phases[0 if record.moved is not None else -1],
        record.bound,
        (record.row_clusters, record.column_clusters)[:n_domains],
        None if soft else record.moved or 0.0,
        record.seconds,
        record.change,
        record.leave_one_out if soft else None,
    )
