"""Delimited text, plain or compressed. Polars parses; here only its options are found."""

import csv
import gzip
from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coblock.io.readers.errors import ReadError, refusing
from coblock.io.readers.pairs import Columns, Pairs, collect_pairs, edge_number

if TYPE_CHECKING:
    import polars as pl

WHITESPACE = "whitespace"
_CANDIDATES = (",", "\t", ";", "|", " ")
_NO_DELIMITER = "\x01"  # a character that no line has: each line is one field
_SAMPLE, _BEGINNING = 200, 1 << 18  # lines and bytes that are looked at
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True, slots=True)
class Layout:
    """How a text file is laid out; what is None is found by looking at the first lines.

    Attributes
    ----------
    delimiter : str or None
        One character, or ``"whitespace"`` for runs of blanks and tabs.
    header : bool or None
        Whether the first line names the columns.
    encoding : str
        As Python names it.
    comment : str or None
        Lines that begin so are left out.
    assume_header : bool
        What holds where the first lines do not tell.
    """

    delimiter: str | None = None
    header: bool | None = None
    encoding: str = "utf-8"
    comment: str | None = None
    assume_header: bool = True

    def of_edges(self) -> "Layout":
        """Return the layout of SNAP's text: comments, and a header only where it is plain."""
        return replace(self, comment="#", assume_header=False)

    def with_delimiter(self, delimiter: str) -> "Layout":
        """Return the layout with its delimiter told."""
        return replace(self, delimiter=delimiter)


def read_text(path: Path, columns: Columns, layout: Layout, *, lenient: bool = False) -> Pairs:
    """Read the edges of a text file; ``lenient`` forgets chosen columns that it does not have."""
    source: Any = path if _is_utf8(layout.encoding) else _decoded(path, layout.encoding)
    lines, blank = _first_lines(source, path, layout)
    delimiter = _delimiter(lines, layout)
    records = _records(lines, delimiter)
    named = [name for name in (columns.row, columns.column, columns.value) if name is not None]
    if lenient:
        named = [name for name in named if name in records[0]]
    header = layout.header
    if header is None:
        header = _has_header(records, named, layout.assume_header)
    table = _Table(path, source, delimiter, header, layout, blank)
    try:
        with refusing(str(path)):
            lazy = table.scan(width=len(records[0]))
            present = lazy.collect_schema().names()
        wanted = columns.known_to(present) if lenient else columns
        pairs = collect_pairs(lazy, wanted, str(path), table.where)
    except ReadError as error:
        table.explain(error)
        raise
    notes = _notes(layout, delimiter, header, records[0])
    return Pairs(pairs.frame, pairs.where, notes=(*notes, *pairs.notes))


@dataclass(frozen=True, slots=True)
class _Table:
    """A text file whose layout is known."""

    path: Path
    source: Any
    delimiter: str
    header: bool
    layout: Layout
    blank: int  # lines before the first that is not

    def scan(self, width: int) -> "pl.LazyFrame":
        if self.delimiter == WHITESPACE:
            return self._scan_whitespace(width)
        return _scan(
            self.source,
            separator=self.delimiter,
            has_header=self.header,
            comment_prefix=self.layout.comment,
            skip_lines=0 if self.layout.comment else self.blank,  # polars counts comments as lines
            with_column_names=None if self.header else _numbered,
        )

    def _scan_whitespace(self, width: int) -> "pl.LazyFrame":
        import polars as pl

        fields = whitespace_fields(self.source, self.layout.comment)
        wrong = fields.list.len() != width
        if wrong.any():
            first = int(wrong.arg_max() or 0)
            msg = (
                f"{self.path} has {wrong.sum():,} of {len(fields):,} lines without the {width:,} "
                f"fields of the first; the first of them is {fields[first].to_list()!r}. Correct "
                "them, or name another delimiter with delimiter=."
            )
            raise ReadError(msg)
        names = fields[0].to_list() if self.header else _numbered(fields[0].to_list())
        table = fields.slice(1) if self.header else fields
        return pl.LazyFrame([table.list.get(i).alias(name) for i, name in enumerate(names)])

    def where(self, position: int) -> str:
        """Say on which line an edge stands; names may hold line breaks, so lines are counted."""
        if self.delimiter == WHITESPACE:
            return edge_number(position)
        try:
            reader = csv.reader(self._plain_lines(), delimiter=self.delimiter)
            for number, _ in enumerate(reader, start=-int(self.header) - self.blank):
                if number == position:
                    return self._line(reader.line_num)
        except (csv.Error, UnicodeError, ReadError):
            pass  # the edge has a number all the same
        return edge_number(position)

    def explain(self, error: ReadError) -> None:
        """Raise a better error where polars only says that a file cannot be parsed."""
        if _is_utf8(self.layout.encoding):
            _refuse_other_encodings(self.path, error)
        self._refuse_ragged_lines(error)

    def _refuse_ragged_lines(self, error: ReadError) -> None:
        if "more fields" not in str(error.__cause__) or self.delimiter == WHITESPACE:
            return
        msg = (
            f"{self.path} is ragged: {self._longer_line()} has more fields than the first. Quote "
            f"names that hold the delimiter {self.delimiter!r}, or name another with delimiter=."
        )
        raise ReadError(msg) from error

    def _longer_line(self) -> str:
        reader = csv.reader(self._plain_lines(), delimiter=self.delimiter)
        try:
            width = len(next(reader))
            for fields in reader:
                if len(fields) > width:
                    return self._line(reader.line_num)
        except (csv.Error, UnicodeError, ReadError, StopIteration):
            pass  # the sentence holds without the number
        return "a line"

    def _line(self, number: int) -> str:
        return f"line {number:,}" + ("" if self.layout.comment is None else " without comments")

    def _plain_lines(self) -> Iterator[str]:
        data = self.source if isinstance(self.source, bytes) else _decompressed(self.path)
        for line in StringIO(data.decode("utf-8-sig"), newline="\n"):
            if self.layout.comment is None or not line.startswith(self.layout.comment):
                yield line


def whitespace_fields(source: Any, comment: str | None) -> "pl.Series":
    """Return the fields of each line that has some, split at white space."""
    import polars as pl

    lines = _scan(source, **_raw(comment)).select(pl.col("1").str.extract_all(r"\S+"))
    fields = lines.collect()["1"]
    return fields.filter(fields.list.len() > 0)


def _scan(source: Any, **options: Any) -> "pl.LazyFrame":
    """Scan text with every field a string."""
    import polars as pl

    plain: dict[str, Any] = {} if isinstance(source, bytes) else {"glob": False}
    return pl.scan_csv(source, infer_schema=False, **plain, **options)


def _raw(comment: str | None) -> dict[str, Any]:
    """Return the options by which each line is one field."""
    return {
        "separator": _NO_DELIMITER,
        "quote_char": None,
        "has_header": False,
        "comment_prefix": comment,
        "with_column_names": _numbered,
    }


def _numbered(names: list[str]) -> list[str]:
    """Return the names of columns that have none: their places, counted from 1."""
    return [str(number) for number, _ in enumerate(names, start=1)]


def _is_utf8(encoding: str) -> bool:
    return encoding.lower().replace("_", "-") in {"utf-8", "utf8", "utf-8-sig"}


def _decompressed(path: Path) -> bytes:
    """Return the bytes of a file, taken out of gzip."""
    data = path.read_bytes()
    if data.startswith(_GZIP):
        with refusing(f"{path} is a damaged gzip file"):
            return gzip.decompress(data)
    if data.startswith(_ZSTD):
        msg = f"{path} is compressed with zstd, which is read as UTF-8 only. Unpack it first."
        raise ReadError(msg)
    return data


def _decoded(path: Path, encoding: str) -> bytes:
    """Return a text of another encoding as UTF-8."""
    data = _decompressed(path)
    try:
        return data.decode(encoding).encode("utf-8")
    except LookupError as error:
        msg = f"There is no encoding {encoding!r}. Examples: utf-8, latin-1, cp1252, utf-16."
        raise ReadError(msg) from error
    except (UnicodeError, ValueError) as error:
        msg = f"{path} is not {encoding}: {error}. Name its encoding with encoding=."
        raise ReadError(msg) from error


def _refuse_other_encodings(path: Path, cause: ReadError) -> None:
    try:
        data = _decompressed(path)
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        guess = "utf-16" if data[:2] in {b"\xff\xfe", b"\xfe\xff"} else "latin-1"
        msg = (
            f"{path} is not UTF-8: byte 0x{data[error.start]:02x} at position {error.start:,}, "
            f"line {line:,}. If it is {guess}, say encoding={guess!r}."
        )
        raise ReadError(msg) from cause
    except ReadError:
        if "utf-8" in str(cause.__cause__):
            msg = f"{path} is not UTF-8. Unpack it and name its encoding with encoding=."
            raise ReadError(msg) from cause


def _first_lines(source: Any, path: Path, layout: Layout) -> tuple[list[str], int]:
    """Return the first lines that are not blank, and how many blank ones come before them."""
    with refusing(f"{path} cannot be read as text"):
        options = _raw(layout.comment) | {"truncate_ragged_lines": True, "encoding": "utf8-lossy"}
        table = _scan(_beginning(source), n_rows=_SAMPLE, **options)
        found = table.collect()["1"].fill_null("").to_list()
    lines = [line.removeprefix("\ufeff") for line in found if line.strip()]
    if not lines:
        msg = f"{path} holds no edges, only blank lines or comments."
        raise ReadError(msg)
    return lines, [bool(line.strip()) for line in found].index(True)


def _beginning(source: Any) -> Any:
    """Return enough of a plain text to see its layout, and all of what is compressed."""
    if isinstance(source, bytes):
        return source
    with Path(source).open("rb") as file:
        data = file.read(_BEGINNING)
    return source if data.startswith((_GZIP, _ZSTD)) else data


def _delimiter(lines: list[str], layout: Layout) -> str:
    """Return the delimiter that cuts the first lines into the same number of fields, two or more.

    Where none does so for all of them, the first that cuts the first line.
    """
    told = layout.delimiter
    if told is not None:
        if told != WHITESPACE and (len(told) != 1 or not told.isascii() or told in '"\r\n\x01'):
            msg = f"delimiter must be one ASCII character or 'whitespace', but is {told!r}."
            raise ReadError(msg)
        return told
    for candidate in _CANDIDATES:
        records = _records(lines, candidate)
        widths = {len(record) for record in records}
        if len(widths) == 1 and widths != {1}:
            runs = candidate == " " and any("" in record for record in records)
            return WHITESPACE if runs else candidate
    for candidate in _CANDIDATES[:-1]:
        if len(_records(lines, candidate)[0]) > 1:
            return candidate
    return WHITESPACE


def _records(lines: list[str], delimiter: str) -> list[list[str]]:
    """Return the fields of the first lines; the last may be cut short and is left out."""
    if delimiter == WHITESPACE:
        return [line.split() for line in lines]
    try:
        text = [line + "\n" for line in lines]
        records = [record for record in csv.reader(text, delimiter=delimiter) if record]
    except csv.Error:
        records = [line.split(delimiter) for line in lines]
    return records[:-1] if len(lines) >= _SAMPLE and len(records) > 1 else records


def _has_header(records: list[list[str]], named: list[str], assumed: bool) -> bool:
    """Say whether the first line names the columns.

    It does if columns were asked for by name. It does not if one of its first two fields is
    a number, or comes again in its column. It does if it has a word above numbers.
    """
    first, rest = [field.strip() for field in records[0]], records[1:]
    if not all(name.isdigit() for name in named):
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


def _notes(layout: Layout, delimiter: str, header: bool, first: list[str]) -> list[str]:
    """Tell what was found by looking."""
    notes = []
    shown = ", ".join(first)[:80]
    if layout.header is None:
        what, other = ("the header", False) if header else ("an edge", True)
        notes.append(f"The first line ({shown}) was read as {what}; header={other} changes that.")
    if layout.delimiter is None and delimiter not in {",", "\t"}:
        notes.append(f"The fields were split at {delimiter!r}; delimiter= changes that.")
    return notes
