"""Initial labels for several relations: singular vectors of their unfoldings (RELATIONS 16)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.extmath import randomized_svd

from coblock.inference.settings import SEARCH
from coblock.inference.start import k_means_labels, thread_pools
from coblock.kernels import Floats, Indices
from coblock.model.dataset import Dataset, Table


def spectral_points(data: Dataset, d: int, vectors: int, seed: int) -> NDArray[Any]:
    """Return scaled singular vectors of the objects of domain ``d``.

    Each place of each relation that the domain fills gives a matrix: objects by the tuples of the
    other places that occur. They are divided by their largest singular value and set side by side.
    One thread is used, so that the bits do not depend on the number of threads.
    """
    parts = [
        _normalised(matrix, seed)
        for table in data.tables
        for p, domain in enumerate(table.domains)
        if domain == d and (matrix := unfold(table, p, data.sizes[d])).nnz
    ]
    if not parts:
        return np.zeros((data.sizes[d], 1))
    matrix = sparse.hstack(parts, format="csr")
    k = min(vectors, *matrix.shape)
    with thread_pools().limit(limits=1):
        left, values, _ = randomized_svd(matrix, k, random_state=seed)
    return left * values


def unfold(table: Table, p: int, size: int) -> sparse.csr_array:
    """Return the stored values of a relation, objects at place ``p`` by tuples at the others."""
    cells, values = table.cells, _centred(table)
    if table.symmetric and p < 2:
        turned = cells.copy()
        turned[:, [0, 1]] = turned[:, [1, 0]]
        apart = cells[:, 0] != cells[:, 1]
        cells = np.concatenate((cells, turned[apart]))
        values = np.concatenate((values, values[apart]))
    others = np.delete(cells, p, axis=1).astype(np.int64)
    if table.likelihood.name == "categorical":
        others = np.column_stack((others, values.astype(np.int64)))
        values = np.ones(len(values))
    if others.shape[1]:
        _, column = np.unique(others, axis=0, return_inverse=True)
    else:
        column = np.zeros(len(cells), np.int64)
    shape = (size, int(column.max(initial=-1)) + 1)
    return sparse.csr_array((values, (cells[:, p], column.ravel())), shape=shape)


def _centred(table: Table) -> Floats:
    """Return the values of the stored cells; real ones less their mean."""
    if table.likelihood.name == "normal" and table.values.size:
        return table.values - table.values.mean()
    return table.values


def _normalised(matrix: sparse.csr_array, seed: int) -> sparse.csr_array:
    """Return the matrix with large degrees made smaller, divided by its largest singular value."""
    size = abs(matrix)
    scales = []
    for axis in (1, 0):
        degree = np.asarray(size.sum(axis=axis)).ravel()
        scales.append(1.0 / np.sqrt(np.maximum(degree + degree.mean(), 1e-12)))
    scaled = sparse.diags_array(scales[0]) @ matrix @ sparse.diags_array(scales[1])
    with thread_pools().limit(limits=1):
        _, values, _ = randomized_svd(scaled, 1, random_state=seed)
    return sparse.csr_array(scaled / max(values[0], 1e-12))


def start_labels(points: list[NDArray[Any]], clusters: int, seed: int) -> list[Indices]:
    """Return k-means labels of all domains, so many clusters of each at most."""
    labels = []
    with thread_pools().limit(limits=1):
        for each in points:
            limit = max(
                -(-len(each) // SEARCH.members_per_cluster), min(len(each), SEARCH.small_start)
            )
            K = min(clusters, limit)
            labels.append(k_means_labels(np.ascontiguousarray(each[:, :K]), K, seed))
    return labels
