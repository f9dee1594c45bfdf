"""Delimited text and lists, plain or compressed. Polars parses; this module finds the options."""

import csv
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl

from coblock.io.readers import DELIMITERS, Absent, Layout
from coblock.io.readers import edges as named
from coblock.io.readers.edges import Columns, EdgeTable
from coblock.io.readers.limits import Limits, ReadError, convert_errors, refuse
from coblock.io.readers.names import collect_names
from coblock.io.readers.shapes import TableSource, is_mark, read_table_source

WHITESPACE = "whitespace"
_NO_DELIMITER = "\x01"  # occurs in no text, so that each line is one field
_SAMPLE_LINES, _SAMPLE_BYTES = 200, 1 << 18  # inspected to find delimiter and header
_LISTS = (
    "If each line lists the items of one basket, pass layout='baskets'; if it lists the neighbours "
    "of its first name, pass layout='adjacency'."
)
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"  # first bytes of compressed files


@dataclass(frozen=True, slots=True)
class TextLayout:
    """Layout of a text file; the first lines decide what is None."""

    delimiter: str | None = None  # one character, or "whitespace" for runs of blanks and tabs
    header: bool | None = None  # whether the first line names the columns
    encoding: str = "utf-8"
    comment: str | None = None  # lines that begin with it are skipped
    assume_header: bool = True  # if the first lines do not decide


def read_text(
    path: Path,
    columns: Columns,
    text: TextLayout,
    limits: Limits,
    layout: Layout | None,
    absent: Absent | None,
    *,
    content: bytes | None = None,
) -> EdgeTable:
    """Read the edges of a text file, or of ``content``, for which ``path`` is only a name."""
    is_utf8 = text.encoding.lower().replace("_", "-") in {"utf-8", "utf8", "utf-8-sig"}
    source: Any = path if content is None else content
    if content is None and (not is_utf8 or _starts_with(path, _GZIP)):
        source = _decompress(path, limits)
    if not is_utf8:
        source = _decode(source, path, text.encoding)
    if layout in {"baskets", "adjacency"}:
        data = source if isinstance(source, bytes) else _decompress(path, limits)
        decoded = _decode(data, path, "utf-8-sig").decode("utf-8")
        return read_lists(decoded, str(path), layout, text.delimiter)
    found, width, notes = _inspect(source, path, columns, text, limits)
    try:
        if layout is None:
            found.refuse_short_lines(width)
        with convert_errors(f"{path} cannot be read"):
            lazy = found.scan(width=width)
        table = TableSource(lazy, str(path), found.locate, found.header)
        edges = read_table_source(table, columns, layout, absent)
    except ReadError as error:
        if is_utf8:
            _refuse_other_encodings(source, path, error)
        if "more fields" in str(error.__cause__) and found.delimiter != WHITESPACE:
            found.refuse_ragged(error)
        raise
    return replace(edges, notes=(*notes, *edges.notes))


def _inspect(
    source: Any, path: Path, columns: Columns, text: TextLayout, limits: Limits
) -> tuple["_Text", int, list[str]]:
    """Find delimiter and header from the first lines; return the number of fields, and notes."""
    lines, blank = _first_lines(source, path, text)
    delimiter = _find_delimiter(lines, text.delimiter)
    records = _split_lines(lines, delimiter)
    limits.check_columns(len(records[0]), path)
    header, notes = text.header, []
    if header is None:
        chosen = columns.without_missing(records[0]).names
        header = _has_header(records, chosen, text.assume_header)
        what, other = ("the header", False) if header else ("an edge", True)
        shown = ", ".join(records[0])[:80]
        notes.append(f"The first line ({shown}) was read as {what}; header={other} changes that.")
    if text.delimiter is None and delimiter not in {",", "\t"}:
        notes.append(f"The fields were split at {delimiter!r}; delimiter= changes that.")
    widths = tuple(len(record) for record in records)
    found = _Text(path, source, delimiter, header, text.comment, blank, widths)
    return found, len(records[0]), notes


@dataclass(frozen=True, slots=True)
class _Text:
    """A text file with known options."""

    path: Path
    source: Any  # path, or the bytes as UTF-8
    delimiter: str
    header: bool
    comment: str | None
    blank: int  # blank lines at the beginning
    widths: tuple[int, ...] = ()  # numbers of fields of the first lines

    def refuse_short_lines(self, width: int) -> None:
        """Refuse lines with fewer fields than the first, which polars would fill up."""
        others = self.widths[1:]
        if self.delimiter != WHITESPACE and self.header and set(others) == {width + 1}:
            refuse(
                f"{self.path} has {width:,} names in its first line, but {width + 1:,} fields in "
                "the others, as write.table of R writes them. Write it with write.csv, or with "
                "col.names=NA."
            )
        short = [number for number, fields in enumerate(others, start=2) if fields < width]
        if short and width > 2 and self.delimiter != WHITESPACE:
            refuse(
                f"{self.path} is ragged: {len(short):,} of the first {len(self.widths):,} lines "
                f"have fewer fields than the first, which has {width:,}; the first of them is line "
                f"{short[0] + self.blank:,}. {_LISTS}"
            )

    def scan(self, width: int) -> pl.LazyFrame:
        """Scan the fields of all lines, each as a string."""
        import polars as pl

        if self.delimiter != WHITESPACE:
            return _scan(
                self.source,
                separator=self.delimiter,
                has_header=self.header,
                comment_prefix=self.comment,
                skip_lines=0 if self.comment else self.blank,  # polars counts comments as lines
                with_column_names=None if self.header else _number_columns,
            )
        fields = split_at_whitespace(self.source, self.comment)
        wrong = fields.list.len() != width
        if wrong.any():
            refuse(
                f"{self.path} has {wrong.sum():,} of {len(fields):,} lines without the {width:,} "
                f"fields of the first; the first of them is {fields.filter(wrong)[0].to_list()!r}. "
                "Correct them, or name another delimiter with delimiter=."
            )
        first_line = fields[0].to_list()
        names = first_line if self.header else _number_columns(first_line)
        table = fields.slice(1) if self.header else fields
        return pl.LazyFrame([table.list.get(i).alias(name) for i, name in enumerate(names)])

    def locate(self, position: int) -> str:
        """Return the line of an edge, or its number if the lines cannot be counted."""
        if self.delimiter == WHITESPACE:
            return named.edge_number(position)
        before = self.blank + self.header + position
        line, _ = next(islice(self._records(), before, None), (named.edge_number(position), []))
        return line

    def refuse_ragged(self, cause: ReadError) -> None:
        """Refuse a file whose lines have different numbers of fields."""
        records = self._records()
        _, first = next(records, ("", []))
        line = next((line for line, fields in records if len(fields) > len(first)), "a line")
        msg = (
            f"{self.path} is ragged: {line} has more fields than the first. Quote names that hold "
            f"the delimiter {self.delimiter!r}, or name another with delimiter=. {_LISTS}"
        )
        raise ReadError(msg) from cause

    def _records(self) -> Iterator[tuple[str, list[str]]]:
        """Yield each record with the number of its last line, up to one that cannot be parsed.

        A quoted name may contain line breaks, so records are not lines.
        """
        suffix = "" if self.comment is None else " without comments"
        with suppress(csv.Error, UnicodeError, ReadError):
            data = self.source if isinstance(self.source, bytes) else self.path.read_bytes()
            text = StringIO(data.decode("utf-8-sig"), newline="\n")
            lines = (line for line in text if not self.comment or not line.startswith(self.comment))
            reader = csv.reader(lines, delimiter=self.delimiter)
            for fields in reader:
                yield f"line {reader.line_num:,}{suffix}", fields


def split_at_whitespace(source: Any, comment: str | None) -> pl.Series:
    """Return the fields of each line that is not blank."""
    lines = _scan_lines(source, comment).select(pl.col("1").str.extract_all(r"\S+"))
    return lines.filter(pl.col("1").list.len() > 0).collect()["1"]


def _scan(source: Any, **options: Any) -> pl.LazyFrame:
    """Scan text with every field a string."""
    plain: dict[str, Any] = {} if isinstance(source, bytes) else {"glob": False}
    return pl.scan_csv(source, infer_schema=False, **plain, **options)


def _scan_lines(source: Any, comment: str | None, **options: Any) -> pl.LazyFrame:
    """Scan text with each line as one field of the column ``1``."""
    options |= {"separator": _NO_DELIMITER, "quote_char": None, "has_header": False}
    return _scan(source, comment_prefix=comment, with_column_names=_number_columns, **options)


def _number_columns(names: list[str]) -> list[str]:
    """Return the names of columns without a header: their numbers, from 1."""
    return [str(number) for number, _ in enumerate(names, start=1)]


def _starts_with(path: Path, magic: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(magic)) == magic


def _decompress(path: Path, limits: Limits) -> bytes:
    """Return the bytes of a file, without gzip compression."""
    if _starts_with(path, _GZIP):
        return limits.unzip(path)
    if _starts_with(path, _ZSTD):
        refuse(f"{path} is compressed with zstd, which is read as UTF-8 only. Decompress it first.")
    return path.read_bytes()


def _decode(data: bytes, path: Path, encoding: str) -> bytes:
    """Return a text of another encoding as UTF-8."""
    try:
        return data.decode(encoding).encode("utf-8")
    except LookupError as error:
        msg = f"There is no encoding {encoding!r}. Examples: utf-8, latin-1, cp1252, utf-16."
        raise ReadError(msg) from error
    except (UnicodeError, ValueError) as error:
        msg = f"{path} is not {encoding}: {error}. Name its encoding with encoding=."
        raise ReadError(msg) from error


def _refuse_other_encodings(source: Any, path: Path, cause: ReadError) -> None:
    """Refuse a file that is not UTF-8, and name the first wrong byte."""
    if source is path and _starts_with(path, _ZSTD):
        if "utf-8" in str(cause.__cause__):
            msg = f"{path} is not UTF-8. Decompress it and name its encoding with encoding=."
            raise ReadError(msg) from cause
        return
    data = path.read_bytes() if source is path else source
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        guess = "utf-16" if data[:2] in {b"\xff\xfe", b"\xfe\xff"} else "latin-1"
        msg = (
            f"{path} is not UTF-8: byte 0x{data[error.start]:02x} at position {error.start:,}, "
            f"line {line:,}. If it is {guess}, pass encoding={guess!r}."
        )
        raise ReadError(msg) from cause


def _first_lines(source: Any, path: Path, layout: TextLayout) -> tuple[list[str], int]:
    """Return the first lines that are not blank, and the number of blank lines before them."""
    options = {"n_rows": _SAMPLE_LINES, "truncate_ragged_lines": True, "encoding": "utf8-lossy"}
    lines: list[str] = []
    size = _SAMPLE_BYTES
    while not lines:  # the sample may contain only comments
        sample = source[:size] if isinstance(source, bytes) else _sample(path, size)
        with convert_errors(f"{path} cannot be read as text"):
            table = _scan_lines(sample, layout.comment, raise_if_empty=False, **options)
            first = table.collect().to_dict(as_series=False).get("1", [])
        found = [line or "" for line in first]
        lines = [line[:size].removeprefix("\ufeff") for line in found if line.strip()]
        if not isinstance(sample, bytes) or len(sample) < size:
            break
        size *= 8
    if not lines:
        refuse(f"{path} holds no edges, only blank lines or comments.")
    return lines, [bool(line.strip()) for line in found].index(True)


def _sample(path: Path, size: int) -> Any:
    """Return the first bytes of a file, or the path of one that polars decompresses."""
    with path.open("rb") as file:
        data = file.read(size)
    return path if data.startswith(_ZSTD) else data


def _find_delimiter(lines: list[str], given: str | None) -> str:
    """Return the delimiter that splits the first lines into the same number of fields, two or more.

    If there is none, return the first that splits the first line.
    """
    if given is not None:
        if given != WHITESPACE and (len(given) != 1 or not given.isascii() or given in '"\r\n\x01'):
            refuse(f"delimiter must be one ASCII character or 'whitespace', but is {given!r}.")
        return given
    for candidate in DELIMITERS:
        records = _split_lines(lines, candidate)
        widths = {len(record) for record in records}
        if len(widths) == 1 and widths != {1}:
            has_runs = candidate == " " and any("" in record for record in records)
            return WHITESPACE if has_runs else candidate
    splitting = (each for each in DELIMITERS[:-1] if len(_split_lines(lines, each)[0]) > 1)
    return next(splitting, WHITESPACE)


def _split_lines(lines: list[str], delimiter: str) -> list[list[str]]:
    """Return the records of the first lines, without the last if it may be incomplete."""
    if delimiter == WHITESPACE:
        return [line.split() for line in lines]
    try:
        text = [line + "\n" for line in lines]
        records = [record for record in csv.reader(text, delimiter=delimiter) if record]
    except csv.Error:
        records = [line.split(delimiter) for line in lines]
    return records[:-1] if len(lines) >= _SAMPLE_LINES and len(records) > 1 else records


def _has_header(records: list[list[str]], chosen: Sequence[str | None], assumed: bool) -> bool:
    """Return whether the first line names the columns.

    It does if columns were chosen by name, if only its first field is blank (pandas, R), or if its
    other fields stand above 0 and 1 only. It does not if one of its first two fields is a number,
    or occurs again in its column. It does if it has a word above a column of numbers.
    """
    first, rest = [field.strip() for field in records[0]], records[1:]
    if not all(name is None or name.isdigit() for name in chosen):
        return True
    if len(first) > 2 and not first[0] and all(first[1:]):
        return True
    marks = [is_mark(field) for record in rest for field in record[1:]]
    if len(first) > 2 and marks and all(marks) and not any(map(is_mark, first)):
        return True
    if any(_is_number(field) or not field for field in first[:2]):
        return False
    columns = [{record[i].strip() for record in rest if i < len(record)} for i in range(len(first))]
    if any(field in column for field, column in zip(first[:2], columns, strict=False)):
        return False
    return assumed or any(
        column and not _is_number(field) and all(map(_is_number, column))
        for field, column in zip(first, columns, strict=True)
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# Lists of columns


def read_lists(text: str, what: str, layout: str, delimiter: str | None) -> EdgeTable:
    """Read lines that list columns: baskets, or neighbours after the name of the row.

    Baskets are numbered by line. Fields are separated by commas if the first lines have one, else
    by tabs, semicolons or white space. Lines that begin with ``#`` are comments.
    """
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if not lines:
        refuse(f"{what} holds no edges, only blank lines or comments.")
    if delimiter is None:
        found = (each for each in ",\t;" if any(each in line for line in lines[:_SAMPLE_LINES]))
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
