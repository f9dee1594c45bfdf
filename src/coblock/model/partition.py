"""A hard partition of all objects with its counts: what Gibbs samples and moves improve."""

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from coblock.kernels import Blocks, Domain, Floats, Indices, gibbs
from coblock.kernels.hyperparameters import block_log_likelihood
from coblock.model.counts import Sums
from coblock.model.hyperparameters import block_newton, crp_concentration
from coblock.model.relation import Relation
from coblock.model.state import crp_log_probability, each_block_once

STRETCHES = 8  # rows and columns take turns this many times a sweep
ROOM = 4  # empty clusters added when a sweep has used the last one


@dataclass(slots=True)
class Partition:
    """Labels per domain, the counts they give, and shared hyperparameters (MODEL 10).

    Tables may have rows and columns of empty clusters: the room for new ones.
    """

    relation: Relation
    labels: list[Indices]
    a: float
    b: float
    alpha: list[float]
    m: list[Floats] = field(init=False)
    sums: Sums = field(init=False)
    n: Floats = field(init=False)
    N: Floats = field(init=False)

    def __post_init__(self) -> None:
        """Count."""
        self.recount()

    @classmethod
    def start(cls, relation: Relation, labels: list[Indices]) -> "Partition":
        """Return the partition with the hyperparameters that fit it best."""
        mean = float(np.clip(relation.density, 1e-6, 1.0 - 1e-6))
        partition = cls(relation, labels, mean, 1.0 - mean, [1.0] * len(labels))
        partition.learn()
        return partition

    def recount(self) -> None:
        """Rebuild the counts, with the clusters in use numbered from 0 and no room."""
        self.labels = [
            np.unique(label, return_inverse=True)[1].astype(np.int32) for label in self.labels
        ]
        self.count()

    def count(self, clusters: int = 0) -> None:
        """Rebuild the counts of clusters as they are numbered, at least so many."""
        self.m = [
            np.bincount(label, minlength=clusters).astype(np.float64) for label in self.labels
        ]
        shape = (self.m[0].size, self.m[-1].size)
        self.sums = Sums.of_labels(self.relation, self.labels, shape)
        self.derive_tables()

    def derive_tables(self) -> None:
        """Renew the tables after a change of the sums and sizes."""
        self.n, self.N = self.sums.tables(self.relation.kind, self.m)

    def learn(self) -> None:
        """Put the hyperparameters where they make the partition most probable."""
        once = self.blocks_in_use()
        self.a, self.b = block_newton(self.n[once], self.N[once], self.a, self.b)
        self.alpha = [
            crp_concentration(int((m > 0).sum()), size, alpha)
            for m, size, alpha in zip(self.m, self.relation.sizes, self.alpha, strict=True)
        ]

    def log_joint(self) -> float:
        """Return log p(X, z) at these hyperparameters."""
        once = self.blocks_in_use()
        crp = sum(
            crp_log_probability(m[m > 0], alpha)
            for m, alpha in zip(self.m, self.alpha, strict=True)
        )
        return block_log_likelihood(self.n[once], self.N[once], self.a, self.b) + crp

    def blocks_in_use(self) -> np.ndarray:
        """Return which entries of the tables are blocks of clusters in use, each block once."""
        used = np.outer(self.m[0] > 0, self.m[-1] > 0)
        return used & each_block_once(self.relation.kind, used.shape)

    def sweep(self, uniform: Floats, most: tuple[int, ...] | None = None) -> float:
        """Draw every label once by the uniform numbers, or take the best where they are negative.

        Makes room where clusters run out, up to ``most`` clusters of each domain; returns the
        sum of the log normalisers.
        """
        total, sizes = 0.0, self.relation.sizes
        stretches = np.linspace([0] * len(sizes), sizes, STRETCHES + 1).astype(int)
        for start, stop in pairwise(stretches):
            for d in range(len(sizes)):
                at, offset = start[d], sum(sizes[:d])
                while at < stop[d]:
                    growing = self.make_room(d, None if most is None else most[d])
                    at, part = self._visit(d, uniform[offset:], at, stop[d], growing)
                    total += part
        return total

    def _visit(
        self, d: int, uniform: Floats, start: int, stop: int, growing: bool
    ) -> tuple[int, float]:
        """Visit objects of one domain until ``stop``, or until a growing one lacks room."""
        chains = [gibbs.Chain(self.domain(d), label) for d, label in enumerate(self.labels)]
        blocks = self.blocks(d)
        if self.relation.one_domain:
            code = self.relation.code
            return gibbs.sweep_one_domain(code, chains[0], blocks, uniform, start, stop, growing)
        result = gibbs.sweep_stretch(
            chains[d], chains[1 - d], blocks, uniform, start, stop, growing
        )
        if d == 1:
            self.n, self.N = np.ascontiguousarray(blocks.n.T), np.ascontiguousarray(blocks.N.T)
        return result

    def copy(self) -> "Partition":
        """Return a partition that shares no labels with this one."""
        labels = [label.copy() for label in self.labels]
        return Partition(self.relation, labels, self.a, self.b, list(self.alpha))

    def adopt(self, other: "Partition") -> None:
        """Become the other partition of the same relation."""
        self.labels, self.a, self.b, self.alpha = other.labels, other.a, other.b, other.alpha
        self.recount()

    def blocks(self, d: int) -> Blocks:
        """Return the tables as domain ``d`` sees them; shared by all blocks, the prior is one."""
        tables = (self.n, self.N, np.full(self.n.shape, self.a), np.full(self.n.shape, self.b))
        return Blocks(*(table if d == 0 else np.ascontiguousarray(table.T) for table in tables))

    def make_room(self, d: int, most: int | None) -> bool:
        """Give domain ``d`` an empty cluster if it has none; return whether it may grow."""
        K = self.m[d].size
        if most is not None and most <= K:
            return False
        if (self.m[d] > 0).all():
            room = ROOM if most is None else min(ROOM, most - K)
            pad = [(0, 0), (0, 0)]
            for axis in (0, 1) if self.relation.one_domain else (d,):
                pad[axis] = (0, room)
            self.m[d] = np.pad(self.m[d], (0, room))
            self.n, self.N = np.pad(self.n, pad), np.pad(self.N, pad)
        return True

    def domain(self, d: int) -> Domain:
        """Return domain ``d`` as the kernels take it; it has no memberships."""
        relation = self.relation
        order = np.arange(relation.sizes[d], dtype=np.int32)
        own = (relation.self_link, relation.self_seen)
        none = np.zeros((0, 0))
        label, m, alpha = self.labels[d], self.m[d], self.alpha[d]
        return Domain(relation.places[d], *own, order, none, label, m, alpha)
