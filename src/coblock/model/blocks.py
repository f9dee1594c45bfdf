"""Sufficient statistics of all blocks, from hard labels or soft memberships (MODEL 3, 11)."""

from copy import copy
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from coblock.kernels import Floats, Indices
from coblock.model.labels import StoredLabels, count_labels
from coblock.model.likelihoods import Statistics
from coblock.model.relation import RelationData
from coblock.model.sums import sum_memberships


@dataclass(slots=True)
class Blocks:
    """Expected counts of every block; the only place where they are kept.

    The sums over stored cells are kept beside the tables ``n`` and ``N`` that follow from them.
    In one-domain relations ``m`` has one entry, and an undirected block {k, l} stands at (k, l)
    and at (l, k).
    """

    relation: RelationData
    m: list[Floats]  # per domain (K,)  expected sizes of the clusters
    links: Floats  # (K1, K2)  sum over links of q_ik q_jl
    unseen: Floats  # (K1, K2)  the same over unseen cells
    self_pairs: Floats  # (K1, K2)  sum_i q_ik q_il, one domain only; else 0
    own: Floats  # (2, K1)  links and non-links of objects with themselves, directed only; else 0
    n: Floats = field(init=False)  # (K1, K2)  expected links
    N: Floats = field(init=False)  # (K1, K2)  expected observed non-links

    def __post_init__(self) -> None:
        """Derive the tables."""
        self.derive_tables()

    @classmethod
    def from_labels(
        cls, relation: RelationData, labels: list[Indices], clusters: tuple[int, ...] | None = None
    ) -> "Blocks":
        """Count the cells of a hard partition, with room for so many clusters of each domain."""
        pairs = zip(labels, clusters or (0,) * len(labels), strict=True)
        m = [count_labels(label, K).astype(np.float64) for label, K in pairs]
        for sizes, label, copies in zip(m, labels, relation.copies, strict=False):
            if copies > 1.0:
                sizes[label[-1]] += copies - 1.0
        shape = (m[0].size, m[-1].size)
        links, unseen = relation.count_cells(labels, shape)
        self_pairs = np.diag(m[0]) if relation.repeated else np.zeros(shape)
        own = own_counts(relation, labels[0], m[0].size)
        return cls(relation, m, links, unseen, self_pairs, own)

    @classmethod
    def from_memberships(
        cls, relation: RelationData, q: list[Floats], hard: list[Indices]
    ) -> "Blocks":
        """Add up the memberships of the two ends of all cells."""
        links, unseen = relation.expected_cells(q, hard)
        sums = [sum_memberships(each, pairs=relation.repeated) for each in q]
        self_pairs = sums[0][1] if relation.repeated else np.zeros(links.shape)
        if relation.repeated and relation.copies[0] > 1.0:
            self_pairs += (relation.copies[0] - 1.0) * np.outer(q[0][-1], q[0][-1])
        directed = relation.repeated and not relation.symmetric
        own = own_cells(relation) @ q[0] if directed else np.zeros((2, q[0].shape[1]))
        terms = zip(sums, q, relation.copies, strict=False)
        m = [sizes + (copies - 1.0) * each[-1] for (sizes, _), each, copies in terms]
        return cls(relation, m, links, unseen, self_pairs, own)

    def derive_tables(self) -> None:
        """Compute ``n`` and ``N`` from the sums and sizes.

        Expected counts that rounding leaves below 0 are set to 0; those of labels are exact.
        """
        n, N = self.links.copy(), np.outer(self.m[0], self.m[-1])
        N -= self.unseen + self.self_pairs + self.links
        if self.relation.repeated:
            diagonal = np.diag_indices(len(n))
            if self.relation.symmetric:
                n, N = 0.5 * (n + n.T), 0.5 * (N + N.T)
                n[diagonal] /= 2.0  # each pair is stored at both of its objects
                N[diagonal] /= 2.0
            else:
                n[diagonal] += self.own[0]
                N[diagonal] += self.own[1]
        self.n, self.N = np.maximum(n, 0.0), np.maximum(N, 0.0)

    def apply_delta(self, d: int, m: Floats, links: Floats, unseen: Floats) -> None:
        """Add changes of the sizes of domain ``d`` and of the sums over cells seen from it.

        In one domain they are those of hard labels.
        """
        self.m[d] = np.maximum(self.m[d] + m, 0.0)
        if self.relation.repeated:
            self.self_pairs = np.diag(self.m[0])
        self.links += links if d == 0 else links.T
        if unseen.size:
            self.unseen += unseen if d == 0 else unseen.T
        self.derive_tables()

    def copy(self) -> "Blocks":
        """Return blocks that share no counts with these."""
        other = copy(self)
        other.m, other.own = [m.copy() for m in self.m], self.own.copy()
        other.links, other.unseen = self.links.copy(), self.unseen.copy()
        other.self_pairs = self.self_pairs.copy()
        return other

    def merge(self, d: int, label: Indices) -> None:
        """Add the counts of each cluster of domain ``d`` to those of its new label.

        The labels of a domain are some of its clusters, each of which keeps its own.
        """
        tables = [self.links, self.unseen, self.self_pairs]
        tables = tables if d == 0 else [table.T for table in tables]
        if self.relation.repeated:
            tables += [table.T for table in tables] + [self.own.T]
        for g in np.flatnonzero(label != np.arange(label.size)):
            for table in [*tables, self.m[d]]:
                table[label[g]] += table[g]
                table[g] = 0.0
        self.derive_tables()

    def reorder(self, order: list[Indices]) -> "Blocks":
        """Return the blocks with the clusters of each domain in another order."""
        reordered, table = copy(self), np.ix_(order[0], order[-1])
        reordered.m = [m[kept] for m, kept in zip(self.m, order, strict=True)]
        reordered.links, reordered.unseen = self.links[table], self.unseen[table]
        reordered.self_pairs, reordered.own = self.self_pairs[table], self.own[:, order[0]]
        reordered.derive_tables()
        return reordered

    def add_clusters(self, d: int, count: int) -> None:
        """Add empty clusters to domain ``d``."""
        axes = (0, 1) if self.relation.repeated else (d,)
        pad = [(0, count if axis in axes else 0) for axis in (0, 1)]
        self.m[d] = np.pad(self.m[d], (0, count))
        self.links, self.unseen = np.pad(self.links, pad), np.pad(self.unseen, pad)
        self.self_pairs = np.pad(self.self_pairs, pad)
        self.own = np.pad(self.own, ((0, 0), (0, self.links.shape[0] - self.own.shape[1])))
        self.derive_tables()

    @property
    def clusters(self) -> tuple[int, int]:
        """Numbers of row and column clusters; in one domain the same number twice."""
        return self.n.shape[0], self.n.shape[1]

    @property
    def in_use(self) -> tuple[int, int]:
        """Numbers of row and column clusters that are not empty."""
        return int((self.m[0] > 0).sum()), int((self.m[-1] > 0).sum())

    def distinct(self) -> NDArray[np.bool_]:
        """Return which entries of the tables are blocks of nonempty clusters, each block once."""
        used = np.outer(self.m[0] > 0, self.m[-1] > 0)
        return np.triu(used) if self.relation.symmetric else used

    def statistics(self) -> Statistics:
        """Return the statistics of each block of nonempty clusters once."""
        distinct = self.distinct()
        return self.n[distinct], self.N[distinct]


def own_cells(relation: RelationData) -> Floats:
    """Return the numbers of links and observed non-links of each object with itself (directed).

    They are 0 or 1, unless an object stands for many.
    """
    cells = np.stack((relation.own_link, relation.own_seen - relation.own_link))
    cells[:, -1] *= relation.copies[0]
    return cells


def own_counts(relation: RelationData, label: Indices, clusters: int) -> Floats:
    """Return the cells of objects with themselves by cluster; 0 if the relation is not directed.

    Relations with stored labels have none.
    """
    some = relation.repeated and not relation.symmetric
    if some and not isinstance(label, StoredLabels):
        return np.array([np.bincount(label, cells, clusters) for cells in own_cells(relation)])
    return np.zeros((2, clusters))
