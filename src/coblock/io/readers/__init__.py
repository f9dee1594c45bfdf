"""From a file, a data frame or a graph to a relation with names."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import narwhals.stable.v2 as narwhals

from coblock.io import quantity
from coblock.io.readers.limits import Limits, ReadError
from coblock.model import checks
from coblock.model.checks import Kind
from coblock.model.relation import BinaryRelation

__all__ = ["ReadError", "Reading", "load_graph_file", "read"]

Layout: TypeAlias = Literal["edges", "wide", "baskets", "adjacency"]
Absent: TypeAlias = Literal["zero", "unseen"]

DELIMITERS = (",", "\t", ";", "|", " ")
GRAPH_INTERFACE = ("nodes", "edges", "is_directed", "is_multigraph")


@dataclass(frozen=True, slots=True, repr=False)
class Reading:
    """A relation with names, counts of what was read, and notes on how it was read.

    Objects are in order of first appearance, those of matrices by position. ``duplicates`` are
    edges that repeat an earlier pair: the largest value of a pair counts, and a blank only if the
    pair has no value. ``notes`` say what was inferred and what was left out.
    """

    relation: BinaryRelation
    edges: int  # with or without a value
    duplicates: int
    rows: int
    columns: int
    unseen: int  # cells
    notes: tuple[str, ...] = ()  # sentences for the user
    used: str = ""  # the columns that were read
    first: tuple[tuple[str, str], ...] = ()  # links of the source

    @property
    def lines(self) -> tuple[str, str, str]:
        """What was read, in three lines: columns, first links, counts."""
        pairs = ", ".join(f"{row[:40]} - {column[:40]}" for row, column in self.first)
        objects = quantity(self.rows, "row")
        objects += f" and {quantity(self.columns, 'column')}"
        if self.relation.repeated:
            objects = quantity(self.rows, "object")
        links = quantity(self.relation.n_links, "link")
        unseen = quantity(self.unseen, "unseen cell")
        return (
            f"Read: {self.used}.",
            f"First links: {pairs or 'none'}.",
            f"{objects}, {links}, {unseen}; density {self.relation.density:.2g}.",
        )

    def __repr__(self) -> str:
        return f"Reading({self.relation!r}, edges={self.edges:,}, notes={len(self.notes)})"


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
    from coblock.io.readers.reader import Columns, Reader, TextLayout, read_words

    chosen = (None if name is None else str(name) for name in (row, column, value))
    columns = Columns(*chosen, yes=read_words(yes))
    limits = Limits(
        checks.check_whole_number("max_columns", max_columns, 2),
        checks.check_whole_number("max_unpacked", max_unpacked, 1),
    )
    text = TextLayout(delimiter, header, encoding)
    reader = Reader(relation, columns, binarize, text, limits, layout, absent, query)
    try:
        return reader.read_relation(source, unseen)
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
    from coblock.io.readers.reader import open_graph_file

    return open_graph_file(Path(path))
