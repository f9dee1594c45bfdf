"""Memberships of some or all objects: as they are sent, and as kernels read them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coblock.kernels import Floats, Indices
from coblock.kernels.memberships import hard_labels


@dataclass(frozen=True)
class SparseMemberships:
    """Memberships of some objects as they are sent: labels where hard, else nonzero entries."""

    clusters: int
    hard: NDArray[Any]  # (objects,) cluster of a hard assignment, -1 for a soft one
    start: NDArray[np.int64]  # (soft objects + 1,) into ``cluster`` and ``value``
    cluster: NDArray[Any]
    value: Floats

    @classmethod
    def from_labels(cls, labels: Indices, clusters: int) -> "SparseMemberships":
        """Return the memberships of hard labels."""
        hard = labels.astype(np.min_scalar_type(-clusters))
        return cls(clusters, hard, np.zeros(1, np.int64), np.zeros(0, np.int8), np.zeros(0))

    @classmethod
    def from_dense(cls, q: Floats) -> "SparseMemberships":
        """Return the memberships of a table (objects, clusters)."""
        kind, hard = np.min_scalar_type(-q.shape[1]), hard_labels(np.ascontiguousarray(q))
        soft = q[hard < 0]
        row, cluster = np.nonzero(soft)
        start = np.concatenate(([0], np.cumsum(np.bincount(row, minlength=len(soft)))))
        entries = (start.astype(np.int64), cluster.astype(kind), soft[row, cluster])
        return cls(q.shape[1], hard.astype(kind), *entries)

    @classmethod
    def concatenate(cls, parts: Sequence["SparseMemberships"]) -> "SparseMemberships":
        """Return the memberships of the objects of all parts."""
        ends = np.cumsum([0, *(part.value.size for part in parts)])
        start = [part.start[:-1] + end for part, end in zip(parts, ends[:-1], strict=True)]
        hard, cluster, value = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("hard", "cluster", "value")
        )
        return cls(parts[0].clusters, hard, np.concatenate([*start, ends[-1:]]), cluster, value)

    def rows(self, first: int, stop: int) -> "SparseMemberships":
        """Return the memberships of consecutive objects."""
        before = int(np.count_nonzero(self.hard[:first] < 0))
        last = before + int(np.count_nonzero(self.hard[first:stop] < 0))
        start = self.start[before : last + 1]
        entries = slice(int(start[0]), int(start[-1]))
        parts = (self.hard[first:stop], start - start[0], self.cluster[entries])
        return replace(
            self, hard=parts[0], start=parts[1], cluster=parts[2], value=self.value[entries]
        )

    def reorder(self, order: Indices) -> "SparseMemberships":
        """Return the memberships with the clusters in another order."""
        rank = np.append(np.argsort(order), -1).astype(self.hard.dtype)
        cluster = rank[self.cluster].astype(self.cluster.dtype)
        return replace(self, hard=rank[self.hard], cluster=cluster)

    def to_dense(self) -> Floats:
        """Return the memberships as a table (objects, clusters)."""
        return DomainReplica.from_sparse(self).dense(range(self.hard.size))

    @cached_property
    def unpacked(self) -> "DomainReplica":
        """The memberships as kernels read them, shared by the tasks of a worker."""
        return DomainReplica.from_sparse(self)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "unpacked"}


@dataclass(frozen=True, slots=True)
class LabelChanges:
    """New labels of consecutive objects: those of the objects that have moved."""

    moved: NDArray[np.uint8]  # a bit for each object
    label: NDArray[Any]  # of each object that has moved

    @classmethod
    def between(cls, old: Indices, new: Indices, clusters: int) -> "LabelChanges":
        """Return the changes from old to new labels, which are below ``clusters``."""
        moved = new != old
        return cls(np.packbits(moved), new[moved].astype(np.min_scalar_type(-clusters)))

    def apply(self, labels: NDArray[Any]) -> None:
        """Replace the old labels by the new ones."""
        labels[np.unpackbits(self.moved, count=labels.size).view(np.bool_)] = self.label


@dataclass(slots=True)
class DomainReplica:
    """Memberships of one domain, as kernels read them."""

    clusters: int
    hard: Indices  # -1 where soft
    q: Floats  # rows of hard objects are not valid; unwritten pages use no memory

    @classmethod
    def from_sparse(cls, memberships: SparseMemberships) -> "DomainReplica":
        """Return a replica of the memberships of all objects."""
        size, K = memberships.hard.size, memberships.clusters
        replica = cls(K, np.empty(size, np.int32), np.zeros((0, K)))
        replica.update(range(size), memberships)
        return replica

    def update(self, objects: range, memberships: SparseMemberships) -> None:
        """Write the memberships of some objects."""
        hard, cluster = memberships.hard, memberships.cluster
        self.hard[objects.start : objects.stop] = hard
        if cluster.size:
            if not len(self.q):
                self.q = np.zeros((self.hard.size, self.clusters))
            soft = objects.start + np.flatnonzero(hard < 0)
            self.q[soft] = 0.0
            self.q[np.repeat(soft, np.diff(memberships.start)), cluster] = memberships.value

    def renumber(self, target: Indices, clusters: int) -> None:
        """Give every cluster a new number; clusters of hard objects may get the same one."""
        self.clusters = clusters
        if np.array_equal(target, np.arange(target.size)):
            return
        if len(self.q):
            soft, q = np.flatnonzero(self.hard < 0), np.zeros((self.hard.size, clusters))
            q[soft[:, None], target] = self.q[soft]
            self.q = q
        self.hard = np.append(target, -1).astype(np.int32)[self.hard]

    def dense(self, objects: range) -> Floats:
        """Return the memberships of some objects as a table."""
        hard = self.hard[objects.start : objects.stop]
        q, rows = np.zeros((hard.size, self.clusters)), np.flatnonzero(hard >= 0)
        q[rows, hard[rows]] = 1.0
        if rows.size < hard.size:
            q[hard < 0] = self.q[objects.start : objects.stop][hard < 0]
        return q
