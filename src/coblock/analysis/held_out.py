"""Hold out observed cells of one or several relations: a share of them, or a weighted sample."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from coblock.io import refuse
from coblock.kernels import Floats, Indices
from coblock.model.checks import check_number
from coblock.model.dataset import Table
from coblock.model.relation import BinaryRelation

MAX_HELD = 5_000_000  # cells of a run; each costs the fit as much time as a link
MAX_DRAWN = 20_000_000  # random numbers in memory at a time
MOST_CELLS = 2**62  # of a relation; their numbers are held in 64 bits

CellNumbers = NDArray[np.int64]  # of a matrix: row * columns + column; ascending


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Held-out cells with their true values, and the relation without them."""

    X: sparse.csr_array  # the links that are left
    unseen: sparse.csr_array  # stored cells are held out, or were unseen before
    rows: NDArray[np.int64]  # of the held-out cells
    columns: NDArray[np.int64]
    values: NDArray[np.bool_]  # whether each held-out cell is a link
    weights: Floats | None = None  # cells that each held-out cell represents; None: one each
    odds: float = 1.0  # of a link among the cells that are left, over those among all cells
    sampled: bool = False  # whether the held-out cells are a weighted sample


@dataclass(frozen=True, slots=True)
class HeldCells:
    """Held-out cells of one of several relations; weights and odds are those of a HeldOut."""

    cells: Indices  # (cells, arity)
    values: Floats
    weights: Floats | None = None
    odds: float = 1.0
    sampled: bool = False


# One binary relation


def hold_out(X: Any, share: float = 0.1, random_state: int | None = None) -> HeldOut:
    """Hold out ``share`` of all cells of a sparse binary matrix, drawn without replacement.

    Examples
    --------
    >>> from scipy import sparse
    >>> held = hold_out(sparse.eye_array(10, format="csr"), 0.2, random_state=0)
    >>> held.rows.size, held.X.nnz + int(held.values.sum())
    (20, 10)
    """
    check_number("share", share, largest=1.0)
    X = sparse.csr_array(X)
    if np.isnan(X.data).any():
        refuse(
            f"{np.isnan(X.data).sum():,} cells are NaN, that is, unseen. A cell without a known "
            "value cannot be held out. Pass the links without these cells."
        )
    cells = _cells_of_matrix(BinaryRelation.build(sparse.csr_array(X > 0)))
    size = X.shape[0] * X.shape[1]
    rng = np.random.default_rng(random_state)
    chosen = np.sort(rng.choice(size, round(share * size), replace=False, shuffle=False))
    held = _take_out(cells, chosen, np.isin(chosen, cells.listed, assume_unique=True))
    return replace(held, X=sparse.csr_array(X.multiply(held.X)))  # with the values of X


def sample_held_out(
    relation: BinaryRelation, share: float, rng: np.random.Generator, *, largest: int = MAX_HELD
) -> HeldOut:
    """Hold out a share of the observed cells, or a weighted sample of ``largest`` cells."""
    cells = _cells_of_matrix(relation)
    chosen, is_link, weighted = cells.sample(share, rng, largest)
    return replace(_take_out(cells, chosen, is_link), **weighted)


def without_cells(relation: BinaryRelation, held: HeldOut) -> BinaryRelation:
    """Return the relation with the held-out cells unseen."""
    left = BinaryRelation.from_patterns(held.X, held.unseen, kind=relation.kind)
    kept = ("row_names", "column_names", "own_link", "own_seen")
    return replace(left, **{name: getattr(relation, name) for name in kept})


def _cells_of_matrix(relation: BinaryRelation) -> "_Cells":
    """Return the links and unseen cells of a relation; an undirected pair counts once.

    Cells of an object with itself are not held out.
    """
    rows = np.arange(relation.shape[0], dtype=np.int64)
    place, numbers = relation.incidence[0][0], []
    for start, index in ((place.link_start, place.link), (place.unseen_start, place.unseen)):
        row = np.repeat(rows, np.diff(start))
        once = row < index if relation.symmetric else slice(None)
        numbers.append(row[once] * relation.shape[1] + index[once])
    pairs = relation.shape[0] * (relation.shape[1] - relation.repeated)
    count = pairs // (1 + relation.symmetric)
    apart = [(0, 1)] if relation.repeated else []
    return _Cells(relation.shape, numbers[0], numbers[1], count, relation.symmetric, apart)


def _take_out(cells: "_Cells", chosen: CellNumbers, values: NDArray[np.bool_]) -> HeldOut:
    """Return the chosen cells and what is left; the chosen links and zeros each ascend."""
    rows, columns = cells.shape

    def matrix(numbers: CellNumbers) -> sparse.csr_array:
        ones, at = np.ones(numbers.size, dtype=np.int8), np.divmod(numbers, columns)
        return sparse.csr_array((ones, at), shape=(rows, columns))

    left = cells.listed[~np.isin(cells.listed, chosen[values], assume_unique=True)]
    unseen = _union(cells.unseen, chosen)
    return HeldOut(matrix(left), matrix(unseen), *np.divmod(chosen, columns), values)


# Several relations


def hold_out_cells(
    table: Table, sizes: tuple[int, ...], share: float, rng: np.random.Generator, largest: int
) -> HeldCells:
    """Draw a share of the observed cells, or a weighted sample of ``largest`` cells."""
    of, shape = f" of relation '{table.name}'", tuple(sizes[d] for d in table.domains)
    if not table.filled:
        count = _count_share(share, len(table.cells), of)
        chosen = _choose(np.arange(len(table.cells)), min(count, largest), rng)
        return HeldCells(table.cells[chosen], table.values[chosen])
    known, unseen = (number_cells(table, sizes, each) for each in (table.cells, table.unseen))
    order = np.argsort(known, kind="stable")
    count = table.n_observed(sizes) + unseen.size
    places = range(table.arity)
    same = [(e, p) for p in places for e in range(p) if table.domains[e] == table.domains[p]]
    apart = same if table.distinct else []
    cells = _Cells(shape, known[order], np.sort(unseen), count, table.symmetric, apart)
    numbers, listed, weighted = cells.sample(share, rng, largest, of)
    values = np.zeros(numbers.size)
    values[listed] = table.values[order[np.searchsorted(cells.listed, numbers[listed])]]
    held = np.stack(np.unravel_index(numbers, shape), axis=1).astype(np.int32)
    return HeldCells(held, values, **weighted)


def number_cells(table: Table, sizes: tuple[int, ...], cells: Indices) -> CellNumbers:
    """Return the numbers of cells among all tuples of objects; symmetric pairs are in order."""
    shape = [sizes[d] for d in table.domains]
    if math.prod(shape) > MOST_CELLS:
        refuse(
            f"Relation '{table.name}' has {math.prod(shape):.1e} cells, and at most "
            f"{MOST_CELLS:.1e} can be numbered to hold out some. List the observed cells, with "
            "absent='unseen'."
        )
    ordered = cells.astype(np.int64)
    if table.symmetric:
        ordered[:, :2] = np.sort(ordered[:, :2], axis=1)
    return np.ravel_multi_index(tuple(ordered.T), shape).astype(np.int64)


def remove_held_out(table: Table, held: HeldCells) -> Table:
    """Return a relation in which the held-out cells are unseen."""
    keys = [each.astype(np.int64) for each in (table.cells, held.cells)]
    if table.symmetric:
        keys = [np.column_stack((np.sort(each[:, :2], axis=1), each[:, 2:])) for each in keys]
    _, number = np.unique(np.concatenate(keys), axis=0, return_inverse=True)
    kept = ~np.isin(number.ravel()[: len(table.cells)], number.ravel()[len(table.cells) :])
    unseen = table.unseen
    if table.filled:
        unseen = np.concatenate((unseen, held.cells)).astype(np.int32)
    return replace(table, cells=table.cells[kept], values=table.values[kept], unseen=unseen)


# Drawing cells


@dataclass(frozen=True, slots=True)
class _Cells:
    """Listed and unseen cells of a relation by number, ascending; other cells are zeros."""

    shape: tuple[int, ...]
    listed: CellNumbers
    unseen: CellNumbers
    count: int  # of all cells that the relation has
    ordered: bool  # whether a cell has the smaller one of its first two objects first
    apart: list[tuple[int, int]]  # places that one object does not fill at a time

    def sample(
        self, share: float, rng: np.random.Generator, largest: int, of: str = ""
    ) -> tuple[CellNumbers, NDArray[np.bool_], dict[str, Any]]:
        """Draw a share of the observed cells; return which are listed, and weights of a sample."""
        observed, listed = self.count - self.unseen.size, self.listed.size
        count = _count_share(share, observed, of)
        if count <= largest:
            chosen = self._draw(count, rng)
            return chosen, np.isin(chosen, self.listed, assume_unique=True), {}
        zeros = observed - listed
        held_listed = min(math.floor(share * listed), largest // 2)  # the others are zeros
        held_zeros = min(math.floor(share * zeros), largest - held_listed)
        chosen_listed = _choose(self.listed, held_listed, rng)
        only_zeros = replace(self, unseen=_union(self.unseen, self.listed))
        chosen = np.concatenate((chosen_listed, only_zeros._draw(held_zeros, rng)))
        is_listed = np.arange(chosen.size) < held_listed
        each = (share * listed / max(held_listed, 1), share * zeros / max(held_zeros, 1))
        odds = (1.0 - held_listed / max(listed, 1)) / (1.0 - held_zeros / max(zeros, 1))
        weighted = {"weights": np.where(is_listed, *each), "odds": odds, "sampled": True}
        return chosen, is_listed, weighted

    def _draw(self, count: int, rng: np.random.Generator) -> CellNumbers:
        """Draw observed cells without replacement, with no array of the size of the relation."""
        size, observed = math.prod(self.shape), self.count - self.unseen.size
        found = np.zeros(0, dtype=np.int64)
        while found.size < count:
            per_cell = size / (observed - found.size)  # expected draws per new cell
            tries = math.ceil(1.1 * (count - found.size) * per_cell) + 16
            drawn = _union(rng.integers(size, size=min(tries, MAX_DRAWN)))
            at = np.unravel_index(drawn, self.shape)
            possible = ~np.isin(drawn, self.unseen, assume_unique=True)
            if self.ordered:
                possible &= at[0] <= at[1]
            for one, other in self.apart:
                possible &= at[one] != at[other]
            found = _union(found, drawn[possible])
        return _choose(found, count, rng)


def _count_share(share: float, observed: int, of: str) -> int:
    """Return the number of cells to hold out; refuse all and none."""
    count = round(share * observed)
    if count in {0, observed}:
        refuse(
            f"A share of {share:g} of {observed:,} observed cells{of} leaves no cell to score, "
            "or none to fit. Choose another share, or pass more data."
        )
    return count


def _union(*parts: CellNumbers) -> CellNumbers:
    """Return the distinct cells of all parts, ascending, much faster than ``np.unique``."""
    cells = np.concatenate(parts)
    cells.sort(kind="stable" if len(parts) > 1 else None)  # merges sorted parts in linear time
    first = np.ones(cells.size, dtype=bool)
    np.not_equal(cells[1:], cells[:-1], out=first[1:])
    return cells[first]


def _choose(cells: CellNumbers, count: int, rng: np.random.Generator) -> CellNumbers:
    """Draw ``count`` of the cells without replacement; their order is kept."""
    fewer = min(count, cells.size - count)
    marked = np.zeros(cells.size, dtype=bool)
    marked[rng.choice(cells.size, fewer, replace=False, shuffle=False)] = True
    return cells[marked if fewer == count else ~marked]
