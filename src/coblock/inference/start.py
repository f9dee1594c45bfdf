"""Where inference starts from: random memberships, spectral labels, given labels (MODEL 14)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans, MiniBatchKMeans
from threadpoolctl import threadpool_limits

from coblock.inference import spectral
from coblock.inference.spectral import NormalisedLinks, Products, scaled_singular_vectors
from coblock.kernels import Floats, Indices
from coblock.model.relation import Relation

FEWEST_MEMBERS = 3  # objects per cluster of the spectral start, on average
START_CLUSTERS = 40  # of the spectral start where the user names no number; moves do the rest
TRUNCATION = 20  # of the plain methods where the user names no number
SURE = 0.8  # membership of a labelled object in its cluster; the rest is spread evenly
BLOCK = 256  # points looked at together


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
    links: Products | None = None,
) -> list[Indices]:
    """Return k-means clusters of the scaled singular vectors of the normalised links.

    ``links`` stands in for the :class:`NormalisedLinks` of the relation. One thread, so that
    bits do not depend on their number.
    """
    seed = int(rng.integers(2**31))
    with threadpool_limits(1):
        clusters = tuple(
            min(K, -(-size // FEWEST_MEMBERS))
            for K, size in zip(clusters, relation.sizes, strict=True)
        )
        k = min(max(clusters), *relation.shape)
        points = scaled_singular_vectors(links or NormalisedLinks.of(relation), k, seed)
        if relation.kind == "directed":
            points = [np.hstack(points)]
        labels = []
        for K in clusters:
            labels.append(_k_means(points.pop(0), K, seed))  # popped: let go of when it is done
        return labels


def _k_means(points: NDArray[Any], clusters: int, seed: int) -> Indices:
    """Return cluster labels of points, which are lost; never more clusters than distinct points."""
    if points.shape[0] < spectral.MANY_OBJECTS:
        K = _distinct(points, clusters)
        method = KMeans(K, n_init=1, random_state=seed, copy_x=False)
    else:
        method = MiniBatchKMeans(clusters, n_init=1, random_state=seed)
    found = method.fit_predict(points)
    return numbered([found])[0]


def _distinct(points: NDArray[Any], most: int) -> int:
    """Return how many distinct points there are, ``most`` where there are more."""
    found = points[:0]
    for first in range(0, points.shape[0], BLOCK):
        found = np.unique(np.vstack((found, points[first : first + BLOCK].round(9))), axis=0)
        if found.shape[0] >= most:
            return most
    return found.shape[0]


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
