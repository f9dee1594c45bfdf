"""Memberships as they travel: a small number where sure, else what is not 0."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coblock.kernels import Floats, Indices
from coblock.kernels.memberships import sure_clusters


@dataclass(frozen=True, slots=True)
class Rows:
    """Memberships of some objects."""

    clusters: int
    sure: NDArray[np.signedinteger]  # the cluster of a decided object, -1 for another
    start: NDArray[np.int32]  # of the others, in ``cluster`` and ``value``
    cluster: NDArray[np.integer]
    value: Floats

    @property
    def nbytes(self) -> int:
        """Bytes that travel."""
        return self.sure.nbytes + self.start.nbytes + self.cluster.nbytes + self.value.nbytes


def of_labels(labels: Indices, clusters: int) -> Rows:
    """Return the memberships of objects that are all sure."""
    sure = labels.astype(_small(clusters))
    return Rows(clusters, sure, np.zeros(1, np.int32), np.zeros(0, np.int8), np.zeros(0))


def packed(q: Floats) -> Rows:
    """Return memberships without what is 0."""
    clusters = q.shape[1]
    sure = sure_clusters(np.ascontiguousarray(q))
    unsure = q[sure < 0]
    row, cluster = np.nonzero(unsure)
    start = np.concatenate(([0], np.cumsum(np.bincount(row, minlength=len(unsure)))))
    small = _small(clusters)
    value = unsure[row, cluster]
    return Rows(clusters, sure.astype(small), start.astype(np.int32), cluster.astype(small), value)


def unpacked(rows: Rows) -> Floats:
    """Return the memberships as a table."""
    q = np.zeros((rows.sure.size, rows.clusters))
    decided = np.flatnonzero(rows.sure >= 0)
    q[decided, rows.sure[decided]] = 1.0
    write_unsure(rows, np.arange(rows.sure.size), q)
    return q


def write_unsure(rows: Rows, objects: NDArray[np.integer], q: Floats) -> None:
    """Write the memberships of the objects that are not sure into the table of everybody."""
    unsure = objects[rows.sure < 0]
    if unsure.size:
        q[unsure] = 0.0
        q[np.repeat(unsure, np.diff(rows.start)), rows.cluster] = rows.value


def shortened(objects: Indices) -> Indices | range:
    """Return neighbours as first and last."""
    if objects.size and int(objects[-1]) - int(objects[0]) + 1 == objects.size:
        return range(int(objects[0]), int(objects[-1]) + 1)  # they ascend
    return objects


def spelled_out(objects: Indices | range) -> Indices:
    """Return what was shortened, as the kernels take it."""
    return np.require(objects, dtype=np.int32, requirements="W")


def _small(clusters: int) -> type[np.signedinteger]:
    """Return the smallest type that holds -1 and all clusters."""
    for kind in (np.int8, np.int16):
        if clusters <= np.iinfo(kind).max:
            return kind
    return np.int32
