"""Labels of a fit on a cluster, in a temporary file of the client instead of its memory.

Workers have the labels of all objects in their replicas, which are lost with them. The file keeps
one or two bytes for each object, so that the fit survives the loss of all workers.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import Any, BinaryIO
from weakref import finalize

import numpy as np
from numpy.typing import NDArray

from coblock.distributed.sparse import LabelChanges
from coblock.distributed.tasks import ShardLayout
from coblock.kernels import Indices
from coblock.model.labels import StoredLabels

CHUNK = 1 << 20  # objects whose labels are in memory at a time


@dataclass(frozen=True, eq=False)
class LabelFile:
    """Labels of one domain in a temporary file, which disappears with this object."""

    file: BinaryIO
    kind: np.dtype[Any]
    size: int  # objects

    def __post_init__(self) -> None:
        """Close the file with this object: Python warns of files that nothing closes."""
        finalize(self, self.file.close)

    @classmethod
    def create(cls, size: int, clusters: int) -> "LabelFile":
        """Return an empty file for labels below ``clusters``."""
        kind = np.dtype(np.min_scalar_type(-max(clusters, 1)))
        return cls(TemporaryFile(), kind, size)

    def read(self, objects: range) -> NDArray[Any]:
        """Return the labels of consecutive objects."""
        self.file.seek(objects.start * self.kind.itemsize)
        found = np.frombuffer(self.file.read(len(objects) * self.kind.itemsize), self.kind)
        assert found.size == len(objects)
        return found

    def write(self, objects: range, labels: NDArray[Any]) -> None:
        """Write the labels of consecutive objects."""
        self.file.seek(objects.start * self.kind.itemsize)
        self.file.write(np.ascontiguousarray(labels, self.kind).data)


class SpooledLabels(StoredLabels):
    """Labels in a file; merged and renumbered clusters are kept as a table of new numbers."""

    def __init__(
        self,
        stored: LabelFile,
        sizes: NDArray[np.int64],
        target: Indices | None = None,
    ) -> None:
        self.stored = stored
        self.sizes = sizes  # members of each label in the file
        self.target = target  # the cluster of each label in the file; None: itself
        self.size = stored.size

    @classmethod
    def from_array(cls, labels: Any) -> "SpooledLabels":
        """Write labels to a file."""
        sizes = np.bincount(labels)
        stored = LabelFile.create(labels.size, sizes.size)
        stored.write(range(labels.size), labels)
        return cls(stored, sizes)

    def read(self, objects: range) -> NDArray[Any]:
        """Return the labels of consecutive objects."""
        found = self.stored.read(objects)
        return found if self.target is None else self.target[found]

    def chunks(self) -> Iterator[tuple[range, NDArray[Any]]]:
        """Yield all labels, those of a number of consecutive objects at a time."""
        for start in range(0, self.size, CHUNK):
            objects = range(start, min(start + CHUNK, self.size))
            yield objects, self.read(objects)

    def map(self, target: Indices) -> "SpooledLabels":
        """Return labels in which each cluster has its number in ``target``."""
        old = np.arange(self.sizes.size) if self.target is None else self.target
        numbers = np.maximum(target, 0).astype(np.int32)  # empty clusters may have none,
        numbers = numbers[np.minimum(old, numbers.size - 1)]  # or be beyond the last one
        same = np.array_equal(old, numbers)
        return self if same else SpooledLabels(self.stored, self.sizes, numbers)

    def map_from(self, before: Any) -> Indices | None:
        """Return the new number of each cluster of other labels, None if one was split since."""
        if not isinstance(before, SpooledLabels) or before.stored is not self.stored:
            return None
        used = self.sizes > 0
        every = np.arange(used.size)
        old, new = (every if x.target is None else x.target for x in (before, self))
        target = np.zeros(int(old[used].max(initial=0)) + 1, dtype=np.int32)
        target[old[used]] = new[used]
        return target if np.array_equal(target[old[used]], new[used]) else None

    def count(self, clusters: int) -> NDArray[np.int64]:
        """Return the number of members of each cluster, of so many at least."""
        target = np.arange(self.sizes.size) if self.target is None else self.target
        used = self.sizes > 0
        counted = np.bincount(target[used], self.sizes[used], minlength=clusters)
        return counted.astype(np.int64)

    def count_moved(self, before: Any) -> int:
        """Return how many objects had another label before."""
        (old_labels,) = keep_labels([before])
        pairs = ((old_labels.read(objects), labels) for objects, labels in self.chunks())
        return sum(int(np.count_nonzero(old != new)) for old, new in pairs)

    def split(self, chosen: list[tuple[int, int, Any]]) -> "SpooledLabels":
        """Return labels after splits: a cluster, the number of its second side, the sides."""
        clusters = max(new for _, new, _ in chosen) + 1
        second, sizes = np.arange(clusters, dtype=np.int32), np.zeros(clusters, np.int64)
        for k, new, _ in chosen:
            second[k] = new
        sides: ShardSides = chosen[0][2]
        stored = LabelFile.create(self.size, clusters)
        for objects, side in sides.in_order():
            label = self.read(objects)
            fresh = np.where(side == 1, second[label], label)
            stored.write(objects, fresh)
            sizes += np.bincount(fresh, minlength=clusters)
        return SpooledLabels(stored, sizes)

    def find_members(self, clusters: Indices, positions: NDArray[np.int64]) -> Indices:
        """Return the objects at these positions among the members of clusters, ascending."""
        found = np.empty(clusters.size, np.int32)
        seen = np.zeros(int(clusters.max(initial=0)) + 1, np.int64)
        for objects, labels in self.chunks():
            order = np.argsort(labels.astype(self.stored.kind, copy=False), kind="stable")
            sizes = np.bincount(labels, minlength=seen.size)
            at = positions - seen[clusters]
            here = np.flatnonzero((at >= 0) & (at < sizes[clusters]))
            first = np.cumsum(sizes) - sizes
            found[here] = objects.start + order[first[clusters[here]] + at[here]]
            seen += sizes[: seen.size]
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Indices:
        """Return all labels."""
        return self.read(range(self.size)).astype(dtype or np.int32)


@dataclass(frozen=True, slots=True)
class ShardSides:
    """The side of each object after splits, by shard."""

    layout: ShardLayout
    sides: list[NDArray[np.int8]]

    def in_order(self) -> Iterator[tuple[range, NDArray[np.int8]]]:
        """Yield consecutive objects and their sides."""
        for s, at, span in self.layout.positions():
            yield span, self.sides[s][at : at + len(span)]


class LabelWriter:
    """The labels that a sweep gives to the objects of one domain, batch after batch."""

    def __init__(self, before: SpooledLabels, clusters: int) -> None:
        self.before, self.done = before, 0
        self.stored = LabelFile.create(before.size, clusters)

    def write(self, objects: range, changes: LabelChanges) -> None:
        """Write the labels of the next objects."""
        labels = self.before.read(objects).astype(self.stored.kind)
        changes.apply(labels)
        self.stored.write(objects, labels)
        self.done = objects.stop

    def present(self) -> SpooledLabels:
        """Return the new labels of the objects so far, and those before of all others."""
        sizes = np.zeros(0, np.int64)
        for start in range(self.done, self.before.size, CHUNK):
            objects = range(start, min(start + CHUNK, self.before.size))
            self.stored.write(objects, self.before.read(objects))
        return SpooledLabels(self.stored, sizes)

    def finish(self, sizes: NDArray[Any]) -> SpooledLabels:
        """Return the new labels of all objects; ``sizes`` are those of the clusters."""
        assert self.done == self.before.size
        return SpooledLabels(self.stored, sizes.astype(np.int64))


def keep_labels(labels: list[Any]) -> list[Any]:
    """Return labels of each domain in files."""
    return [
        label if isinstance(label, SpooledLabels) else SpooledLabels.from_array(np.asarray(label))
        for label in labels
    ]
