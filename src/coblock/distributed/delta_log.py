"""The client's side of replication: a log of the deltas of all batches since a snapshot."""

import warnings
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias
from uuid import uuid4

import numpy as np
from distributed import Client, Future

from coblock.distributed import tasks
from coblock.distributed.client import gather_results, plain_errors
from coblock.distributed.layout import DOMAINS
from coblock.distributed.replication import BatchDelta, CountSnapshot, Reordering
from coblock.distributed.tasks import BatchTask
from coblock.kernels import Floats, Indices
from coblock.model.blocks import Blocks
from coblock.model.hyperparameters import Hyperparameters

LONGEST_LOG = 400  # entries; a longer log is replaced by a new snapshot
GATHERINGS = 4  # of the results of one sweep: fewer messages than one for each batch
Shards: TypeAlias = tuple[list[Future], list[Future]]


def send_message(client: Client, message: Any, name: str) -> Future:
    """Return a task whose result is a message; Dask recommends this for large arguments."""
    with plain_errors(client), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sending large graph")
        return client.submit(tasks.send, message, key=task_key(name))


def task_key(name: str) -> str:
    """Return a new key; the dashboard shows the part before the number."""
    return f"coblock-{name}-{uuid4().hex}"


@dataclass(frozen=True, slots=True)
class BatchStep:
    """The update of one batch: what its shards do against the same counts."""

    name: str
    d: int
    objects: Indices
    shards: list[tuple[int, BatchTask]]  # numbers of the shards that hold a part of the batch


@dataclass
class DeltaLog:
    """The log of a sweep: every entry is a batch, given by the deltas of its shards.

    All batches of a sweep are submitted as one graph. A task receives the entries that its shard
    has not received before, from the workers that computed them, and brings the replica of its
    worker up to date. If a worker was lost, another one may have a stale replica; the remaining
    batches are then submitted again, after a new snapshot of the client's state.
    """

    client: Client
    run_id: str
    version: int = 0
    _snapshot: tuple[Future, CountSnapshot] | None = None
    _entries: list[tuple[int, list[Any]]] = field(default_factory=list)  # version, its deltas
    _received: dict[tuple[int, int], int] = field(default_factory=dict)  # version, by d and shard
    _replicated: tuple[list[Floats], list[Floats]] | None = None  # q and m of the replicas

    def reset(self) -> None:
        """Release all entries: the next sweep starts with a snapshot."""
        self._snapshot, self._replicated = None, None
        self._entries.clear()
        self._received.clear()

    def mark_replicated(self, q: list[Floats], blocks: Blocks) -> None:
        """Record that the replicas hold these memberships and counts."""
        self._replicated = list(q), [m.copy() for m in blocks.m]

    def continue_from(self, q: list[Floats], blocks: Blocks) -> None:
        """Keep the log if the replicas hold these memberships up to the order of clusters."""
        replicated, self._replicated = self._replicated, None
        if replicated is None or self._snapshot is None or len(self._entries) > LONGEST_LOG:
            self.reset()
            return
        found = list(map(find_order, *replicated, q, blocks.m))
        orders = tuple(order for order in found if order is not None)
        if len(orders) < len(found):
            self.reset()
        elif any(old is not new for old, new in zip(replicated[0], q, strict=True)):
            self.version += 1
            self._entries.append((self.version, [Reordering(self.version, orders)]))

    def run(
        self,
        steps: list[BatchStep],
        hyper: Hyperparameters,
        shards: Shards,
        take_snapshot: Callable[[], tuple[Future, CountSnapshot]],
    ) -> Iterator[tuple[BatchStep, list[BatchDelta]]]:
        """Run the batches of a sweep; yield each with the deltas of its shards.

        The caller applies the deltas to the client's state before it asks for the next batch.
        """
        remaining, results = deque(steps), deque[list[Any]]()
        pending: deque[list[Future]] = deque()
        at_once = -(-len(steps) // GATHERINGS)
        while remaining:
            if self._snapshot is None:
                self.version += 1
                future, counts = take_snapshot()
                self._snapshot = future, replace(counts, version=self.version)
                pending.clear()
            if not pending and not results:
                pending = self._submit(list(remaining), hyper, shards)
            if not results:
                results = self._gather(pending, at_once)
            deltas = results.popleft()
            if all(isinstance(delta, BatchDelta) for delta in deltas):
                yield remaining.popleft(), deltas
            else:
                self.reset()
                results.clear()

    def _submit(
        self, steps: list[BatchStep], hyper: Hyperparameters, shards: Shards
    ) -> deque[list[Future]]:
        """Submit all batches as one graph; return the futures of each."""
        sweep, before = uuid4().hex, len(self._entries)
        sent = f"coblock-hyperparameters-{sweep}"
        graph: dict[str, Any] = {sent: (tasks.send, hyper.copy())}
        keys = [self._add_tasks(graph, step, sent, sweep, shards) for step in steps]
        with plain_errors(self.client):
            wanted = [key for some in keys for key in some]
            submitted = iter(self.client.get(graph, wanted, sync=False))
        futures = [[next(submitted) for _ in some] for some in keys]
        for t, some in enumerate(futures, start=before):
            self._entries[t] = self._entries[t][0], some
        numbers = [(d, s) for d in (0, 1) for s in range(len(shards[d]))]
        oldest = min(self._received.get(number, 0) for number in numbers)
        self._entries = [entry for entry in self._entries if entry[0] > oldest]
        return deque(futures)

    def _add_tasks(
        self, graph: dict[str, Any], step: BatchStep, hyper: str, sweep: str, shards: Shards
    ) -> list[str]:
        """Add the tasks of one batch to the graph and an entry to the log; return their keys."""
        assert self._snapshot is not None
        keys = []
        for s, task in step.shards:
            received = self._received.get((step.d, s))
            snapshot = self._snapshot if received is None else (None, None)
            entries = [deltas for version, deltas in self._entries if version > (received or 0)]
            key = f"coblock-{step.name}-{DOMAINS[step.d]}-{sweep}-{self.version + 1}-{s}"
            shard = shards[step.d][s]
            replica = (self.run_id, self.version, *snapshot, entries)
            graph[key] = (tasks.run_batch, shard, *replica, hyper, task)
            self._received[step.d, s] = self.version
            keys.append(key)
        self.version += 1
        self._entries.append((self.version, list(keys)))
        return keys

    def _gather(self, pending: deque[list[Future]], count: int) -> deque[list[Any]]:
        """Return the results of the next batches."""
        some = [pending.popleft() for _ in range(min(count, len(pending)))]
        results = iter(gather_results(self.client, [future for each in some for future in each]))
        return deque([next(results) for _ in each] for each in some)


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
