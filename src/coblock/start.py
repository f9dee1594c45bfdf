"""Where inference starts from: random memberships, spectral labels, given labels (MODEL 14)."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.utils.extmath import randomized_svd
from threadpoolctl import threadpool_limits

from coblock.kernels import Floats, Indices, Place
from coblock.relation import Relation

FEWEST_MEMBERS = 3  # objects per cluster of the spectral start, on average
START_CLUSTERS = 40  # of the spectral start where the user names no number; moves do the rest
TRUNCATION = 20  # of the plain methods where the user names no number
SURE = 0.8  # membership of a labelled object in its cluster; the rest is spread evenly
POWER_ITERATIONS = 5
MANY_OBJECTS = 50_000  # from which k-means works on samples

Decompose: TypeAlias = Callable[[Relation, int, int], tuple[Floats, Floats, Floats]]


def truncation(
    relation: Relation, max_clusters: int | tuple[int, int] | None, default: int = TRUNCATION
) -> tuple[int, ...]:
    """Return the largest number of clusters of each domain, never more than its objects."""
    wanted = default if max_clusters is None else max_clusters
    pair = wanted if isinstance(wanted, tuple) else (wanted, wanted)
    return tuple(min(K, size) for K, size in zip(pair, relation.sizes, strict=False))


def random_memberships(
    relation: Relation, clusters: tuple[int, ...], rng: np.random.Generator
) -> list[Floats]:
    """Return the paper's start: uniform weights for every object and cluster, normalised."""
    weights = [rng.random((size, K)) for size, K in zip(relation.sizes, clusters, strict=True)]
    return [weight / weight.sum(axis=1, keepdims=True) for weight in weights]


def spectral_labels(
    relation: Relation,
    clusters: tuple[int, ...],
    rng: np.random.Generator,
    decompose: Decompose | None = None,
) -> list[Indices]:
    """Return k-means clusters of the scaled singular vectors of the normalised links.

    Links are divided by the root of the two ends' degrees, to which the mean degree is added so
    that small ones do not dominate. Unseen cells are not zeros: they hold what the degrees of
    their two ends lead to expect. One thread, so that bits do not depend on their number.
    ``decompose`` stands in for :func:`singular_vectors`.
    """
    seed = int(rng.integers(2**31))
    with threadpool_limits(1):
        clusters = tuple(
            min(K, -(-size // FEWEST_MEMBERS))
            for K, size in zip(clusters, relation.sizes, strict=True)
        )
        k = min(max(clusters), *relation.shape)
        U, S, V = (decompose or singular_vectors)(relation, k, seed)
        points = [U * S, V.T * S]
        if relation.kind == "directed":
            points = [np.hstack(points)]
        return [
            _k_means(part, K, seed)
            for part, K in zip(points[: len(relation.sizes)], clusters, strict=True)
        ]


def singular_vectors(relation: Relation, k: int, seed: int) -> tuple[Floats, Floats, Floats]:
    """Return the first ``k`` singular vectors and values of the normalised links."""
    matrix = normalised_links(relation)
    return randomized_svd(matrix, k, n_iter=POWER_ITERATIONS, random_state=seed)


def normalised_links(relation: Relation) -> sparse.csr_matrix:
    """Return the links, and what is expected of unseen cells, divided by the ends' degrees."""
    place, shape = relation.places[0][0], relation.shape
    filled = pattern(place.link_start, place.link, shape, number_type(shape))
    if relation.n_unseen:
        filled = filled + _expected_of_unseen(relation, filled)
    scale_row, scale_col = scales_of(filled.sum(axis=1)), scales_of(filled.sum(axis=0))
    filled.data *= np.repeat(scale_row, np.diff(filled.indptr))
    filled.data *= scale_col[filled.indices]
    return sparse.csr_matrix(filled)


def _expected_of_unseen(relation: Relation, links: sparse.csr_array) -> sparse.csr_array:
    """Return what the degrees of their two ends lead to expect of unseen cells."""
    rows, columns = relation.shape
    place = relation.places[0][0]
    unseen = pattern(place.unseen_start, place.unseen, relation.shape, links.dtype)
    rate_row = rates_of(links.sum(axis=1), unseen.sum(axis=1), columns)
    rate_col = rates_of(links.sum(axis=0), unseen.sum(axis=0), rows)
    unseen.data = expected(rate_row[_row_of(place)], rate_col[place.unseen], relation.density)
    return unseen


def number_type(shape: tuple[int, int]) -> type[np.floating[Any]]:
    """Return the type of numbers of a start; that of many objects needs no more digits."""
    return np.float32 if max(shape) > MANY_OBJECTS else np.float64  # memory counts


def pattern(start: Any, index: Any, shape: tuple[int, int], kind: Any) -> sparse.csr_array:
    """Return a matrix that is 1 at these cells."""
    return sparse.csr_array((np.ones(index.size, dtype=kind), index, start), shape=shape)


def rates_of(links: Any, unseen: Any, others: int) -> NDArray[Any]:
    """Return the links of objects per cell that is seen, of as many as there are others."""
    return links / np.maximum(others - unseen, 1.0)


def expected(rate: NDArray[Any], rate_other: NDArray[Any], density: float) -> NDArray[Any]:
    """Return what the rates of their two ends lead to expect of cells."""
    return np.clip(rate * rate_other / max(density, 1e-12), 0.0, 1.0)


def scales_of(degree: NDArray[Any]) -> NDArray[Any]:
    """Return by what the cells of objects are multiplied so that large degrees count less."""
    return 1.0 / np.sqrt(np.maximum(degree + degree.mean(), 1e-12))


def _row_of(place: Place) -> NDArray[np.int64]:
    """Return the row of each unseen cell."""
    return np.repeat(np.arange(place.unseen_start.size - 1), np.diff(place.unseen_start))


def _k_means(points: Floats, clusters: int, seed: int) -> Indices:
    """Return cluster labels of points; never more clusters than distinct points."""
    if points.shape[0] < MANY_OBJECTS:
        distinct = np.unique(points.round(9), axis=0).shape[0]
        method = KMeans(min(clusters, distinct), n_init=1, random_state=seed)
    else:
        method = MiniBatchKMeans(clusters, n_init=1, random_state=seed)
    found = method.fit_predict(points)
    return numbered([found])[0]


def memberships_of(labels: list[Indices], sure: float = SURE) -> list[Floats]:
    """Return memberships that are nearly sure of the labels."""
    memberships = []
    for label in labels:
        K = int(label.max()) + 1
        q = np.full((label.size, K), (1.0 - sure) / K)
        q[np.arange(label.size), label] += sure
        memberships.append(q)
    return memberships


def most_probable(memberships: list[Floats]) -> list[Indices]:
    """Return the most probable cluster of each object, renumbered so that all are in use."""
    return numbered([q.argmax(axis=1) for q in memberships])


def numbered(labels: list[Any]) -> list[Indices]:
    """Return labels 0 to K-1 for each domain, every one in use."""
    return [np.unique(label, return_inverse=True)[1].astype(np.int32) for label in labels]
