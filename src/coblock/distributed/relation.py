"""A relation whose cells are on the workers of a cluster."""

import hashlib
import json
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np
from distributed import Future
from numpy.typing import NDArray
from scipy import sparse

from coblock.distributed import tasks
from coblock.distributed.client import gather_results, plain_errors
from coblock.distributed.delta_log import send_message, task_key
from coblock.distributed.replication import writable
from coblock.distributed.shards import ShardPool
from coblock.inference.start import LEAST_DENSITY, degree_scales, link_rates, number_type
from coblock.kernels import DomainView, Floats, Incidence, Indices
from coblock.kernels.spectral import LinkScales
from coblock.model.likelihoods import Likelihood
from coblock.model.likelihoods.bernoulli import Bernoulli
from coblock.model.relation import Relation, RelationData


@dataclass
class ShardedRelation:
    """A bipartite relation; workers answer what a fit asks of its cells."""

    shape: tuple[int, int]
    n_links: int
    n_unseen: int
    shards: ShardPool | None  # None once the workers have released them
    row_names: tuple[str, ...] | None = None
    column_names: tuple[str, ...] | None = None
    kind: str = "bipartite"
    repeated: bool = False
    symmetric: bool = False
    own_link: Floats = field(default_factory=lambda: np.zeros(0))
    own_seen: Floats = field(default_factory=lambda: np.zeros(0))
    _counted: tuple[list[Indices], Floats, Floats] | None = field(default=None, repr=False)
    _digest: str | None = field(default=None, repr=False)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of objects of each domain."""
        return self.shape

    @property
    def likelihood(self) -> Likelihood:
        """The distribution of the cells."""
        return Bernoulli()

    @property
    def n_cells(self) -> int:
        """Number of observed cells."""
        return self.shape[0] * self.shape[1] - self.n_unseen

    @property
    def density(self) -> float:
        """Links per observed cell, 0 where no cell is observed."""
        return self.n_links / self.n_cells if self.n_cells else 0.0

    @property
    def incidence(self) -> tuple[tuple[Incidence, ...], ...]:
        """The cells, which are not on this machine."""
        msg = (
            "The links of this model are on the cluster. Call collect() to bring them to this "
            "machine, if they fit."
        )
        raise RuntimeError(msg)

    def view(self, d: int, q: Floats, hard: Indices, m: Floats, alpha: float) -> DomainView:
        """Return domain ``d`` for kernels; it needs the cells on this machine."""
        cells, own = self.incidence[d], (self.own_link, self.own_seen)
        return DomainView(cells, self.repeated, *own, q, hard, m, alpha)

    @property
    def pool(self) -> ShardPool:
        """The shards, which must still be on the cluster."""
        if self.shards is None:
            msg = "The links of this model are no longer on a cluster. Fit again."
            raise RuntimeError(msg)
        return self.shards

    def count_cells(
        self, labels: list[Indices], clusters: tuple[int, int]
    ) -> tuple[Floats, Floats]:
        """Return the numbers of links and of unseen cells of each block of a hard partition.

        The last counts are reused where clusters were merged or renumbered since.
        """
        tables = self._merge_counts(labels, clusters) or self._count(labels, clusters)
        self.remember_counts(labels, *tables)
        return tables

    def remember_counts(self, labels: list[Indices], links: Floats, unseen: Floats) -> None:
        """Keep copies of the counts of these labels."""
        self._counted = [label.copy() for label in labels], links.copy(), unseen.copy()

    def _merge_counts(
        self, labels: list[Indices], clusters: tuple[int, int]
    ) -> tuple[Floats, Floats] | None:
        """Return the counts from the last ones, None if a cluster was split since."""
        if self._counted is None:
            return None
        before, *tables = self._counted
        targets = []  # the new number of each cluster
        for old, new in zip(before, labels, strict=True):
            target = np.zeros(int(old.max()) + 1, dtype=np.int32)
            target[old] = new
            if not np.array_equal(target[old], new):
                return None
            targets.append(target)
        merged = np.zeros((2, *clusters))
        for out, table in zip(merged, tables, strict=True):
            np.add.at(out, np.ix_(*targets), table[: targets[0].size, : targets[1].size])
        return merged[0], merged[1]

    def _count(self, labels: list[Indices], clusters: tuple[int, int]) -> tuple[Floats, Floats]:
        """Count the cells on the workers."""
        pool = self.pool
        snapshot = pool.send_labels(labels, clusters)
        tables = pool.map("count", tasks.count_cells, pool.shards[0], pool.run_id, snapshot)
        links, unseen = (np.sum(table, axis=0) for table in zip(*tables, strict=True))
        return links, unseen

    def expected_cells(self, q: list[Floats], hard: list[Indices]) -> tuple[Floats, Floats]:
        """Return the sums over links and over unseen cells of q_ik q_jl.

        The shards add their cells one after another, batch by batch, so that the order of the
        additions is that of one machine. Sums of hard labels are whole numbers in any order.
        """
        pool = self.pool
        sums: Any = None
        pool.log.reset()  # the replicas belong to other memberships
        if all((labels >= 0).all() for labels in hard):
            return self._count(hard, (q[0].shape[1], q[1].shape[1]))
        snapshot, layout = pool.send_memberships(q), pool.layouts[0]
        with plain_errors(pool.client):
            for b in range(layout.batches):
                for s in (s for s in range(layout.shards) if layout.parts(s, b)):
                    message = (sums, pool.shards[0][s], pool.run_id, snapshot, b)
                    key = task_key("expect")
                    sums = pool.client.submit(tasks.add_expected_cells, *message, key=key)
        ((links, unseen),) = gather_results(pool.client, [sums])
        return writable(links), writable(unseen)

    def cells_by_object(self, d: int) -> list[NDArray[Any]]:
        """Return the numbers of links and of unseen cells of each object of domain ``d``."""
        counts = self.pool.map("describe", tasks.count_by_object, self.pool.shards[d])
        return [self.pool.join(d, list(part)) for part in zip(*counts, strict=True)]

    def identity(self) -> dict[str, Any]:
        """Return what distinguishes the data from others: shape, names, cells of every object."""
        if self._digest is None:
            digest = hashlib.sha256(json.dumps([self.row_names, self.column_names]).encode())
            for counts in (*self.cells_by_object(0), *self.cells_by_object(1)):
                digest.update(np.ascontiguousarray(counts).data)
            self._digest = digest.hexdigest()
        return {"shape": list(self.shape), "digest": self._digest}

    def collect(self) -> Relation:
        """Return the relation with all its cells on this machine."""
        pool = self.pool
        layout, shards = (
            pool.layouts[0],
            pool.map("collect", attrgetter("incidence"), pool.shards[0]),
        )
        order = np.argsort(np.concatenate([layout.objects(s) for s in range(layout.shards)]))
        patterns = []
        for start, end in ((0, 1), (2, 3)):
            pieces = [
                sparse.csr_array(
                    (np.ones(cells[end].size), cells[end], cells[start]),
                    shape=(cells[start].size - 1, self.shape[1]),
                )
                for cells in shards
            ]
            patterns.append(sparse.csr_array(sparse.vstack(pieces, format="csr")[order]))
        return Relation.from_patterns(
            *patterns, row_names=self.row_names, column_names=self.column_names
        )

    def release(self) -> None:
        """Free the memory of the workers."""
        if self.shards is not None:
            self.shards.close()
            self.shards = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"shards": None, "_counted": None}


def as_sharded(relation: RelationData) -> ShardedRelation:
    """Return a relation that was opened by a Dask engine; refuse another."""
    if not isinstance(relation, ShardedRelation):
        msg = f"A Dask engine works on the relation that it has opened, not {type(relation)}."
        raise TypeError(msg)
    return relation


@dataclass(frozen=True, slots=True)
class ShardedLinks:
    """The normalised links of a sharded relation; workers compute the products."""

    shape: tuple[int, int]
    pool: ShardPool
    scales: Future  # of both domains
    density: float

    @classmethod
    def from_relation(cls, relation: ShardedRelation) -> "ShardedLinks":
        """Return the normalised links of a relation."""
        pool, density = relation.pool, max(relation.density, LEAST_DENSITY)
        kind, shape = number_type(relation.shape), relation.shape
        rates, scales = [], []
        for d in (0, 1):
            links, unseen = relation.cells_by_object(d)
            rates.append(link_rates(links, unseen, shape[1 - d], kind))
        for d in (0, 1):
            message = (pool.shards[d], rates[d], rates[1 - d], density)
            degree = pool.join(d, pool.map("degree", tasks.shard_degrees, *message))
            scales.append(LinkScales(degree_scales(degree).astype(kind), rates[d]))
        sent = send_message(pool.client, tuple(scales), "scales")
        return cls(shape, pool, sent, density)

    def product(self, d: int, block: NDArray[Any]) -> NDArray[Any]:
        """Return the product with ``block``, transposed where ``d`` is 1."""
        pool = self.pool
        sent = send_message(pool.client, block, "block")
        message = (pool.shards[d], self.scales, self.density, sent)
        return pool.join(d, pool.map("multiply", tasks.shard_product, *message))
