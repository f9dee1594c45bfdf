"""Generated relations: the shapes of data that are not available, and a series of growing size."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

GROUPS = 20  # planted clusters of rows and of columns
MEAN_DEGREE = 10  # links per object of the growing series


@dataclass(frozen=True)
class Shape:
    """Size and links of a relation of the paper that is not available."""

    title: str
    rows: int
    columns: int
    links: int


SHAPES = {
    "movielens10m": Shape("generated, MovieLens-10M's shape", 10_681, 69_878, 10_000_054),
    "netflix_rate1": Shape("generated, Netflix-rate1's shape", 480_189, 17_770, 4_617_990),
    "netflix_rate5": Shape("generated, Netflix-rate5's shape", 480_189, 17_770, 23_168_232),
}


def draw_shape(shape: Shape, seed: int) -> sparse.csr_array:
    """Draw planted blocks with about as many links as the shape has.

    The expected links of a block are its share of the cells times a Gamma weight; cells drawn
    twice are one link. No dense array is created.
    """
    rng = np.random.default_rng(seed)
    sides = [_groups(size, rng) for size in (shape.rows, shape.columns)]
    weight = rng.gamma(0.5, size=(len(sides[0]), len(sides[1])))
    cells = np.outer([len(g) for g in sides[0]], [len(g) for g in sides[1]])
    expected = shape.links * weight * cells / (weight * cells).sum()
    rows, columns = [], []
    for k, members in enumerate(sides[0]):
        for l, others in enumerate(sides[1]):
            most = int(0.5 * cells[k, l])  # at most half of the cells of a block are links
            count = min(int(rng.poisson(expected[k, l])), most)
            rows.append(members[rng.integers(members.size, size=count)])
            columns.append(others[rng.integers(others.size, size=count)])
    place = (np.concatenate(rows), np.concatenate(columns))
    ones = np.ones(place[0].size, dtype=np.int8)
    X = sparse.csr_array((ones, place), shape=(shape.rows, shape.columns))
    X.sum_duplicates()
    X.data[:] = 1
    return X


def draw_growth(size: int, seed: int) -> sparse.csr_array:
    """Draw a square relation of this size with the mean degree of the series."""
    return draw_shape(Shape("", size, size, MEAN_DEGREE * size), seed)


def _groups(size: int, rng: np.random.Generator) -> list[NDArray[np.int32]]:
    """Divide objects into groups of unequal size, none empty."""
    groups = min(GROUPS, size)
    share = rng.dirichlet(np.full(groups, 2.0))
    label = np.concatenate([np.arange(groups), rng.choice(groups, size - groups, p=share)])
    label = rng.permutation(label)
    return [np.flatnonzero(label == k).astype(np.int32) for k in range(groups)]
