"""Where inference starts from: random memberships, spectral labels, given labels (MODEL 14)."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.utils import check_random_state
from threadpoolctl import ThreadpoolController

from coblock.inference.settings import SEARCH
from coblock.inference.singular import (
    SINGLE_PRECISION_FROM,
    Map,
    Products,
    scaled_singular_vectors,
    serial_map,
)
from coblock.kernels import Floats, Indices
from coblock.model.dataset import Dataset
from coblock.model.partition import numbered
from coblock.model.relation import RelationData

MOST_DISTANCES = 3_000_000  # of points from centres in a pass; k-means takes samples beyond
DISTINCT_CHUNK = 256  # points compared at a time


def truncation(
    relation: RelationData,
    max_clusters: int | tuple[int, int] | None,
    default: int = SEARCH.truncation,
) -> tuple[int, ...]:
    """Return the largest number of clusters of each domain, never more than its objects."""
    wanted = default if max_clusters is None else max_clusters
    pair = wanted if isinstance(wanted, tuple) else (wanted, wanted)
    return tuple(min(K, size) for K, size in zip(pair, relation.sizes, strict=False))


def random_memberships(
    relation: RelationData | Dataset, clusters: tuple[int, ...], rng: np.random.Generator
) -> list[Floats]:
    """Return the paper's start: uniform weights for every object and cluster, normalised."""
    weights = [rng.random((size, K)) for size, K in zip(relation.sizes, clusters, strict=True)]
    return [weight / weight.sum(axis=1, keepdims=True) for weight in weights]


@cache
def thread_pools() -> ThreadpoolController:
    """Return the threads of the linear algebra; they are looked up once, which takes 5 ms."""
    return ThreadpoolController()


@dataclass(frozen=True, slots=True)
class SpectralStart:
    """The scaled singular vectors of the normalised links, and labels found from them.

    The linear algebra uses one thread, so that the bits do not depend on the number of threads.
    """

    relation: RelationData
    links: Products
    vectors: list[list[list[Any]]]  # of rows and of columns, in tables of parts
    seed: int
    run: Map

    @classmethod
    def from_links(
        cls,
        relation: RelationData,
        links: Products,
        clusters: int,
        rng: np.random.Generator,
        run: Map = serial_map,
    ) -> "SpectralStart":
        """Compute the vectors for so many clusters at most."""
        seed = int(rng.integers(2**31))
        with thread_pools().limit(limits=1):
            vectors = scaled_singular_vectors(links, min(clusters, *relation.shape), seed)
        return cls(relation, links, vectors, seed, run)

    def labels(self, clusters: tuple[int, ...]) -> list[Any]:
        """Return k-means clusters of the vectors, so many of each domain.

        As many vectors are used as there are clusters: weak structure is lost among more.
        """
        sizes = self.relation.sizes
        limits = [
            max(-(-size // SEARCH.members_per_cluster), min(size, SEARCH.small_start))
            for size in sizes
        ]
        clusters = tuple(min(K, limit) for K, limit in zip(clusters, limits, strict=True))
        both = self.relation.repeated and not self.relation.symmetric
        domains = [zip(*self.vectors, strict=True)] if both else [zip(v) for v in self.vectors]

        def cluster(domain: tuple[Any, int, int]) -> Any:
            return self._cluster(*domain, max(clusters))

        with thread_pools().limit(limits=1):
            return numbered(self.run(cluster, zip(domains, sizes, clusters, strict=False)))

    def _cluster(self, vectors: Iterable[Any], size: int, clusters: int, width: int) -> Any:
        """Return k-means clusters of the objects of some tables, found from a sample of them.

        The sample is all objects of one table, or as many of several at random.
        """
        call, tables = self.links.call, list(vectors)
        step = len(tables)
        samples = [
            call(sample_points, places, width, step, self.seed + c)
            for c, places in enumerate(tables)
        ]
        method = call(k_means, samples, clusters, self.seed)
        if step == 1:
            found = [call(attrgetter("labels_"), method)]
        else:
            found = [call(nearest_centres, method, places, width) for places in tables]
        return self.links.join_labels(size, clusters, found)


def take_points(places: tuple[list[NDArray[Any]], ...], width: int) -> NDArray[Any]:
    """Return the first vectors of the objects of a table, at all places."""
    parts = [np.hstack(table)[:, :width] for table in places]
    return parts[0] if len(parts) == 1 else np.hstack(parts)


def sample_points(
    places: tuple[list[NDArray[Any]], ...], width: int, step: int, seed: int
) -> NDArray[Any]:
    """Return the same of one object in ``step``; they are drawn, since the order may be regular."""
    objects = places[0][0].shape[0]
    if step > 1:
        drawn = check_random_state(seed).permutation(objects)[: -(-objects // step)]
        drawn.sort()
        places = tuple([part[drawn] for part in table] for table in places)
    return take_points(places, width)


def nearest_centres(method: Any, places: tuple[list[NDArray[Any]], ...], width: int) -> Indices:
    """Return the cluster of each object of a table."""
    return method.predict(take_points(places, width))


def k_means(samples: list[NDArray[Any]], clusters: int, seed: int) -> Any:
    """Return k-means clusters of points; no more than there are distinct points."""
    points = np.concatenate(samples)
    if points.shape[0] < SINGLE_PRECISION_FROM and points.shape[0] * clusters < MOST_DISTANCES:
        K = _distinct(points, clusters)
        method = KMeans(K, n_init=1, random_state=seed)
    else:
        method = MiniBatchKMeans(clusters, n_init=1, random_state=seed)
    return method.fit(points)


def k_means_labels(points: NDArray[Any], clusters: int, seed: int) -> Indices:
    """Return the k-means clusters of points, numbered without gaps."""
    return numbered([k_means([points], clusters, seed).labels_])[0]


def _distinct(points: NDArray[Any], most: int) -> int:
    """Return how many distinct points there are, ``most`` where there are more."""
    found = points[:0]
    for first in range(0, points.shape[0], DISTINCT_CHUNK):
        found = np.unique(
            np.vstack((found, points[first : first + DISTINCT_CHUNK].round(9))), axis=0
        )
        if found.shape[0] >= most:
            return most
    return found.shape[0]


def soft_labels(labels: list[Indices], certainty: float = SEARCH.start_membership) -> list[Floats]:
    """Return memberships with this probability of the labels; the rest is spread evenly."""
    memberships = []
    for label in map(np.asarray, labels):
        K = int(label.max()) + 1
        q = np.full((label.size, K), (1.0 - certainty) / K)
        q[np.arange(label.size), label] += certainty
        memberships.append(q)
    return memberships


def most_probable(memberships: list[Floats]) -> list[Indices]:
    """Return the most probable cluster of each object, renumbered so that all are in use."""
    return numbered([q.argmax(axis=1) for q in memberships])
