"""Counts of all blocks, kept as sums over cells that parts of the data add up to (MODEL 3, 11)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from coblock.kernels import Floats, Indices
from coblock.model.relation import Relation

Changes: TypeAlias = tuple[Floats, Floats, Floats]  # of sizes, links and unseen cells, (L, K)
Node: TypeAlias = tuple[int, int]  # of a tree: how high above the leaves, and the how manieth there


@dataclass(slots=True)
class Sums:
    """Sums of products of memberships, from which the tables n and N follow.

    In one domain cells are met from their first end; an undirected pair is met from both.
    """

    links: Floats  # (K1, K2)  sum over links of q_ik q_jl
    unseen: Floats  # (K1, K2)  the same over unseen cells
    together: Floats  # (K1, K2)  sum over objects of q_ik q_il; zeros in two domains
    own: Floats  # (2, K1)  links, and observed non-links, of objects with themselves

    @classmethod
    def of_memberships(cls, relation: Relation, q: list[Floats], sure: list[Indices]) -> "Sums":
        """Count expected cells."""
        links, unseen = relation.products(q, sure)
        together = q[0].T @ q[0] if relation.one_domain else np.zeros_like(links)
        return cls(links, unseen, together, own_cells(relation) @ q[0])

    @classmethod
    def of_labels(
        cls, relation: Relation, labels: list[Indices], clusters: tuple[int, int]
    ) -> "Sums":
        """Count the cells of a hard partition."""
        links, unseen = relation.cells(labels, clusters)
        together = np.zeros(clusters)
        if relation.one_domain:
            np.fill_diagonal(together, np.bincount(labels[0], minlength=clusters[0]))
        own = [np.bincount(labels[0], cells, clusters[0]) for cells in own_cells(relation)]
        return cls(links, unseen, together, np.array(own))

    def reordered(self, order: list[Indices]) -> "Sums":
        """Return the sums with the clusters of each domain in another order."""
        table = np.ix_(order[0], order[-1])
        links, unseen, together = (t[table] for t in (self.links, self.unseen, self.together))
        return Sums(links, unseen, together, self.own[:, order[0]])

    def tables(self, kind: str, m: list[Floats]) -> tuple[Floats, Floats]:
        """Return links n and observed non-links N of all blocks, given the sizes of the clusters.

        An undirected block {k, l} stands at (k, l) and at (l, k).
        """
        n, N = self.links.copy(), np.outer(m[0], m[-1])
        N -= self.unseen + self.together + self.links
        diagonal = np.diag_indices(min(n.shape))
        if kind == "undirected":
            n, N = 0.5 * (n + n.T), 0.5 * (N + N.T)
            n[diagonal] /= 2.0  # each pair was met from both of its ends
            N[diagonal] /= 2.0
        elif kind == "directed":
            n[diagonal] += self.own[0]
            N[diagonal] += self.own[1]
        return np.maximum(n, 0.0), np.maximum(N, 0.0)


def own_cells(relation: Relation) -> Floats:
    """Return whether each object's cell with itself is a link, or an observed non-link."""
    if relation.kind == "directed":
        return np.stack((relation.self_link, relation.self_seen - relation.self_link))
    return np.zeros((2, relation.shape[0]))


def climb(
    nodes: Mapping[Node, Changes], leaves: int, *, complete: bool = True
) -> dict[Node, Changes]:
    """Add neighbours in a tree of so many leaves, up to the root.

    A node without a neighbour moves up as it is: where nothing has changed there need be none.
    If the nodes are not ``complete``, it waits for its neighbour and is returned beside others.
    Wherever nodes are added first, the root has the same bits.
    """
    found, level = dict(nodes), 0
    while leaves > 1:
        for i in range(0, leaves, 2):
            pair = [(level, j) for j in (i, i + 1) if j < leaves]
            there = [node for node in pair if node in found]
            if there == pair or (complete and there):
                below = [found.pop(node) for node in there]
                found[level + 1, i // 2] = below[0] if len(below) == 1 else _added(*below)
        leaves, level = -(-leaves // 2), level + 1
    return found


def _added(one: Changes, other: Changes) -> Changes:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]
