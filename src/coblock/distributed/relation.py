"""A relation whose cells are on the workers of a cluster, as shards."""

import hashlib
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from operator import is_not
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar, TypeAlias
from weakref import finalize

import numpy as np
from distributed import Client, Future, Worker
from numpy.typing import NDArray
from scipy import sparse

from coblock.distributed import tasks
from coblock.distributed.client import (
    ClusterError,
    gather_results,
    plain_errors,
    send_message,
    task_key,
)
from coblock.distributed.labels import CHUNK, keep_labels
from coblock.distributed.memberships import count_memberships
from coblock.distributed.replication import DeltaLog, Shards, writable
from coblock.distributed.sparse import SparseMemberships
from coblock.distributed.tasks import CellTables, ShardLayout
from coblock.io import refuse
from coblock.kernels import DomainView, Floats, Indices
from coblock.model.blocks import Blocks
from coblock.model.checks import Kind
from coblock.model.likelihoods import Likelihood
from coblock.model.likelihoods.bernoulli import Bernoulli
from coblock.model.relation import BinaryRelation, TwoPlaces
from coblock.model.sums import FAN_IN, chunks

Layouts: TypeAlias = tuple[ShardLayout, ...]  # of each domain
Task: TypeAlias = Callable[..., Any]
MOST_NAMES = 100_000  # objects whose names are collected on the client at the end of a fit


@dataclass
class ShardPool:
    """Shards of each domain, each the result of a task, and the replicas of one fit."""

    client: Client
    layouts: Layouts
    shards: Shards
    reshard: Callable[[int], tuple[Layouts, Shards, Any]] | None  # None: a fixed number
    owned: bool  # whether the client is closed with the pool
    copies: str  # name of the folder with copies of the files, on each worker
    log: DeltaLog = field(init=False)
    _labels: tuple[list[Any], tuple[int, ...], Future] | None = None  # of the last snapshot
    _last: list[Future] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin a log; a client that was opened for this pool is closed with it."""
        self.log = DeltaLog(self.client)
        if self.owned:  # by a thread: the garbage collector may run in that of the client
            finalize(self, Thread(target=self.client.close, daemon=True).start).atexit = False

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

    def submit(self, name: str, task: Task, targets: list[Future], *arguments: Any) -> list[Future]:
        """Submit a function of each target: the shards of a domain, or results made from each."""
        repeated = [[argument] * len(targets) for argument in arguments]
        with plain_errors(self.client):
            keys = [task_key(name) for _ in targets]
            return self.client.map(task, targets, *repeated, key=keys)

    def map(self, name: str, task: Task, targets: list[Future], *arguments: Any) -> list[Any]:
        """Return the results of :meth:`submit`."""
        # the futures before are released only now, after the submission
        self._last = self.submit(name, task, targets, *arguments)
        return gather_results(self.client, self._last)

    def send_labels(self, labels: list[Any], clusters: tuple[int, ...]) -> Future:
        """Return the task whose result is the snapshot of these labels; each is sent once.

        Many are sent in pieces, so that few are in memory at a time.
        """
        stored, sent = keep_labels(labels), self._labels
        if sent is None or sent[1] != clusters or any(map(is_not, sent[0], stored)):
            if sum(label.size for label in stored) <= CHUNK:
                arrays = [label.read(range(label.size)) for label in stored]
                snapshot = tuple(map(SparseMemberships.from_labels, arrays, clusters))
                future = send_message(self.client, snapshot, "snapshot")
            else:
                pieces = [
                    [send_message(self.client, part.astype(kind), "labels") for _, part in chunks]
                    for chunks, kind in ((x.chunks(), x.stored.kind) for x in stored)
                ]
                with plain_errors(self.client):
                    key = task_key("snapshot")
                    future = self.client.submit(tasks.join_labels, clusters, pieces, key=key)
            sent = self._labels = stored, clusters, future
        return sent[2]

    def add_in_tree(self, terms: list[Future]) -> Future:
        """Return the task whose result is the sum of pairs of tables, added as `tree_sum` does."""
        with plain_errors(self.client):
            while len(terms) > 1:
                groups = [terms[at : at + FAN_IN] for at in range(0, len(terms), FAN_IN)]
                terms = [
                    self.client.submit(tasks.add_tables, *each, key=task_key("add"))
                    for each in groups
                ]
        return terms[0]

    def send_memberships(self, q: list[Floats]) -> Future:
        """Return the task whose result is the snapshot of these memberships."""
        self._labels = None
        return send_message(self.client, tuple(map(SparseMemberships.from_dense, q)), "snapshot")

    def end_fit(self) -> None:
        """Release everything on the cluster but the shards."""
        self._last.clear()
        self._labels = None
        self.log.close()

    def close(self) -> None:
        """Release everything on the cluster."""
        self.end_fit()
        for futures in self.shards:
            futures.clear()
        if self.client.status == "running":
            with suppress(OSError):  # the scheduler was lost
                self.client.run(remove_copies, self.copies)
        if self.owned:
            with suppress(OSError):  # the scheduler was lost
                self.client.close()


def count_threads(client: Client) -> int:
    """Return the number of tasks that all workers can run at the same time."""
    return max(sum(client.nthreads().values()), 1)


def copy_folder(name: str, worker: Worker) -> Path:
    """Return the folder of the copies of one relation on a worker.

    It is beside the worker's own folder, which Dask removes.
    """
    return Path(worker.local_directory).parent / name


def remove_copies(name: str, dask_worker: Worker) -> None:
    """Remove the copies of one relation from the disk of a worker, which Dask passes."""
    shutil.rmtree(copy_folder(name, dask_worker), ignore_errors=True)


@dataclass
class ShardedRelation(TwoPlaces):
    """A relation whose cells are on workers, which answer what a fit asks of them.

    As a context it ends the fit: the shards stay on the workers, unless an error was raised.
    """

    kind: Kind
    shape: tuple[int, int]
    stored_links: int  # an undirected pair is stored twice
    stored_unseen: int
    shards: ShardPool | None  # None once the workers have released them
    _names: tuple[Any, ...] = (None, None)  # of rows and columns: tasks, or names once collected
    _counted: tuple[list[Any], Floats] | None = field(default=None, repr=False)
    _digest: str | None = field(default=None, repr=False)
    likelihood: ClassVar[Likelihood] = Bernoulli()

    @property
    def row_names(self) -> tuple[str, ...] | None:
        """Names of the rows, which are collected from the cluster when they are asked for."""
        return self._collect_names()[0]

    @property
    def column_names(self) -> tuple[str, ...] | None:
        """Names of the columns."""
        return self._collect_names()[1]

    def _collect_names(self) -> tuple[Any, ...]:
        """Return the names of rows and of columns, which are the same in one domain."""
        if any(isinstance(names, Future) for names in self._names):
            distinct = self._names[: len(self.sizes)]
            found = gather_results(self.pool.client, list(distinct))
            names = [None if each is None else tuple(each.to_list()) for each in found]
            self._names = (names[0], names[-1])
        return self._names

    @property
    def n_cells(self) -> int:
        """Number of observed cells."""
        pairs = self.shape[0] * (self.shape[1] - self.repeated)
        return pairs // (1 + self.symmetric) - self.n_unseen

    @property
    def density(self) -> float:
        """Links per observed cell, 0 where no cell is observed."""
        return self.n_links / self.n_cells if self.n_cells else 0.0

    @property
    def n_links(self) -> int:
        """Number of links; an undirected pair counts once."""
        return self.stored_links // (1 + self.symmetric)

    @property
    def n_unseen(self) -> int:
        """Number of unseen cells, without the diagonal of one-domain relations."""
        return self.stored_unseen // (1 + self.symmetric)

    @property
    def own_link(self) -> Floats:
        """Links of objects with themselves, which are not seen."""
        return np.zeros(self.shape[0] if self.repeated else 0)

    own_seen = own_link

    @property
    def incidence(self) -> Any:
        """The cells, which are not on this machine."""
        advice = "Call collect() to bring them to this machine, if they fit."
        refuse(f"The links of this model are on the cluster. {advice}", RuntimeError)

    def view(self, d: int, q: Floats, hard: Indices, m: Floats, alpha: float) -> DomainView:
        """Refuse to return a domain for kernels: they need the cells on this machine."""
        return self.incidence

    @property
    def pool(self) -> ShardPool:
        """The shards, which must still be on the cluster."""
        if self.shards is None:
            refuse("The links of this model are no longer on a cluster. Fit again.", RuntimeError)
        return self.shards

    def count_cells(self, labels: list[Any], clusters: tuple[int, int]) -> CellTables:
        """Return the numbers of links and of unseen cells of each block of a hard partition.

        The last counts are reused where clusters were merged or renumbered since.
        """
        labels = keep_labels(labels)
        tables = self._merge_counts(labels, clusters) or self._count(labels, clusters)
        self.remember_counts(labels, *tables)
        return tables

    def remember_counts(self, labels: list[Any], links: Floats, unseen: Floats) -> None:
        """Keep copies of the counts of these labels."""
        self._counted = list(labels), np.stack((links, unseen))

    def _merge_counts(self, labels: list[Any], clusters: tuple[int, int]) -> CellTables | None:
        """Return the counts from the last ones, None if a cluster was split since."""
        if self._counted is None:
            return None
        before, tables = self._counted
        targets = []  # the new number of each cluster
        for old, new in zip(before, labels, strict=True):
            target = new.map_from(old)
            if target is None:
                return None
            targets.append(target)
        merged = np.zeros((2, *clusters))
        rows, columns = targets[0], targets[-1]
        for out, table in zip(merged, tables, strict=True):
            np.add.at(out, np.ix_(rows, columns), table[: rows.size, : columns.size])
        return merged[0], merged[1]

    def _count(self, labels: list[Any], clusters: tuple[int, int]) -> CellTables:
        """Count the cells on the workers."""
        snapshot = self.pool.send_labels(labels, clusters[: len(labels)])
        tables = self.pool.map("count", tasks.count_cells, self.pool.shards[0], snapshot)
        links, unseen = (np.sum(table, axis=0) for table in zip(*tables, strict=True))
        return links, unseen

    def expected_cells(self, q: list[Floats], hard: list[Indices]) -> CellTables:
        """Return the sums over links and over unseen cells of q_ik q_jl.

        Chunks of rows are added one after another, then their sums in a tree, as on one machine.
        Sums of hard labels are whole numbers in any order.
        """
        self.pool.log.reset()  # the replicas belong to other memberships
        if all((labels >= 0).all() for labels in hard):
            return self._count(hard, (q[0].shape[1], q[-1].shape[1]))
        return self.sum_expected(self.pool.send_memberships(q))

    def count_memberships(self, memberships: list[Any]) -> Blocks:
        """Return the blocks of memberships that are not in memory."""
        return count_memberships(self, memberships)

    def sum_expected(self, snapshot: Future) -> CellTables:
        """Return the sums over the cells of the memberships of a snapshot."""
        pool, layout = self.pool, self.pool.layouts[0]
        spans = layout.in_order()
        with plain_errors(pool.client):
            terms: list[Any] = []
            for chunk in chunks(layout.size):
                sums: Any = None
                for s, span in spans:
                    rows = range(max(span.start, chunk.start), min(span.stop, chunk.stop))
                    if rows:
                        message = (sums, pool.shards[0][s], snapshot, rows)
                        key = task_key("expect")
                        sums = pool.client.submit(tasks.add_expected_cells, *message, key=key)
                terms.append(sums)
        ((links, unseen),) = gather_results(pool.client, [pool.add_in_tree(terms)])
        return writable(links), writable(unseen)

    def cells_by_object(self, d: int) -> list[NDArray[Any]]:
        """Return the numbers of links and of unseen cells of each row, or column where d is 1."""
        pool, domain, place = self.pool, d % len(self.sizes), -d
        counts = pool.map("describe", tasks.count_by_object, pool.shards[domain], place)
        layout = pool.layouts[domain]
        return [tasks.join_shards(layout, list(part)) for part in zip(*counts, strict=True)]

    def identity(self) -> dict[str, Any]:
        """Return what distinguishes the data from others: shape, names, cells of every object."""
        if self._digest is None:
            with plain_errors(self.pool.client):
                key = task_key("digest")
                names = self.pool.client.submit(tasks.digest_names, *self._names, key=key)
            digest = hashlib.sha256(gather_results(self.pool.client, [names])[0])
            for counts in (*self.cells_by_object(0), *self.cells_by_object(1)):
                digest.update(np.ascontiguousarray(counts).data)
            self._digest = digest.hexdigest()
        return {"shape": list(self.shape), "digest": self._digest}

    def collect(self) -> BinaryRelation:
        """Return the relation with all its cells on this machine."""
        pool, layout, patterns = self.pool, self.pool.layouts[0], []
        shards = pool.map("collect", tasks.first_place, pool.shards[0])
        order = np.argsort(np.concatenate([layout.objects(s) for s in range(layout.shards)]))
        for first in (0, 2):  # links, unseen cells
            pieces = []
            for start, end in (cells[first : first + 2] for cells in shards):
                shape = (start.size - 1, self.shape[1])
                pieces.append(sparse.csr_array((np.ones(end.size), end, start), shape=shape))
            patterns.append(sparse.csr_array(sparse.vstack(pieces, format="csr")[order]))
        rows, columns = self.row_names, self.column_names
        return BinaryRelation.from_patterns(
            *patterns, kind=self.kind, row_names=rows, column_names=columns
        )

    def release(self) -> None:
        """Free the memory of the workers."""
        if self.shards is not None:
            if any(isinstance(names, Future) for names in self._names):
                with suppress(ClusterError, OSError):  # the scheduler may be lost
                    self._collect_names()
            self._names = tuple(None if isinstance(n, Future) else n for n in self._names)
            self.shards.close()
            self.shards = None

    def __enter__(self) -> "ShardedRelation":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._counted = None
        if kind is None:
            if sum(self.shape) <= MOST_NAMES:
                self._collect_names()
            self.pool.end_fit()
        else:
            self._names = (None, None)
            self.release()

    def __getstate__(self) -> dict[str, Any]:
        names = self._collect_names()
        return self.__dict__ | {"shards": None, "_counted": None, "_names": names}
