"""Edges by name, and how they are read from Parquet, Arrow, data frames and networkx graphs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import polars as pl
from polars import selectors

from coblock.io import quantity
from coblock.io.readers.limits import Limits, convert_errors, refuse
from coblock.io.readers.names import NumberedNames, collect_names

Locate = Callable[[int], str]  # describes where the edge at a position is in its source

YES, NO, BLANK = ("yes", "y", "true", "x"), ("no", "n", "false"), ("", "na", "nan", "null")
_SAMPLE_ROWS = 1000  # searched for columns of yes and no
MOST_LISTED = 8  # answers in a message
EDGE_BYTES = 32  # of an edge of a Parquet file in memory, about


def edge_number(position: int) -> str:
    """Describe an edge of a source that has no line numbers."""
    return f"edge {position + 1:,}"


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a table that hold the row names, the column names and the values.

    By default the names are in the first two columns that are not chosen otherwise, and every edge
    is a link. With ``optional``, chosen columns may be missing from the table. ``yes`` are the
    answers that are links, where values are words.
    """

    row: str | None = None
    column: str | None = None
    value: str | None = None
    optional: bool = field(default=False, kw_only=True)
    yes: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def names(self) -> tuple[str | None, str | None, str | None]:
        """Row, column and value."""
        return self.row, self.column, self.value

    def without_missing(self, present: Sequence[str]) -> "Columns":
        """Return the choice without optional columns that are missing."""
        if not self.optional:
            return self
        return Columns(*(name if name in present else None for name in self.names))

    def choose(self, present: Sequence[str], source: str) -> "Columns":
        """Return the columns to read from those that are present."""
        row, column, value = wanted = self.without_missing(present).names
        listed = ", ".join(map(repr, present))
        for name in wanted:
            if name is not None and name not in present:
                refuse(
                    f"{source} has no column {name!r}. Its columns are {listed}. Name the columns "
                    "with row=, column= and value=; the columns of a file without a header are "
                    "numbered from '1'."
                )
        free = [name for name in present if name not in wanted]
        if len(free) < [row, column].count(None):
            refuse(
                f"{source} has {quantity(len(present), 'column')} ({listed}), but an "
                "edge needs two: one for rows, one for columns. If the fields are separated by an "
                "unusual character, name it with delimiter=; if lines are lists of items, pass "
                "layout='baskets'."
            )
        row = free.pop(0) if row is None else row
        return Columns(row, free.pop(0) if column is None else column, value)


@dataclass(frozen=True, slots=True)
class EdgeTable:
    """The edges of a source by name."""

    row: NumberedNames
    column: NumberedNames
    value: pl.Series | None = None  # None: all edges are links
    locate: Locate = edge_number
    row_objects: tuple[str, ...] = ()  # listed by the source apart from the edges; numbered first
    column_objects: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # sentences for the user
    used: str = ""  # the columns that were read
    complete: bool = False  # whether every cell has been listed, as in a wide table

    @property
    def frame(self) -> pl.DataFrame:
        """Row and column of each edge as strings; value, if there are values."""
        import polars as pl

        columns = [self.row.texts().alias("row"), self.column.texts().alias("column")]
        if self.value is not None:
            columns.append(self.value.alias("value"))
        return pl.DataFrame(columns)


def collect_edges(
    lazy: pl.LazyFrame, columns: Columns, source: str, locate: Locate = edge_number
) -> EdgeTable:
    """Read the chosen columns of a table; lines without any name are blank and skipped."""
    with convert_errors(f"{source} cannot be read"):
        present = lazy.collect_schema().names()
        chosen = columns.choose(present, source)
        parts = zip(("row", "column", "value"), chosen.names, strict=True)
        table = lazy.select(pl.col(name).alias(part) for part, name in parts if name is not None)
        for name, kind in table.collect_schema().items():
            if isinstance(kind, pl.List | pl.Array):  # the items of a basket
                table = table.explode(name)
            elif kind.is_nested():
                refuse(f"{source} has nested values in the column of its {name}s, not names.")
        table = table.with_columns(selectors.float().fill_nan(None))
        row, column, value = collect_names(
            table.with_columns(pl.col("row", "column").cast(pl.String))
        )
    no_row, no_column = row.codes < 0, column.codes < 0
    blank = no_row & no_column
    is_text = locate is not edge_number
    lists = " If each line lists the items of one basket, pass layout='baskets'." * is_text
    for place, missing in ((chosen.row, no_row & ~blank), (chosen.column, no_column & ~blank)):
        if missing.any():
            refuse(
                f"{source} has {missing.sum():,} of {missing.size:,} edges without a name in "
                f"column {place!r}; the first is {locate(int(missing.argmax()))}. Give both "
                f"names of every edge, or remove those edges.{lists}"
            )
    notes: list[str] = []
    position_of: Any = range(blank.size)
    if blank.any():
        position_of = np.flatnonzero(~blank)
        row, column = (part._replace(codes=part.codes[position_of]) for part in (row, column))
        value = None if value is None else value.gather(position_of)
        count = quantity(int(blank.sum()), "blank line was", "blank lines were")
        notes.append(f"{count} skipped.")
    if not row.codes.size:
        advice = " If its one line is an edge, pass header=False." if is_text else ""
        refuse(f"{source} holds no edges.{advice}")
    if unused := [name for name in present if name not in chosen.names]:
        notes += _describe_unused(lazy.select(unused), chosen.value is None, source)
    used = f"rows from {chosen.row!r}, columns from {chosen.column!r}"
    if chosen.value is not None:
        used += f", values from {chosen.value!r}"
    return EdgeTable(
        row,
        column,
        value,
        lambda position: locate(int(position_of[position])),
        notes=tuple(notes),
        used=used,
    )


def _describe_unused(unused: pl.LazyFrame, all_links: bool, source: str) -> list[str]:
    """Return notes on columns that are not read, and on the first that says yes and no."""
    types = unused.collect_schema()
    listed = list_some(types.names(), 5)
    count = quantity(len(types), "column was", "columns were")
    notes = [f"{count} not used: {listed}. value= names one to be read."]
    with convert_errors(f"{source} cannot be read"):
        texts = [name for name, kind in types.items() if all_links and kind == pl.String]
        sample = unused.select(texts).head(_SAMPLE_ROWS).collect()
    for column in sample:
        words = set(column.fill_null("").str.strip_chars().str.to_lowercase())
        if words <= {*YES, *NO, *BLANK} and not words.isdisjoint(NO):
            notes.append(
                f"Column {column.name!r} says yes and no, but was not used: every line counts as "
                f"a link. value={column.name!r} reads it."
            )
            break
    return notes


def scan_table(path: Path, limits: Limits) -> pl.LazyFrame:
    """Return the table of a Parquet file, or of an Arrow file (Feather, IPC) or Arrow stream."""
    parquet = path.suffix.lower() == ".parquet"
    kind = "a Parquet" if parquet else "an Arrow"
    with convert_errors(f"{path} is not {kind} file, or is damaged"):
        if parquet:
            lazy = pl.scan_parquet(path, glob=False)
            limits.check_columns(len(lazy.collect_schema()), path)
            limits.check_unpacked(EDGE_BYTES * lazy.select(pl.len()).collect().item(), path)
        else:
            content = path.read_bytes()
            is_file = content.startswith(b"ARROW1")
            limits.check_arrow(content, path, is_file=is_file)
            lazy = (pl.read_ipc if is_file else pl.read_ipc_stream)(content).lazy()
            limits.check_columns(len(lazy.collect_schema()), path)
    return lazy


def convert_frame(frame: Any) -> tuple[pl.LazyFrame, list[str] | None]:
    """Return a data frame of narwhals as one of polars, and the names of its rows, if it has any.

    The index of pandas has names unless it only counts the rows.
    """
    with convert_errors("The data frame cannot be read"):
        try:
            frame = frame.collect() if isinstance(frame, nw.LazyFrame) else frame
        except ModuleNotFoundError as error:
            msg = f"The data frame needs {error.name}, which is not installed: pip install "
            raise ImportError(msg + str(error.name)) from error
        index = nw.maybe_get_index(frame)
        counted = index is None or list(index) == list(range(len(frame)))
        native = frame.to_native()
        if not isinstance(native, pl.DataFrame):
            columns = ((str(name), frame.get_column(name)) for name in frame.columns)
            native = pl.DataFrame([_to_polars(*column) for column in columns])
    return native.lazy(), None if index is None or counted else list(map(str, index))


def _to_polars(name: str, column: Any) -> pl.Series:
    """Return a column as a polars series; numbers stay numbers, other values become strings."""
    values = column.to_list()
    if column.dtype.is_numeric() or column.dtype == nw.Boolean:
        return pl.Series(name, values)
    missing = column.is_null().to_list()
    texts = [None if null else str(x) for x, null in zip(values, missing, strict=True)]
    return pl.Series(name, texts, dtype=pl.String)


# Graphs


def import_networkx() -> Any:
    """Return the package networkx, which is optional."""
    try:
        import networkx
    except ImportError as error:
        msg = "Graphs need networkx, which is not installed: pip install 'coblock[graphs]'"
        raise ImportError(msg) from error
    return networkx


def load_graph(path: Path, kind: str) -> Any:
    """Return the graph of a GraphML or GML file."""
    networkx = import_networkx()
    name = "GraphML" if kind == ".graphml" else "GML"
    with convert_errors(f"{path} is not a {name} file, or is damaged"):
        if kind == ".graphml":
            return networkx.read_graphml(path)
        try:
            return networkx.read_gml(path)
        except networkx.NetworkXError as error:
            if "label" not in str(error):
                raise
            return networkx.read_gml(path, label="id")


def read_graph(graph: Any, relation: str, columns: Columns) -> EdgeTable:
    """Read the edges of a graph; nodes without edges are objects too."""
    names = {node: _valid_text(node) for node in graph.nodes}
    distinct = len(set(names.values()))
    if distinct < len(names):
        refuse(
            f"{len(names):,} nodes have only {distinct:,} different names: some are equal as text, "
            "such as 1 and '1'. Rename them."
        )
    nodes: list[list[Any]] = [list(names), []]
    ends = list(graph.edges())
    if relation == "bipartite":
        nodes, ends = _split_nodes(graph, ends, names)
    values = [data.get(columns.value) for _, _, data in graph.edges(data=True)]
    if columns.value is not None and values and all(value is None for value in values):
        what = f"an attribute {columns.value!r}"
        refuse(f"No edge of the graph has {what}. Name another with value=.")
    notes: tuple[str, ...] = ()
    if relation == "directed" and not graph.is_directed():
        values += [value for value, (u, v) in zip(values, ends, strict=True) if u != v]
        ends += [(v, u) for u, v in ends if u != v]
        notes = ("The graph is undirected: each of its edges is a link in both directions.",)
    if not ends:
        refuse(f"The graph has {len(names):,} nodes, but no edges.")
    table: dict[str, list[Any]] = {"row": [names[u] for u, _ in ends]}
    table["column"] = [names[v] for _, v in ends]
    if columns.value is not None:
        table["value"] = [None if value is None else _valid_text(value) for value in values]
    with convert_errors("The graph cannot be read"):
        lazy = pl.LazyFrame(table, schema=dict.fromkeys(table, pl.String))
    row_objects, column_objects = (tuple(names[node] for node in side) for side in nodes)
    edges = collect_edges(lazy, Columns(*table), "The graph")
    return replace(edges, row_objects=row_objects, column_objects=column_objects, notes=notes)


def _valid_text(node: Any) -> str:
    """Return the name of a node that UTF-8 can encode; lone surrogates become escapes."""
    return str(node).encode("utf-8", "backslashreplace").decode("utf-8")


def _split_nodes(graph: Any, ends: list[Any], names: dict[Any, str]) -> tuple[Any, Any]:
    """Return row nodes and column nodes in the order of the graph, and all edges, rows first."""
    sides = [(node, str(side)) for node, side in graph.nodes(data="bipartite")]
    rows, columns = ([node for node, side in sides if side == wanted] for wanted in "01")
    unknown = len(sides) - len(rows) - len(columns)
    if unknown:
        refuse(
            f"{unknown:,} of {len(sides):,} nodes have no attribute bipartite=0 (a row) or 1 (a "
            "column). Pass relation='undirected' or 'directed' for a graph with one set of objects."
        )
    is_row = set(rows)
    for u, v in ends:
        if (u in is_row) == (v in is_row):
            refuse(
                f"The edge between {names[u]!r} and {names[v]!r} joins two rows or two columns. "
                "Correct the attribute bipartite of its nodes, or remove the edge."
            )
    return [rows, columns], [(u, v) if u in is_row else (v, u) for u, v in ends]


# Answers in words


def read_words(yes: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the words that are links, as answers are compared with them.

    Examples
    --------
    >>> read_words("Often, always")
    ('often', 'always')
    """
    parts = yes.split(",") if isinstance(yes, str) else yes or ()
    words = tuple(str(part).strip().lower() for part in parts)
    if yes is not None and (not words or "" in words):
        refuse(f"yes= must list answers that are links, such as 'often,always', but is {yes!r}.")
    return words


def mark_answers(
    lazy: pl.LazyFrame, yes: Sequence[str], cells: list[str], what: str
) -> tuple[pl.LazyFrame, str]:
    """Return a table with 1 for the answers that are links and 0 for others, and a note.

    ``cells`` are the columns with answers. Blank answers stay blank.
    """
    with convert_errors(f"{what} cannot be read"):
        frame = lazy.collect()
    words = pl.col(cells).cast(pl.String).str.strip_chars().str.to_lowercase()
    answers = frame.select(words)
    found = sorted({word for name in cells for word in answers[name].unique() if word})
    found = [word for word in found if word not in BLANK]
    missing = [word for word in yes if word not in found]
    if missing:
        refuse(
            f"The answer {missing[0]!r} of yes= does not occur in {what}. The answers are "
            f"{list_some(found)}."
        )
    is_blank = words.is_null() | words.is_in(list(BLANK))
    marked = pl.when(words.is_in(list(yes))).then(pl.lit("1")).otherwise(pl.lit("0"))
    marked = pl.when(is_blank).then(None).otherwise(marked).name.keep()
    others = [word for word in found if word not in yes]
    note = f"Links are the answers {list_some(yes)}"
    note += f"; {list_some(others)} are not." if others else "; there are no others."
    return frame.with_columns(marked).lazy(), note


def list_some(words: Sequence[str], most: int = MOST_LISTED) -> str:
    """Return words for a message; an ellipsis stands for those beyond ``most``."""
    return ", ".join(map(repr, words[:most])) + (", ..." if len(words) > most else "")
