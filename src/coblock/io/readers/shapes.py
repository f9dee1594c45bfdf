"""What the lines and columns of a table are: one edge per line, or one column per object.

The first lines decide, unless the caller has. A table that may be either is refused.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from coblock.io import quantity
from coblock.io.readers import Absent, Layout
from coblock.io.readers.edges import (
    BLANK,
    NO,
    YES,
    Columns,
    EdgeTable,
    Locate,
    collect_edges,
    edge_number,
    list_some,
    mark_answers,
)
from coblock.io.readers.limits import convert_errors, refuse
from coblock.io.readers.names import collect_names

SAMPLE_LINES = 1000  # that decide
FEW_LINES = 4  # a table of 0 and 1 with so few lines may be a list of edges
MOST_WORDS = 12  # different answers of a questionnaire
_MARKS = {"0", "1", "0.0", "1.0", *YES, *NO, *BLANK}
_INDEX_NAMES = re.compile(r"(unnamed: ?\d+|index|level_0|row_?names?|\.\.\.1)?", re.IGNORECASE)
_TIME_NAMES = re.compile(
    r"(.*[_ .])?(date|time|timestamp|datetime|ts|day|when|at)([_ .].*)?", re.IGNORECASE
)
_VALUE_NAMES = re.compile(
    r"(.*[_ .])?(ratings?|stars|scores?|values?|weights?|counts?|amount|quantity|qty|price|times)",
    re.IGNORECASE,
)
_DATE = r"^(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4})([T ].*)?$"
_EPOCH = (5e8, 2.2e9)  # seconds from 1985 to 2039


@dataclass(frozen=True, slots=True)
class Shape:
    """How a table is read: as edges, or as cells with the names of the rows in one column."""

    columns: Columns  # of a wide table only the row; None: the lines are numbered
    cells: tuple[str, ...] = ()  # the columns of a wide table
    index: str | None = None  # a column that only counts the lines
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TableSource:
    """A table and what errors say of it."""

    lazy: pl.LazyFrame
    what: str  # path, or "The data frame"
    locate: Locate = edge_number
    has_header: bool = True
    row_names: Sequence[str] | None = None  # of a frame, apart from its columns


def read_table_source(
    table: TableSource, columns: Columns, layout: Layout | None, absent: Absent | None
) -> EdgeTable:
    """Read the edges of a table whose layout is given or found from its first lines."""
    if columns.yes:
        lazy, note = mark_answers(table.lazy, columns.yes, _answers(table, columns), table.what)
        layout = "wide" if columns.value is None else layout
        table, columns = replace(table, lazy=lazy), replace(columns, yes=())
        read = read_table_source(table, columns, layout, absent)
        return replace(read, notes=(note, *read.notes))
    if layout == "edges":
        return collect_edges(table.lazy, columns, table.what, table.locate)
    with convert_errors(f"{table.what} cannot be read"):
        sample = _without_blank_lines(table.lazy.head(SAMPLE_LINES)).collect()
        shape = find_shape(sample, columns, layout, table)
    if shape.cells:
        return _read_cells(table, shape, absent)
    used = [name for name in sample.columns if name != shape.index]
    edges = collect_edges(table.lazy.select(used), shape.columns, table.what, table.locate)
    return replace(edges, notes=(*shape.notes, *edges.notes))


def _answers(table: TableSource, columns: Columns) -> list[str]:
    """Return the columns with answers: the values of edges, or all but the row names."""
    with convert_errors(f"{table.what} cannot be read"):
        sample = table.lazy.head(SAMPLE_LINES).collect()
    if columns.value is not None:
        columns.choose(sample.columns, table.what)
        return [columns.value]
    _, rest = _split_index(sample)
    first = None if table.row_names is not None else rest[0]
    return [name for name in rest if name != (columns.row or first)]


def _without_blank_lines(lazy: pl.LazyFrame) -> pl.LazyFrame:
    return lazy.filter(~pl.all_horizontal(pl.all().is_null()))


def find_shape(
    sample: pl.DataFrame, columns: Columns, layout: Layout | None, table: TableSource
) -> Shape:
    """Return how a table with these first lines is read; refuse one that may be two things."""
    present = sample.columns
    columns = columns.without_missing(present)
    if layout == "wide":
        return _wide_shape(sample, columns, table)
    if layout is None and columns.names == (None, None, None):
        index, rest = _split_index(sample)
        cells = [name for name in rest if _is_marks(sample[name])]
        names = [name for name in rest if name not in cells]
        if not names and len(cells) > 2 and sample.height > FEW_LINES:
            return _shape_of_cells(index, cells, table)
        if names == rest[:1] and len(cells) > 1 and sample[names[0]].is_unique().all():
            return _shape_of_cells(names[0], cells, table, index)
        _refuse_unclear(sample, rest, cells, table)
    return _edge_shape(sample, columns, table)


def _split_index(sample: pl.DataFrame) -> tuple[str | None, list[str]]:
    """Return the first column if it only counts the lines, as pandas and R write it; the others."""
    first, *rest = sample.columns
    if not _INDEX_NAMES.fullmatch(first.strip()) or len(rest) < 2:
        return None, [first, *rest]
    numbers = sample[first].cast(pl.Int64, strict=False)
    counted = (numbers - numbers[0]).equals(pl.int_range(sample.height, dtype=pl.Int64, eager=True))
    if not sample.height or numbers.null_count() or not counted or numbers[0] not in {0, 1}:
        return None, [first, *rest]
    return first, rest


def is_mark(word: str) -> bool:
    """Return whether a word says 0, 1, yes, no, or nothing."""
    return word.strip().lower() in _MARKS


def _is_marks(column: pl.Series) -> bool:
    """Return whether a column says only 0, 1, yes, no, or nothing."""
    return set(_words(column)) <= _MARKS


def _words(column: pl.Series) -> Any:
    if column.dtype.is_nested():
        return pl.repeat("[]", len(column), eager=True)
    return column.cast(pl.String).fill_null("").str.strip_chars().str.to_lowercase()


def _shape_of_cells(
    row: str | None, cells: Sequence[str], table: TableSource, index: str | None = None
) -> Shape:
    """Return the shape of a wide table, with a note that says so."""
    named = "the row names are in the frame's index" if table.row_names else "rows are numbered"
    where = named if row is None else f"the row names are in {_quote(row)}"
    count = quantity(len(cells), "column")
    notes = [
        f"{table.what} was read as a wide table with {count} of cells; {where}. layout='edges' "
        "reads one edge per line."
    ]
    if index is not None:
        notes.append(_index_note(index))
    return Shape(Columns(row), tuple(cells), index, tuple(notes))


def _index_note(index: str) -> str:
    return f"Column {_quote(index)} only counts the lines and was not used; row= chooses it."


def _quote(name: str) -> str:
    return repr(name) if name else "1 (without a name)"


def _wide_shape(sample: pl.DataFrame, columns: Columns, table: TableSource) -> Shape:
    """Return the shape of a table that is wide because the caller says so."""
    if columns.column is not None or columns.value is not None:
        refuse(
            "A wide table has one column for each object, so that column= and value= have no "
            "meaning. Leave them out, or pass layout='edges'."
        )
    index, rest = _split_index(sample)
    row = columns.row
    if row is None:
        named = rest and not _is_numbers(sample[rest[0]])
        row = rest[0] if named else index
        if row is None and table.row_names is None and sample[rest[0]].is_unique().all():
            row = None if _is_marks(sample[rest[0]]) else rest[0]
    elif row not in sample.columns:
        columns.choose(sample.columns, table.what)
    others = [name for name in rest if name != row]
    cells = [name for name in others if _is_numbers(sample[name]) or _has_answers(sample[name])]
    left_out = [name for name in others if name not in cells]
    if not cells:
        refuse(
            f"{table.what} has no column of numbers, or of yes and no, beside the names. In a wide "
            "table each column is an object, and its cells say 1 or yes, 0 or no, or nothing."
        )
    shape = _shape_of_cells(row, cells, table, None if index == row else index)
    if left_out:
        count = quantity(len(left_out), "column has", "columns have")
        listed = list_some(left_out, 5)
        note = f"{count} neither numbers nor yes and no, and was not used: {listed}."
        shape = replace(shape, notes=(*shape.notes, note))
    return shape


def _has_answers(column: pl.Series) -> bool:
    """Return whether some cells of a column are yes or no; the others are then wrong values."""
    return not set(_words(column)).isdisjoint({*YES, *NO})


def _is_numbers(column: pl.Series) -> bool:
    """Return whether a column has numbers, yes, no, or nothing."""
    words = _words(column)
    numbers = words.cast(pl.Float64, strict=False)
    return bool((numbers.is_not_null() | words.is_in(list(_MARKS))).all())


def _refuse_unclear(
    sample: pl.DataFrame, rest: list[str], cells: list[str], table: TableSource
) -> None:
    """Refuse a table that may be wide, but has cells whose meaning is unknown."""
    first, others = rest[0], rest[1:]
    if len(others) < 2 or sample.height <= FEW_LINES:
        return
    choices = (
        f"If each column but {_quote(first)} is an object, pass layout='wide'; if each line is an "
        "edge, pass layout='edges', or name its columns with row= and column=."
    )
    distinct = sample[first].is_unique().all()
    if first in cells or not distinct:
        if len(cells) > 2 and first not in cells and len(cells) == len(others):
            repeated = sample[first].len() - sample[first].n_unique()
            refuse(
                f"{table.what} looks like a wide table: {len(cells):,} columns have 0 and 1 only. "
                f"But {repeated:,} of {sample.height:,} names in {_quote(first)} occur before. "
                f"Give each line another name. {choices}"
            )
        return
    if len(cells) > 2 and len(cells) > len(rest) - len(cells):
        refuse(
            f"{table.what} looks like a wide table with {len(cells):,} columns of 0 and 1, such as "
            f"{cells[0]!r}, and {len(rest) - len(cells):,} others. {choices}"
        )
    flagged = [name for name in rest if _not_names(name, sample[name], table.has_header)]
    if len(others) > 2 and not flagged and all(_is_numbers(sample[name]) for name in others):
        refuse(
            f"{table.what} has another name in {_quote(first)} on every line, and numbers in the "
            f"{len(others):,} other columns: it may be a wide table. {choices}"
        )
    vocabulary = {name: set(_words(sample[name])) - set(BLANK) for name in others}
    words = sorted(set().union(*vocabulary.values()))
    alone = [
        name
        for name, own in vocabulary.items()
        if not any(own & other for key, other in vocabulary.items() if key != name)
    ]
    if words and len(words) <= MOST_WORDS and not alone and not flagged:
        refuse(
            f"{table.what} looks like a wide table with the answers {list_some(words, 6)} in "
            f"{len(others):,} columns, but which of them are links is unknown. List those that "
            "are: yes=WORD,WORD. The others are then no links, and blank cells are unseen."
        )


def _not_names(name: str, column: pl.Series, has_header: bool) -> str:
    """Return what a column has instead of names, or nothing."""
    words = _words(column)
    words = words.filter(words != "")
    numbers = words.cast(pl.Float64, strict=False)
    if column.dtype.is_temporal() or (words.len() and words.str.contains(_DATE).all()):
        return "dates"
    if not words.len() or numbers.null_count():
        return ""
    is_time = has_header and _TIME_NAMES.fullmatch(name)
    if is_time or (not has_header and numbers.is_between(*_EPOCH).all()):
        return "times"
    if has_header and _VALUE_NAMES.fullmatch(name):
        return "values"
    return "numbers with decimals" if (numbers != numbers.round()).any() else ""


def _edge_shape(sample: pl.DataFrame, columns: Columns, table: TableSource) -> Shape:
    """Choose the columns of names: the first two that have neither times nor values."""
    index, rest = _split_index(sample)
    given = [name for name in columns.names if name is not None]
    if index in given or len(rest) < 2:
        index, rest = None, sample.columns
    free = [name for name in rest if name not in given]
    needed = [columns.row, columns.column].count(None)
    notes = [] if index is None else [_index_note(index)]
    if needed and len(free) > needed:
        found = {name: _not_names(name, sample[name], table.has_header) for name in free}
        wanted = [name for name in free if not found[name]]
        passed = [name for name in free[:needed] if found[name]]
        if passed and len(wanted) < needed:
            refuse(
                f"{table.what} has {found[passed[0]]} in column {passed[0]!r}, and too few other "
                f"columns that can be names. Its columns are {', '.join(map(repr, rest))}. Name "
                "those of the edges with row= and column=."
            )
        if passed:
            free = wanted
            kinds = ", ".join(f"{name!r} ({found[name]})" for name in passed)
            notes.append(
                f"Not used as names: {kinds}. Rows are in "
                f"{columns.row or free[0]!r}, columns in "
                f"{columns.column or free[needed - 1]!r}; row= and column= change that."
            )
    row = columns.row or (free.pop(0) if free else None)
    column = columns.column or (free.pop(0) if free else None)
    if row is None or column is None:  # refused there
        columns.choose(sample.columns, table.what)
    chosen = Columns(row, column, columns.value).choose(sample.columns, table.what)
    return Shape(chosen, index=index, notes=tuple(notes))


def _read_cells(table: TableSource, shape: Shape, absent: Absent | None) -> EdgeTable:
    """Return the cells of a wide table that are not 0; blank ones are unseen or 0."""
    row = shape.columns.row
    with convert_errors(f"{table.what} cannot be read"):
        wanted = [*([] if row is None else [row]), *shape.cells]
        frame = _without_blank_lines(table.lazy.select(wanted)).collect()
    names = _row_names(frame, row, table)
    parts, blanks, zeros = [], 0, 0
    for name in shape.cells:
        words = _words(frame[name])
        is_zero = (words.cast(pl.Float64, strict=False) == 0.0).fill_null(False)
        is_zero = is_zero | words.is_in(list(NO))
        is_blank = words.is_in(list(BLANK))
        zeros, blanks = zeros + int(is_zero.sum()), blanks + int(is_blank.sum())
        keep = ~is_zero if absent != "zero" else ~(is_zero | is_blank)
        part = {"row": names.filter(keep), "value": words.filter(keep)}
        parts.append(pl.DataFrame(part).with_columns(column=pl.lit(name)))
    notes = shape.notes
    if blanks and absent is None:
        if not zeros:
            refuse(
                f"{table.what} has {blanks:,} blank cells and no 0 or no. Say what a blank means: "
                "absent='zero' or absent='unseen'."
            )
        count = quantity(blanks, "blank cell is", "blank cells are")
        notes += (f"{count} unseen; absent='zero' counts blanks as 0.",)
    cells = pl.concat(parts).select("row", "column", "value")

    def locate(position: int) -> str:
        return f"row {cells['row'][position]!r}, column {cells['column'][position]!r}"

    where = "the lines" if row is None else f"column {_quote(row)}"
    used = f"rows from {where}, one column for each of {len(shape.cells):,} objects"
    objects = (tuple(names.to_list()), shape.cells)
    edges = collect_names(cells.lazy())
    return EdgeTable(*edges, locate, *objects, notes=notes, used=used, complete=True)


def _row_names(frame: pl.DataFrame, row: str | None, table: TableSource) -> pl.Series:
    """Return the names of the lines, which must differ."""
    if row is None:
        given = table.row_names or [str(number) for number in range(1, frame.height + 1)]
        names = pl.Series(given, dtype=pl.String)
    else:
        names = frame[row].cast(pl.String)
    missing = names.is_null() | (names.str.strip_chars() == "").fill_null(True)
    if missing.any():
        first = table.locate(int(missing.arg_max() or 0))
        refuse(
            f"{table.what} has {missing.sum():,} of {len(names):,} lines without a row name; the "
            f"first is {first}. Name them, or remove those lines."
        )
    repeated = ~names.is_first_distinct()
    if repeated.any():
        refuse(
            f"{table.what} is a wide table, but {repeated.sum():,} of {len(names):,} row names "
            f"occur before; the first is {names[int(repeated.arg_max() or 0)]!r}. Give each line "
            "another name."
        )
    return names
