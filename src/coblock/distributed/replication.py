"""Replicas on workers: memberships and counts, kept up to date by snapshots and deltas."""

from copy import copy, deepcopy
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeAlias

import numpy as np
from distributed import Worker, WorkerPlugin, get_worker
from numpy.typing import NDArray

from coblock.kernels import BlockTables, DomainView, Floats, Incidence, Indices
from coblock.kernels.cvb0 import BatchResult
from coblock.kernels.memberships import hard_labels
from coblock.model.blocks import Blocks
from coblock.model.hyperparameters import Hyperparameters
from coblock.model.relation import Relation
from coblock.model.state import reorder_labels

PLUGIN = "coblock-replica"
NO_CELLS = Incidence(
    np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(1, np.int64), np.zeros(0, np.int32)
)
NOTHING = np.zeros(0)
NO_RELATION = Relation("bipartite", (0, 0), ((NO_CELLS,), (NO_CELLS,)), NOTHING, NOTHING)


@dataclass(frozen=True, slots=True)
class SparseMemberships:
    """Memberships of some objects as they are sent: labels where hard, else nonzero entries."""

    clusters: int
    hard: NDArray[np.signedinteger]  # (objects,) cluster of a hard assignment, -1 for a soft one
    start: NDArray[np.int32]  # (soft objects + 1,) into ``cluster`` and ``value``
    cluster: NDArray[np.integer]
    value: Floats

    @classmethod
    def from_labels(cls, labels: Indices, clusters: int) -> "SparseMemberships":
        """Return the memberships of hard labels."""
        hard = labels.astype(_smallest_type(clusters))
        return cls(clusters, hard, np.zeros(1, np.int32), np.zeros(0, np.int8), np.zeros(0))

    @classmethod
    def from_dense(cls, q: Floats) -> "SparseMemberships":
        """Return the memberships of a table (objects, clusters)."""
        clusters = q.shape[1]
        hard = hard_labels(np.ascontiguousarray(q))
        soft = q[hard < 0]
        row, cluster = np.nonzero(soft)
        start = np.concatenate(([0], np.cumsum(np.bincount(row, minlength=len(soft)))))
        kind = _smallest_type(clusters)
        entries = (start.astype(np.int32), cluster.astype(kind), soft[row, cluster])
        return cls(clusters, hard.astype(kind), *entries)

    def to_dense(self) -> Floats:
        """Return the memberships as a table (objects, clusters)."""
        q = np.zeros((self.hard.size, self.clusters))
        rows = np.flatnonzero(self.hard >= 0)
        q[rows, self.hard[rows]] = 1.0
        self.write_soft(np.arange(self.hard.size), q)
        return q

    def write_soft(self, objects: NDArray[np.integer], q: Floats) -> None:
        """Write the soft memberships of ``objects`` into the table of all objects."""
        soft = objects[self.hard < 0]
        if soft.size:
            q[soft] = 0.0
            q[np.repeat(soft, np.diff(self.start)), self.cluster] = self.value


@dataclass(frozen=True, slots=True)
class MembershipSnapshot:
    """Memberships of all objects, by domain."""

    version: str
    domains: tuple[SparseMemberships, ...]

    def unpack(self) -> "list[DomainReplica]":
        """Return the memberships as kernels read them."""
        return [DomainReplica.from_snapshot(each) for each in self.domains]


@dataclass(frozen=True, slots=True)
class CountSnapshot:
    """Counts of all blocks, without the relation."""

    version: int
    blocks: Blocks

    @classmethod
    def from_blocks(cls, blocks: Blocks) -> "CountSnapshot":
        """Return a copy of the counts; the log gives it a version."""
        detached = copy(blocks)
        detached.relation = NO_RELATION
        return cls(0, deepcopy(detached))


@dataclass(frozen=True, slots=True)
class BatchDelta:
    """New memberships of the objects of one batch on one shard, and the changes of the counts."""

    version: int
    d: int
    objects: range
    memberships: SparseMemberships
    parts: list[BatchResult]  # in the order of the parts, without the memberships
    probability: SparseMemberships | None = None  # of the clusters, where labels were drawn


@dataclass(frozen=True, slots=True)
class Reordering:
    """A change of the order of the clusters of each domain."""

    version: int
    order: tuple[Indices, ...]


@dataclass(frozen=True, slots=True)
class StaleReplica:
    """The result of a task whose worker has not got all deltas before it."""


Delta: TypeAlias = BatchDelta | Reordering | StaleReplica


def total_delta(batch: list[BatchDelta]) -> tuple[Floats, Floats, Floats]:
    """Return the changes of sizes and sums of a batch, added in the order of its parts."""
    parts = [part for delta in batch for part in delta.parts]
    deltas = zip(*((part.m, part.links, part.unseen) for part in parts), strict=True)
    m, links, unseen = (np.sum(delta, axis=0) for delta in deltas)
    return m, links, unseen


@dataclass(slots=True)
class DomainReplica:
    """Memberships of one domain, as kernels read them."""

    clusters: int
    hard: Indices  # -1 where soft
    q: Floats  # rows of hard objects are not valid; unwritten pages use no memory

    @classmethod
    def from_snapshot(cls, memberships: SparseMemberships) -> "DomainReplica":
        """Return a replica of the memberships of all objects."""
        size, clusters = memberships.hard.size, memberships.clusters
        replica = cls(clusters, np.empty(size, np.int32), np.zeros((0, clusters)))
        replica.update(range(size), memberships)
        return replica

    def update(self, objects: range, memberships: SparseMemberships) -> None:
        """Write the memberships of some objects."""
        self.hard[objects.start : objects.stop] = memberships.hard
        if memberships.value.size:
            if not len(self.q):
                self.q = np.zeros((self.hard.size, self.clusters))
            memberships.write_soft(np.arange(objects.start, objects.stop), self.q)

    def reorder(self, order: Indices) -> None:
        """Put the clusters in another order."""
        soft = np.flatnonzero(self.hard < 0)
        if soft.size:
            self.q[soft] = self.q[soft][:, order]
        self.hard = reorder_labels(self.hard, order)

    def dense(self, first: int, last: int) -> Floats:
        """Return the memberships of the objects from ``first`` to ``last - 1`` as a table."""
        hard = self.hard[first:last]
        q = np.zeros((hard.size, self.clusters))
        rows = np.flatnonzero(hard >= 0)
        q[rows, hard[rows]] = 1.0
        if rows.size < hard.size:
            q[hard < 0] = self.q[first:last][hard < 0]
        return q


@dataclass(slots=True)
class Replica:
    """Memberships of both domains and their counts, at one version of the log."""

    snapshot: int  # version of the snapshot it was made from
    version: int
    domains: list[DomainReplica]
    blocks: Blocks

    @classmethod
    def from_snapshot(cls, domains: list[DomainReplica], counts: CountSnapshot) -> "Replica":
        """Return the replica of a snapshot."""
        return cls(counts.version, counts.version, domains, deepcopy(counts.blocks))

    def apply(self, entry: list[Any]) -> None:
        """Apply the next entry of the log: the deltas of all shards of a batch, or an order."""
        if isinstance(entry[0], Reordering):
            order = entry[0].order
            for domain, kept in zip(self.domains, order, strict=True):
                domain.reorder(kept)
            self.blocks = self.blocks.reorder(list(order))
        else:
            d = entry[0].d
            for delta in entry:
                self.domains[d].update(delta.objects, delta.memberships)
            self.blocks.apply_delta(d, *total_delta(entry))
        self.version += 1

    def view(self, d: int) -> DomainView:
        """Return domain ``d`` as the other end of cells."""
        domain = self.domains[d]
        return domain_view(NO_CELLS, domain.q, domain.hard, self.blocks.m[d], 1.0)

    def tables(self, d: int, hyper: Hyperparameters) -> BlockTables:
        """Return the block tables seen from domain ``d``."""
        tables = (self.blocks.n, self.blocks.N, *hyper.tables(self.blocks.clusters))
        return BlockTables(*(np.array(t if d == 0 else t.T, order="C") for t in tables))


class WorkerState(WorkerPlugin):
    """The replica of one fit on a worker; it exists as long as the fit."""

    def __init__(self, run: str) -> None:
        self.name = f"{PLUGIN}-{run}"

    def setup(self, worker: Worker) -> None:
        """Start without a replica."""
        self.lock = Lock()
        self.unpacked: tuple[str, list[DomainReplica]] | None = None
        self.replica: Replica | None = None

    def domains(self, snapshot: MembershipSnapshot) -> list[DomainReplica]:
        """Return the memberships of a snapshot; the last ones are kept."""
        with self.lock:
            if self.unpacked is None or self.unpacked[0] != snapshot.version:
                self.unpacked = snapshot.version, snapshot.unpack()
            return self.unpacked[1]

    def advance(
        self,
        version: int,
        memberships: MembershipSnapshot | None,
        counts: CountSnapshot | None,
        entries: list[list[Delta]],
    ) -> Replica | None:
        """Bring the replica to ``version`` of the log; return None if that is impossible.

        ``entries`` are those that this worker may lack, since the snapshot if there is one. A
        worker is ahead of ``version`` when a lost result is computed again; a replica never goes
        back.
        """
        with self.lock:
            replica = self.replica
            held = None if replica is None else replica.snapshot
            if memberships is not None and counts is not None and held != counts.version:
                self.unpacked = self.replica = replica = None  # frees memory
                replica = self.replica = Replica.from_snapshot(memberships.unpack(), counts)
            for entry in entries:
                complete = [delta for delta in entry if not isinstance(delta, StaleReplica)]
                if replica is None or len(complete) < len(entry):
                    return None
                if complete[0].version == replica.version + 1:
                    replica.apply(complete)
            return replica if replica is not None and replica.version == version else None


def worker_state(run: str) -> WorkerState:
    """Return the state of a fit on this worker."""
    state = get_worker().plugins[f"{PLUGIN}-{run}"]
    assert isinstance(state, WorkerState)
    return state


def domain_view(
    incidence: Incidence, q: Floats, hard: Indices, m: Floats, alpha: float
) -> DomainView:
    """Return objects of a bipartite relation for kernels."""
    return DomainView((incidence,), False, NOTHING, NOTHING, q, hard, m, alpha)


def compact_counts(table: NDArray[Any]) -> NDArray[Any]:
    """Return whole numbers as integers, in four bytes where they are small enough."""
    small = np.abs(table).max(initial=0.0) < 2**31
    return table.astype(np.int32 if small else np.int64)


def writable(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array that may be written to.

    Arrays that were received are read-only, for which Numba would compile kernels again.
    """
    return np.require(array, requirements="W")


def _smallest_type(clusters: int) -> type[np.signedinteger]:
    """Return the smallest integer type that holds -1 and all clusters."""
    return np.int8 if clusters < 2**7 else np.int16 if clusters < 2**15 else np.int32
