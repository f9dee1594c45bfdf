"""Edges by index: numbered names, cell states, and their relation."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse

from coblock.io import quantity
from coblock.io.readers import Reading
from coblock.io.readers import edges as named
from coblock.io.readers.edges import EdgeTable, Locate
from coblock.io.readers.limits import convert_errors, refuse
from coblock.io.readers.names import NameNumbers, NumberedNames
from coblock.kernels import Indices
from coblock.model import checks
from coblock.model.checks import Kind
from coblock.model.relation import BinaryRelation, select_cells, unite

States: TypeAlias = NDArray[np.int8]
Pairs: TypeAlias = tuple[Indices, Indices]  # rows and columns
Cells: TypeAlias = tuple[Indices, Indices, States | None]  # and states; None: all are links

UNSEEN, NO_LINK, LINK = 0, 1, 2  # states of a cell
_MAX_NOT_LISTED = 200_000_000  # cells that absent='unseen' may make unseen
_MANY_LINKS = 10  # of fewer, it may be chance that every row has one


@dataclass(frozen=True, slots=True)
class IndexedEdges:
    """Edges, or the stored cells of a matrix, by index."""

    rows: Indices
    columns: Indices
    states: States | None  # None: all are links
    row_names: tuple[str, ...]
    column_names: tuple[str, ...]
    both_halves: bool = False  # a matrix may store both cells of an undirected pair
    notes: tuple[str, ...] = ()
    used: str = "rows and columns by position"

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return len(self.row_names), len(self.column_names)


# Names


def number_names(series: Sequence[pl.Series]) -> tuple[list[Indices], tuple[str, ...]]:
    """Return the indices of the names of each series, and the names by first appearance."""
    numbers = NameNumbers()
    codes = [numbers.number(names) for names in series]
    return codes, tuple(numbers.names().to_list())


# Values


def cell_states(values: pl.Series, binarize: float | None, locate: Locate) -> States:
    """Return the state of the cell of each value.

    Numbers above ``binarize``, yes, y and true are links. Other numbers, no, n and false are cells
    without a link. Blank, null, NA and NaN are unseen. With ``binarize=None`` numbers must be 0 or
    1. ``locate`` describes the position of a value that is refused.
    """
    with convert_errors("The values cannot be read"):
        if values.dtype == pl.Boolean or values.dtype.is_numeric():
            numbers = values.cast(pl.Float64).fill_nan(None)
            is_yes = is_no = unknown = pl.repeat(False, len(values), eager=True)
        else:
            words = values.cast(pl.String).str.strip_chars().str.to_lowercase()
            words = words.set(words.is_in(list(named.BLANK)), None)
            numbers = words.cast(pl.Float64, strict=False).fill_nan(None)
            answers = (list(named.YES), list(named.NO))
            is_yes, is_no = (words.is_in(same).fill_null(False) for same in answers)
            unknown = words.is_not_null() & numbers.is_null() & ~is_yes & ~is_no
    wrong = unknown | numbers.is_infinite().fill_null(False)
    problem = "are neither finite numbers nor yes, no or blank"
    advice = "Correct them, or name another column with value=."
    if binarize is None and not wrong.any():
        wrong = numbers.is_not_null() & ~numbers.is_in([0.0, 1.0])
        problem, advice = "are not 0 or 1", "binarize=t counts values above t as links."
    if wrong.any():
        first = int(wrong.arg_max() or 0)
        text = repr(values[first])
        quoted = text if len(text) <= 60 else text[:56] + " ..."
        refuse(
            f"{wrong.sum():,} of {len(values):,} values {problem}; the first is {quoted} in "
            f"{locate(first)}. {advice}"
        )
    states = np.full(len(values), UNSEEN, dtype=np.int8)
    states[(numbers.is_not_null() | is_no).to_numpy()] = NO_LINK
    states[((numbers > (binarize or 0.0)).fill_null(False) | is_yes).to_numpy()] = LINK
    return states


def describe_threshold(values: pl.Series, states: States, binarize: float | None) -> list[str]:
    """Return a note if numbers other than 0 and 1 were cut at 0, which may not be meant."""
    if binarize != 0.0:
        return []
    numbers = values.cast(pl.Float64, strict=False).fill_nan(None).drop_nulls()
    others = int((~numbers.is_in([0.0, 1.0])).sum())
    if not others:
        return []
    share = float((states == LINK).sum() / max((states != UNSEEN).sum(), 1))
    ordered = numbers.sort()
    counts = bool((numbers == numbers.round()).all()) and ordered[0] >= 0
    other = "; likelihood='poisson' (MultiIRM) fits the counts themselves" if counts else ""
    return [
        f"{others:,} of {len(values):,} values are neither 0 nor 1; they are from {ordered[0]:g} "
        f"to {ordered[-1]:g}. Those above 0 count as links, {share:.0%} of the values. binarize=t "
        f"counts only those above t{other}."
    ]


# Relations


def index_edges(
    edges: EdgeTable, unseen: EdgeTable | IndexedEdges | None, shared: bool, binarize: float | None
) -> tuple[IndexedEdges, Pairs | None]:
    """Replace names by indices, which are ``shared`` if rows and columns are the same objects."""
    if isinstance(unseen, IndexedEdges):
        refuse(
            "The unseen cells are in a matrix, which has no names, but the relation has names. "
            "Give them as a list of edges."
        )
    states, notes = None, edges.notes
    if edges.value is not None:
        states = cell_states(edges.value, binarize, edges.locate)
        notes += tuple(describe_threshold(edges.value, states, binarize))
    tables = [edges] if unseen is None else [edges, unseen]
    domains = [("row", "column")] if shared else [("row",), ("column",)]

    def number(parts: tuple[str, ...]) -> tuple[list[Indices], tuple[str, ...]]:
        listed = edges.column_objects if parts == ("column",) else edges.row_objects
        if shared:
            listed += edges.column_objects
        numbers, listing = NameNumbers(), pl.Series(listed, dtype=pl.String)
        given = [NumberedNames(np.arange(len(listing), dtype=np.int32), listing)]
        given += [getattr(table, part) for table in tables for part in parts]
        codes = [numbers.renumber(names) for names in given]
        return codes, tuple(numbers.names().to_list())

    with ThreadPoolExecutor(len(domains)) as pool:
        numbered = list(pool.map(number, domains))
    index: dict[tuple[int, str], Indices] = {}
    for parts, (found, names) in zip(domains, numbered, strict=True):
        keys = [(t, part) for t in range(len(tables)) for part in parts]
        index |= dict(zip(keys, found[1:], strict=True))
        known = max(int(codes.max(initial=-1)) for codes in found[: 1 + len(parts)]) + 1
        if known < len(names):
            count = quantity(len(names) - known, "name")
            notes += (
                f"The unseen cells have {count} that the relation does not have. They were added "
                f"to it, without links; the first is {names[known]!r}.",
            )
    pairs = [(index[t, "row"], index[t, "column"]) for t in range(len(tables))]
    sides = (numbered[0][1], numbered[-1][1])
    indexed = IndexedEdges(*pairs[0], states, *sides, notes=notes, used=edges.used)
    return indexed, None if unseen is None else pairs[1]


def index_unseen(cells: IndexedEdges, unseen: IndexedEdges | EdgeTable | None) -> Pairs | None:
    """Return the unseen cells of a matrix by index."""
    if unseen is None:
        return None
    if isinstance(unseen, IndexedEdges):
        checks.check_same_shape(unseen.shape, cells.shape)
        return unseen.rows, unseen.columns
    pairs = []
    places = ((unseen.row, cells.row_names), (unseen.column, cells.column_names))
    for part, (given, names) in zip(("row", "column"), places, strict=True):
        position = {name: number for number, name in enumerate(names)}
        known = np.array([position.get(name, -1) for name in given.names], dtype=np.int32)
        found = known[given.codes]
        wrong = np.flatnonzero(found < 0)
        if wrong.size:
            refuse(
                f"{wrong.size:,} of {found.size:,} {part} names of the unseen cells are not in the "
                f"matrix; the first is {given.names[int(given.codes[wrong[0]])]!r}. The matrix has "
                f"{names[0]} to {names[-1]}."
            )
        pairs.append(found)
    return pairs[0], pairs[1]


def assemble(
    edges: IndexedEdges, unseen_pairs: Pairs | None, kind: Kind, all_unseen: bool = False
) -> Reading:
    """Build the relation, and count what was read; pairs that are not listed may be unseen."""
    shape, notes = edges.shape, edges.notes
    checks.check_shape(shape, kind)
    if kind != "bipartite":
        linked = True if edges.states is None else edges.states == LINK
        self_links = int(((edges.rows == edges.columns) & linked).sum())
        if self_links:
            notes += (
                f"{self_links:,} links of objects with themselves were left out: the diagonal of "
                f"{kind} relations is unseen.",
            )
    cells = _distinct_ends((edges.rows, edges.columns, edges.states), kind)
    links, unseen, distinct = compress_edges(*cells, shape)
    if unseen_pairs is not None:
        listed, *_ = compress_edges(*_distinct_ends((*unseen_pairs, None), kind), shape)
        checks.check_disjoint(links, listed, (edges.row_names, edges.column_names))
        unseen = unite(unseen, listed)
    if all_unseen:
        unseen = _not_listed(cells, shape, kind)
    if not links.nnz:
        notes += ("The relation has no links: no value is above binarize, or all say no.",)
    relation = BinaryRelation.from_patterns(
        links, unseen, kind=kind, row_names=edges.row_names, column_names=edges.column_names
    )
    duplicates = cells[0].size - distinct
    if edges.both_halves and kind == "undirected":
        position = edges.rows.astype(np.int64) * shape[1] + edges.columns
        duplicates = position.size - np.unique(position).size
    if duplicates:
        repeated = f"{duplicates:,} of {edges.rows.size:,} edges repeat an earlier pair"
        notes += (f"{repeated} and are counted once.",)
    notes += tuple(_describe_single(links, shape, edges.used) if kind == "bipartite" else ())
    states = edges.states
    shown = (
        np.arange(min(2, edges.rows.size)) if states is None else np.flatnonzero(states == LINK)[:2]
    )
    first = tuple(
        (edges.row_names[i], edges.column_names[j])
        for i, j in zip(edges.rows[shown].tolist(), edges.columns[shown].tolist(), strict=True)
    )
    found = (edges.rows.size, duplicates, *shape, relation.n_unseen)
    return Reading(relation, *found, notes, edges.used, first)


def _describe_single(links: sparse.csr_array, shape: tuple[int, int], used: str) -> list[str]:
    """Return a note if every row, or every column, has exactly one link."""
    if links.nnz < _MANY_LINKS or links.nnz not in shape:
        return []
    by_row = bool((np.diff(links.indptr) == 1).all())
    by_column = bool((np.bincount(links.indices, minlength=shape[1]) == 1).all())
    which = "row" if by_row else "column"
    if not by_row and not by_column:
        return []
    return [
        f"Every {which} has exactly one link, so that {which}s cannot be compared. These are the "
        f"{used}: are they the columns you meant? row= and column= choose others."
    ]


def _not_listed(cells: Cells, shape: tuple[int, int], kind: str) -> sparse.csr_array:
    """Return all pairs that are not listed, or listed without a value."""
    rows, columns, states = cells
    if states is None or (states == NO_LINK).sum() == 0:
        refuse(
            "absent='unseen' leaves no zeros: no listed pair has the value 0 or no. Name a column "
            "of values with value=, raise binarize=, or leave it out."
        )
    if shape[0] * shape[1] - rows.size > _MAX_NOT_LISTED:
        refuse(
            f"absent='unseen' would make {shape[0] * shape[1] - rows.size:,} cells unseen, and at "
            f"most {_MAX_NOT_LISTED:,} are possible. Leave out rows and columns with few values."
        )
    observed = np.zeros(shape, dtype=bool)
    known = states != UNSEEN
    observed[rows[known], columns[known]] = True
    if kind == "undirected":
        observed |= observed.T
    return sparse.csr_array((~observed).astype(np.int8))


def _distinct_ends(cells: Cells, kind: str) -> Cells:
    """Remove pairs of an object with itself; sort the ends of undirected pairs."""
    rows, columns, states = cells
    if kind == "bipartite":
        return cells
    if (rows == columns).any():
        keep = rows != columns
        rows, columns = rows[keep], columns[keep]
        states = None if states is None else states[keep]
    if kind == "undirected":
        rows, columns = np.minimum(rows, columns), np.maximum(rows, columns)
    return rows, columns, states


def compress_edges(
    rows: Indices, columns: Indices, states: States | None, shape: tuple[int, int]
) -> tuple[sparse.csr_array, sparse.csr_array, int]:
    """Return links and unseen cells as sorted patterns, and the number of distinct pairs.

    ``states`` are the states of the pairs; None: all are links. The largest state of a pair counts.
    """
    given = np.full(rows.size, LINK, np.int8) if states is None else states
    edges = sparse.coo_array((given, (rows, columns)), shape=shape)
    edges.has_canonical_format = True  # it may not be, but SciPy must not add up duplicates
    cells = edges.tocsc().tocsr()  # stable counting sorts, by column and then by row
    is_first = np.diff(cells.indices, prepend=-1) != 0
    is_first[cells.indptr[:-1][np.diff(cells.indptr) > 0]] = True
    pairs = select_cells(cells, is_first)
    if states is None or not rows.size:
        return pairs, sparse.csr_array(shape), pairs.nnz
    state = np.maximum.reduceat(cells.data, np.flatnonzero(is_first))
    return select_cells(pairs, state == LINK), select_cells(pairs, state == UNSEEN), pairs.nnz
