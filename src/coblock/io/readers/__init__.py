"""From a file, a data frame or a graph to a relation with names."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import narwhals.stable.v2 as narwhals

from coblock import io
from coblock.io.readers import edges as named
from coblock.io.readers import formats, indexing, matrices
from coblock.io.readers.edges import (
    Columns,
    EdgeTable,
    ReadError,
    convert_errors,
    read_words,
    refuse,
)
from coblock.io.readers.indexing import IndexedEdges, Reading
from coblock.io.readers.limits import Limits
from coblock.io.readers.shapes import Absent, Layout, TableSource, read_table_source
from coblock.io.readers.text import TextLayout, read_text
from coblock.model import checks
from coblock.model.checks import Kind

__all__ = ["ReadError", "Reading", "load_graph_file", "read"]

TEXT, EDGES = (".csv", ".tsv"), (".txt", ".edges", ".snap")
TABLES, GRAPHS = (".parquet", ".arrow", ".feather", ".ipc"), (".graphml", ".gml")
TABLES_WITHIN = (*formats.EXCEL, *formats.DATABASES)  # of which file::table names one
JSON = (".json", *formats.JSON_LINES)
SUFFIXES = (
    *TEXT, *EDGES, *formats.LISTS, *TABLES, ".mtx", ".npz", *GRAPHS, *TABLES_WITHIN, *JSON,
    *formats.TRIPLES,
)  # fmt: skip
STANDARD_INPUT = "-"
GRAPH_INTERFACE = ("nodes", "edges", "is_directed", "is_multigraph")
_COMPRESSED = {".gz": (*TEXT, *EDGES, ".mtx", *GRAPHS), ".zst": (*TEXT, *EDGES)}


def read(
    source: Any,
    *,
    relation: Kind = "bipartite",
    row: str | int | None = None,
    column: str | int | None = None,
    value: str | int | None = None,
    binarize: float | None = 0.0,
    unseen: Any = None,
    layout: Layout | None = None,
    absent: Absent | None = None,
    yes: str | Sequence[str] | None = None,
    query: str | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    encoding: str = "utf-8",
    max_columns: int = Limits.columns,
    max_unpacked: int = Limits.unpacked,
) -> Reading:
    """Read a relation and keep its names.

    Parameters
    ----------
    source : path, data frame, networkx graph or Arrow stream
        The suffix decides how a file is read: ``.csv``, ``.tsv``; ``.txt``, ``.edges``, ``.snap``
        (text with ``#`` comments); ``.basket``, ``.adjlist`` (lists); ``.parquet``; ``.arrow``,
        ``.feather``, ``.ipc``; ``.mtx``; ``.npz``; ``.graphml``, ``.gml``; ``.xlsx``; ``.sqlite``,
        ``.db``, ``.duckdb``; ``.json`` (HIF, or a list of objects), ``.jsonl``; ``.nt``. Text may
        be compressed (``.gz``, ``.zst``). ``file.db::name`` is a table, or the sheet of a
        workbook; ``-`` is text from standard input. Any object with ``__arrow_c_stream__`` is a
        table.
    relation : {"bipartite", "directed", "undirected"}
        Rows and columns of directed and undirected relations are the same objects. A graph needs
        the node attribute ``bipartite`` (0 or 1) to be read as bipartite.
    row, column : str or int, optional
        The columns with the names; by default the first two that have neither dates, times nor
        values. Without a header, columns are numbered from 1. A wide table has only ``row``.
    value : str or int, optional
        The column (of a graph: edge attribute) that decides whether a pair is a link: it is if the
        value is a number above ``binarize``, yes, y or true. It is not if the value is another
        number, no, n or false. A blank is an unseen cell. By default every edge is a link.
    binarize : float or None
        Numbers above it are links. None: they must be 0 or 1.
    unseen : path, data frame or graph, optional
        Unseen cells, in any of the forms of ``source``; ``row`` and ``column`` apply if it has such
        columns. Names that the relation does not have are added to it, with a note.
    layout : {"edges", "wide", "baskets", "adjacency"}, optional
        One edge per line, with the names in the first two columns if ``row`` and ``column`` do not
        say otherwise; one line per row and one column per column object; text lines that list the
        columns of one row, numbered, or after its name. By default the first lines decide between
        edges and a wide table, and a table that may be both is refused.
    absent : {"zero", "unseen"}, optional
        What a pair is that is not listed, or blank in a wide table. By default pairs that are not
        listed are zeros, and blank cells are unseen.
    yes : str or sequence of str, optional
        Answers in words that are links, such as ``"often,always"``, in the cells of a wide table or
        the ``value`` column of edges. Other answers are no links, and blank ones are unseen.
    query : str, optional
        SQL query of a database, instead of a table.
    delimiter : str, optional
        One character, or ``"whitespace"``. By default comma, tab, semicolon, bar or white space,
        according to the first lines.
    header : bool, optional
        Whether the first line of a text names the columns. By default the first lines decide.
    encoding : str
        Encoding of a text.
    max_columns, max_unpacked : int
        Most columns of a table, and most bytes of a compressed file when it is unpacked; it may
        always have 100 times its own size. They keep small files from exhausting the memory.

    Raises
    ------
    ReadError
        A ValueError: the content is not a relation. The message says where, and what to do.
    OSError
        The file does not exist, is a directory, or may not be read.

    Examples
    --------
    >>> import polars as pl
    >>> reading = read(pl.DataFrame({"who": ["ann", "bob"], "what": ["tea", "tea"]}))
    >>> reading.relation.row_names, reading.relation.column_names
    (('ann', 'bob'), ('tea',))
    """
    checks.check_choice("relation", relation, checks.KINDS)
    for name, choice, choices in (("layout", layout, Layout), ("absent", absent, Absent)):
        if choice is not None:
            checks.check_choice(name, choice, get_args(choices))
    if binarize is not None:
        checks.check_number("binarize", binarize)
    chosen = (None if name is None else str(name) for name in (row, column, value))
    columns = Columns(*chosen, yes=read_words(yes))
    limits = Limits(
        checks.check_whole_number("max_columns", max_columns, 2),
        checks.check_whole_number("max_unpacked", max_unpacked, 1),
    )
    text = TextLayout(delimiter, header, encoding)
    reader = Reader(relation, columns, binarize, text, limits, layout, absent, query)
    edges, unseen_edges = reader.read(source), None
    if unseen is not None:  # there are no values, and the chosen columns may be missing
        columns = replace(columns, value=None, optional=True, yes=())
        others = replace(reader, columns=columns, binarize=None, layout=None, query=None)
        unseen_edges = others.read(unseen)
    all_unseen = absent == "unseen" and not (isinstance(edges, EdgeTable) and edges.complete)
    try:
        if isinstance(edges, IndexedEdges):
            pairs = indexing.index_unseen(edges, unseen_edges)
            return indexing.assemble(edges, pairs, relation, all_unseen)
        indexed = indexing.index_edges(edges, unseen_edges, relation != "bipartite", binarize)
        return indexing.assemble(*indexed, relation, all_unseen)
    except ReadError:
        raise
    except ValueError as error:
        raise ReadError(str(error)) from error


def is_edges(source: Any) -> bool:
    """Return whether an object has edges, or cells with names, and is not a matrix of numbers.

    It is a path, a graph, a stream of Arrow, or a data frame with a column that is not numbers.
    """
    if isinstance(source, str | os.PathLike) or all(
        hasattr(source, name) for name in GRAPH_INTERFACE
    ):
        return True
    frame = checks.open_frame(source)
    if isinstance(frame, narwhals.LazyFrame):
        return True
    if isinstance(frame, narwhals.DataFrame):
        return bool(checks.text_columns(frame))
    return hasattr(source, "__arrow_c_stream__")


def load_graph_file(path: str | Path) -> Any:
    """Return a GraphML or GML file as a networkx graph, with all its attributes."""
    path = Path(path)
    suffix = _check_file(path)
    if suffix not in GRAPHS:
        refuse(f"{path} is not a graph. Its name must end in one of {', '.join(GRAPHS)}.")
    Limits().check_archive(path)
    return named.load_graph(path, suffix)


@dataclass(frozen=True, slots=True)
class Reader:
    """Read sources of all forms with the same options."""

    relation: str
    columns: Columns
    binarize: float | None
    text: TextLayout
    limits: Limits = field(default_factory=Limits)
    layout: Layout | None = "edges"  # None: found
    absent: Absent | None = None
    query: str | None = None

    def read(self, source: Any) -> EdgeTable | IndexedEdges:
        """Read edges by name, or the cells of a matrix."""
        if isinstance(source, str | os.PathLike):
            path = str(source)
            if path == STANDARD_INPUT:
                return self._read_standard_input()
            whole, _, table = path.rpartition("::")
            if whole and Path(whole).suffix.lower() in TABLES_WITHIN:
                return self._read_file(Path(whole), table)
            return self._read_file(Path(source))
        if all(hasattr(source, name) for name in GRAPH_INTERFACE):
            self._refuse_answers("A graph")
            return named.read_graph(source, self.relation, self.columns)
        with convert_errors("The data frame cannot be read"):
            frame = checks.open_frame(source)
        if isinstance(frame, narwhals.DataFrame | narwhals.LazyFrame):
            lazy, row_names = named.convert_frame(frame)
        elif hasattr(source, "__arrow_c_stream__"):
            lazy, row_names = named.convert_stream(source), None
        else:
            msg = f"A relation is read from a path, a data frame or a graph, not {type(source)}."
            raise TypeError(msg)
        return self._read_table(TableSource(lazy, "The data frame", row_names=row_names))

    def _refuse_answers(self, what: str) -> None:
        if self.columns.yes:
            refuse(f"yes= is for tables with answers in words, but {what} is none. Leave it out.")

    def _read_table(self, table: TableSource, *notes: str) -> EdgeTable:
        if self.layout in {"baskets", "adjacency"}:
            refuse(f"layout={self.layout!r} is for text, but {table.what} is a table.")
        edges = read_table_source(table, self.columns, self.layout, self.absent)
        return replace(edges, notes=(*notes, *edges.notes))

    def _read_standard_input(self) -> EdgeTable:
        """Read text from standard input."""
        content = sys.stdin.buffer.read(self.limits.unpacked + 1)
        if len(content) > self.limits.unpacked:
            refuse(
                f"Standard input has more than {self.limits.unpacked:,} bytes. Allow more with "
                "max_unpacked=, or write it to a file."
            )
        if not content.strip():
            refuse("Standard input is empty.")
        return self._read_text(Path("standard input"), self.text, content)

    def _read_text(self, path: Path, text: TextLayout, content: bytes | None = None) -> EdgeTable:
        choices = (self.layout, self.absent)
        return read_text(path, self.columns, text, self.limits, *choices, content=content)

    def _read_file(self, path: Path, within: str | None = None) -> EdgeTable | IndexedEdges:
        suffix = _check_file(path)
        if self.query is not None and suffix not in formats.DATABASES:
            refuse(f"query= is for databases, but {path} is none.")
        if suffix not in (*TEXT, *EDGES) or path.suffix.lower() == ".zst":
            self.limits.check_archive(path)
        if suffix in (*GRAPHS, ".mtx", ".npz", *formats.LISTS):
            self._refuse_answers(str(path))
        if suffix in GRAPHS:
            return named.read_graph(named.load_graph(path, suffix), self.relation, self.columns)
        if suffix == ".mtx":
            return matrices.read_market(path, self.binarize)
        if suffix == ".npz":
            return matrices.read_npz(path, self.binarize)
        if suffix in (*TABLES, *TABLES_WITHIN, *JSON, *formats.TRIPLES):
            lazy, notes = self._scan(path, suffix, within)
            return self._read_table(TableSource(lazy, str(path)), *notes)
        text = self.text
        if suffix in EDGES:  # as SNAP writes them
            text = replace(text, comment="#", assume_header=False)
        if suffix == ".tsv" and text.delimiter is None:
            text = replace(text, delimiter="\t")
        if suffix in formats.LISTS and self.layout in {None, "edges"}:
            return replace(self, layout=formats.LISTS[suffix])._read_text(path, text)
        return self._read_text(path, text)

    def _scan(self, path: Path, suffix: str, within: str | None) -> tuple[Any, list[str]]:
        """Return the table of a file that is not text, and notes."""
        if suffix in formats.EXCEL:
            lazy = formats.read_sheet(path, within)
        elif suffix in formats.DATABASES:
            lazy = formats.read_database(path, within, self.query)
        elif suffix in formats.JSON_LINES:
            lazy = formats.read_json_lines(path)
        elif suffix == ".json":
            lazy = formats.read_json(path)
        elif suffix in formats.TRIPLES:
            return formats.read_triples(path)
        else:
            return named.scan_table(path, self.limits), []
        self.limits.check_columns(len(lazy.collect_schema()), path)
        return lazy, []


def _check_file(path: Path) -> str:
    """Refuse a file that cannot be read; return its suffix without that of its compression."""
    if path.is_dir():
        io.refuse(f"{path} is a directory, not a file. Name a file in it.", IsADirectoryError)
    compression = path.suffix.lower() if path.suffix.lower() in _COMPRESSED else ""
    suffix = (Path(path.stem) if compression else path).suffix.lower()
    if suffix not in SUFFIXES:
        refuse(
            f"The name {path.name!r} does not say what kind of file it is. It must end in one of "
            f"{', '.join(SUFFIXES)}; text may add .gz or .zst."
        )
    if compression and suffix not in _COMPRESSED[compression]:
        refuse(f"{path} is compressed, which is not possible for {suffix}. Decompress it first.")
    if not path.exists():
        io.refuse(f"There is no file {path}.", FileNotFoundError)
    if not path.is_file():
        refuse(f"{path} is a pipe or a device, which may have no end. Write it to a file first.")
    with path.open("rb") as file:
        if not file.read(1):
            refuse(f"{path} is empty (0 bytes).")
    return suffix
