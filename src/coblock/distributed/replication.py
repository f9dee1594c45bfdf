"""Replicas of memberships and counts on workers, and the client's log that keeps them up to date.

A snapshot sets a replica. After it the log has one entry for each batch, made of the deltas of
its shards, and one for the start of each sweep: clusters may have been merged or reordered since
the last one. A task receives the entries that its shard has not received before, from the workers
that computed them. If a worker was lost, another one may have a stale replica; the remaining
batches are then submitted again, after a new snapshot.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import chain
from threading import Lock
from typing import Any, TypeAlias, cast
from uuid import uuid4

import numpy as np
from distributed import Client, Future, Worker, WorkerPlugin, get_worker
from numpy.typing import NDArray

from coblock.distributed.client import gather_results, plain_errors, send_message, task_key
from coblock.distributed.sparse import DomainReplica, LabelChanges, SparseMemberships
from coblock.kernels import BlockTables, DomainView, Floats, Incidence, Indices
from coblock.model.blocks import Blocks
from coblock.model.checks import KINDS, Kind
from coblock.model.hyperparameters import Hyperparameters
from coblock.model.relation import BinaryRelation
from coblock.model.sums import FAN_IN, PartialSums

DOMAINS = ("rows", "columns")
LONGEST_LOG = 400  # entries; a longer log is replaced by a new snapshot
MOST_MESSAGES = 4  # that a worker receives of one batch
GATHERINGS = 4  # of the results of one sweep: fewer messages than one for each batch
NO_OFFSET, NO_ENDS, NOTHING = np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0)
NO_CELLS = Incidence(NO_OFFSET, NO_ENDS, NO_OFFSET, NO_ENDS)
NO_RELATION = BinaryRelation("bipartite", (0, 0), ((NO_CELLS,), (NO_CELLS,)), NOTHING, NOTHING)
Counts: TypeAlias = tuple[NDArray[Any], ...]  # changes of m, links and unseen cells
Shards: TypeAlias = tuple[list[Future], ...]  # of each domain
Match: TypeAlias = Callable[[Any, Any], Indices | None]


Snapshot: TypeAlias = tuple[SparseMemberships, ...]  # of all objects, by domain


@dataclass(frozen=True, slots=True)
class BatchDelta:
    """What objects of one batch change, on some shards: memberships or labels, and the counts."""

    version: int
    d: int
    memberships: list[tuple[range, SparseMemberships]]  # of consecutive objects, ascending
    sums: PartialSums  # over parts: log normalisers, entropies, changes of m, links and unseen
    counts: Counts | None = None  # changes by labels: whole numbers, which are not in ``sums``
    labels: list[tuple[range, LabelChanges]] = field(default_factory=list)  # as ``memberships``
    probability: list[SparseMemberships] = field(default_factory=list)  # where labels were drawn

    @classmethod
    def merge(cls, deltas: Sequence["BatchDelta"]) -> "BatchDelta":
        """Return the deltas of consecutive shards as one; the bits do not depend on the shards."""
        first = deltas[0]
        if len(deltas) == 1:
            return first
        found, counts = [delta.counts for delta in deltas if delta.counts is not None], None
        if found:  # int64: the sum may be too large for four bytes
            terms = zip(*found, strict=True)
            counts = tuple(compact_counts(np.add.reduce(each, dtype=np.int64)) for each in terms)
        memberships = list(chain.from_iterable(delta.memberships for delta in deltas))
        labels = list(chain.from_iterable(delta.labels for delta in deltas))
        probability = list(chain.from_iterable(delta.probability for delta in deltas))
        sums = PartialSums.merge([delta.sums for delta in deltas])
        return cls(first.version, first.d, memberships, sums, counts, labels, probability)

    @property
    def changes(self) -> Counts:
        """The changes of m, links and unseen cells of a whole batch."""
        return self.sums.total[-3:] if self.counts is None else self.counts


@dataclass(frozen=True, slots=True)
class SweepStart:
    """What has changed since the last sweep, but for the memberships of single objects."""

    version: int
    target: list[Indices]  # new number of each cluster, by domain
    blocks: Blocks
    hyper: Hyperparameters


@dataclass(frozen=True, slots=True)
class StaleReplica:
    """The result of a task whose worker has not got all deltas before it."""


def merge_deltas(*deltas: BatchDelta | StaleReplica) -> BatchDelta | StaleReplica:
    """Return the deltas of a group of shards as one, so that fewer messages go to each worker."""
    for delta in deltas:
        if isinstance(delta, StaleReplica):
            return delta
    return BatchDelta.merge(cast(Sequence[BatchDelta], deltas))


@dataclass(slots=True)
class Replica:
    """Memberships of all domains, their counts and hyperparameters, at one version of the log."""

    snapshot: int  # version of the snapshot it was made from
    version: int
    domains: list[DomainReplica]
    blocks: Blocks
    hyper: Hyperparameters

    def apply(self, entry: list[Any]) -> None:
        """Apply the next entry of the log: the deltas of a batch, or the start of a sweep."""
        first = entry[0]
        if isinstance(first, SweepStart):
            self.hyper, self.blocks = first.hyper, deepcopy(first.blocks)
            for domain, target, m in zip(self.domains, first.target, self.blocks.m, strict=True):
                domain.renumber(target, m.size)
        else:
            delta = BatchDelta.merge(entry)
            domain = self.domains[delta.d]
            for objects, memberships in delta.memberships:
                domain.update(objects, memberships)
            for objects, changes in delta.labels:
                changes.apply(domain.hard[objects.start : objects.stop])
            self.blocks.apply_delta(delta.d, *delta.changes)
        self.version += 1

    def view(self, d: int, places: int) -> DomainView:
        """Return domain ``d`` as the other end of cells, with as many places as their objects.

        Kernels are then those of one machine. With another number they are compiled again.
        """
        domain = self.domains[d]
        return domain_view((NO_CELLS,) * places, domain.q, domain.hard, self.blocks.m[d], 1.0)

    def tables(self, d: int) -> BlockTables:
        """Return the block tables seen from domain ``d``."""
        tables = (self.blocks.n, self.blocks.N, *self.hyper.tables(self.blocks.clusters))
        return BlockTables(*(np.array(t if d == 0 else t.T, order="C") for t in tables))


class WorkerState(WorkerPlugin):
    """The replica of one fit on a worker; it exists as long as the fit."""

    def setup(self, worker: Worker) -> None:
        """Start without a replica."""
        self.lock = Lock()
        self.replica: Replica | None = None


Update: TypeAlias = Callable[..., BatchDelta]  # of a shard, with a replica
Batch: TypeAlias = tuple[int, range, list[dict[int, Update]]]  # domain, objects, updates by shard


def run_batch(
    shard: Any,
    update: Update,
    plugin: str,
    version: int,
    since: int,
    snapshot: tuple[Snapshot, Blocks, Hyperparameters] | None,
    entries: list[list[Any]],
    *arguments: list[Any],
) -> BatchDelta | StaleReplica:
    """Update the objects of a batch with the replica of this worker at ``version`` of the log.

    ``entries`` are those that this worker may lack, since the snapshot if there is one, which has
    the version ``since``. A worker is ahead of ``version`` when a lost result is computed again;
    a replica never goes back. ``arguments`` of the update are deltas of the same batch.
    """
    state: Any = get_worker().plugins[plugin]
    with state.lock:
        replica: Replica | None = state.replica
        if snapshot and (replica is None or replica.snapshot != since):
            state.replica = replica = None  # frees memory
            domains = list(map(DomainReplica.from_sparse, snapshot[0]))
            state.replica = replica = Replica(since, since, domains, *deepcopy(snapshot[1:]))
        for entry in entries:
            if replica is None or any(isinstance(delta, StaleReplica) for delta in entry):
                return StaleReplica()
            if entry[0].version == replica.version + 1:
                replica.apply(entry)
    stale = any(isinstance(delta, StaleReplica) for deltas in arguments for delta in deltas)
    if stale or replica is None or replica.version != version:
        return StaleReplica()
    return update(shard, replica, *arguments)


@dataclass
class DeltaLog:
    """The client's log: all batches of a sweep are one graph, in which workers exchange deltas.

    The deltas of a batch are merged in groups of shards, and these again, until each worker
    receives few.
    """

    client: Client
    version: int = 0
    _plugin: str | None = None  # name; registered on all workers, and on those that join
    _snapshot: tuple[int, list[Any]] | None = None  # version, memberships and counts
    _entries: dict[int, list[Any]] = field(default_factory=dict)  # deltas by version
    _received: dict[tuple[int, int], int] = field(default_factory=dict)  # version, by d and shard
    _replicated: list[Any] | None = None  # memberships of the replicas after the last sweep
    _target: list[Indices] = field(default_factory=list)  # new number of each of their clusters

    def reset(self) -> None:
        """Release all entries: the next sweep starts with a snapshot."""
        self._snapshot = self._replicated = None
        self._entries.clear()
        self._received.clear()

    def close(self) -> None:
        """Release all entries, and the replicas on the workers."""
        self.reset()
        plugin, self._plugin = self._plugin, None
        if plugin is not None and self.client.status == "running":
            with suppress(OSError):  # the scheduler was lost
                self.client.unregister_worker_plugin(plugin)

    def mark_replicated(self, memberships: list[Any]) -> None:
        """Record the memberships that the replicas hold after a sweep."""
        self._replicated = list(memberships)

    def continue_from(self, memberships: list[Any], match: Match) -> None:
        """Keep the log if the replicas hold these memberships but for the numbers of clusters.

        ``match`` returns the new number of each cluster of earlier memberships, None if there are
        other differences.
        """
        replicated, self._replicated = self._replicated, None
        if replicated is not None and len(self._entries) <= LONGEST_LOG:
            found = list(map(match, replicated, memberships))
            if all(target is not None for target in found):
                self._target = cast(list[Indices], found)
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
    ) -> Iterator[tuple[range, BatchDelta]]:
        """Run the batches of a sweep; yield the objects and the delta of each.

        The caller applies the delta to the client's state before it asks for the next batch.
        """
        remaining, at_once = deque(batches), -(-len(batches) // GATHERINGS)
        if self._plugin is None:
            self._plugin = task_key("replica")
            with plain_errors(self.client):
                self.client.register_plugin(WorkerState(), self._plugin)
        while remaining:
            self.version += 1
            if self._snapshot is None:
                counts = send_message(self.client, detach(blocks), "counts")
                self._snapshot = self.version, [send_memberships(), counts, hyper.copy()]
            else:
                start = SweepStart(self.version, self._target, detach(blocks), hyper.copy())
                self._entries[self.version] = [send_message(self.client, start, "start")]
            pending = self._submit(name, list(remaining), shards)
            while pending:
                for deltas in self._gather(pending, at_once):
                    if any(isinstance(delta, StaleReplica) for delta in deltas):
                        self.reset()
                        pending.clear()
                        break
                    yield remaining.popleft()[1], BatchDelta.merge(deltas)

    def _submit(self, name: str, batches: list[Batch], shards: Shards) -> deque[list[Future]]:
        """Submit all batches as one graph and add them to the log; return the futures of each."""
        assert self._snapshot is not None
        sweep, (since, snapshot), graph = uuid4().hex, self._snapshot, dict[str, Any]()
        submitted: dict[int, list[str]] = {}  # keys of the merged deltas of each batch, by version
        for d, _, rounds in batches:
            found: list[str] = []
            for number, updates in enumerate(rounds):
                keys = []
                for s, update in updates.items():
                    received = self._received.get((d, s), 0)
                    entries = [deltas for at, deltas in self._entries.items() if at > received]
                    lacking = None if received else snapshot
                    key = f"coblock-{name}-{DOMAINS[d]}-{sweep}-{self.version + 1}-{number}-{s}"
                    position = (self._plugin, self.version, since, lacking, entries)
                    earlier = [found] if number else []
                    graph[key] = (run_batch, shards[d][s], update, *position, *earlier)
                    keys.append(key)
                found = found + _merge_keys(graph, keys)
            # only now: a second round may run on another worker, which then needs the same
            self._received |= dict.fromkeys([(d, s) for s in rounds[0]], self.version)
            self.version += 1
            self._entries[self.version] = submitted[self.version] = found
        with plain_errors(self.client):
            futures = self.client.get(graph, list(submitted.values()), sync=False)
        self._entries |= zip(submitted, futures, strict=True)
        numbers = [(d, s) for d, some in enumerate(shards) for s in range(len(some))]
        oldest = min(self._received.get(number, 0) for number in numbers)
        self._entries = {at: deltas for at, deltas in self._entries.items() if at > oldest}
        return deque(futures)

    def _gather(self, pending: deque[list[Future]], count: int) -> list[list[Any]]:
        """Return the results of the next batches."""
        some = [pending.popleft() for _ in range(min(count, len(pending)))]
        return gather_results(self.client, some)


def _merge_keys(graph: dict[str, Any], keys: list[str]) -> list[str]:
    """Add tasks to a graph that merge deltas; return the keys of those that are left."""
    while len(keys) > MOST_MESSAGES:
        groups = [keys[at : at + FAN_IN] for at in range(0, len(keys), FAN_IN)]
        keys = [f"coblock-merge-{group[0]}" for group in groups]
        graph |= {key: (merge_deltas, *of) for key, of in zip(keys, groups, strict=True)}
    return keys


def detach(blocks: Blocks) -> Blocks:
    """Return a copy of the counts, without the cells of the relation."""
    repeated, symmetric = blocks.relation.repeated, blocks.relation.symmetric
    nothing = replace(NO_RELATION, kind=cast(Kind, KINDS[repeated + symmetric]))
    return deepcopy(replace(blocks, relation=nothing))


def match_soft_memberships(old: Any, new: tuple[Floats, Floats]) -> Indices | None:
    """Return the new number of each cluster if memberships were only reordered, or None.

    Memberships come with the sizes of their clusters; ``old`` may be labels instead.
    """
    if not isinstance(old, tuple):
        return None
    (q_old, m_old), (q, m) = old, new
    if q is q_old:
        return np.arange(m.size, dtype=np.int32)
    if m.size != m_old.size:
        return None
    target = np.empty(m.size, np.int32)
    target[np.argsort(-m_old, kind="stable")] = np.argsort(-m, kind="stable")
    same = all(np.array_equal(q[:, k], q_old[:, before]) for before, k in enumerate(target))
    return target if same else None


def domain_view(
    cells: tuple[Incidence, ...], q: Floats, hard: Indices, m: Floats, alpha: float
) -> DomainView:
    """Return objects with these cells for kernels; the other ends are of another domain."""
    return DomainView(cells, False, NOTHING, NOTHING, q, hard, m, alpha)


def compact_counts(table: NDArray[Any]) -> NDArray[Any]:
    """Return whole numbers as integers, in four bytes where they are small enough."""
    small = np.abs(table).max(initial=0.0) < 2**31
    return table.astype(np.int32 if small else np.int64)


def writable(array: NDArray[Any]) -> NDArray[Any]:
    """Return a writable array; Numba would compile kernels again for the read-only ones of Dask."""
    return np.require(array, requirements="W")
