"""Where inference starts from: random memberships, spectral labels, given labels (MODEL 14)."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.utils import check_random_state
from threadpoolctl import ThreadpoolController

from coblock.inference.settings import SEARCH
from coblock.kernels import Floats, Incidence, Indices, spectral
from coblock.kernels.spectral import LinkScales
from coblock.model.dataset import Dataset
from coblock.model.partition import numbered
from coblock.model.relation import BinaryRelation, RelationData

POWER_ITERATIONS = 5
OVERSAMPLES = 10  # singular vectors beyond those that are wanted
CHUNK_BYTES = 128  # bytes per object of the vectors that are multiplied together
LEAST_DENSITY = 1e-12  # avoids a division by 0
SINGLE_PRECISION_FROM = 50_000  # objects; single precision is enough to separate clusters,
SINGLE_RESULT_FROM = 10_000  # and from so many objects in the result
MOST_DISTANCES = 3_000_000  # of points from centres in a pass; k-means takes samples beyond
DISTINCT_CHUNK = 256  # points compared at a time
PRODUCT_PARTS = 16  # of a product with the links, for threads


# Returns the results of a function for all items, in their order; threads may share them.
Map: TypeAlias = Callable[[Callable[[Any], Any], Iterable[Any]], list[Any]]


def serial_map(function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    """Return the results for all items, one after another."""
    return [function(item) for item in items]


class Products(Protocol):
    """A matrix that is given by its products with dense ones."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""

    def product(self, d: int, block: NDArray[Any]) -> NDArray[Any]:
        """Return the product with ``block``, transposed where ``d`` is 1."""


@dataclass(frozen=True, slots=True)
class NormalisedLinks:
    """Links divided by the square root of the degrees of both objects; no value is stored.

    The mean degree is added to all degrees, so that small ones do not dominate. Unseen cells
    have the value that is expected from the degrees of both objects.
    """

    shape: tuple[int, int]
    incidence: tuple[Incidence, Incidence]
    scales: tuple[LinkScales, LinkScales]
    density: float
    run: Map

    @classmethod
    def from_relation(cls, relation: BinaryRelation, run: Map = serial_map) -> "NormalisedLinks":
        """Return the normalised links of a relation; products are shared by ``run``."""
        shape, density = relation.shape, max(relation.density, LEAST_DENSITY)
        incidence = (relation.incidence[0][0], relation.incidence[-1][-1])
        kind = number_type(shape)
        rates = [
            link_rates(*cell_counts(cells), shape[1 - d], kind) for d, cells in enumerate(incidence)
        ]
        scales = []
        for d, cells in enumerate(incidence):
            degree = expected_degrees(cells, rates[d], rates[1 - d], density)
            scales.append(LinkScales(degree_scales(degree).astype(kind), rates[d]))
        return cls(shape, incidence, (scales[0], scales[1]), density, run)

    def product(self, d: int, block: NDArray[Any]) -> NDArray[Any]:
        """Return the product with ``block``, transposed where ``d`` is 1."""
        cells, own, others = self.incidence[d], self.scales[d], self.scales[1 - d]
        out = np.empty((self.shape[d], block.shape[1]), dtype=block.dtype)

        def multiply(part: tuple[int, int]) -> None:
            rows, starts = slice(*part), slice(part[0], part[1] + 1)
            some = cells._replace(
                link_start=cells.link_start[starts], unseen_start=cells.unseen_start[starts]
            )
            scales = LinkScales(own.scale[rows], own.rate[rows])
            spectral.multiply(some, scales, others, self.density, block, out[rows])

        shares = np.linspace(0, cells.link.size, PRODUCT_PARTS + 1)[1:-1]
        bounds = np.unique([0, *np.searchsorted(cells.link_start, shares), self.shape[d]])
        self.run(multiply, pairwise(bounds.tolist()))
        return out


def scaled_singular_vectors(links: Products, k: int, seed: int) -> list[NDArray[Any]]:
    """Return the first ``k`` left and right singular vectors, multiplied by their values.

    The randomised method of Halko, Martinsson and Tropp. The vectors of the smaller side are
    kept between products and orthogonalised; those of the larger side follow from them.
    """
    rows, columns = links.shape
    small = 0 if rows < columns else 1
    size = (min(rows, columns), min(k + OVERSAMPLES, rows, columns))
    Q = check_random_state(seed).normal(size=size).astype(number_type(links.shape), copy=False)
    for _ in range(POWER_ITERATIONS):
        Q = linalg.qr(_gram_product(links, small, Q), mode="economic", overwrite_a=True)[0]
    Y = _gram_product(links, small, Q)
    W, S = _rotations(Q.T @ Y, Y.T @ Y)
    of_few, C = Y @ W[:, :k], Q @ (W * S)[:, :k]
    del Q, Y
    many = max(rows, columns)
    of_many = np.empty((many, C.shape[1]), np.float32 if many > SINGLE_RESULT_FROM else C.dtype)
    for some in _chunks(C):
        of_many[:, some] = links.product(1 - small, np.ascontiguousarray(C[:, some]))
    return [of_few, of_many] if small == 0 else [of_many, of_few]


def _rotations(inner: NDArray[Any], squares: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return W and S so that A Q W are singular vectors, Y W those of A' times their values S.

    For Y = A'AQ, ``inner`` is Q'Y and ``squares`` is Y'Y. Values below the precision of the
    numbers count as 0.
    """
    kind = np.finfo(inner.dtype)
    values, W = np.linalg.eigh(inner.astype(np.float64))
    least = max(values.size * kind.eps * values[-1], kind.tiny)
    W /= np.sqrt(np.maximum(values, least))  # A Q W is orthonormal now
    values, E = np.linalg.eigh(W.T @ squares @ W)
    S = np.sqrt(np.maximum(values[::-1], 0.0))
    return (W @ E[:, ::-1]).astype(inner.dtype), S.astype(inner.dtype)


def _gram_product(links: Products, small: int, block: NDArray[Any]) -> NDArray[Any]:
    """Return the product with the matrix and its transpose, on the smaller side.

    It is computed a few vectors at a time: those of the larger side need the most memory.
    """
    out = np.empty_like(block, order="F")  # as LAPACK has it
    for some in _chunks(block):
        larger = links.product(1 - small, np.ascontiguousarray(block[:, some]))
        out[:, some] = links.product(small, larger)
    return out


def _chunks(block: NDArray[Any]) -> Iterator[slice]:
    vectors = CHUNK_BYTES // block.itemsize
    for first in range(0, block.shape[1], vectors):
        yield slice(first, first + vectors)


def link_product(
    cells: Incidence, own: LinkScales, others: LinkScales, density: float, block: NDArray[Any]
) -> NDArray[Any]:
    """Return the product of the normalised links of some objects and a dense block."""
    out = np.empty((cells.link_start.size - 1, block.shape[1]), dtype=block.dtype)
    spectral.multiply(cells, own, others, density, block, out)
    return out


def expected_degrees(
    cells: Incidence, rate: NDArray[Any], rate_other: NDArray[Any], density: float
) -> Floats:
    """Return the links of objects plus the expected value of their unseen cells."""
    degree = np.zeros(cells.link_start.size - 1)
    spectral.add_degrees(cells, rate, rate_other, density, degree)
    return degree


def cell_counts(cells: Incidence) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the numbers of links and of unseen cells of each object."""
    return np.diff(cells.link_start), np.diff(cells.unseen_start)


def link_rates(
    links: NDArray[Any], unseen: NDArray[Any], others: int, kind: type[np.floating[Any]]
) -> NDArray[Any]:
    """Return the links of objects per observed cell."""
    return (links / np.maximum(others - unseen, 1.0)).astype(kind)


def degree_scales(degree: Floats) -> Floats:
    """Return the factors of the cells of objects that make large degrees count less."""
    return 1.0 / np.sqrt(np.maximum(degree + degree.mean(), 1e-12))


def number_type(shape: tuple[int, int]) -> type[np.floating[Any]]:
    """Return the floating-point type of a spectral start."""
    return np.float32 if max(shape) > SINGLE_PRECISION_FROM else np.float64


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
    points: list[NDArray[Any]]  # of rows and of columns
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
            points = scaled_singular_vectors(links, min(clusters, *relation.shape), seed)
        return cls(relation, points, seed, run)

    def labels(self, clusters: tuple[int, ...]) -> list[Indices]:
        """Return k-means clusters of the vectors, so many of each domain.

        As many vectors are used as there are clusters: weak structure is lost among more.
        """
        sizes = self.relation.sizes
        limits = [
            max(-(-size // SEARCH.members_per_cluster), min(size, SEARCH.small_start))
            for size in sizes
        ]
        clusters = tuple(min(K, limit) for K, limit in zip(clusters, limits, strict=True))
        points = [vectors[:, : max(clusters)] for vectors in self.points]
        if self.relation.repeated and not self.relation.symmetric:
            points = [np.hstack(points)]
        with thread_pools().limit(limits=1):
            pairs = zip(points, clusters, strict=False)
            return self.run(lambda pair: k_means_labels(pair[0], pair[1], self.seed), pairs)


def k_means_labels(points: NDArray[Any], clusters: int, seed: int) -> Indices:
    """Return k-means labels of points; no more clusters than distinct points."""
    if points.shape[0] < SINGLE_PRECISION_FROM and points.shape[0] * clusters < MOST_DISTANCES:
        K = _distinct(points, clusters)
        method = KMeans(K, n_init=1, random_state=seed)
    else:
        method = MiniBatchKMeans(clusters, n_init=1, random_state=seed)
    found = method.fit_predict(points)
    return numbered([found])[0]


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
    for label in labels:
        K = int(label.max()) + 1
        q = np.full((label.size, K), (1.0 - certainty) / K)
        q[np.arange(label.size), label] += certainty
        memberships.append(q)
    return memberships


def most_probable(memberships: list[Floats]) -> list[Indices]:
    """Return the most probable cluster of each object, renumbered so that all are in use."""
    return numbered([q.argmax(axis=1) for q in memberships])
