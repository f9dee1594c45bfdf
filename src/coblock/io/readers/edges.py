"""Edges by name, and how they are read from Parquet, Arrow and data frames."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import narwhals.stable.v2 as nw

from coblock.io.readers.errors import ReadError, convert_errors

if TYPE_CHECKING:
    import polars as pl

Locate = Callable[[int], str]  # describes where the edge at a position is in its source

YES, NO, BLANK = ("yes", "y", "true"), ("no", "n", "false"), ("", "na", "nan", "null")
_SAMPLE_ROWS = 1000  # searched for columns of yes and no


def edge_number(position: int) -> str:
    """Describe an edge of a source that has no line numbers."""
    return f"edge {position + 1:,}"


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a table that hold the row names, the column names and the values.

    By default the names are in the first two columns that are not chosen otherwise, and every edge
    is a link. With ``optional``, chosen columns may be missing from the table.
    """

    row: str | None = None
    column: str | None = None
    value: str | None = None
    optional: bool = field(default=False, kw_only=True)

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
        for name in wanted:
            if name is not None and name not in present:
                msg = (
                    f"{source} has no column {name!r}. Its columns are "
                    f"{', '.join(map(repr, present))}. Name the columns with row=, column= and "
                    "value=; the columns of a file without a header are numbered from '1'."
                )
                raise ReadError(msg)
        free = [name for name in present if name not in wanted]
        if len(free) < [row, column].count(None):
            count = pluralize(len(present), "column", "columns")
            msg = (
                f"{source} has {count} ({', '.join(map(repr, present))}), but an edge needs two: "
                "one for rows, one for columns. If the fields are separated by an unusual "
                "character, name it with delimiter=."
            )
            raise ReadError(msg)
        row = free.pop(0) if row is None else row
        column = free.pop(0) if column is None else column
        return Columns(row, column, value)


@dataclass(frozen=True, slots=True)
class EdgeTable:
    """The edges of a source by name."""

    frame: "pl.DataFrame"  # row and column, strings without nulls; value, if there are values
    locate: Locate = edge_number
    row_objects: tuple[str, ...] = ()  # listed by the source apart from the edges; numbered first
    column_objects: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # sentences for the user


def collect_edges(
    lazy: "pl.LazyFrame", columns: Columns, source: str, locate: Locate = edge_number
) -> EdgeTable:
    """Read the chosen columns of a table of edges."""
    import polars as pl
    from polars import selectors

    with convert_errors(f"{source} cannot be read"):
        present = lazy.collect_schema().names()
        chosen = columns.choose(present, source)
        parts = zip(("row", "column", "value"), chosen.names, strict=True)
        table = lazy.select(pl.col(name).alias(part) for part, name in parts if name is not None)
        table = table.with_columns(selectors.float().fill_nan(None))
        frame = table.with_columns(pl.col("row", "column").cast(pl.String)).collect()
    _refuse_missing_names(frame, chosen, source, locate)
    notes = []
    blank = frame["row"].is_null()  # here both names are missing, or neither
    position_of = None
    if blank.any():
        frame, position_of = frame.filter(~blank), blank.not_().arg_true()
        notes.append(
            f"{pluralize(int(blank.sum()), 'blank line was', 'blank lines were')} skipped."
        )
    if frame.is_empty():
        is_text = locate is not edge_number
        advice = " If its one line is an edge, pass header=False." if is_text else ""
        msg = f"{source} holds no edges.{advice}"
        raise ReadError(msg)

    def locate_in_source(position: int) -> str:
        return locate(position if position_of is None else position_of[position])

    unused = [name for name in present if name not in chosen.names]
    if unused:
        notes += _describe_unused(lazy.select(unused), chosen.value is None, source)
    return EdgeTable(frame, locate_in_source, notes=tuple(notes))


def _refuse_missing_names(
    frame: "pl.DataFrame", chosen: Columns, source: str, locate: Locate
) -> None:
    """Refuse edges with one name; those without any are blank lines."""
    for part, other, column in (("row", "column", chosen.row), ("column", "row", chosen.column)):
        missing = frame[part].is_null() & ~frame[other].is_null()
        if missing.any():
            msg = (
                f"{source} has {missing.sum():,} of {frame.height:,} edges without a name in "
                f"column {column!r}; the first is {locate(int(missing.arg_max() or 0))}. Give both "
                "names of every edge, or remove those edges."
            )
            raise ReadError(msg)


def _describe_unused(unused: "pl.LazyFrame", all_links: bool, source: str) -> list[str]:
    """Return notes on columns that are not read.

    If all edges are links, there is another note on the first column of answers yes and no.
    """
    import polars as pl

    types = unused.collect_schema()
    listed = ", ".join(map(repr, types.names()[:5])) + (", ..." if len(types) > 5 else "")
    count = pluralize(len(types), "column was", "columns were")
    notes = [f"{count} not used: {listed}. value= names one to be read."]
    if not all_links:
        return notes
    with convert_errors(f"{source} cannot be read"):
        texts = [name for name, kind in types.items() if kind == pl.String]
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


def read_table(path: Path, columns: Columns) -> EdgeTable:
    """Read the edges of a Parquet file, or of an Arrow file (Feather, IPC) or Arrow stream."""
    import polars as pl

    parquet = path.suffix.lower() == ".parquet"
    kind = "a Parquet" if parquet else "an Arrow"
    with convert_errors(f"{path} is not {kind} file, or is damaged"):
        if parquet:
            lazy = pl.scan_parquet(path, glob=False)
            lazy.collect_schema()
        else:
            content = path.read_bytes()
            is_file = content.startswith(b"ARROW1")
            lazy = (pl.read_ipc(content) if is_file else pl.read_ipc_stream(content)).lazy()
    return collect_edges(lazy, columns, str(path))


def is_frame(source: object) -> bool:
    """Return whether narwhals recognises a data frame, eager or lazy."""
    wrapped = nw.from_native(source, pass_through=True)
    return isinstance(wrapped, nw.DataFrame | nw.LazyFrame)


def read_frame(source: Any, columns: Columns) -> EdgeTable:
    """Read the edges of a data frame, one edge per row."""
    import polars as pl

    what = "The data frame"
    with convert_errors(f"{what} cannot be read"):
        frame = nw.from_native(source)
        frame = frame.collect() if isinstance(frame, nw.LazyFrame) else frame
        chosen = columns.choose([str(name) for name in frame.columns], what)
        native = frame.to_native()
        if not isinstance(native, pl.DataFrame):
            names = [name for name in chosen.names if name is not None]
            native = pl.DataFrame([_to_polars(name, frame[name]) for name in names])
    return collect_edges(native.lazy(), chosen, what)


def _to_polars(name: str, column: Any) -> "pl.Series":
    """Return a column as a polars series; numbers stay numbers, other values become strings."""
    import polars as pl

    values = column.to_list()
    if column.dtype.is_numeric() or column.dtype == nw.Boolean:
        return pl.Series(name, values)
    missing = column.is_null().to_list()
    texts = [None if null else str(x) for x, null in zip(values, missing, strict=True)]
    return pl.Series(name, texts, dtype=pl.String)


def pluralize(number: int, one: str, many: str) -> str:
    """Return a number with the words that agree with it."""
    return f"{number:,} {one if number == 1 else many}"
