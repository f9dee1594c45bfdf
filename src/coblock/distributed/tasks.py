"""What runs on workers: shards, and tasks that run the kernels of the local fit on one shard."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coblock.distributed.replication import (
    NOTHING,
    BatchDelta,
    Counts,
    Replica,
    Snapshot,
    compact_counts,
    domain_view,
    writable,
)
from coblock.distributed.sparse import LabelChanges, SparseMemberships
from coblock.inference.draws import UniformDraws
from coblock.inference.engine import NO_TABLE, empty_batch_result, label_kernel, parts
from coblock.inference.singular import cell_counts
from coblock.inference.start import thread_pools
from coblock.kernels import DomainView, Floats, Incidence, Indices, moves
from coblock.kernels.cvb0 import update_batch
from coblock.kernels.gather import add_label_counts, add_outer_sums, relabel
from coblock.kernels.moves import Profiles, SideCounts
from coblock.kernels.score import score_tables
from coblock.model.blocks import Blocks
from coblock.model.hyperparameters import Hyperparameters
from coblock.model.sums import PartialSums, segment, sum_chunk

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

    def positions(self) -> Iterator[tuple[int, int, range]]:
        """Yield the shard, the first position in it and the objects of each span, ascending."""
        held = [0] * self.shards
        for s, span in self.in_order():
            yield s, held[s], span
            held[s] += len(span)

    def find(self, objects: Indices) -> tuple[Indices, Indices]:
        """Return the shards of objects, and their positions in them."""
        spans = [(span.start, s, at) for s, at, span in self.positions()]
        table = np.array(spans, np.int64).T  # first object, its shard and its position
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
    places: tuple[Incidence, ...]  # one for each place of the domain
    repeated: bool  # whether the other ends are of the same domain
    self_links: int  # links of objects with themselves, which are left out

    @cached_property
    def objects(self) -> Indices:
        """The objects of the shard, ascending."""
        return self.layout.objects(self.number)

    def segment(self, objects: range) -> tuple[Incidence, ...]:
        """Return the cells of consecutive objects of the shard, without a copy."""
        first, last = map(int, np.searchsorted(self.objects, (objects.start, objects.stop)))
        return tuple(segment(cells, first, last) for cells in self.places)

    def view(
        self, cells: tuple[Incidence, ...], q: Floats, hard: Indices, m: Floats, alpha: float
    ) -> DomainView:
        """Return objects with these cells for kernels; no object has a cell with itself."""
        nothing = np.zeros(hard.size if self.repeated else 0)
        return DomainView(cells, self.repeated, nothing, nothing, q, hard, m, alpha)

    def __setstate__(self, state: dict[str, Any]) -> None:
        places = tuple(Incidence(*map(writable, cells)) for cells in state["places"])
        self.__dict__.update(state | {"places": places})

    def __sizeof__(self) -> int:
        return sum(array.nbytes for cells in self.places for array in cells)


def update_memberships(shard: Shard, replica: Replica, *, b: int, step: float) -> BatchDelta:
    """Update memberships by CVB0, in the parts into which the local engine cuts a batch."""
    d, blocks = shard.d, replica.blocks
    other = replica.view(-1 - d, len(shard.places))
    objects = shard.layout.span(shard.number, b)
    first, q = objects.start, replica.domains[d].dense(objects)
    hard = replica.domains[d].hard[first : objects.stop]
    own = shard.view(shard.segment(objects), q, hard, blocks.m[d], replica.hyper.alpha[d])
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
    uniform: tuple[UniformDraws, range] | None = None,
    probability: bool = False,
) -> BatchDelta:
    """Give the objects of a batch new labels; in two domains count the changes, too.

    Random numbers draw the labels; without them the best ones are taken. Without a batch, all
    objects of the shard get labels.
    """
    d = shard.d
    other = replica.view(-1 - d, len(shard.places))
    objects = range(0) if b is None else shard.layout.span(shard.number, b)
    cells = shard.places if b is None else shard.segment(objects)
    label = replica.domains[d].hard[shard.objects if b is None else np.array(objects)]
    own = shard.view(cells, NO_TABLE, label, replica.blocks.m[d], replica.hyper.alpha[d])
    kernel, tables = label_kernel(own, replica.tables(d), other.m)
    numbers = np.empty(0)
    if uniform is not None:
        numbers = uniform[0].draw(uniform[1].start, uniform[1].stop)
    fresh, log_normaliser = np.empty_like(label), np.empty(label.size)
    chance = np.zeros((label.size, own.m.size) if probability else (0, 0))
    every = np.arange(label.size, dtype=np.int32)
    kernel(own, other, tables, every, numbers, fresh, log_normaliser, chance)
    chances = [SparseMemberships.from_dense(chance)] if probability else []
    terms, sums = 0, {}
    if b is not None:
        terms = shard.layout.count_parts(b)
        for number, part in shard.layout.parts(shard.number, b).items():
            some = slice(part.start - objects.start, part.stop - objects.start)
            sums[0, number] = (float(log_normaliser[some].sum()),)
    new = [(objects, LabelChanges.between(label, fresh, own.m.size))]
    partial_sums = PartialSums.merge([PartialSums(terms, sums)])
    counts = None
    if not shard.repeated:
        some_unseen = bool(replica.blocks.unseen.any())
        counts = count_moves(
            cells, label, fresh, [other.hard], (own.m.size, other.m.size), some_unseen
        )
    return BatchDelta(replica.version + 1, d, [], partial_sums, counts, new, chances)


def count_moves(
    cells: tuple[Incidence, ...],
    label: Indices,
    fresh: Indices,
    others: list[Indices],
    clusters: tuple[int, int],
    some_unseen: bool,
) -> Counts:
    """Return the changes of sizes, links and unseen cells by new labels, as whole numbers.

    ``others`` are the labels of the other ends, of each place. Cells of a second place are counted
    in the transposed tables.
    """
    (K, L), moved = clusters, np.flatnonzero(fresh != label).astype(np.int32)
    m = np.bincount(fresh, minlength=K) - np.bincount(label, minlength=K)
    links, unseen = np.zeros((2, K, L))
    for place, label_other in enumerate(others):
        tables = (links, unseen) if place == 0 else (links.T, unseen.T)
        view = domain_view((cells[-place],), NO_TABLE, label, NOTHING, 1.0)
        relabel(view, moved, fresh[moved], label.copy(), label_other, *tables)
    return tuple(map(compact_counts, (m, links, unseen if some_unseen else NO_TABLE)))


def count_batch(
    shard: Shard, replica: Replica, labelled: Sequence[BatchDelta], *, b: int
) -> BatchDelta:
    """Count the changes of a batch of a relation with one domain, once all its labels are known.

    A cell with two moved ends is counted from its old block to a block with one new end, by the
    object at its second place, and from there to its new block, by the one at its first place.
    """
    old, objects = replica.domains[0].hard, shard.layout.span(shard.number, b)
    new, K = old.copy(), replica.blocks.m[0].size
    for some, changes in BatchDelta.merge(labelled).labels:
        changes.apply(new[some.start : some.stop])
    own, some_unseen = slice(objects.start, objects.stop), bool(replica.blocks.unseen.any())
    cells = shard.segment(objects)
    counts = count_moves(cells, old[own], new[own], [new, old], (K, K), some_unseen)
    return BatchDelta(replica.version + 1, 0, [], PartialSums(0, {}), counts)


def label_probabilities(
    shard: Shard, snapshot: Snapshot, blocks: Blocks, hyper: Hyperparameters
) -> SparseMemberships:
    """Return p(z_i | all other labels) of all objects of a shard."""
    replica = Replica(0, 0, [domain.unpacked for domain in snapshot], deepcopy(blocks), hyper)
    return give_labels(shard, replica, probability=True).probability[0]


def count_cells(shard: Shard, snapshot: Snapshot) -> CellTables:
    """Count links and unseen cells of a shard of rows by the clusters of their ends."""
    rows, columns = snapshot[0].unpacked, snapshot[-1].unpacked
    cells, labels = shard.places[0], (rows.hard[shard.objects], columns.hard)
    links, unseen = np.zeros((2, rows.clusters, columns.clusters))
    add_label_counts(cells, *labels, links, unseen)
    return links, unseen


def add_expected_cells(
    sums: CellTables | None, shard: Shard, snapshot: Snapshot, objects: range
) -> CellTables:
    """Add q_ik q_jl over the cells of consecutive rows of a shard to the sums of those before."""
    own, other = snapshot[0].unpacked, snapshot[-1].unpacked
    cells, q = shard.segment(objects)[0], own.dense(objects)
    shape = (own.clusters, other.clusters)
    links, unseen = (np.zeros(shape) if sums is None else sums[t].copy() for t in (0, 1))
    add_outer_sums(cells, q, other.q, other.hard, links, unseen)
    return links, unseen


def join_labels(clusters: tuple[int, ...], domains: Sequence[Sequence[NDArray[Any]]]) -> Snapshot:
    """Return the snapshot of labels that were sent in pieces."""
    labels = map(np.concatenate, domains)
    return tuple(map(SparseMemberships.from_labels, labels, clusters))


def digest_names(*names: Any) -> bytes:
    """Return what distinguishes the names of rows and of columns from others."""
    lists = [None if each is None else list(each) for each in names]
    return hashlib.sha256(json.dumps(lists).encode()).digest()


def join_memberships(
    layouts: Sequence[ShardLayout],
    orders: Sequence[Indices],
    shards: Sequence[Sequence[SparseMemberships]],
) -> Snapshot:
    """Return the snapshot of the memberships of the shards of each domain."""
    snapshot = []
    for layout, order, of_domain in zip(layouts, orders, shards, strict=True):
        parts = [of_domain[s].rows(at, at + len(span)) for s, at, span in layout.positions()]
        snapshot.append(SparseMemberships.concatenate(parts).reorder(order))
    return tuple(snapshot)


def take_rows(
    memberships: SparseMemberships, order: Indices, first: int, stop: int
) -> SparseMemberships:
    """Return the memberships of consecutive objects of a shard."""
    return memberships.rows(first, stop).reorder(order)


def sum_rows(parts: Sequence[SparseMemberships], pairs: bool) -> CellTables:
    """Return the sums over consecutive objects that are one term of the sum over all."""
    q = np.ascontiguousarray(np.concatenate([part.to_dense() for part in parts]))
    with thread_pools().limit(limits=1):
        return sum_chunk(q, pairs=pairs)


def add_tables(*sums: CellTables) -> CellTables:
    """Return the sum of the tables of some chunks, one after another."""
    links, unseen = (reduce(add, tables) for tables in zip(*sums, strict=True))
    return links, unseen


def first_place(shard: Shard) -> Incidence:
    """Return the cells of the objects of a shard at their first place."""
    return shard.places[0]


def join_shards(layout: ShardLayout, pieces: list[NDArray[Any]]) -> NDArray[Any]:
    """Return one array over all objects of a domain from those of its shards."""
    out = np.empty((layout.size, *pieces[0].shape[1:]), pieces[0].dtype)
    for s, piece in enumerate(pieces):
        out[layout.objects(s)] = piece
    return out


def count_by_object(shard: Shard, place: int) -> tuple[Indices, Indices]:
    """Return the numbers of links and of unseen cells of each object of a shard at a place."""
    links, unseen = cell_counts(shard.places[place])
    return links.astype(np.int32), unseen.astype(np.int32)


@dataclass(frozen=True, slots=True)
class ShardProfiles:
    """Profiles of the objects of a shard, sorted by cluster."""

    shard: int
    start: NDArray[np.int64]  # members of cluster k are from start[k] to start[k + 1] - 1
    position: Indices  # of the objects in the shard
    profiles: Profiles
    sizes: Floats  # (places, L)  cells of an object in each block
    repeated: bool

    def members(self, k: int) -> Profiles:
        """Return the profiles of the members of a cluster, without a copy."""
        first, stop = self.start[k], self.start[k + 1]
        return self.profiles._replace(start=self.profiles.start[first : stop + 1])

    def cells(self, k: int) -> Floats:
        """Return the cells of a member of cluster ``k`` in each block: none with itself."""
        cells = self.sizes.copy()
        if self.repeated:
            cells[:, k] -= 1.0
        return cells.ravel()

    def sides(self, k: int, tables: Tables, t: int, prior: Prior) -> NDArray[np.int8]:
        """Return the side of each member of cluster ``k``, given the counts of trial ``t``."""
        counts = SideCounts(*(table[t].astype(float) for table in tables))
        return moves.assign_sides(self.members(k), self.cells(k), counts, prior)


def shard_profiles(shard: Shard, snapshot: Snapshot, sizes: Floats) -> ShardProfiles:
    """Return the profiles of all objects of a shard; ``sizes`` are those of the other clusters."""
    own, other = snapshot[shard.d].unpacked, snapshot[-1 - shard.d].unpacked
    label, places = own.hard[shard.objects], len(shard.places)
    position = np.argsort(label, kind="stable").astype(np.int32)
    domain = shard.view(shard.places, NO_TABLE, label, writable(sizes), 1.0)
    profiles = moves.member_profiles(domain, position, other.hard, sizes.size)
    start = np.concatenate(([0], np.cumsum(np.bincount(label, minlength=own.clusters))))
    cells = np.tile(sizes, (places, 1))
    return ShardProfiles(shard.number, start, position, profiles, cells, shard.repeated)


def count_seeds(
    shard: ShardProfiles, home: Indices, position: Indices, clusters: Indices
) -> Tables:
    """Return links and observed non-links of each seed, 0 for the seeds of other shards.

    ``clusters`` are those of the seeds.
    """
    at = np.argsort(shard.position)
    mine: NDArray[Any] = np.flatnonzero(home == shard.shard)
    counts = moves.zero_counts(home.size, shard.sizes.size)
    moves.count_sides(shard.profiles, at[position[mine]], mine, shard.sizes.ravel(), counts)
    if shard.repeated:
        cells = counts.N.reshape(home.size, *shard.sizes.shape)
        cells[mine, :, clusters[mine]] -= 1.0
    return compact_counts(counts.n), compact_counts(counts.N)


def assign_and_count(
    shard: ShardProfiles, clusters: Indices, tables: Tables, prior: Prior
) -> Tables:
    """Assign the members of clusters to sides by the counts of all shards; count both sides."""
    counted = [np.zeros(table.shape) for table in tables]
    for t, k in enumerate(clusters.tolist()):
        side = shard.sides(k, tables, t, prior)
        counts = SideCounts(*(table[t] for table in counted))
        moves.count_sides(shard.members(k), np.arange(side.size), side, shard.cells(k), counts)
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
