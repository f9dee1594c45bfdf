"""From pairs or cells to a relation."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from coblock.io.readers.coding import LINK, States, compress, number_names
from coblock.io.readers.errors import ReadError
from coblock.io.readers.matrices import Cells
from coblock.io.readers.pairs import Pairs, counted
from coblock.io.readers.values import states
from coblock.kernels import Indices
from coblock.model import checks
from coblock.model.relation import Relation

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, slots=True)
class Coded:
    """Edges by number: what the pairs are (None: all links), and the pairs that are unseen."""

    rows: Indices
    columns: Indices
    states: States | None
    row_names: tuple[str, ...]
    column_names: tuple[str, ...]
    hidden_rows: Indices
    hidden_columns: Indices
    mirrored: bool = False  # a matrix may give an undirected pair twice, once on each side
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """A relation with names, and what there is to tell of its reading.

    Attributes
    ----------
    relation : Relation
        Objects in order of their first appearance (matrices: of their position).
    edges : int
        Edges that were read: pairs with a value or without.
    duplicates : int
        How many of them repeat an earlier pair. Of its values the largest counts, and any value
        counts before a blank.
    rows, columns, unseen : int
        Objects and unseen cells of the relation.
    notes : tuple of str
        Sentences for the user: what was found by looking, what was left out.
    """

    relation: Relation
    edges: int
    duplicates: int
    rows: int
    columns: int
    unseen: int
    notes: tuple[str, ...] = ()


def code_pairs(
    pairs: Pairs, hidden: Pairs | None, one_domain: bool, binarize: float | None
) -> Coded:
    """Give numbers to the names; rows and columns of one-domain relations share their numbers."""
    values = None
    if "value" in pairs.frame.columns:
        values = states(pairs.frame["value"], binarize, pairs.where)
    if one_domain:
        domains = [_pieces(pairs, hidden, "row", "column")]
    else:
        domains = [_pieces(pairs, hidden, "row"), _pieces(pairs, hidden, "column")]
    with ThreadPoolExecutor(len(domains)) as pool:
        numbered = list(pool.map(number_names, domains))
    codes = [part for parts, _ in numbered for part in parts[1:]]
    if hidden is None:
        rows, columns = codes
        hidden_rows = hidden_columns = np.zeros(0, np.int32)
    elif one_domain:
        rows, columns, hidden_rows, hidden_columns = codes
    else:
        rows, hidden_rows, columns, hidden_columns = codes
    names = [found for _, found in numbered]
    notes = () if hidden is None else _of_new_names(numbered, 4 - len(domains))
    return Coded(
        rows,
        columns,
        values,
        names[0],
        names[-1],
        hidden_rows,
        hidden_columns,
        notes=pairs.notes + notes,
    )


def _pieces(pairs: Pairs, hidden: Pairs | None, *places: str) -> "list[pl.Series]":
    """Return the names of one domain: objects known apart from edges, edges, unseen pairs."""
    import polars as pl

    known = pairs.column_objects if places == ("column",) else pairs.row_objects
    objects = pl.Series(known, dtype=pl.String)
    sources = [pairs] if hidden is None else [pairs, hidden]
    return [objects, *(source.frame[place] for source in sources for place in places)]


def _of_new_names(
    numbered: list[tuple[list[Indices], tuple[str, ...]]], main: int
) -> tuple[str, ...]:
    """Tell which names only the list of unseen pairs has; the first ``main`` pieces are others."""
    notes = []
    for codes, names in numbered:
        known = max(int(part.max(initial=-1)) for part in codes[:main]) + 1
        if known < len(names):
            notes.append(
                f"The unseen list has {counted(len(names) - known, 'name', 'names')} that the "
                "relation has not. They were added to it, without links; the first is "
                f"{names[known]!r}."
            )
    return tuple(notes)


def code_cells(cells: Cells, hidden: Cells | Pairs | None) -> Coded:
    """Put the cells of a matrix and its unseen pairs together."""
    nobody = np.zeros(0, np.int32)
    hidden_rows, hidden_columns = nobody, nobody
    if isinstance(hidden, Pairs):
        hidden_rows = _positions(hidden, "row", cells.row_names)
        hidden_columns = _positions(hidden, "column", cells.column_names)
    elif hidden is not None:
        shapes = [(len(part.row_names), len(part.column_names)) for part in (hidden, cells)]
        try:
            checks.check_same_shape(*shapes)
        except ValueError as error:
            raise ReadError(str(error)) from error
        hidden_rows, hidden_columns = hidden.rows, hidden.columns
    return Coded(
        cells.rows,
        cells.columns,
        cells.states,
        cells.row_names,
        cells.column_names,
        hidden_rows,
        hidden_columns,
        mirrored=True,
    )


def _positions(hidden: Pairs, place: str, names: tuple[str, ...]) -> Indices:
    number = {name: position for position, name in enumerate(names)}
    found = np.array([number.get(name, -1) for name in hidden.frame[place]], dtype=np.int32)
    wrong = np.flatnonzero(found < 0)
    if wrong.size:
        msg = (
            f"{wrong.size:,} of {found.size:,} {place} names of the unseen list are not in the "
            f"matrix; the first is {hidden.frame[place][int(wrong[0])]!r}. The matrix has "
            f"{names[0]} to {names[-1]}."
        )
        raise ReadError(msg)
    return found


def assemble(coded: Coded, kind: str) -> Reading:
    """Build the relation and count."""
    shape = (len(coded.row_names), len(coded.column_names))
    try:
        checks.check_shape(shape, kind)
    except ValueError as error:
        raise ReadError(str(error)) from error
    rows, columns, given, notes = _between_objects(
        coded.rows, coded.columns, coded.states, kind, coded.notes
    )
    links, unseen, distinct = compress(rows, columns, given, shape)
    if coded.hidden_rows.size:
        h_rows, h_columns, *_ = _between_objects(
            coded.hidden_rows, coded.hidden_columns, None, kind, ()
        )
        hidden, *_ = compress(h_rows, h_columns, None, shape)
        _refuse_contradictions(links, hidden, coded)
        unseen = sparse.csr_array(unseen + hidden)
        unseen.data[:] = 1.0
    if not links.nnz:
        notes += ("There is not one link: no value lies above binarize, or all say no.",)
    relation = Relation.from_patterns(
        links, unseen, kind=kind, row_names=coded.row_names, column_names=coded.column_names
    )
    edges, duplicates = coded.rows.size, _repeated(coded, kind, rows.size - distinct)
    if duplicates:
        notes += (f"{duplicates:,} of {edges:,} edges repeat an earlier pair and count once.",)
    return Reading(relation, edges, duplicates, *shape, relation.n_unseen, notes)


def _repeated(coded: Coded, kind: str, counted: int) -> int:
    """Return how many edges repeat an earlier one."""
    if not (coded.mirrored and kind == "undirected"):
        return counted
    cells = coded.rows.astype(np.int64) * len(coded.column_names) + coded.columns
    return cells.size - np.unique(cells).size


def _between_objects(
    rows: Indices, columns: Indices, given: States | None, kind: str, notes: tuple[str, ...]
) -> tuple[Indices, Indices, States | None, tuple[str, ...]]:
    """Leave out pairs of an object with itself; put the ends of undirected pairs in order."""
    if kind == "bipartite":
        return rows, columns, given, notes
    own = rows == columns
    if own.any():
        linked = own.sum() if given is None else (own & (given == LINK)).sum()
        if linked:
            notes += (
                f"{linked:,} links of objects with themselves were left out: the diagonal of a "
                f"{kind} relation is unseen.",
            )
        rows, columns = rows[~own], columns[~own]
        given = None if given is None else given[~own]
    if kind == "undirected":
        rows, columns = np.minimum(rows, columns), np.maximum(rows, columns)
    return rows, columns, given, notes


def _refuse_contradictions(links: sparse.csr_array, hidden: sparse.csr_array, coded: Coded) -> None:
    both = sparse.csr_array(links.multiply(hidden))
    if both.nnz:
        row, column = (int(index[0]) for index in both.nonzero())
        msg = (
            f"{both.nnz:,} of {hidden.nnz:,} pairs of the unseen list are links too; the first is "
            f"({coded.row_names[row]!r}, {coded.column_names[column]!r}). Take them out of one of "
            "the two."
        )
        raise ReadError(msg)
