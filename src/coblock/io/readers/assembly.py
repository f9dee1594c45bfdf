"""From edges to a relation."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from coblock.io.readers.coding import (
    LINK,
    IndexedEdges,
    States,
    cell_states,
    compress_edges,
    number_names,
)
from coblock.io.readers.edges import EdgeTable, pluralize
from coblock.io.readers.errors import ReadError
from coblock.kernels import Indices
from coblock.model import checks
from coblock.model.relation import Relation, unite


@dataclass(frozen=True, slots=True)
class Reading:
    """A relation with names, and notes on how it was read.

    Attributes
    ----------
    relation : Relation
        Objects in order of first appearance; those of matrices by position.
    edges : int
        Number of edges read, with or without a value.
    duplicates : int
        Number of edges that repeat an earlier pair. The largest value of a pair counts; a blank
        counts only if the pair has no value.
    rows, columns, unseen : int
        Numbers of objects and of unseen cells of the relation.
    notes : tuple of str
        Sentences for the user: what was inferred, and what was left out.
    """

    relation: Relation
    edges: int
    duplicates: int
    rows: int
    columns: int
    unseen: int
    notes: tuple[str, ...] = ()


Pairs = tuple[Indices, Indices]  # rows and columns


def index_edges(
    edges: EdgeTable,
    unseen: EdgeTable | IndexedEdges | None,
    one_domain: bool,
    binarize: float | None,
) -> tuple[IndexedEdges, Pairs | None]:
    """Replace the names of edges and unseen cells by indices.

    Rows and columns of a one-domain relation share their indices.
    """
    import polars as pl

    if isinstance(unseen, IndexedEdges):
        msg = (
            "The unseen cells are in a matrix, which has no names, but the relation has names. "
            "Give them as a list of edges."
        )
        raise ReadError(msg)
    states = None
    if "value" in edges.frame.columns:
        states = cell_states(edges.frame["value"], binarize, edges.locate)
    tables = [edges] if unseen is None else [edges, unseen]
    domains = [("row", "column")] if one_domain else [("row",), ("column",)]

    def number(parts: tuple[str, ...]) -> tuple[list[Indices], tuple[str, ...]]:
        listed = edges.column_objects if parts == ("column",) else edges.row_objects
        names = (table.frame[part] for table in tables for part in parts)
        return number_names([pl.Series(listed, dtype=pl.String), *names])

    with ThreadPoolExecutor(len(domains)) as pool:
        numbered = list(pool.map(number, domains))
    index: dict[tuple[int, str], Indices] = {}
    notes = edges.notes
    for parts, (found, names) in zip(domains, numbered, strict=True):
        keys = [(t, part) for t in range(len(tables)) for part in parts]
        index |= dict(zip(keys, found[1:], strict=True))
        known = max(int(codes.max(initial=-1)) for codes in found[: 1 + len(parts)]) + 1
        if known < len(names):
            count = pluralize(len(names) - known, "name", "names")
            notes += (
                f"The unseen cells have {count} that the relation does not have. They were added "
                f"to it, without links; the first is {names[known]!r}.",
            )
    rows, columns = index[0, "row"], index[0, "column"]
    row_names, column_names = numbered[0][1], numbered[-1][1]
    indexed = IndexedEdges(rows, columns, states, row_names, column_names, notes=notes)
    return indexed, None if unseen is None else (index[1, "row"], index[1, "column"])


def index_unseen(cells: IndexedEdges, unseen: IndexedEdges | EdgeTable | None) -> Pairs | None:
    """Return the unseen cells of a matrix by index."""
    if unseen is None:
        return None
    if isinstance(unseen, EdgeTable):
        rows = _find_positions(unseen, "row", cells.row_names)
        return rows, _find_positions(unseen, "column", cells.column_names)
    checks.check_same_shape(unseen.shape, cells.shape)
    return unseen.rows, unseen.columns


def _find_positions(unseen: EdgeTable, part: str, names: tuple[str, ...]) -> Indices:
    """Return the positions of the names of unseen cells in a matrix."""
    position = {name: number for number, name in enumerate(names)}
    found = np.array([position.get(name, -1) for name in unseen.frame[part]], dtype=np.int32)
    wrong = np.flatnonzero(found < 0)
    if wrong.size:
        msg = (
            f"{wrong.size:,} of {found.size:,} {part} names of the unseen cells are not in the "
            f"matrix; the first is {unseen.frame[part][int(wrong[0])]!r}. The matrix has "
            f"{names[0]} to {names[-1]}."
        )
        raise ReadError(msg)
    return found


def assemble(edges: IndexedEdges, unseen_pairs: Pairs | None, kind: str) -> Reading:
    """Build the relation, and count what was read."""
    shape, notes = edges.shape, edges.notes
    checks.check_shape(shape, kind)
    if kind != "bipartite":
        linked = True if edges.states is None else edges.states == LINK
        self_links = int(((edges.rows == edges.columns) & linked).sum())
        if self_links:
            notes += (
                f"{self_links:,} links of objects with themselves were left out: the diagonal of a "
                f"{kind} relation is unseen.",
            )
    cells = _distinct_ends(edges.rows, edges.columns, edges.states, kind)
    links, unseen, distinct = compress_edges(*cells, shape)
    if unseen_pairs is not None:
        listed, *_ = compress_edges(*_distinct_ends(*unseen_pairs, None, kind), shape)
        checks.check_disjoint(links, listed, (edges.row_names, edges.column_names))
        unseen = unite(unseen, listed)
    if not links.nnz:
        notes += ("The relation has no links: no value is above binarize, or all say no.",)
    relation = Relation.from_patterns(
        links, unseen, kind=kind, row_names=edges.row_names, column_names=edges.column_names
    )
    duplicates = cells[0].size - distinct
    if edges.both_halves and kind == "undirected":
        position = edges.rows.astype(np.int64) * shape[1] + edges.columns
        duplicates = position.size - np.unique(position).size
    if duplicates:
        notes += (
            f"{duplicates:,} of {edges.rows.size:,} edges repeat an earlier pair and are counted "
            "once.",
        )
    return Reading(relation, edges.rows.size, duplicates, *shape, relation.n_unseen, notes)


def _distinct_ends(
    rows: Indices, columns: Indices, states: States | None, kind: str
) -> tuple[Indices, Indices, States | None]:
    """Remove pairs of an object with itself; sort the ends of undirected pairs."""
    if kind == "bipartite":
        return rows, columns, states
    if (rows == columns).any():
        keep = rows != columns
        rows, columns = rows[keep], columns[keep]
        states = None if states is None else states[keep]
    if kind == "undirected":
        rows, columns = np.minimum(rows, columns), np.maximum(rows, columns)
    return rows, columns, states
