"""The spectral part of a start: singular vectors of the normalised links (MODEL 14)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from sklearn.utils import check_random_state

from coblock.kernels import Floats, Place, spectral
from coblock.kernels.spectral import Ends
from coblock.model.relation import Relation

POWER_ITERATIONS = 5
OVERSAMPLES = 10  # singular vectors beyond those that are wanted
AT_ONCE = 128  # bytes of an object in the vectors that are multiplied together
LEAST_DENSITY = 1e-12  # that is divided by
MANY_OBJECTS = 50_000  # from which a start needs fewer digits,
MANY_POINTS = 10_000  # and from which its result does


class Products(Protocol):
    """A matrix that is known by its products with dense ones."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""

    def product(self, d: int, block: NDArray[Any]) -> NDArray[Any]:
        """Return the product with ``block``, transposed where ``d`` is 1."""


@dataclass(frozen=True, slots=True)
class NormalisedLinks:
    """Links divided by the root of the two ends' degrees; no value of them is stored.

    The mean degree is added to all, so that small ones do not dominate. Unseen cells are not
    zeros: they hold what the degrees of their two ends lead to expect.
    """

    shape: tuple[int, int]
    places: tuple[Place, Place]
    ends: tuple[Ends, Ends]
    density: float

    @classmethod
    def of(cls, relation: Relation) -> "NormalisedLinks":
        """Return the normalised links of a relation."""
        shape, density = relation.shape, max(relation.density, LEAST_DENSITY)
        places = (relation.places[0][0], relation.places[-1][-1])
        kind = number_type(shape)
        rates = [rates_of(*counts_of(place), shape[1 - d], kind) for d, place in enumerate(places)]
        ends = []
        for d, place in enumerate(places):
            degree = degrees_of(place, rates[d], rates[1 - d], density)
            ends.append(Ends(scales_of(degree).astype(kind), rates[d]))
        return cls(shape, places, (ends[0], ends[1]), density)

    def product(self, d: int, block: NDArray[Any]) -> NDArray[Any]:
        """Return the product with ``block``, transposed where ``d`` is 1."""
        ends, others = self.ends[d], self.ends[1 - d]
        return product_of(self.places[d], ends, others, self.density, block)


def scaled_singular_vectors(links: Products, k: int, seed: int) -> list[NDArray[Any]]:
    """Return the first ``k`` left and right singular vectors, multiplied by their values.

    The randomised method of Halko, Martinsson and Tropp. What is kept between products, and
    made orthogonal, are vectors of the smaller side: those of the larger one follow from them.
    Single precision is enough to tell many objects apart.
    """
    rows, columns = links.shape
    small = 0 if rows < columns else 1
    size = (min(rows, columns), min(k + OVERSAMPLES, rows, columns))
    Q = check_random_state(seed).normal(size=size).astype(number_type(links.shape), copy=False)
    for _ in range(POWER_ITERATIONS):
        Q = linalg.qr(_there_and_back(links, small, Q), mode="economic", overwrite_a=True)[0]
    Y = _there_and_back(links, small, Q)
    W, S = _rotations(Q.T @ Y, Y.T @ Y)
    of_few, C = Y @ W[:, :k], Q @ (W * S)[:, :k]
    del Q, Y
    many = max(rows, columns)
    of_many = np.empty((many, C.shape[1]), np.float32 if many > MANY_POINTS else C.dtype)
    for some in _few_at_a_time(C):
        of_many[:, some] = links.product(1 - small, np.ascontiguousarray(C[:, some]))
    return [of_few, of_many] if small == 0 else [of_many, of_few]


def _rotations(inner: NDArray[Any], squares: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return W and S so that A Q W are singular vectors, Y W those of A' times their values S.

    Of the matrix A it is known what Y = A'AQ is: ``inner`` is Q'Y, ``squares`` is Y'Y. Values
    too small for the digits there are count as 0.
    """
    kind = np.finfo(inner.dtype)
    values, W = np.linalg.eigh(inner.astype(np.float64))
    least = max(values.size * kind.eps * values[-1], kind.tiny)
    W /= np.sqrt(np.maximum(values, least))  # A Q W is orthonormal now
    values, E = np.linalg.eigh(W.T @ squares @ W)
    S = np.sqrt(np.maximum(values[::-1], 0.0))
    return (W @ E[:, ::-1]).astype(inner.dtype), S.astype(inner.dtype)


def _there_and_back(links: Products, small: int, block: NDArray[Any]) -> NDArray[Any]:
    """Return the product with the matrix and its transpose, which ends on the smaller side.

    A few vectors at a time: those of the larger side are the largest array of a start.
    """
    out = np.empty_like(block, order="F")  # as LAPACK has it
    for some in _few_at_a_time(block):
        there = links.product(1 - small, np.ascontiguousarray(block[:, some]))
        out[:, some] = links.product(small, there)
    return out


def _few_at_a_time(block: NDArray[Any]) -> Iterator[slice]:
    vectors = AT_ONCE // block.itemsize
    for first in range(0, block.shape[1], vectors):
        yield slice(first, first + vectors)


def product_of(
    place: Place, ends: Ends, others: Ends, density: float, block: NDArray[Any]
) -> NDArray[Any]:
    """Return the product of the normalised links of some objects and a dense block."""
    out = np.empty((place.link_start.size - 1, block.shape[1]), dtype=block.dtype)
    spectral.multiply(place, ends, others, density, block, out)
    return out


def degrees_of(
    place: Place, rate: NDArray[Any], rate_other: NDArray[Any], density: float
) -> Floats:
    """Return the links of objects with what is expected of their unseen cells."""
    degree = np.zeros(place.link_start.size - 1)
    spectral.add_degrees(place, rate, rate_other, density, degree)
    return degree


def counts_of(place: Place) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return how many links, and unseen cells, each object has."""
    return np.diff(place.link_start), np.diff(place.unseen_start)


def rates_of(
    links: NDArray[Any], unseen: NDArray[Any], others: int, kind: type[np.floating[Any]]
) -> NDArray[Any]:
    """Return the links of objects per cell that is seen, of as many as there are others."""
    return (links / np.maximum(others - unseen, 1.0)).astype(kind)


def scales_of(degree: Floats) -> Floats:
    """Return by what the cells of objects are multiplied so that large degrees count less."""
    return 1.0 / np.sqrt(np.maximum(degree + degree.mean(), 1e-12))


def number_type(shape: tuple[int, int]) -> type[np.floating[Any]]:
    """Return the type of numbers of a start; that of many objects needs no more digits."""
    return np.float32 if max(shape) > MANY_OBJECTS else np.float64  # memory counts
