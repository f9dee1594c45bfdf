"""What runs on workers: shards, and tasks that run the kernels of the local fit on one shard."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coblock.distributed.replication import (
    BatchDelta,
    Replica,
    Snapshot,
    SparseMemberships,
    compact_counts,
    domain_view,
    writable,
)
from coblock.inference.engine import NO_TABLE, empty_batch_result, label_kernel, parts
from coblock.inference.start import cell_counts, expected_degrees, link_product
from coblock.kernels import Floats, Incidence, Indices, moves
from coblock.kernels.cvb0 import update_batch
from coblock.kernels.gather import add_label_counts, add_outer_sums, relabel
from coblock.kernels.moves import SideCounts
from coblock.kernels.score import score_tables
from coblock.kernels.spectral import LinkScales
from coblock.model.blocks import Blocks
from coblock.model.hyperparameters import Hyperparameters
from coblock.model.sums import PartialSums, segment

Tables: TypeAlias = Sequence[NDArray[Any]]  # n, N (trials, 2, L) and m (trials, 2) of both sides
CellTables: TypeAlias = tuple[Floats, Floats]  # links and unseen cells of each block
Prior: TypeAlias = tuple[float, float]


@dataclass(frozen=True)
class ShardLayout:
    """Objects of one domain in batches; a shard holds the same parts of every batch.

    The parts are those of the local engine. No part is divided between shards.
    """

    size: int  # objects
    batch: int  # objects updated together
    wanted: int  # shards; there are no more than a batch has parts

    @cached_property
    def most(self) -> int:
        """Largest possible number of shards: the parts of a whole batch."""
        return len(parts(min(self.batch, self.size)))

    @property
    def shards(self) -> int:
        """Number of shards."""
        return min(self.wanted, self.most)

    @property
    def batches(self) -> int:
        """Batches of a sweep."""
        return -(-self.size // self.batch)

    def parts(self, shard: int, b: int) -> dict[int, range]:
        """Return the objects of each part of batch ``b`` that a shard holds, by its number."""
        start, stop = b * self.batch, min((b + 1) * self.batch, self.size)
        return {
            number: range(start + part.start, min(start + part.stop, stop))
            for number, part in enumerate(parts(stop - start))
            if number * self.shards // self.most == shard
        }

    def count_parts(self, b: int) -> int:
        """Return the number of parts of batch ``b`` on all shards."""
        return len(parts(min(self.batch, self.size - b * self.batch)))

    def span(self, shard: int, b: int) -> range:
        """Return the objects of a shard in batch ``b``, which are contiguous."""
        return self._spans[shard][b]

    @cached_property
    def _spans(self) -> list[list[range]]:
        """The objects of each shard in each batch."""
        spans = []
        for s in range(self.shards):
            held = [list(self.parts(s, b).values()) for b in range(self.batches)]
            spans.append([range(h[0].start, h[-1].stop) if h else range(0) for h in held])
        return spans

    def objects(self, shard: int) -> Indices:
        """Return the objects of a shard, ascending."""
        spans = [np.arange(0)] + [np.array(span) for span in self._spans[shard]]
        return np.concatenate(spans).astype(np.int32)

    def in_order(self) -> list[tuple[int, range]]:
        """Return the shard and the objects of each span, ascending by object."""
        pairs = [(s, span) for s, of_shard in enumerate(self._spans) for span in of_shard if span]
        return sorted(pairs, key=lambda pair: pair[1].start)

    def find(self, objects: Indices) -> tuple[Indices, Indices]:
        """Return the shards of objects, and their positions in them."""
        spans, held = self.in_order(), np.zeros(self.shards, np.int64)
        table = np.empty((3, len(spans)), np.int64)  # first object, its shard and its position
        for number, (s, span) in enumerate(spans):
            table[:, number] = span.start, s, held[s]
            held[s] += len(span)
        at = np.searchsorted(table[0], objects, side="right") - 1
        first, shard, position = table[:, at]
        return shard.astype(np.int32), (position + objects - first).astype(np.int32)

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("size", "batch", "wanted")}


@dataclass(frozen=True)
class Shard:
    """The cells of some objects of one domain; other ends are numbered as in the relation."""

    d: int
    number: int
    layout: ShardLayout
    incidence: Incidence

    @cached_property
    def objects(self) -> Indices:
        """The objects of the shard, ascending."""
        return self.layout.objects(self.number)

    def segment(self, objects: range) -> Incidence:
        """Return the cells of consecutive objects of the shard, without a copy."""
        first, last = np.searchsorted(self.objects, (objects.start, objects.stop))
        return segment(self.incidence, int(first), int(last))

    def __setstate__(self, state: dict[str, Any]) -> None:
        incidence = Incidence(*(writable(array) for array in state["incidence"]))
        self.__dict__.update(state | {"incidence": incidence})

    def __sizeof__(self) -> int:
        return sum(array.nbytes for array in self.incidence)


def update_memberships(shard: Shard, replica: Replica, *, b: int, step: float) -> BatchDelta:
    """Update memberships by CVB0, in the parts into which the local engine cuts a batch."""
    d, blocks, other = shard.d, replica.blocks, replica.view(1 - shard.d)
    objects = shard.layout.span(shard.number, b)
    first, q = objects.start, replica.domains[d].dense(objects)
    hard = replica.domains[d].hard[first : objects.stop]
    own = domain_view(shard.segment(objects), q, hard, blocks.m[d], replica.hyper.alpha[d])
    tables = score_tables(own, replica.tables(d), other.m)
    fresh, sums = np.empty_like(q), {}
    for number, part in shard.layout.parts(shard.number, b).items():
        chosen = np.arange(part.start - first, part.stop - first, dtype=np.int32)
        rows = fresh[part.start - first : part.stop - first]
        result = empty_batch_result(rows, other.m.size, bool(blocks.unseen.any()))
        update_batch(own, other, tables, chosen, step, result)
        totals = float(result.log_normaliser.sum()), float(result.entropy.sum())
        sums[0, number] = (*totals, result.m, result.links, result.unseen)
    memberships = [(objects, SparseMemberships.from_dense(fresh))]
    partial_sums = PartialSums.merge([PartialSums(shard.layout.count_parts(b), sums)])
    return BatchDelta(replica.version + 1, d, memberships, partial_sums)


def give_labels(
    shard: Shard,
    replica: Replica,
    *,
    b: int | None = None,
    uniform: Floats | None = None,
    probability: bool = False,
) -> BatchDelta:
    """Give the objects of a batch new labels and count the changes, which are whole numbers.

    Random numbers draw the labels; without them the best ones are taken. Without a batch, all
    objects of the shard get labels.
    """
    d, blocks, other = shard.d, replica.blocks, replica.view(1 - shard.d)
    objects = range(0) if b is None else shard.layout.span(shard.number, b)
    cells = shard.incidence if b is None else shard.segment(objects)
    label = replica.domains[d].hard[shard.objects if b is None else np.array(objects)]
    own = domain_view(cells, NO_TABLE, label, blocks.m[d], replica.hyper.alpha[d])
    kernel, tables = label_kernel(own, replica.tables(d), other.m)
    numbers = np.empty(0) if uniform is None else writable(uniform)
    fresh, log_normaliser = np.empty_like(label), np.empty(label.size)
    K, L = own.m.size, other.m.size
    chance = np.zeros((label.size, K) if probability else (0, 0))
    every = np.arange(label.size, dtype=np.int32)
    kernel(own, other, tables, every, numbers, fresh, log_normaliser, chance)
    m = np.bincount(fresh, minlength=K) - np.bincount(label, minlength=K)
    links, unseen = np.zeros((K, L)), np.zeros((K, L))
    moved = np.flatnonzero(fresh != label).astype(np.int32)
    relabel(own, moved, fresh[moved], label, other.hard, links, unseen)
    counts = tuple(map(compact_counts, (m, links, unseen if blocks.unseen.any() else NO_TABLE)))
    chances = [SparseMemberships.from_dense(chance)] if probability else []
    terms, sums = 0, {}
    if b is not None:
        terms = shard.layout.count_parts(b)
        for number, part in shard.layout.parts(shard.number, b).items():
            some = slice(part.start - objects.start, part.stop - objects.start)
            sums[0, number] = (float(log_normaliser[some].sum()),)
    new = [(objects, SparseMemberships.from_labels(fresh, K))]
    partial_sums = PartialSums.merge([PartialSums(terms, sums)])
    return BatchDelta(replica.version + 1, d, new, partial_sums, counts, chances)


def label_probabilities(
    shard: Shard, snapshot: Snapshot, blocks: Blocks, hyper: Hyperparameters
) -> SparseMemberships:
    """Return p(z_i | all other labels) of all objects of a shard."""
    replica = Replica(0, 0, [domain.unpacked for domain in snapshot], deepcopy(blocks), hyper)
    return give_labels(shard, replica, probability=True).probability[0]


def count_cells(shard: Shard, snapshot: Snapshot) -> CellTables:
    """Count links and unseen cells of a shard of rows by the clusters of their ends."""
    rows, columns = (memberships.unpacked for memberships in snapshot)
    cells, labels = shard.incidence, (rows.hard[shard.objects], columns.hard)
    links, unseen = np.zeros((2, rows.clusters, columns.clusters))
    add_label_counts(cells, *labels, links, unseen)
    return links, unseen


def add_expected_cells(
    sums: CellTables | None, shard: Shard, snapshot: Snapshot, objects: range
) -> CellTables:
    """Add q_ik q_jl over the cells of consecutive rows of a shard to the sums of those before."""
    own, other = (memberships.unpacked for memberships in snapshot)
    cells, q, shape = shard.segment(objects), own.dense(objects), (own.clusters, other.clusters)
    links, unseen = (np.zeros(shape) if sums is None else sums[t].copy() for t in (0, 1))
    add_outer_sums(cells, q, other.q, other.hard, links, unseen)
    return links, unseen


def add_tables(*sums: CellTables) -> CellTables:
    """Return the sum of the tables of some chunks, one after another."""
    links, unseen = (reduce(add, tables) for tables in zip(*sums, strict=True))
    return links, unseen


def count_by_object(shard: Shard) -> tuple[Indices, Indices]:
    """Return the numbers of links and of unseen cells of each object of a shard."""
    links, unseen = cell_counts(shard.incidence)
    return links.astype(np.int32), unseen.astype(np.int32)


def shard_degrees(shard: Shard, rate: Floats, rate_other: Floats, density: float) -> Floats:
    """Return the expected degrees of the objects of a shard."""
    own = writable(rate)[shard.objects]
    return expected_degrees(shard.incidence, own, writable(rate_other), density)


def shard_product(
    shard: Shard, scales: tuple[LinkScales, LinkScales], density: float, block: Floats
) -> Floats:
    """Return the product of the normalised links of a shard and a dense block."""
    both = [LinkScales(*map(writable, each)) for each in scales]
    own = LinkScales(*(values[shard.objects] for values in both[shard.d]))
    return link_product(shard.incidence, own, both[1 - shard.d], density, writable(block))


@dataclass(frozen=True, slots=True)
class ShardProfiles:
    """Profiles of the objects of a shard, sorted by cluster."""

    shard: int
    start: NDArray[np.int64]  # members of cluster k are from start[k] to start[k + 1] - 1
    position: Indices  # of the objects in the shard
    profiles: Incidence
    cells: Floats  # (L,)  cells of an object in each block

    def members(self, k: int) -> Incidence:
        """Return the profiles of the members of a cluster, without a copy."""
        return segment(self.profiles, self.start[k], self.start[k + 1])

    def sides(self, k: int, tables: Tables, t: int, prior: Prior) -> NDArray[np.int8]:
        """Return the side of each member of cluster ``k``, given the counts of trial ``t``."""
        counts = SideCounts(*(table[t].astype(float) for table in tables))
        return moves.assign_sides(self.members(k), self.cells, counts, prior)


def shard_profiles(shard: Shard, snapshot: Snapshot, cells: Floats) -> ShardProfiles:
    """Return the profiles of all objects of a shard."""
    own, other = snapshot[shard.d].unpacked, snapshot[1 - shard.d].unpacked
    cells, label = writable(cells), own.hard[shard.objects]
    position = np.argsort(label, kind="stable").astype(np.int32)
    domain = domain_view(shard.incidence, np.zeros((0, 0)), label, cells, 1.0)
    profiles = moves.member_profiles(domain, position, other.hard, cells.size)
    start = np.concatenate(([0], np.cumsum(np.bincount(label, minlength=own.clusters))))
    return ShardProfiles(shard.number, start, position, profiles, cells)


def count_seeds(shard: ShardProfiles, home: Indices, position: Indices) -> Tables:
    """Return links and observed non-links of each seed, 0 for the seeds of other shards."""
    at = np.argsort(shard.position)
    mine: NDArray[Any] = np.flatnonzero(home == shard.shard)
    counts = moves.zero_counts(home.size, shard.cells.size)
    moves.count_sides(shard.profiles, at[position[mine]], mine, shard.cells, counts)
    return compact_counts(counts.n), compact_counts(counts.N)


def assign_and_count(
    shard: ShardProfiles, clusters: Indices, tables: Tables, prior: Prior
) -> Tables:
    """Assign the members of clusters to sides by the counts of all shards; count both sides."""
    counted = [np.zeros(table.shape) for table in tables]
    for t, k in enumerate(clusters.tolist()):
        side = shard.sides(k, tables, t, prior)
        counts = SideCounts(*(table[t] for table in counted))
        moves.count_sides(shard.members(k), np.arange(side.size), side, shard.cells, counts)
    return [compact_counts(table) for table in counted]


def find_sides(
    shard: ShardProfiles, clusters: Indices, tables: Tables, prior: Prior
) -> NDArray[np.int8]:
    """Return the sides of the members of some clusters, 0 for all other objects of a shard."""
    sides = np.zeros(shard.position.size, dtype=np.int8)
    for t, k in enumerate(clusters.tolist()):
        members = shard.position[shard.start[k] : shard.start[k + 1]]
        sides[members] = shard.sides(k, tables, t, prior)
    return sides
