"""Tables of spreadsheets, databases and JSON, hypergraphs, triples, and sparse matrices."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from scipy import io, sparse

from coblock.io import quantity
from coblock.io.readers.indexing import IndexedEdges, cell_states, describe_threshold
from coblock.io.readers.limits import convert_errors, refuse
from coblock.io.readers.text import split_at_whitespace
from coblock.model import checks

EXCEL, DATABASES = (".xlsx", ".xlsm"), (".db", ".sqlite", ".sqlite3", ".duckdb")
JSON_LINES, TRIPLES = (".jsonl", ".ndjson"), (".nt",)
LISTS: dict[str, Literal["baskets", "adjacency"]] = {
    ".basket": "baskets",
    ".adjlist": "adjacency",
}
EXCEL_PACKAGE = ("Workbooks", "fastexcel", "excel")  # what needs which package, in which extra
DUCKDB_PACKAGE = ("DuckDB databases", "duckdb", "duckdb")
RDF_PACKAGE = ("N-Triples", "rdflib", "rdf")
# Rows and columns that a file may have: a million, and a thousand for each stored cell.
_MAX_EMPTY, _MAX_PER_CELL = 1_000_000, 1_000
_SQLITE, _DUCKDB = b"SQLite format 3\x00", b"DUCK"  # at the beginning, and at byte 8


class MissingPackageError(ImportError):
    """An optional package is not installed; the message has the command that installs it."""

    def __init__(self, what: str, package: str, extra: str) -> None:
        install = f"pip install 'coblock[{extra}]'"
        super().__init__(f"{what} need {package}, which is not installed: {install}")


def read_sheet(path: Path, sheet: str | None) -> pl.LazyFrame:
    """Return a sheet of a workbook, by default the first."""
    try:
        import fastexcel
    except ImportError as error:
        raise MissingPackageError(*EXCEL_PACKAGE) from error
    with convert_errors(f"{path} is not a workbook, or is damaged"):
        names = fastexcel.read_excel(path).sheet_names
        if sheet is not None and sheet not in names:
            refuse(f"{path} has no sheet {sheet!r}. Its sheets are {', '.join(map(repr, names))}.")
        frame = pl.read_excel(path, sheet_name=sheet or names[0], engine="calamine")
    return frame.lazy()


def read_database(path: Path, table: str | None, query: str | None) -> pl.LazyFrame:
    """Return a table of an SQLite or DuckDB database, or the result of a query; nothing is written.

    A database with one table needs neither.
    """
    with path.open("rb") as file:
        head = file.read(16)
    if head != _SQLITE and head[8:12] != _DUCKDB:
        refuse(f"{path} is neither an SQLite nor a DuckDB database.")
    connect = _open_sqlite if head == _SQLITE else _open_duckdb
    with (
        convert_errors(f"{path} cannot be read"),
        closing(connect(path)) as connection,
    ):
        if query is None:
            query = f'SELECT * FROM "{_choose_table(connection, path, table)}"'
        cursor = connection.execute(query)
        if cursor.description is None:
            refuse("The query returns no table. It must be a SELECT.")
        names = [str(column[0]) for column in cursor.description]
        lines = cursor.fetchall()
        if not lines:
            refuse(f"{path} holds no edges: the table has no rows.")
        columns = zip(*lines, strict=True)
        frame = pl.DataFrame(
            [
                pl.Series(name, _of_one_type(values))
                for name, values in zip(names, columns, strict=True)
            ]
        )
    return frame.lazy()


def _of_one_type(values: tuple[Any, ...]) -> Any:
    """Return the values of a column, as text if SQLite has stored several types in it."""
    types = {type(value) for value in values if value is not None}
    if len(types) < 2 or types == {int, float}:
        return values
    return [None if value is None else str(value) for value in values]


def _open_sqlite(path: Path) -> Any:
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    connection.execute("PRAGMA trusted_schema = OFF")  # views of the file call no functions
    return connection


def _open_duckdb(path: Path) -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise MissingPackageError(*DUCKDB_PACKAGE) from error
    return duckdb.connect(str(path), read_only=True, config={"enable_external_access": "false"})


def _choose_table(connection: Any, path: Path, table: str | None) -> str:
    """Return the quoted name of a table; refuse one that does not exist."""
    tables = (
        "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') "
        "AND name NOT LIKE 'sqlite_%' ORDER BY name"
    )
    found = [str(name) for (name,) in connection.execute(tables).fetchall()]
    listed = ", ".join(map(repr, found[:10])) or "none"
    if table is None and len(found) != 1:
        example = found[0] if found else "table"
        refuse(
            f"{path} has {quantity(len(found), 'table')} ({listed}). Name one, as in "
            f"{path.name}::{example}, or pass query=."
        )
    if table is not None and table not in found:
        refuse(f"{path} has no table {table!r}. Its tables are {listed}.")
    return (table or found[0]).replace('"', '""')


def read_json_lines(path: Path) -> pl.LazyFrame:
    """Return JSON Lines as a table: one object per line."""
    with convert_errors(f"{path} is not JSON Lines, or is damaged"):
        return pl.read_ndjson(path, infer_schema_length=None).lazy()


def read_json(path: Path) -> pl.LazyFrame:
    """Return a hypergraph in the format HIF, or a list of objects, as a table.

    The nodes of a hypergraph are rows, and its edges are columns.
    """
    with convert_errors(f"{path} is not JSON, or is damaged"):
        content = json.loads(path.read_bytes())
        incidences = content.get("incidences") if isinstance(content, dict) else None
        listed = content if isinstance(content, list) else incidences
        if not isinstance(listed, list) or not all(isinstance(line, dict) for line in listed):
            refuse(
                f"{path} is neither a hypergraph in the format HIF, with a list of incidences, nor "
                "a list of objects. Write its edges as a list of objects."
            )
        lines = [{key: _plain(value) for key, value in line.items()} for line in listed]
        if incidences is None:
            return pl.DataFrame(lines, infer_schema_length=None, strict=False).lazy()
        wrong = [line for line in lines if line.get("node") is None or line.get("edge") is None]
        if wrong or not lines:
            count = f"{len(wrong):,} of {len(lines):,} incidences"
            refuse(f"{path} has {count} without a node or an edge. Each incidence needs both.")
        ends = {end: [str(line.pop(end)) for line in lines] for end in ("node", "edge")}
        others = pl.DataFrame(lines, infer_schema_length=None, strict=False)
        return pl.concat((pl.DataFrame(ends), others), how="horizontal").lazy()


def _plain(value: Any) -> Any:
    """Return a value of a cell; nested objects become text."""
    return json.dumps(value) if isinstance(value, dict) else value


def read_triples(path: Path) -> tuple[pl.LazyFrame, list[str]]:
    """Return subject, object, predicate and both of the latter of N-Triples, and notes."""
    try:
        import rdflib
    except ImportError as error:
        raise MissingPackageError(*RDF_PACKAGE) from error
    with convert_errors(f"{path} is not N-Triples, or is damaged"):
        graph = rdflib.Graph().parse(path, format="nt")
        triples = sorted((str(s), str(p), str(o)) for s, p, o in graph)
    predicates = {p for _, p, _ in triples}
    notes = []
    if len(predicates) > 1:
        notes.append(
            f"The {len(predicates):,} predicates are not distinguished; column='feature' reads "
            "predicate and object together."
        )
    columns = {
        "subject": [s for s, _, _ in triples],
        "object": [o for _, _, o in triples],
        "predicate": [p for _, p, _ in triples],
        "feature": [f"{p} {o}" for _, p, o in triples],
    }
    return pl.LazyFrame(columns, schema=dict.fromkeys(columns, pl.String)), notes


# Stored cells of matrices; objects are named by position


def read_market(path: Path, binarize: float | None) -> IndexedEdges:
    """Read a sparse Matrix Market file, plain or compressed with gzip.

    SciPy reads only the header: a damaged body can crash SciPy's parser and with it the process.
    """
    with convert_errors(f"{path} is not a Matrix Market file, or is damaged"):
        rows, columns, stored, layout, field, symmetry = io.mminfo(path)
        if layout != "coordinate":
            refuse(
                f"{path} is a dense Matrix Market file ({layout}). Save it as a sparse one "
                "(coordinate): scipy.io.mmwrite(path, scipy.sparse.csr_array(matrix))."
            )
        if field == "complex":
            refuse(f"{path} must hold real numbers, but holds complex ones.")
        _check_size((rows, columns), stored, path)
        body = split_at_whitespace(path, "%").slice(1)  # the first line has the size
        cells = _parse_cells(body, stored, (rows, columns), field == "pattern", path)
        row, column, values = (series.to_numpy() for series in cells)
        if symmetry != "general":  # only one half is stored
            off = row != column
            sign = -1.0 if symmetry == "skew-symmetric" else 1.0
            row, column = np.append(row, column[off]), np.append(column, row[off])
            values = np.append(values, sign * values[off])
        matrix = sparse.coo_array((values, (row, column)), shape=(rows, columns))
    return _to_cells(matrix, 1, binarize, path)


def _parse_cells(
    body: pl.Series, stored: int, shape: tuple[int, int], pattern: bool, path: Path
) -> tuple[pl.Series, pl.Series, pl.Series]:
    """Return rows and columns, from 0, and values of the lines of a file."""
    width = 2 if pattern else 3
    if len(body) != stored:
        refuse(f"{path} is damaged: it says it has {stored:,} stored cells, but has {len(body):,}.")
    fields = [body.list.get(i, null_on_oob=True) for i in range(width)]
    row, column = (field.cast(pl.Int64, strict=False) - 1 for field in fields[:2])
    ones = pl.repeat(1.0, len(body), eager=True)
    value = ones if pattern else fields[2].cast(pl.Float64, strict=False)
    good = (body.list.len() == width) & value.is_not_null()
    for index, size in zip((row, column), shape, strict=True):
        good = good & index.is_between(0, size - 1).fill_null(False)
    if not good.all():
        first = int((~good).arg_max() or 0)
        refuse(
            f"{path} is damaged: {(~good).sum():,} of {stored:,} stored cells are not {width} "
            f"numbers within {shape[0]:,} x {shape[1]:,}; the first is {body[first].to_list()!r}."
        )
    return row, column, value


def read_npz(path: Path, binarize: float | None) -> IndexedEdges:
    """Read a sparse matrix that SciPy has saved; nothing in the file is unpickled."""
    expected = "a sparse matrix saved by scipy.sparse.save_npz"
    with convert_errors(f"{path} is not {expected}, or is damaged"):
        matrix = sparse.load_npz(path)
    return _to_cells(matrix, 0, binarize, path)


def _to_cells(matrix: Any, first: int, binarize: float | None, path: Path) -> IndexedEdges:
    """Return the stored cells; objects are named by their positions, counted from ``first``."""
    with convert_errors(str(path)):
        if matrix.dtype.kind not in "buif":
            refuse(f"{path} must hold real numbers, but holds {matrix.dtype}.")
        checks.check_shape(matrix.shape, "bipartite")
        _check_size(matrix.shape, matrix.nnz, path)
        checks.check_indices(matrix, str(path))
        found = sparse.coo_array(matrix)
        rows, columns = (index.astype(np.int32) for index in found.coords)

    def locate(position: int) -> str:
        return f"row {rows[position] + first:,}, column {columns[position] + first:,}"

    values = pl.Series(found.data.astype(np.float64))
    states = cell_states(values, binarize, locate)
    notes = tuple(describe_threshold(values, states, binarize))
    names = [tuple(map(str, range(first, first + size))) for size in matrix.shape]
    return IndexedEdges(rows, columns, states, names[0], names[1], both_halves=True, notes=notes)


def _check_size(shape: tuple[int, ...], stored: int, path: Path) -> None:
    """Refuse matrices without cells, and sizes of damaged headers that would exhaust the memory."""
    if len(shape) != 2 or 0 in shape or not stored:
        refuse(f"{path} holds no edges: its shape is {shape}, with {stored:,} stored cells.")
    if sum(shape) > _MAX_EMPTY + _MAX_PER_CELL * stored:
        refuse(
            f"{path} has {shape[0]:,} rows and {shape[1]:,} columns, but only {stored:,} stored "
            "cells. If the size is correct, remove rows and columns without stored cells."
        )
