"""The shards of a relation on a cluster, and the tasks that run on them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from uuid import uuid4

import numpy as np
from distributed import Client, Future

from coblock.distributed.client import gather_results, plain_errors
from coblock.distributed.delta_log import DeltaLog, Shards, send_message, task_key
from coblock.distributed.layout import ShardLayout
from coblock.distributed.replication import MembershipSnapshot, SparseMemberships, WorkerState
from coblock.kernels import Floats, Indices

Layouts: TypeAlias = tuple[ShardLayout, ShardLayout]


@dataclass
class ShardPool:
    """Shards by row and by column, each the result of a task, and the replicas of one fit."""

    client: Client
    layouts: Layouts
    shards: Shards
    reshard: Callable[[int], tuple[Layouts, Shards, Any]] | None = None  # None: a fixed number
    run_id: str = field(default_factory=lambda: uuid4().hex)
    log: DeltaLog = field(init=False)
    _labels: tuple[list[Indices], tuple[int, ...], Future] | None = None  # of the last snapshot
    _last: list[Future] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Register the replica on every worker, and on those that join."""
        self.log = DeltaLog(self.client, self.run_id)
        self.client.register_plugin(WorkerState(self.run_id))

    def grow(self) -> None:
        """Build more shards if workers have joined; Dask recomputes those of lost workers."""
        if self.reshard is None:
            return
        with plain_errors(self.client):
            threads = count_threads(self.client)
            possible = sum(min(threads, layout.most) for layout in self.layouts)
            if possible > sum(layout.shards for layout in self.layouts):
                self.layouts, self.shards, _ = self.reshard(threads)
                self.log.reset()

    def submit(
        self, name: str, function: Callable[..., Any], targets: list[Future], *arguments: Any
    ) -> list[Future]:
        """Submit a function of each target: the shards of a domain, or results made from each."""
        repeated = [[argument] * len(targets) for argument in arguments]
        with plain_errors(self.client):
            keys = [task_key(name) for _ in targets]
            return self.client.map(function, targets, *repeated, key=keys)

    def map(
        self, name: str, function: Callable[..., Any], targets: list[Future], *arguments: Any
    ) -> list[Any]:
        """Return the results of :meth:`submit`."""
        # the futures before are released only now, after the submission
        self._last = self.submit(name, function, targets, *arguments)
        return gather_results(self.client, self._last)

    def send_labels(self, labels: list[Indices], clusters: tuple[int, ...]) -> Future:
        """Return the task whose result is the snapshot of these labels; each is sent once."""
        sent = self._labels
        if sent is None or sent[1] != clusters or not all(map(np.array_equal, sent[0], labels)):
            future = self._send(map(SparseMemberships.from_labels, labels, clusters))
            sent = self._labels = [label.copy() for label in labels], clusters, future
        return sent[2]

    def send_memberships(self, q: list[Floats]) -> Future:
        """Return the task whose result is the snapshot of these memberships."""
        self._labels = None
        return self._send(map(SparseMemberships.from_dense, q))

    def _send(self, domains: Iterable[SparseMemberships]) -> Future:
        snapshot = MembershipSnapshot(uuid4().hex, tuple(domains))
        return send_message(self.client, snapshot, "snapshot")

    def join(self, d: int, results: list[np.ndarray]) -> np.ndarray:
        """Return one array over all objects of a domain from those of its shards."""
        layout = self.layouts[d]
        out = np.empty((layout.size, *results[0].shape[1:]), results[0].dtype)
        for s, result in enumerate(results):
            out[layout.objects(s)] = result
        return out

    def close(self) -> None:
        """Release everything on the cluster."""
        for futures in self.shards:
            futures.clear()
        self._last.clear()
        self._labels = None
        self.log.reset()
        if self.client.status == "running":
            self.client.unregister_worker_plugin(WorkerState(self.run_id).name)


def count_threads(client: Client) -> int:
    """Return the number of tasks that all workers can run at the same time."""
    return max(sum(client.nthreads().values()), 1)
