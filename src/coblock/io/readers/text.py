"""Delimited text, plain or compressed. Polars parses it; this module finds the options."""

import csv
import gzip
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coblock.io.readers.edges import Columns, EdgeTable, collect_edges, edge_number
from coblock.io.readers.errors import ReadError, convert_errors

if TYPE_CHECKING:
    import polars as pl

WHITESPACE = "whitespace"
_CANDIDATES = (",", "\t", ";", "|", " ")
_NO_DELIMITER = "\x01"  # occurs in no text, so that each line is one field
_SAMPLE_LINES, _SAMPLE_BYTES = 200, 1 << 18  # inspected to find delimiter and header
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"  # first bytes of compressed files


@dataclass(frozen=True, slots=True)
class TextLayout:
    """Layout of a text file; the first lines decide what is None."""

    delimiter: str | None = None  # one character, or "whitespace" for runs of blanks and tabs
    header: bool | None = None  # whether the first line names the columns
    encoding: str = "utf-8"
    comment: str | None = None  # lines that begin with it are skipped
    assume_header: bool = True  # if the first lines do not decide


def read_text(path: Path, columns: Columns, layout: TextLayout) -> EdgeTable:
    """Read the edges of a text file."""
    source: Any = path if _is_utf8(layout.encoding) else _decode(path, layout.encoding)
    lines, blank = _first_lines(source, path, layout)
    delimiter = _find_delimiter(lines, layout.delimiter)
    records = _split_lines(lines, delimiter)
    header, notes = layout.header, []
    if header is None:
        named = columns.without_missing(records[0]).names
        header = _has_header(records, named, layout.assume_header)
        what, other = ("the header", False) if header else ("an edge", True)
        shown = ", ".join(records[0])[:80]
        notes.append(f"The first line ({shown}) was read as {what}; header={other} changes that.")
    if layout.delimiter is None and delimiter not in {",", "\t"}:
        notes.append(f"The fields were split at {delimiter!r}; delimiter= changes that.")
    text = _Text(path, source, delimiter, header, layout.comment, blank)
    try:
        with convert_errors(f"{path} cannot be read"):
            lazy = text.scan(width=len(records[0]))
        edges = collect_edges(lazy, columns, str(path), text.locate)
    except ReadError as error:
        if _is_utf8(layout.encoding):
            _refuse_other_encodings(path, error)
        if "more fields" in str(error.__cause__) and delimiter != WHITESPACE:
            text.refuse_ragged(error)
        raise
    return replace(edges, notes=(*notes, *edges.notes))


@dataclass(frozen=True, slots=True)
class _Text:
    """A text file with known options."""

    path: Path
    source: Any  # path, or the bytes as UTF-8
    delimiter: str
    header: bool
    comment: str | None
    blank: int  # blank lines at the beginning

    def scan(self, width: int) -> "pl.LazyFrame":
        if self.delimiter == WHITESPACE:
            return self._scan_whitespace(width)
        return _scan(
            self.source,
            separator=self.delimiter,
            has_header=self.header,
            comment_prefix=self.comment,
            skip_lines=0 if self.comment else self.blank,  # polars counts comments as lines
            with_column_names=None if self.header else _number_columns,
        )

    def _scan_whitespace(self, width: int) -> "pl.LazyFrame":
        import polars as pl

        fields = split_at_whitespace(self.source, self.comment)
        wrong = fields.list.len() != width
        if wrong.any():
            first = fields[int(wrong.arg_max() or 0)].to_list()
            msg = (
                f"{self.path} has {wrong.sum():,} of {len(fields):,} lines without the {width:,} "
                f"fields of the first; the first of them is {first!r}. Correct them, or name "
                "another delimiter with delimiter=."
            )
            raise ReadError(msg)
        first_line = fields[0].to_list()
        names = first_line if self.header else _number_columns(first_line)
        table = fields.slice(1) if self.header else fields
        return pl.LazyFrame([table.list.get(i).alias(name) for i, name in enumerate(names)])

    def locate(self, position: int) -> str:
        """Return the line of an edge, or its number if the lines cannot be counted."""
        if self.delimiter == WHITESPACE:
            return edge_number(position)
        before = self.blank + self.header + position
        line, _ = next(islice(self._records(), before, None), (edge_number(position), []))
        return line

    def refuse_ragged(self, cause: ReadError) -> None:
        """Refuse a file whose lines have different numbers of fields."""
        records = self._records()
        _, first = next(records, ("", []))
        line = next((line for line, fields in records if len(fields) > len(first)), "a line")
        msg = (
            f"{self.path} is ragged: {line} has more fields than the first. Quote names that hold "
            f"the delimiter {self.delimiter!r}, or name another with delimiter=."
        )
        raise ReadError(msg) from cause

    def _records(self) -> Iterator[tuple[str, list[str]]]:
        """Yield each record with the number of its last line, up to one that cannot be parsed.

        A quoted name may contain line breaks, so records are not lines.
        """
        suffix = "" if self.comment is None else " without comments"
        with suppress(csv.Error, UnicodeError, ReadError):
            data = self.source if isinstance(self.source, bytes) else _decompress(self.path)
            text = StringIO(data.decode("utf-8-sig"), newline="\n")
            lines = (line for line in text if not self.comment or not line.startswith(self.comment))
            reader = csv.reader(lines, delimiter=self.delimiter)
            for fields in reader:
                yield f"line {reader.line_num:,}{suffix}", fields


def split_at_whitespace(source: Any, comment: str | None) -> "pl.Series":
    """Return the fields of each line that is not blank."""
    import polars as pl

    lines = _scan_lines(source, comment).select(pl.col("1").str.extract_all(r"\S+"))
    fields = lines.collect()["1"]
    return fields.filter(fields.list.len() > 0)


def _scan(source: Any, **options: Any) -> "pl.LazyFrame":
    """Scan text with every field a string."""
    import polars as pl

    plain: dict[str, Any] = {} if isinstance(source, bytes) else {"glob": False}
    return pl.scan_csv(source, infer_schema=False, **plain, **options)


def _scan_lines(source: Any, comment: str | None, **options: Any) -> "pl.LazyFrame":
    """Scan text with each line as one field of the column ``1``."""
    return _scan(
        source,
        separator=_NO_DELIMITER,
        quote_char=None,
        has_header=False,
        comment_prefix=comment,
        with_column_names=_number_columns,
        **options,
    )


def _number_columns(names: list[str]) -> list[str]:
    """Return the names of columns without a header: their numbers, from 1."""
    return [str(number) for number, _ in enumerate(names, start=1)]


def _is_utf8(encoding: str) -> bool:
    return encoding.lower().replace("_", "-") in {"utf-8", "utf8", "utf-8-sig"}


def _decompress(path: Path) -> bytes:
    """Return the bytes of a file, without gzip compression."""
    data = path.read_bytes()
    if data.startswith(_GZIP):
        with convert_errors(f"{path} is a damaged gzip file"):
            return gzip.decompress(data)
    if data.startswith(_ZSTD):
        msg = f"{path} is compressed with zstd, which is read as UTF-8 only. Decompress it first."
        raise ReadError(msg)
    return data


def _decode(path: Path, encoding: str) -> bytes:
    """Return a text of another encoding as UTF-8."""
    data = _decompress(path)
    try:
        return data.decode(encoding).encode("utf-8")
    except LookupError as error:
        msg = f"There is no encoding {encoding!r}. Examples: utf-8, latin-1, cp1252, utf-16."
        raise ReadError(msg) from error
    except (UnicodeError, ValueError) as error:
        msg = f"{path} is not {encoding}: {error}. Name its encoding with encoding=."
        raise ReadError(msg) from error


def _refuse_other_encodings(path: Path, cause: ReadError) -> None:
    """Refuse a file that is not UTF-8, and name the first wrong byte."""
    try:
        data = _decompress(path)
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        guess = "utf-16" if data[:2] in {b"\xff\xfe", b"\xfe\xff"} else "latin-1"
        msg = (
            f"{path} is not UTF-8: byte 0x{data[error.start]:02x} at position {error.start:,}, "
            f"line {line:,}. If it is {guess}, pass encoding={guess!r}."
        )
        raise ReadError(msg) from cause
    except ReadError:
        if "utf-8" in str(cause.__cause__):
            msg = f"{path} is not UTF-8. Decompress it and name its encoding with encoding=."
            raise ReadError(msg) from cause


def _first_lines(source: Any, path: Path, layout: TextLayout) -> tuple[list[str], int]:
    """Return the first lines that are not blank, and the number of blank lines before them."""
    sample = source
    if not isinstance(source, bytes):
        with path.open("rb") as file:
            data = file.read(_SAMPLE_BYTES)
        sample = source if data.startswith((_GZIP, _ZSTD)) else data
    with convert_errors(f"{path} cannot be read as text"):
        table = _scan_lines(
            sample,
            layout.comment,
            n_rows=_SAMPLE_LINES,
            truncate_ragged_lines=True,
            encoding="utf8-lossy",
        )
        found = table.collect()["1"].fill_null("").to_list()
    lines = [line.removeprefix("\ufeff") for line in found if line.strip()]
    if not lines:
        msg = f"{path} holds no edges, only blank lines or comments."
        raise ReadError(msg)
    return lines, [bool(line.strip()) for line in found].index(True)


def _find_delimiter(lines: list[str], given: str | None) -> str:
    """Return the delimiter that splits the first lines into the same number of fields, two or more.

    If there is none, return the first that splits the first line.
    """
    if given is not None:
        if given != WHITESPACE and (len(given) != 1 or not given.isascii() or given in '"\r\n\x01'):
            msg = f"delimiter must be one ASCII character or 'whitespace', but is {given!r}."
            raise ReadError(msg)
        return given
    for candidate in _CANDIDATES:
        records = _split_lines(lines, candidate)
        widths = {len(record) for record in records}
        if len(widths) == 1 and widths != {1}:
            has_runs = candidate == " " and any("" in record for record in records)
            return WHITESPACE if has_runs else candidate
    for candidate in _CANDIDATES[:-1]:
        if len(_split_lines(lines, candidate)[0]) > 1:
            return candidate
    return WHITESPACE


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


def _has_header(
    records: list[list[str]], named: tuple[str | None, ...], assume_header: bool
) -> bool:
    """Return whether the first line names the columns.

    It does if columns were chosen by name. It does not if one of its first two fields is a number,
    or occurs again in its column. It does if it has a word above a column of numbers.
    """
    first, rest = [field.strip() for field in records[0]], records[1:]
    if not all(name is None or name.isdigit() for name in named):
        return True
    if any(_is_number(field) or not field for field in first[:2]):
        return False
    columns = [{record[i].strip() for record in rest if i < len(record)} for i in range(len(first))]
    if any(field in column for field, column in zip(first[:2], columns, strict=False)):
        return False
    return assume_header or any(
        column and not _is_number(field) and all(map(_is_number, column))
        for field, column in zip(first, columns, strict=True)
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
