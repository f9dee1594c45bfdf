"""Singular vectors of the normalised links, in tables of some objects each (MODEL 14)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from sklearn.utils import check_random_state

from coblock.kernels import Floats, Incidence, spectral
from coblock.kernels.spectral import LinkScales
from coblock.model.relation import BinaryRelation
from coblock.model.sums import tree_sum

POWER_ITERATIONS = 5
OVERSAMPLES = 10  # singular vectors beyond those that are wanted
VECTOR_CHUNK = 1 << 17  # objects whose vectors are one table
CHUNK_BYTES = 128  # bytes per object of the vectors that are multiplied together
LEAST_DENSITY = 1e-12  # avoids a division by 0
SINGLE_PRECISION_FROM = 50_000  # objects; single precision is enough to separate clusters,
SINGLE_RESULT_FROM = 10_000  # and from so many objects in the result
PRODUCT_PARTS = 8  # of a product with the links, for threads; each reads all vectors


# Returns the results of a function for all items, in their order; threads may share them.
Map: TypeAlias = Callable[[Callable[[Any], Any], Iterable[Any]], list[Any]]


def serial_map(function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    """Return the results for all items, one after another."""
    return [function(item) for item in items]


class Products(Protocol):
    """A matrix that is given by its products with blocks of vectors, and where they are computed.

    A block, a table of the vectors of some objects, or anything made of them is an array in this
    process, or a task on a cluster.
    """

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result of a function, or the task that has it."""

    def product(self, d: int, block: Any) -> Any:
        """Return the product with ``block``, transposed where ``d`` is 1."""

    def join_labels(self, size: int, clusters: int, tables: list[Any]) -> Any:
        """Return labels below ``clusters`` of all objects, as the engine keeps them."""


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

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result of a function."""
        return function(*arguments)

    def join_labels(self, size: int, clusters: int, tables: list[Any]) -> Any:
        """Return the labels of all objects as one array."""
        labels = np.concatenate(tables)
        assert labels.size == size
        assert labels.max(initial=-1) < clusters
        return labels


def scaled_singular_vectors(links: Products, k: int, seed: int) -> list[list[list[Any]]]:
    """Return the first ``k`` left and right singular vectors, multiplied by their values.

    The randomised method of Halko, Martinsson and Tropp. The vectors of the smaller side are
    kept between products and orthogonalised; those of the larger side follow from them. Each side
    is a list of tables, of consecutive objects, and each table a list of parts side by side.
    """
    call, small = links.call, 0 if links.shape[0] < links.shape[1] else 1
    sides = [vector_chunks(links.shape[d]) for d in (small, 1 - small)]
    kind, many = number_type(links.shape), max(links.shape)
    width = min(k + OVERSAMPLES, *links.shape)
    Q = [call(random_table, seed + c, len(some), width, kind) for c, some in enumerate(sides[0])]
    for _ in range(POWER_ITERATIONS):
        Y = _gram_product(links, small, Q, sides[0], _groups(width, kind))
        del Q  # as large as the new one
        Q = _orthonormal(call, Y)
    Y = _gram_product(links, small, Q, sides[0], _groups(width, kind))
    pairs = zip(Q, Y, strict=True)
    rotations = call(_rotations, [call(inner_products, *pair) for pair in pairs], k)
    of_few = [[call(rotate, parts, rotations)] for parts in Y]
    C = [call(rotate_and_scale, table, rotations) for table in Q]
    del Q, Y
    kind_of_many = np.float32 if many > SINGLE_RESULT_FROM else kind
    of_many: list[list[Any]] = [[] for _ in sides[1]]
    for some in _groups(min(k, width), kind):
        product = links.product(1 - small, call(join_columns, C, some))
        for parts, objects in zip(of_many, sides[1], strict=True):
            parts.append(call(take_rows, product, objects, kind_of_many))
    return [of_few, of_many] if small == 0 else [of_many, of_few]


def vector_chunks(objects: int) -> list[range]:
    """Return the objects of each table of vectors; the data alone fix them."""
    tables = -(-objects // VECTOR_CHUNK)
    size = -(-objects // tables)
    return [range(at, min(at + size, objects)) for at in range(0, objects, size)]


def whole_table(tables: list[list[NDArray[Any]]]) -> NDArray[Any]:
    """Return the vectors of all objects as one table."""
    return np.vstack([np.hstack(parts) for parts in tables])


def random_table(seed: int, objects: int, width: int, kind: type[Any]) -> NDArray[Any]:
    """Return a table of normal numbers."""
    return check_random_state(seed).normal(size=(objects, width)).astype(kind, copy=False)


def join_columns(tables: list[NDArray[Any]], some: slice) -> NDArray[Any]:
    """Return some vectors of all objects, those of each object side by side."""
    return np.ascontiguousarray(np.concatenate([table[:, some] for table in tables]))


def take_rows(block: NDArray[Any], objects: range, kind: type[Any]) -> NDArray[Any]:
    """Return the vectors of consecutive objects."""
    return block[objects.start : objects.stop].astype(kind, copy=False)


def side_by_side(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """Return one table, as LAPACK has it."""
    return np.asfortranarray(np.hstack(parts))


def orthogonalise(parts: list[NDArray[Any]]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return orthonormal vectors of some objects, and their factors."""
    Q, R = linalg.qr(side_by_side(parts), mode="economic", overwrite_a=True)
    return Q, R


def join_factors(factors: list[NDArray[Any]]) -> list[NDArray[Any]]:
    """Return what the vectors of each table are multiplied by to be orthonormal over all."""
    joined = linalg.qr(np.vstack(factors), mode="economic")[0]
    return np.split(joined, np.cumsum([R.shape[0] for R in factors[:-1]]))


def apply_factor(table: NDArray[Any], factors: list[NDArray[Any]], c: int) -> NDArray[Any]:
    """Return the vectors of a table multiplied by the factors of all."""
    return table @ factors[c]


def inner_products(
    table: NDArray[Any], parts: list[NDArray[Any]]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return Q'Y and Y'Y of some objects."""
    Y = side_by_side(parts)
    return table.T @ Y, Y.T @ Y


def rotate(parts: list[NDArray[Any]], rotations: tuple[NDArray[Any], NDArray[Any]]) -> NDArray[Any]:
    """Return the singular vectors of some objects of the smaller side, times their values."""
    return side_by_side(parts) @ rotations[0]


def rotate_and_scale(
    table: NDArray[Any], rotations: tuple[NDArray[Any], NDArray[Any]]
) -> NDArray[Any]:
    """Return the vectors whose products are those of the larger side."""
    return table @ rotations[1]


def _orthonormal(call: Callable[..., Any], tables: list[Any]) -> list[Any]:
    """Return orthonormal vectors that span the same; QR of each table, then of their factors."""
    pairs = [call(orthogonalise, parts) for parts in tables]
    found = [call(itemgetter(0), pair) for pair in pairs]
    if len(tables) > 1:
        factors = call(join_factors, [call(itemgetter(1), pair) for pair in pairs])
        for c, table in enumerate(found):
            found[c] = call(apply_factor, table, factors, c)
    return found


def _rotations(
    terms: list[tuple[NDArray[Any], NDArray[Any]]], k: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return W and WS, k columns of each, so that A Q W are singular vectors with the values S.

    For Y = A'AQ the terms are Q'Y and Y'Y of each table; Y W are the vectors of the other side
    times S. Values below the precision of the numbers count as 0.
    """
    inner, squares = map(tree_sum, zip(*terms, strict=True))
    kind = np.finfo(inner.dtype)
    values, W = np.linalg.eigh(inner.astype(np.float64))
    least = max(values.size * kind.eps * values[-1], kind.tiny)
    W /= np.sqrt(np.maximum(values, least))  # A Q W is orthonormal now
    values, E = np.linalg.eigh(W.T @ squares @ W)
    S = np.sqrt(np.maximum(values[::-1], 0.0)).astype(inner.dtype)
    W = (W @ E[:, ::-1]).astype(inner.dtype)
    return W[:, :k], (W * S)[:, :k]


def _gram_product(
    links: Products, small: int, tables: list[Any], chunks: list[range], groups: list[slice]
) -> list[list[Any]]:
    """Return the product with the matrix and its transpose, on the smaller side.

    It is computed a few vectors at a time: those of the larger side need the most memory.
    """
    out: list[list[Any]] = [[] for _ in chunks]
    for some in groups:
        larger = links.product(1 - small, links.call(join_columns, tables, some))
        product = links.product(small, larger)
        for parts, objects in zip(out, chunks, strict=True):
            parts.append(links.call(take_rows, product, objects, number_type(links.shape)))
    return out


def _groups(width: int, kind: type[np.floating[Any]]) -> list[slice]:
    """Return the vectors that are multiplied together."""
    vectors = CHUNK_BYTES // np.dtype(kind).itemsize
    return [slice(at, min(at + vectors, width)) for at in range(0, width, vectors)]


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
