"""Replicas of memberships and counts on workers, and the client's log that keeps them up to date.

A snapshot sets a replica. After it the log has one entry for each batch, made of the deltas of
its shards, and one for each change of the order of clusters. A task receives the entries that its
shard has not received before, from the workers that computed them. If a worker was lost, another
one may have a stale replica; the remaining batches are then submitted again, after a new snapshot.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Lock
from typing import Any, TypeAlias
from uuid import uuid4

import numpy as np
from distributed import Client, Future, Worker, WorkerPlugin, get_worker
from numpy.typing import NDArray

from coblock.distributed.client import gather_results, plain_errors, send, task_key
from coblock.kernels import BlockTables, DomainView, Floats, Incidence, Indices
from coblock.kernels.cvb0 import BatchResult
from coblock.kernels.memberships import hard_labels
from coblock.model.blocks import Blocks
from coblock.model.hyperparameters import Hyperparameters
from coblock.model.relation import BinaryRelation
from coblock.model.state import reorder_labels

DOMAINS = ("rows", "columns")
LONGEST_LOG = 400  # entries; a longer log is replaced by a new snapshot
GATHERINGS = 4  # of the results of one sweep: fewer messages than one for each batch
NO_OFFSET, NO_ENDS, NOTHING = np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0)
NO_CELLS = Incidence(NO_OFFSET, NO_ENDS, NO_OFFSET, NO_ENDS)
NO_RELATION = BinaryRelation("bipartite", (0, 0), ((NO_CELLS,), (NO_CELLS,)), NOTHING, NOTHING)
Shards: TypeAlias = tuple[list[Future], list[Future]]  # by row and by column


@dataclass(frozen=True)
class SparseMemberships:
    """Memberships of some objects as they are sent: labels where hard, else nonzero entries."""

    clusters: int
    hard: NDArray[Any]  # (objects,) cluster of a hard assignment, -1 for a soft one
    start: NDArray[np.int64]  # (soft objects + 1,) into ``cluster`` and ``value``
    cluster: NDArray[Any]
    value: Floats

    @classmethod
    def from_labels(cls, labels: Indices, clusters: int) -> "SparseMemberships":
        """Return the memberships of hard labels."""
        hard = labels.astype(np.min_scalar_type(-clusters))
        return cls(clusters, hard, np.zeros(1, np.int64), np.zeros(0, np.int8), np.zeros(0))

    @classmethod
    def from_dense(cls, q: Floats) -> "SparseMemberships":
        """Return the memberships of a table (objects, clusters)."""
        kind, hard = np.min_scalar_type(-q.shape[1]), hard_labels(np.ascontiguousarray(q))
        soft = q[hard < 0]
        row, cluster = np.nonzero(soft)
        start = np.concatenate(([0], np.cumsum(np.bincount(row, minlength=len(soft)))))
        entries = (start.astype(np.int64), cluster.astype(kind), soft[row, cluster])
        return cls(q.shape[1], hard.astype(kind), *entries)

    def to_dense(self) -> Floats:
        """Return the memberships as a table (objects, clusters)."""
        return DomainReplica.from_sparse(self).dense(range(self.hard.size))

    @cached_property
    def unpacked(self) -> "DomainReplica":
        """The memberships as kernels read them, shared by the tasks of a worker."""
        return DomainReplica.from_sparse(self)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "unpacked"}


Snapshot: TypeAlias = tuple[SparseMemberships, ...]  # of all objects, by domain


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
    order: list[Any]  # arrays of clusters


@dataclass(frozen=True, slots=True)
class StaleReplica:
    """The result of a task whose worker has not got all deltas before it."""


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
    def from_sparse(cls, memberships: SparseMemberships) -> "DomainReplica":
        """Return a replica of the memberships of all objects."""
        size, K = memberships.hard.size, memberships.clusters
        replica = cls(K, np.empty(size, np.int32), np.zeros((0, K)))
        replica.update(range(size), memberships)
        return replica

    def update(self, objects: range, memberships: SparseMemberships) -> None:
        """Write the memberships of some objects."""
        hard, cluster = memberships.hard, memberships.cluster
        self.hard[objects.start : objects.stop] = hard
        if cluster.size:
            if not len(self.q):
                self.q = np.zeros((self.hard.size, self.clusters))
            soft = objects.start + np.flatnonzero(hard < 0)
            self.q[soft] = 0.0
            self.q[np.repeat(soft, np.diff(memberships.start)), cluster] = memberships.value

    def reorder(self, order: Indices) -> None:
        """Put the clusters in another order."""
        soft = np.flatnonzero(self.hard < 0)
        if soft.size:
            self.q[soft] = self.q[soft][:, order]
        self.hard = reorder_labels(self.hard, order)

    def dense(self, objects: range) -> Floats:
        """Return the memberships of some objects as a table."""
        hard = self.hard[objects.start : objects.stop]
        q, rows = np.zeros((hard.size, self.clusters)), np.flatnonzero(hard >= 0)
        q[rows, hard[rows]] = 1.0
        if rows.size < hard.size:
            q[hard < 0] = self.q[objects.start : objects.stop][hard < 0]
        return q


@dataclass(slots=True)
class Replica:
    """Memberships of both domains and their counts, at one version of the log."""

    snapshot: int  # version of the snapshot it was made from
    version: int
    domains: list[DomainReplica]
    blocks: Blocks

    def apply(self, entry: list[Any]) -> None:
        """Apply the next entry of the log: the deltas of all shards of a batch, or an order."""
        if isinstance(entry[0], Reordering):
            for domain, order in zip(self.domains, entry[0].order, strict=True):
                domain.reorder(order)
            self.blocks = self.blocks.reorder(entry[0].order)
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

    def setup(self, worker: Worker) -> None:
        """Start without a replica."""
        self.lock = Lock()
        self.replica: Replica | None = None


Update: TypeAlias = Callable[..., BatchDelta]  # of a shard, with a replica and hyperparameters
Batch: TypeAlias = tuple[int, Indices, dict[int, Update]]  # domain, objects, updates by shard


def run_batch(
    shard: Any,
    update: Update,
    hyper: Hyperparameters,
    plugin: str,
    version: int,
    since: int,
    snapshot: tuple[Snapshot, Blocks] | None,
    entries: list[list[Any]],
) -> BatchDelta | StaleReplica:
    """Update the objects of a batch with the replica of this worker at ``version`` of the log.

    ``entries`` are those that this worker may lack, since the snapshot if there is one, which has
    the version ``since``. A worker is ahead of ``version`` when a lost result is computed again;
    a replica never goes back.
    """
    state: Any = get_worker().plugins[plugin]
    with state.lock:
        replica: Replica | None = state.replica
        if snapshot and (replica is None or replica.snapshot != since):
            state.replica = replica = None  # frees memory
            domains = list(map(DomainReplica.from_sparse, snapshot[0]))
            state.replica = replica = Replica(since, since, domains, deepcopy(snapshot[1]))
        for entry in entries:
            if replica is None or any(isinstance(delta, StaleReplica) for delta in entry):
                return StaleReplica()
            if entry[0].version == replica.version + 1:
                replica.apply(entry)
    if replica is None or replica.version != version:
        return StaleReplica()
    return update(shard, replica, hyper)


@dataclass
class DeltaLog:
    """The client's log: all batches of a sweep are one graph, in which workers exchange deltas."""

    client: Client
    version: int = 0
    _plugin: str | None = None  # name; registered on all workers, and on those that join
    _snapshot: tuple[int, list[Any]] | None = None  # version, memberships and counts
    _entries: dict[int, list[Any]] = field(default_factory=dict)  # deltas by version
    _received: dict[tuple[int, int], int] = field(default_factory=dict)  # version, by d and shard
    _replicated: tuple[list[Floats], list[Floats]] | None = None  # q and m of the replicas

    def reset(self) -> None:
        """Release all entries: the next sweep starts with a snapshot."""
        self._snapshot, self._replicated = None, None
        self._entries.clear()
        self._received.clear()

    def close(self) -> None:
        """Release all entries, and the replicas on the workers."""
        self.reset()
        plugin, self._plugin = self._plugin, None
        if plugin is not None and self.client.status == "running":
            with suppress(OSError):  # the scheduler was lost
                self.client.unregister_worker_plugin(plugin)

    def mark_replicated(self, q: list[Floats], blocks: Blocks) -> None:
        """Record that the replicas hold these memberships and counts."""
        self._replicated = list(q), [m.copy() for m in blocks.m]

    def continue_from(self, q: list[Floats], blocks: Blocks) -> None:
        """Keep the log if the replicas hold these memberships up to the order of clusters."""
        replicated, self._replicated = self._replicated, None
        if replicated is not None and len(self._entries) <= LONGEST_LOG:
            orders = list(map(find_order, *replicated, q, blocks.m))
            if all(order is not None for order in orders):
                if any(old is not new for old, new in zip(replicated[0], q, strict=True)):
                    self.version += 1
                    self._entries[self.version] = [Reordering(self.version, orders)]
                return
        self.reset()

    def run(
        self,
        shards: Shards,
        send_memberships: Callable[[], Future],
        name: str,
        batches: list[Batch],
        hyper: Hyperparameters,
        blocks: Blocks,
    ) -> Iterator[tuple[int, Indices, list[BatchDelta]]]:
        """Run the batches of a sweep; yield domain, objects and the deltas of the shards of each.

        The caller applies the deltas to the client's state before it asks for the next batch.
        """
        remaining, at_once = deque(batches), -(-len(batches) // GATHERINGS)
        if self._plugin is None:
            self._plugin = task_key("replica")
            with plain_errors(self.client):
                self.client.register_plugin(WorkerState(), self._plugin)
        while remaining:
            if self._snapshot is None:
                self.version += 1
                self._snapshot = self.version, [send_memberships(), detach(blocks)]
            pending = self._submit(name, list(remaining), hyper, shards)
            while pending:
                for deltas in self._gather(pending, at_once):
                    if any(isinstance(delta, StaleReplica) for delta in deltas):
                        self.reset()
                        pending.clear()
                        break
                    d, objects, _ = remaining.popleft()
                    yield d, objects, deltas

    def _submit(
        self, name: str, batches: list[Batch], hyper: Hyperparameters, shards: Shards
    ) -> deque[list[Future]]:
        """Submit all batches as one graph and add them to the log; return the futures of each."""
        assert self._snapshot is not None
        sweep, (since, snapshot) = uuid4().hex, self._snapshot
        sent = f"coblock-hyperparameters-{sweep}"
        graph: dict[str, Any] = {sent: (send, hyper.copy())}
        submitted: dict[int, list[str]] = {}  # keys of the tasks of each batch, by version
        for d, _, updates in batches:
            keys = []
            for s, update in updates.items():
                received = self._received.get((d, s), 0)
                entries = [deltas for at, deltas in self._entries.items() if at > received]
                lacking = None if received else snapshot
                key = f"coblock-{name}-{DOMAINS[d]}-{sweep}-{self.version + 1}-{s}"
                position = (self._plugin, self.version, since, lacking, entries)
                graph[key] = (run_batch, shards[d][s], update, sent, *position)
                self._received[d, s] = self.version
                keys.append(key)
            self.version += 1
            self._entries[self.version] = submitted[self.version] = keys
        with plain_errors(self.client):
            futures = self.client.get(graph, list(submitted.values()), sync=False)
        self._entries |= zip(submitted, futures, strict=True)
        numbers = [(d, s) for d in (0, 1) for s in range(len(shards[d]))]
        oldest = min(self._received.get(number, 0) for number in numbers)
        self._entries = {at: deltas for at, deltas in self._entries.items() if at > oldest}
        return deque(futures)

    def _gather(self, pending: deque[list[Future]], count: int) -> list[list[Any]]:
        """Return the results of the next batches."""
        some = [pending.popleft() for _ in range(min(count, len(pending)))]
        return gather_results(self.client, some)


def detach(blocks: Blocks) -> Blocks:
    """Return a copy of the counts, without the relation."""
    return deepcopy(replace(blocks, relation=NO_RELATION))


def find_order(q_old: Floats, m_old: Floats, q: Floats, m: Floats) -> Indices | None:
    """Return the order of the old clusters that gives the new memberships, None if none does."""
    if q is q_old:
        return np.arange(m.size, dtype=np.int32)
    if m.size != m_old.size:
        return None
    order = np.empty(m.size, np.int32)
    order[np.argsort(-m, kind="stable")] = np.argsort(-m_old, kind="stable")
    same = all(np.array_equal(q[:, k], q_old[:, old]) for k, old in enumerate(order))
    return order if same else None


def domain_view(cells: Incidence, q: Floats, hard: Indices, m: Floats, alpha: float) -> DomainView:
    """Return objects of a bipartite relation for kernels."""
    return DomainView((cells,), False, NOTHING, NOTHING, q, hard, m, alpha)


def compact_counts(table: NDArray[Any]) -> NDArray[Any]:
    """Return whole numbers as integers, in four bytes where they are small enough."""
    small = np.abs(table).max(initial=0.0) < 2**31
    return table.astype(np.int32 if small else np.int64)


def writable(array: NDArray[Any]) -> NDArray[Any]:
    """Return a writable array; Numba would compile kernels again for the read-only ones of Dask."""
    return np.require(array, requirements="W")
