"""Labels and memberships that may be stored outside of this process's memory.

A fit on a cluster does not keep an entry for each object in memory: its labels are
:class:`StoredLabels`, its memberships :class:`StoredMemberships`. The functions of this module take
these or arrays.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coblock.kernels import Floats, Indices


class StoredLabels(ABC):
    """Labels of one domain that are not in memory; they do not change."""

    size: int  # objects

    @abstractmethod
    def map(self, target: Indices) -> "StoredLabels":
        """Return labels in which each cluster has its number in ``target``."""

    @abstractmethod
    def count(self, clusters: int) -> NDArray[np.int64]:
        """Return the number of members of each cluster, of so many at least."""

    @abstractmethod
    def count_moved(self, before: Any) -> int:
        """Return how many objects had another label before; these may be an array."""

    @abstractmethod
    def split(self, chosen: list[tuple[int, int, Any]]) -> "StoredLabels":
        """Return labels after splits: a cluster, the number of its second side, the sides."""

    @abstractmethod
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Indices:
        """Return all labels."""

    def copy(self) -> "StoredLabels":
        """Return the same labels: they do not change."""
        return self


class StoredMemberships(ABC):
    """Memberships of one domain that are not in memory; they do not change."""

    shape: tuple[int, int]  # objects, clusters

    @abstractmethod
    def reorder(self, order: Indices) -> "StoredMemberships":
        """Return the memberships with the clusters in another order."""

    @abstractmethod
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Floats:
        """Return the table of all memberships."""


class Collected(Sequence[Any]):
    """Arrays of the domains; a stored one is read into memory when it is asked for."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[Any]) -> None:
        self._parts = list(parts)

    def __getitem__(self, d: Any) -> Any:
        if isinstance(d, slice):
            return [self[each] for each in range(*d.indices(len(self)))]
        if not isinstance(self._parts[d], np.ndarray):
            self._parts[d] = np.asarray(self._parts[d])
        return self._parts[d]

    def __len__(self) -> int:
        return len(self._parts)

    def __iter__(self) -> Iterator[Any]:
        return (self[d] for d in range(len(self)))

    def __reduce__(self) -> tuple[Any, ...]:
        return Collected, (list(self),)


def collected(parts: Sequence[Any]) -> Any:
    """Return arrays as they are; others as arrays that are collected when they are asked for."""
    return list(parts) if all(isinstance(p, np.ndarray) for p in parts) else Collected(parts)


def map_labels(label: Any, target: Indices) -> Any:
    """Return labels in which each cluster has its number in ``target``."""
    return label.map(target) if isinstance(label, StoredLabels) else target[label]


def count_labels(label: Any, clusters: int = 0) -> NDArray[np.int64]:
    """Return the number of members of each cluster, of so many at least."""
    if isinstance(label, StoredLabels):
        return label.count(clusters)
    return np.bincount(label, minlength=clusters)


def one_cluster(label: Any) -> Any:
    """Return labels that put the same objects in one cluster."""
    if isinstance(label, StoredLabels):
        return label.map(np.zeros(label.count(1).size, np.int32))
    return np.zeros_like(label)


def fraction_moved(before: list[Any], after: list[Any]) -> float:
    """Return the fraction of labels that differ, in the domain where it is larger."""
    fractions = []
    for old, new in zip(before, after, strict=True):
        if isinstance(new, StoredLabels):
            fractions.append(new.count_moved(old) / new.size)
        else:
            fractions.append(float((old != new).mean()))
    return max(fractions)


def split_labels(label: Any, chosen: list[tuple[int, int, Any]]) -> Any:
    """Return labels after splits: a cluster, the number of its second side, the sides.

    Arrays are changed in place; the sides are those of the members, ascending.
    """
    if isinstance(label, StoredLabels):
        return label.split(chosen)
    members = [np.flatnonzero(label == k) for k, _, _ in chosen]
    for some, (_, new, side) in zip(members, chosen, strict=True):
        label[some[side == 1]] = new
    return label


class HardMemberships(StoredMemberships):
    """Memberships of 1 in the clusters of stored labels."""

    def __init__(self, labels: StoredLabels, clusters: int) -> None:
        self.labels, self.shape = labels, (labels.size, clusters)

    def reorder(self, order: Indices) -> "HardMemberships":
        """Return the memberships with the clusters in another order."""
        return HardMemberships(self.labels.map(np.argsort(order).astype(np.int32)), order.size)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Floats:
        """Return the table of all memberships."""
        table = np.zeros(self.shape)
        table[np.arange(self.shape[0]), np.asarray(self.labels)] = 1.0
        return table
