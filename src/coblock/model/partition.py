"""A hard partition of all objects, with its blocks and hyperparameters (MODEL 10)."""

from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from coblock.kernels import BlockTables, DomainView, Floats, Indices
from coblock.kernels.gather import relabel
from coblock.model.blocks import Blocks, own_counts
from coblock.model.hyperparameters import Hyperparameters, crp_concentration, crp_log_probability
from coblock.model.labels import count_labels, map_labels
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
    fixed: bool = False  # whether the hyperparameters stay as they are
    blocks: Blocks = field(init=False)

    def __post_init__(self) -> None:
        """Count the cells."""
        self.renumber()

    @classmethod
    def from_labels(
        cls,
        relation: RelationData,
        labels: list[Indices],
        hyper: Hyperparameters | None = None,
        *,
        fixed: bool = False,
    ) -> "Partition":
        """Return the partition with the hyperparameters under which it is most probable.

        They are learnt from the given ones, or from weak ones, unless they are ``fixed``.
        """
        partition = cls(relation, labels, hyper or initial_hyper(relation), fixed)
        partition.learn()
        return partition

    @property
    def m(self) -> list[Floats]:
        """Sizes of the clusters of each domain."""
        return self.blocks.m

    def renumber(self) -> None:
        """Drop empty clusters, number the others from 0 and count the cells."""
        self.labels = numbered(self.labels)
        self.blocks = Blocks.from_labels(self.relation, self.labels)

    def drop_empty(self) -> None:
        """Drop empty clusters and number the others from 0; the counts of cells are kept."""
        kept = [np.flatnonzero(m > 0).astype(np.int32) for m in self.m]
        if any(some.size < m.size for some, m in zip(kept, self.m, strict=True)):
            self.labels, self.blocks = numbered(self.labels), self.blocks.reorder(kept)

    def merge_clusters(self, d: int, label: Indices) -> None:
        """Give the members of each cluster of domain ``d`` this label; add the counts up."""
        self.labels[d] = map_labels(self.labels[d], label)
        self.blocks.merge(d, label)
        self.drop_empty()

    def recount(self) -> None:
        """Count the cells of the clusters as they are numbered, empty ones included."""
        sizes = tuple(m.size for m in self.m)
        self.blocks = Blocks.from_labels(self.relation, self.labels, sizes)

    def learn(self) -> None:
        """Set the hyperparameters to those under which the partition is most probable."""
        if self.fixed:
            return
        likelihood, statistics = self.relation.likelihood, self.blocks.statistics()
        self.hyper.prior = likelihood.learn_prior(statistics, self.hyper.prior, "newton")
        self.hyper.alpha = [
            crp_concentration(int((m > 0).sum()), int(m.sum()), alpha)
            for m, alpha in zip(self.m, self.hyper.alpha, strict=True)
        ]

    def log_joint(self) -> float:
        """Return log p(X, z) at these hyperparameters (MODEL 10)."""
        crp = sum(
            crp_log_probability(m, alpha) for m, alpha in zip(self.m, self.hyper.alpha, strict=True)
        )
        statistics = self.blocks.statistics()
        return self.relation.likelihood.log_marginal(statistics, self.hyper.prior) + crp

    def log_posterior(self) -> float:
        """Return log p(X, z, alpha) at the most probable alpha under its hyperprior.

        It compares partitions of very different numbers of clusters. Under ``log_joint`` alone
        a cluster for each object is free, since its concentration is unbounded.
        """
        if self.fixed:
            return self.log_joint()
        value = self.relation.likelihood.log_marginal(self.blocks.statistics(), self.hyper.prior)
        shape, rate = self.hyper.hyperprior
        for m in self.m:
            clusters, objects = int((m > 0).sum()), int(m.sum())
            alpha = crp_concentration(clusters, objects, hyperprior=self.hyper.hyperprior)
            value += crp_log_probability(m, alpha) + (shape - 1.0) * np.log(alpha) - rate * alpha
        return float(value)

    def start_hyper(self) -> Hyperparameters:
        """Return fixed hyperparameters as they are, and weak ones to learn from else."""
        if self.fixed:
            return self.hyper.copy()
        hyper = initial_hyper(self.relation)
        return replace(self.hyper, alpha=hyper.alpha, prior=hyper.prior)

    def adopt(self, other: "Partition") -> None:
        """Take over labels, hyperparameters and counts of a partition of the same relation."""
        self.labels, self.hyper, self.blocks = other.labels, other.hyper, other.blocks

    def relabel(self, d: int, objects: Indices, fresh: Indices) -> None:
        """Give objects of domain ``d`` new labels and update the counts of their cells."""
        label, blocks, K = self.labels[d], self.blocks, self.m[d].size
        moved = np.flatnonzero(fresh != label[objects])
        if moved.size == 0:
            return
        objects, fresh = objects[moved], fresh[moved]
        blocks.m[d] += np.bincount(fresh, minlength=K) - np.bincount(label[objects], minlength=K)
        if objects[-1] == label.size - 1:
            more = self.relation.copies[d] - 1.0
            blocks.m[d][label[-1]] -= more
            blocks.m[d][fresh[-1]] += more
        tables = (blocks.links, blocks.unseen) if d == 0 else (blocks.links.T, blocks.unseen.T)
        relabel(self.domain(d), objects, fresh, label, self.labels[-1 - d], *tables)
        if self.relation.repeated:
            blocks.self_pairs = np.diag(blocks.m[0])
            blocks.own = own_counts(self.relation, label, K)
        blocks.derive_tables()

    def copy(self) -> "Partition":
        """Return a partition that shares no labels with this one."""
        other = copy(self)
        other.labels = [label.copy() for label in self.labels]
        other.hyper, other.blocks = self.hyper.copy(), self.blocks.copy()
        other.drop_empty()
        return other

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


def initial_hyper(relation: RelationData) -> Hyperparameters:
    """Return weak hyperparameters that all blocks share."""
    clusters, domains = (1, 1), len(relation.sizes)
    return Hyperparameters.initial(relation.likelihood, relation.density, clusters, domains)


def numbered(labels: list[Any]) -> list[Indices]:
    """Return labels 0 to K-1 for each domain, every one in use, in the order of the old ones."""
    used = [count_labels(label) > 0 for label in labels]
    numbers = [np.cumsum(in_use, dtype=np.int32) - np.int32(1) for in_use in used]
    return list(map(map_labels, labels, numbers))
