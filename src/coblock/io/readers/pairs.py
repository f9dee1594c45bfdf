"""Pairs of names with their values, as every reader of edges hands them on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coblock.io.readers.errors import ReadError, refusing

if TYPE_CHECKING:
    import polars as pl

Where = Callable[[int], str]

YES, NO, BLANK = ("yes", "y", "true"), ("no", "n", "false"), ("", "na", "nan", "null")
_SAMPLE = 1000  # lines in which answers are looked for


def edge_number(position: int) -> str:
    """Say which edge it is, where there are no lines to count."""
    return f"edge {position + 1:,}"


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns hold the rows, the columns and the values; the two names by default first."""

    row: str | None = None
    column: str | None = None
    value: str | None = None

    def choose(self, present: Sequence[str], source: str) -> "Columns":
        """Return the names of the columns to be read; a value column only where one was named."""
        for wanted in (self.row, self.column, self.value):
            if wanted is not None and wanted not in present:
                msg = (
                    f"{source} has no column {wanted!r}. Its columns are "
                    f"{', '.join(map(repr, present))}. Name the columns with row=, column= and "
                    "value=; a file without header counts them from '1'."
                )
                raise ReadError(msg)
        taken = [self.row, self.column, self.value]
        free = [name for name in present if name not in taken]
        missing = [self.row, self.column].count(None)
        if len(free) < missing:
            has = counted(len(present), "column", "columns")
            msg = (
                f"{source} has {has} ({', '.join(map(repr, present))}), but "
                "an edge needs two: one for rows, one for columns. If the fields are separated by "
                "an unusual character, name it with delimiter=."
            )
            raise ReadError(msg)
        row = free.pop(0) if self.row is None else self.row
        column = free.pop(0) if self.column is None else self.column
        return Columns(row, column, self.value)

    def known_to(self, present: Sequence[str]) -> "Columns":
        """Return the choice without columns that are not there."""
        chosen = (self.row, self.column, self.value)
        return Columns(*(name if name in present else None for name in chosen))

    def without_value(self) -> "Columns":
        """Return the choice of the names alone."""
        return Columns(self.row, self.column)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Edges by name.

    Attributes
    ----------
    frame : polars.DataFrame
        ``row`` and ``column`` (strings, none missing); perhaps ``value``.
    where : callable
        Says where the edge of a position stands in the source.
    row_objects, column_objects : tuple of str
        Objects that are known apart from the edges; they are numbered first.
    notes : tuple of str
        Sentences for the user.
    """

    frame: "pl.DataFrame"
    where: Where = edge_number
    row_objects: tuple[str, ...] = ()
    column_objects: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def collect_pairs(
    lazy: "pl.LazyFrame", columns: Columns, source: str, where: Where = edge_number
) -> Pairs:
    """Read the chosen columns of a table of edges."""
    import polars as pl

    with refusing(f"{source} cannot be read"):
        chosen = columns.choose(lazy.collect_schema().names(), source)
        names = [pl.col(str(chosen.row)).alias("row"), pl.col(str(chosen.column)).alias("column")]
        value = [] if chosen.value is None else [pl.col(chosen.value).alias("value")]
        table = lazy.select(*names, *value)
        schema = table.collect_schema()
        for place in ("row", "column"):
            if schema[place].is_float():
                table = table.with_columns(pl.col(place).fill_nan(None))
        frame = table.with_columns(pl.col("row", "column").cast(pl.String)).collect()
    _refuse_missing_names(frame, chosen, source, where)
    frame, where, notes = _without_blank_lines(frame, where)
    if frame.is_empty():
        has_lines = where is not edge_number
        msg = f"{source} holds no edges, only names of columns{' or blank lines' * has_lines}." + (
            " If its one line is an edge, say header=False." if has_lines else ""
        )
        raise ReadError(msg)
    used = {chosen.row, chosen.column, chosen.value}
    unused = [name for name in lazy.collect_schema().names() if name not in used]
    notes += _of_unused(unused)
    if chosen.value is None and unused:
        notes += _of_answers(lazy.select(unused), source)
    return Pairs(frame, where, notes=notes)


def _refuse_missing_names(
    frame: "pl.DataFrame", chosen: Columns, source: str, where: Where
) -> None:
    for place, other in (("row", "column"), ("column", "row")):
        missing = frame[place].is_null() & ~frame[other].is_null()
        count = missing.sum()
        if count:
            first = where(int(missing.arg_max() or 0))
            msg = (
                f"{source} has {count:,} of {frame.height:,} edges without a name in column "
                f"{getattr(chosen, place)!r}; the first is {first}. Give both names of every "
                "edge, or take those edges out."
            )
            raise ReadError(msg)


def _without_blank_lines(
    frame: "pl.DataFrame", where: Where
) -> tuple["pl.DataFrame", Where, tuple[str, ...]]:
    """Take out the lines without any name; positions are still those of the source."""
    blank = frame["row"].is_null()  # by now both names are missing, or neither
    if not blank.any():
        return frame, where, ()
    positions = blank.not_().arg_true()
    note = f"{counted(int(blank.sum()), 'blank line was', 'blank lines were')} skipped."
    return frame.filter(~blank), lambda position: where(positions[position]), (note,)


def _of_unused(names: list[str]) -> tuple[str, ...]:
    if not names:
        return ()
    listed = ", ".join(map(repr, names[:5])) + (", ..." if len(names) > 5 else "")
    count = counted(len(names), "column was", "columns were")
    return (f"{count} not used: {listed}. value= names one to be read.",)


def _of_answers(unused: "pl.LazyFrame", source: str) -> tuple[str, ...]:
    """Tell of unused columns that say yes and no: without them every pair is a link."""
    import polars as pl

    with refusing(f"{source} cannot be read"):
        text = [name for name, kind in unused.collect_schema().items() if kind == pl.String]
        first = unused.select(text).head(_SAMPLE).collect()
    known = {*YES, *NO, *BLANK}
    for column in first:
        words = set(column.fill_null("").str.strip_chars().str.to_lowercase())
        if words <= known and not words.isdisjoint(NO):
            return (
                f"Column {column.name!r} says yes and no, but was not used: every line counts as "
                f"a link. value={column.name!r} reads it.",
            )
    return ()


def counted(number: int, one: str, many: str) -> str:
    """Return a number with the word that goes with it.

    Examples
    --------
    >>> counted(1, "line was", "lines were"), counted(2000, "line was", "lines were")
    ('1 line was', '2,000 lines were')
    """
    return f"{number:,} {one if number == 1 else many}"
