"""Tables of spreadsheets, databases and JSON, hypergraphs, triples, and lists of neighbours."""

import csv
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from coblock.io.readers.edges import EdgeTable, convert_errors, pluralize, refuse
from coblock.io.readers.names import collect_names

if TYPE_CHECKING:
    import polars as pl

EXCEL, DATABASES = (".xlsx", ".xlsm"), (".db", ".sqlite", ".sqlite3", ".duckdb")
JSON_LINES, TRIPLES = (".jsonl", ".ndjson"), (".nt",)
LISTS: dict[str, Literal["baskets", "adjacency"]] = {
    ".basket": "baskets",
    ".adjlist": "adjacency",
}
EXCEL_PACKAGE = ("Workbooks", "fastexcel", "excel")  # what needs which package, in which extra
DUCKDB_PACKAGE = ("DuckDB databases", "duckdb", "duckdb")
RDF_PACKAGE = ("N-Triples", "rdflib", "rdf")
SAMPLE = 200  # lines that decide what separates their fields
_SQLITE, _DUCKDB = b"SQLite format 3\x00", b"DUCK"  # at the beginning, and at byte 8


class MissingPackageError(ImportError):
    """An optional package is not installed; the message has the command that installs it."""

    def __init__(self, what: str, package: str, extra: str) -> None:
        install = f"pip install 'coblock[{extra}]'"
        super().__init__(f"{what} need {package}, which is not installed: {install}")


def read_sheet(path: Path, sheet: str | None) -> "pl.LazyFrame":
    """Return a sheet of a workbook, by default the first."""
    import polars as pl

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


def read_database(path: Path, table: str | None, query: str | None) -> "pl.LazyFrame":
    """Return a table of an SQLite or DuckDB database, or the result of a query; nothing is written.

    A database with one table needs neither.
    """
    import polars as pl

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
            f"{path} has {pluralize(len(found), 'table', 'tables')} ({listed}). Name one, as in "
            f"{path.name}::{example}, or pass query=."
        )
    if table is not None and table not in found:
        refuse(f"{path} has no table {table!r}. Its tables are {listed}.")
    return (table or found[0]).replace('"', '""')


def read_json_lines(path: Path) -> "pl.LazyFrame":
    """Return JSON Lines as a table: one object per line."""
    import polars as pl

    with convert_errors(f"{path} is not JSON Lines, or is damaged"):
        return pl.read_ndjson(path, infer_schema_length=None).lazy()


def read_json(path: Path) -> "pl.LazyFrame":
    """Return a hypergraph in the format HIF, or a list of objects, as a table.

    The nodes of a hypergraph are rows, and its edges are columns.
    """
    import polars as pl

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


def read_triples(path: Path) -> tuple["pl.LazyFrame", list[str]]:
    """Return subject, object, predicate and both of the latter of N-Triples, and notes."""
    import polars as pl

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


def read_lists(text: str, what: str, layout: str, delimiter: str | None) -> EdgeTable:
    """Read lines that list columns: baskets, or neighbours after the name of the row.

    Baskets are numbered by line. Fields are separated by commas if the first lines have one, else
    by tabs, semicolons or white space. Lines that begin with ``#`` are comments.
    """
    import polars as pl

    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if not lines:
        refuse(f"{what} holds no edges, only blank lines or comments.")
    if delimiter is None:
        found = (each for each in ",\t;" if any(each in line for line in lines[:SAMPLE]))
        delimiter = next(found, "whitespace")
    pairs: list[tuple[str, str]] = []
    rows = []
    for number, fields in enumerate(_fields(lines, delimiter, what), start=1):
        named = [field.strip() for field in fields if field.strip()]
        if not named:
            continue
        row, *rest = named if layout == "adjacency" else [str(number), *named]
        rows.append(row)
        pairs += ((row, column) for column in rest)
    if not pairs:
        refuse(f"{what} holds no edges: no line lists a column.")
    frame = pl.DataFrame(pairs, schema={"row": pl.String, "column": pl.String}, orient="row")
    where = "the first field" if layout == "adjacency" else "the numbers of the lines"
    used = f"rows from {where}, columns from the other fields"
    return EdgeTable(*collect_names(frame.lazy()), row_objects=tuple(rows), used=used)


def _fields(lines: list[str], delimiter: str, what: str) -> Iterator[list[str]]:
    if delimiter == "whitespace":
        return (line.split() for line in lines)
    with convert_errors(f"{what} cannot be read"):
        return iter(list(csv.reader(StringIO("\n".join(lines)), delimiter=delimiter)))
