"""A hard partition of all objects, with its blocks and hyperparameters (MODEL 10)."""

from dataclasses import dataclass, field

import numpy as np

from coblock.kernels import BlockTables, DomainView, Floats, Indices
from coblock.kernels.gather import relabel
from coblock.model.blocks import Blocks, own_cells
from coblock.model.hyperparameters import Hyperparameters
from coblock.model.priors import crp_concentration, crp_log_probability
from coblock.model.relation import RelationData

NO_MEMBERSHIPS = np.zeros((0, 0))


@dataclass(slots=True)
class Partition:
    """Labels of each domain, the blocks they give, and hyperparameters shared by all blocks.

    Tables may have rows and columns of empty clusters, which a sweep can open.
    """

    relation: RelationData
    labels: list[Indices]
    hyper: Hyperparameters
    blocks: Blocks = field(init=False)

    def __post_init__(self) -> None:
        """Count the cells."""
        self.renumber()

    @classmethod
    def from_labels(cls, relation: RelationData, labels: list[Indices]) -> "Partition":
        """Return the partition with the hyperparameters under which it is most probable."""
        hyper = Hyperparameters.initial(
            relation.likelihood, relation.density, (1, 1), len(relation.sizes)
        )
        partition = cls(relation, labels, hyper)
        partition.learn()
        return partition

    @property
    def m(self) -> list[Floats]:
        """Sizes of the clusters of each domain."""
        return self.blocks.m

    def renumber(self) -> None:
        """Drop empty clusters, number the others from 0 and count the cells."""
        self.labels = [
            np.unique(label, return_inverse=True)[1].astype(np.int32) for label in self.labels
        ]
        self.blocks = Blocks.from_labels(self.relation, self.labels)

    def recount(self) -> None:
        """Count the cells of the clusters as they are numbered, empty ones included."""
        sizes = tuple(m.size for m in self.m)
        self.blocks = Blocks.from_labels(self.relation, self.labels, sizes)

    def learn(self) -> None:
        """Set the hyperparameters to those under which the partition is most probable."""
        likelihood, statistics = self.relation.likelihood, self.blocks.statistics()
        self.hyper.prior = likelihood.learn_prior(statistics, self.hyper.prior, "newton")
        self.hyper.alpha = [
            crp_concentration(int((m > 0).sum()), size, alpha)
            for m, size, alpha in zip(self.m, self.relation.sizes, self.hyper.alpha, strict=True)
        ]

    def log_joint(self) -> float:
        """Return log p(X, z) at these hyperparameters (MODEL 10)."""
        crp = sum(
            crp_log_probability(m, alpha) for m, alpha in zip(self.m, self.hyper.alpha, strict=True)
        )
        statistics = self.blocks.statistics()
        return self.relation.likelihood.log_marginal(statistics, self.hyper.prior) + crp

    def relabel(self, d: int, objects: Indices, fresh: Indices) -> None:
        """Give objects of domain ``d`` new labels and update the counts of their cells."""
        label, blocks, K = self.labels[d], self.blocks, self.m[d].size
        moved = np.flatnonzero(fresh != label[objects])
        if moved.size == 0:
            return
        objects, fresh = objects[moved], fresh[moved]
        blocks.m[d] += np.bincount(fresh, minlength=K) - np.bincount(label[objects], minlength=K)
        tables = (blocks.links, blocks.unseen) if d == 0 else (blocks.links.T, blocks.unseen.T)
        relabel(self.domain(d), objects, fresh, label, self.labels[-1 - d], *tables)
        if self.relation.repeated:
            blocks.self_pairs = np.diag(blocks.m[0])
            blocks.own = np.array([np.bincount(label, own, K) for own in own_cells(self.relation)])
        blocks.derive_tables()

    def copy(self) -> "Partition":
        """Return a partition that shares no labels with this one."""
        labels = [label.copy() for label in self.labels]
        return Partition(self.relation, labels, self.hyper.copy())

    def make_room(self, d: int, limit: int | None, count: int) -> bool:
        """Add empty clusters to domain ``d`` if it has none; return whether one may be opened."""
        K = self.m[d].size
        if (self.m[d] > 0).all():
            if limit is not None and limit <= K:
                return False
            self.blocks.add_clusters(d, count if limit is None else min(count, limit - K))
        return limit is None or self.m[d].size <= limit

    def domain(self, d: int) -> DomainView:
        """Return domain ``d`` for kernels; labels and sizes share memory with this object."""
        relation, m, alpha = self.relation, self.m[d], self.hyper.alpha[d]
        return relation.view(d, NO_MEMBERSHIPS, self.labels[d], m, alpha)

    def tables(self, d: int) -> BlockTables:
        """Return the block tables seen from domain ``d``."""
        tables = (self.blocks.n, self.blocks.N, *self.hyper.tables(self.blocks.clusters))
        return BlockTables(*(np.ascontiguousarray(t if d == 0 else t.T) for t in tables))
