"""Execution of sweeps and moves: the protocol of engines, and the one that uses threads.

An engine runs what a phase asks for, over all objects of a relation. :class:`LocalEngine` runs it
on threads of this process, :class:`coblock.distributed.DaskEngine` on workers of a cluster. Both
give the same bits for the same schedule.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from coblock.inference.draws import UniformDraws
from coblock.inference.settings import SEARCH
from coblock.inference.singular import Map, NormalisedLinks, Products, serial_map
from coblock.kernels import BlockTables, DomainView, Floats, Indices, Offsets, cvb0
from coblock.kernels.gibbs import label_exactly, label_sequence, rising_tables
from coblock.kernels.memberships import hard_labels, next_is_row, total_change
from coblock.kernels.moves import best_splits
from coblock.kernels.score import score_tables
from coblock.kernels.screen import add_bases, empty_screen, fill_screen, label_batch
from coblock.model.partition import Partition
from coblock.model.relation import RelationData
from coblock.model.state import SoftState
from coblock.model.sums import tree_sum

BATCHES = 16  # per sweep and domain, where the user gives no batch size
SEQUENTIAL_UP_TO = 1000  # objects in all; so few are updated one after another
PARTS, SMALLEST_PART = 8, 128  # parts of a batch, for threads and workers; objects of a part
MOST_PARTS, LARGE_PART = 256, 2048  # the same of large batches
SHARES, SMALLEST_SHARE = 2, 32  # of each thread, where labels are given; objects of a share
TABLE_SHARE = 2048  # blocks of a part of the tables that a batch uses


@dataclass(frozen=True, slots=True)
class Schedule:
    """Cuts a sweep into batches."""

    batch_size: int | tuple[int, int] | None = None  # None: chosen by the number of objects
    sequential_up_to: int = SEQUENTIAL_UP_TO  # objects in all, where it is None

    def is_sequential(self, sizes: tuple[int, ...]) -> bool:
        """Return whether objects are updated one after another."""
        return all(self.size_of(sizes, d) == 1 for d in range(len(sizes)))

    def size_of(self, sizes: tuple[int, ...], d: int) -> int:
        """Return how many objects of domain ``d`` are updated together."""
        if self.batch_size is not None:
            return self.batch_size if isinstance(self.batch_size, int) else self.batch_size[d]
        return 1 if sum(sizes) <= self.sequential_up_to else -(-sizes[d] // BATCHES)

    def coarser(self, sizes: tuple[int, ...], count: int) -> "Schedule":
        """Return a schedule with so many batches a domain, where the user gives no batch size."""
        if self.batch_size is not None or self.is_sequential(sizes):
            return self
        return replace(self, batch_size=(-(-sizes[0] // count), -(-sizes[-1] // count)))

    def batches(self, sizes: tuple[int, ...]) -> Iterator[tuple[int, Indices]]:
        """Yield domain and objects of each batch; rows and columns alternate in proportion."""
        for d, objects in self.spans(sizes):
            yield d, np.arange(objects.start, objects.stop, dtype=np.int32)

    def spans(self, sizes: tuple[int, ...]) -> Iterator[tuple[int, range]]:
        """Yield the same as :meth:`batches`, with the objects as ranges."""
        size = [self.size_of(sizes, d) for d in range(len(sizes))]
        count = [-(-objects // s) for objects, s in zip(sizes, size, strict=True)]
        done = [0] * len(sizes)
        while done != count:
            d = 0 if len(sizes) == 1 or next_is_row(*done, *count) else 1
            first = done[d] * size[d]
            yield d, range(first, min(first + size[d], sizes[d]))
            done[d] += 1


def parts(objects: int) -> list[slice]:
    """Return the parts of a batch that threads or workers share; the data alone fix them."""
    few = min(PARTS, max(objects // SMALLEST_PART, 1))
    size = -(-objects // max(few, min(objects // LARGE_PART, MOST_PARTS)))
    return [slice(start, start + size) for start in range(0, objects, size)]


STRETCHES = 8  # rows and columns alternate so often in a sequential sweep
NO_NUMBERS = np.empty(0)
NO_TABLE = np.empty((0, 0))

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Split: TypeAlias = tuple[float, Any]  # gain, and the side of each member, for `split_labels`


class SoftSweep(NamedTuple):
    """Totals of one sweep over soft memberships."""

    leave_one_out: float
    entropy: float
    change: float  # mean |change| of the memberships per object, the larger of the domains


class Engine(Protocol):
    """Runs sweeps and moves over all objects of a relation."""

    @property
    def schedule(self) -> Schedule:
        """Which objects are updated together."""

    def sweep_labels(
        self,
        partition: Partition,
        uniform: Floats | UniformDraws | None = None,
        *,
        limits: tuple[int, ...] | None = None,
        open_clusters: bool = False,
        probability: list[Floats] | None = None,
    ) -> float:
        """Give every object a new label and update the counts; return the sum of log normalisers.

        The partition is changed in place; clusters keep their numbers, empty ones included.
        ``uniform`` has a random number for each object of all domains, which draws its label;
        None takes the most probable one. ``limits`` are the largest numbers of clusters. Only a
        sequential sweep opens clusters. The probabilities of the labels are added to
        ``probability``, a table for each domain.
        """

    def sweep_memberships(self, state: SoftState, step: float = 1.0) -> SoftSweep:
        """Update all memberships by CVB0; they move the fraction ``step`` of the way."""

    def keep_labels(self, labels: list[Any]) -> list[Any]:
        """Return labels as the engine keeps them: arrays, or ones that are not in memory."""

    def conditional_memberships(self, partition: Partition) -> list[Any]:
        """Return p(z_i | all other labels) of every object, by domain; no label changes."""

    def propose_splits(self, partition: Partition, d: int, rng: np.random.Generator) -> list[Split]:
        """Return the best split found of every cluster of domain ``d``."""

    def normalised_links(self, relation: Any) -> Products:
        """Return the links divided by the root of their degrees, for the spectral start."""

    def map(self, function: Callable[[Item], Answer], items: Iterable[Item]) -> list[Answer]:
        """Return the results for all items, in their order."""


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """Runs sweeps and moves in this process, on threads where it is given some."""

    schedule: Schedule = field(default_factory=Schedule)
    threads: Executor | None = None
    helpers: int = 1  # threads that work beside the calling one

    def map(self, function: Callable[[Item], Answer], items: Iterable[Item]) -> list[Answer]:
        """Return the results for all items, in their order.

        Threads take the next item when they are done with one. The calling thread works, too, and
        does not wait for a helper that has not begun, so a function may itself call this method.
        """
        items = list(items)
        if self.threads is None or len(items) == 1:
            return [function(item) for item in items]
        answers: list[Any] = [None] * len(items)
        left = iter(range(len(items)))

        def work() -> None:
            for t in left:
                answers[t] = function(items[t])

        count = min(self.helpers, len(items) - 1)
        helpers = [self.threads.submit(work) for _ in range(count)]
        work()
        for helper in helpers:
            if not helper.cancel():
                helper.result()
        return answers

    def normalised_links(self, relation: Any) -> Products:
        """Return the normalised links of a relation in memory."""
        return NormalisedLinks.from_relation(relation, self.map)

    def sweep_labels(
        self,
        partition: Partition,
        uniform: Floats | UniformDraws | None = None,
        *,
        limits: tuple[int, ...] | None = None,
        open_clusters: bool = False,
        probability: list[Floats] | None = None,
    ) -> float:
        """Give every object a new label; see :class:`Engine`."""
        sizes, total = partition.relation.sizes, 0.0
        uniform = uniform.draw() if isinstance(uniform, UniformDraws) else uniform
        numbers = [NO_NUMBERS] * 2 if uniform is None else np.split(uniform, [sizes[0]])
        tables = [NO_TABLE] * 2 if probability is None else probability
        if self.schedule.is_sequential(sizes):
            return _sweep_sequence(partition, numbers, limits, open_clusters, tables)
        for d, objects in self.schedule.coarser(sizes, SEARCH.label_batches).batches(sizes):
            fresh, log_normaliser = self._label(partition, d, objects, numbers[d], tables[d])
            partition.relabel(d, objects, fresh)
            total += tree_sum(float(log_normaliser[p].sum()) for p in parts(objects.size))
            total += more_copies(partition.relation, d, objects) * log_normaliser[-1]
        return total

    def _label(
        self, partition: Partition, d: int, objects: Indices, uniform: Floats, probability: Floats
    ) -> tuple[Indices, Floats]:
        """Return new labels of objects of one domain, and their log normalisers."""
        domain, other = partition.domain(d), partition.domain(-1 - d)
        run = None if self.threads is None else self.map
        kernel, tables = label_kernel(domain, partition.tables(d), other.m, run)
        fresh, log_normaliser = np.empty(objects.size, dtype=np.int32), np.empty(objects.size)
        numbers = uniform[objects] if uniform.size else uniform
        rows = slice(objects[0], objects[-1] + 1)

        def label(part: slice) -> None:
            sums = probability[rows][part] if probability.size else probability
            out = (fresh[part], log_normaliser[part], sums)
            kernel(domain, other, tables, objects[part], numbers[part], *out)

        self.map(label, self._shares(objects.size))
        if uniform.size and more_copies(partition.relation, d, objects):
            last = (fresh[-1:], log_normaliser[-1:], NO_TABLE)
            kernel(domain, other, tables, objects[-1:], NO_NUMBERS, *last)
        return fresh, log_normaliser

    def _shares(self, objects: int) -> list[slice]:
        """Return the parts of objects that threads label; the bits do not depend on them."""
        count = 1 if self.threads is None else SHARES * (self.helpers + 1)
        size = max(-(-objects // count), min(SMALLEST_SHARE, objects))
        return [slice(start, start + size) for start in range(0, objects, size)]

    def sweep_memberships(self, state: SoftState, step: float = 1.0) -> SoftSweep:
        """Update all memberships by CVB0; see :class:`Engine`."""
        sizes = state.relation.sizes
        if self.schedule.is_sequential(sizes):
            old = [q.copy() for q in state.q]
            totals = cvb0.sweep(state.domain(0), state.domain(-1), state.tables())
            state.recount()
            return SoftSweep(*totals, largest_change(old, state.q))
        leave_one_out, entropy, moved = 0.0, 0.0, [0.0] * len(sizes)
        for d, objects in self.schedule.batches(sizes):
            results, fresh = self._update(state, d, objects, step)
            leave_one_out += tree_sum(float(part.log_normaliser.sum()) for part in results)
            entropy += tree_sum(float(part.entropy.sum()) for part in results)
            more = more_copies(state.relation, d, objects)
            if more:
                leave_one_out += more * results[-1].log_normaliser[-1]
                entropy += more * results[-1].entropy[-1]
                results[-1].m[:] += more * (fresh[-1] - state.q[d][-1])
            moved[d] += float(np.abs(fresh - state.q[d][objects]).sum())
            apply_batch(state, d, objects, fresh, results)
        change = max(total / size for total, size in zip(moved, sizes, strict=True))
        return SoftSweep(leave_one_out, entropy, change)

    def _update(
        self, state: SoftState, d: int, objects: Indices, step: float
    ) -> tuple[list[cvb0.BatchResult], Floats]:
        """Return the results by part, and the new memberships, of objects of one domain."""
        domain, other = state.domain(d), state.domain(-1 - d)
        tables = score_tables(domain, state.tables(d), other.m)
        fresh = np.empty((objects.size, domain.m.size))
        some_unseen = domain.incidence[0].unseen.size > 0

        def update(part: slice) -> cvb0.BatchResult:
            result = empty_batch_result(fresh[part], other.m.size, some_unseen)
            cvb0.update_batch(domain, other, tables, objects[part], step, result)
            return result

        return self.map(update, parts(objects.size)), fresh

    def keep_labels(self, labels: list[Any]) -> list[Any]:
        """Return the same arrays."""
        return labels

    def conditional_memberships(self, partition: Partition) -> list[Any]:
        """Return p(z_i | all other labels) of every object; see :class:`Engine`."""
        found = []
        for d, size in enumerate(partition.relation.sizes):
            q, objects = np.zeros((size, partition.m[d].size)), np.arange(size, dtype=np.int32)
            self._label(partition, d, objects, NO_NUMBERS, q)
            found.append(q)
        return found

    def propose_splits(self, partition: Partition, d: int, rng: np.random.Generator) -> list[Split]:
        """Return the best split found of every cluster; see :class:`Engine`."""
        label = partition.labels[d]
        sizes = np.bincount(label, minlength=partition.m[d].size)
        members, start = np.argsort(label, kind="stable").astype(np.int32), starts_of(sizes)
        gain, side = np.empty(sizes.size), np.empty(label.size, np.int8)
        views = (partition.domain(d), partition.domain(-1 - d), members, start)
        copies = partition.relation.copies[d]
        how = (shared_prior(partition), draw_seeds(sizes, rng), SEARCH.split_passes, copies)
        slices = range(min(PARTS, sizes.size))
        self.map(
            lambda s: best_splits(*views, *how, np.arange(s, sizes.size, PARTS), gain, side), slices
        )
        return [
            (g, side[slice(*ends)])
            for g, ends in zip(gain.tolist(), pairwise(start.tolist()), strict=True)
        ]


def more_copies(relation: RelationData, d: int, objects: Indices) -> float:
    """Return the objects that the last one of a batch stands for, beside itself (MODEL 16)."""
    return relation.copies[d] - 1.0 if objects[-1] == relation.sizes[d] - 1 else 0.0


def label_kernel(
    domain: DomainView, blocks: BlockTables, m_other: Floats, run: Map | None = None
) -> tuple[Callable[..., None], Any]:
    """Return the kernel that labels a batch, and its tables.

    Clusters are screened where there are few links (MODEL 15). The tables are filled by ``run`` in
    parts, if it is given.
    """
    if blocks.n.sum() > SEARCH.screened_density * (blocks.n + blocks.N).sum():
        return label_exactly, score_tables(domain, blocks, m_other)
    tables, L = empty_screen(domain, blocks), m_other.size
    count = 1 if run is None else min(PARTS, max(blocks.n.size // TABLE_SHARE, 1))
    bounds = pairwise(np.linspace(0, L, count + 1).astype(int).tolist())
    (run or serial_map)(lambda part: fill_screen(domain, blocks, m_other, tables, *part), bounds)
    add_bases(domain, tables)
    return label_batch, tables


def _sweep_sequence(
    partition: Partition,
    uniform: list[Floats],
    limits: tuple[int, ...] | None,
    open_clusters: bool,
    probability: list[Floats],
) -> float:
    """Give objects new labels one after another.

    Rows and columns alternate in stretches where the best labels are taken. For drawn labels the
    order does not matter.
    """
    sizes, total = partition.relation.sizes, 0.0
    count = 1 if uniform[0].size else STRETCHES
    stretches = np.linspace([0] * len(sizes), sizes, count + 1).astype(int)
    rising = rising_tables(*shared_prior(partition))
    for start, stop in pairwise(stretches):
        for d in range(len(sizes)):
            at, limit = start[d], None if limits is None else limits[d]
            while at < stop[d]:
                growing = open_clusters and partition.make_room(d, limit, SEARCH.room)
                views = (partition.domain(d), partition.domain(-1 - d), partition.tables(d))
                objects = (at, stop[d], uniform[d])
                at, part = label_sequence(*views, rising, *objects, growing, probability[d])
                partition.recount()
                total += part
    return total


def empty_batch_result(fresh: Floats, clusters_other: int, unseen: bool) -> cvb0.BatchResult:
    """Return a result to be filled for a part of a batch; ``fresh`` gets its memberships."""
    size, K = fresh.shape
    cells = np.zeros((K, clusters_other))
    hidden = np.zeros(cells.shape if unseen else (0, 0))
    return cvb0.BatchResult(np.empty(size), np.empty(size), fresh, np.zeros(K), cells, hidden)


def apply_batch(
    state: SoftState,
    d: int,
    objects: Indices,
    fresh: Floats,
    results: Iterable[cvb0.BatchResult],
) -> None:
    """Give objects of one domain new memberships and add the changes of the parts."""
    state.q[d][objects] = fresh
    state.hard[d][objects] = hard_labels(fresh)
    if state.relation.repeated:  # a batch changes both ends of its cells
        state.recount()
        return
    deltas = zip(*((part.m, part.links, part.unseen) for part in results), strict=True)
    state.blocks.apply_delta(d, *map(tree_sum, deltas))


def shared_prior(partition: Partition) -> tuple[float, float]:
    """Return a and b of a partition."""
    a, b = partition.hyper.prior
    return a.item(), b.item()


def draw_seeds(sizes: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the pairs of members around which clusters of at least two are split.

    (clusters, pairs, 2) positions among the members of the cluster.
    """
    highest = np.maximum(np.stack((sizes, sizes - 1), axis=1), 1)[:, None]
    pairs = rng.integers(highest, size=(sizes.size, SEARCH.split_seeds, 2))
    pairs[..., 1] += pairs[..., 1] >= pairs[..., 0]
    return pairs


def starts_of(sizes: NDArray[np.int64]) -> Offsets:
    """Return where each cluster begins among members sorted by cluster, and the end."""
    return np.concatenate(([0], np.cumsum(sizes)))


def largest_change(old: list[Floats], new: list[Floats], counts: tuple[int, int] = (1, 1)) -> float:
    """Return the mean |change| of memberships per object, the largest of the domains (MODEL 9).

    They are given as sums of so many.
    """
    pairs = zip(old, new, strict=True)
    return max(total_change(q, counts[0], fresh, counts[1]) / len(q) for q, fresh in pairs)
