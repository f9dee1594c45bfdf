"""Errors of readers; limits on columns and bytes: no small file exhausts time or memory.

The messages of Arrow files and streams are checked before polars reads them: it allocates the
lengths that a message names, and ends the process if that is impossible. The layout of a message is
that of Message.fbs and Schema.fbs of Arrow, in flatbuffers.
"""

import errno
import gzip
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from struct import unpack_from
from typing import IO, Any, NoReturn
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray

from coblock.io import shorten

RATIO = 100  # unpacked bytes per byte of a file that are always allowed; edges have 3 to 30
_CHUNK = 1 << 24
_MAX_LENGTH = 160  # characters that are quoted from a foreign message
# The file system failed, not the content: these errors are passed on.
_SYSTEM_ERRORS = {errno.EACCES, errno.EIO, errno.EMFILE, errno.ENOENT, errno.EPERM}
_WORKBOOKS = (".xlsx", ".xlsm")
_ZIPPED = dict.fromkeys(_WORKBOOKS, "a workbook")
_ZIPPED[".npz"] = "a sparse matrix in an npz file"
_CELL = re.compile(
    rb"""\br\s*=\s*["']([A-Za-z]{0,9})(\d{1,19})["']"""
)  # name of a cell or row of a sheet
_CELL_BYTES, _LONGEST_NAME = 32, 64  # of a cell in memory; of its name in a file
_ZSTD_FRAME, _ZSTD_SKIPPABLE, _ZSTD_BLOCK = 0xFD2FB528, 0x184D2A50, 1 << 17

_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3  # types of Arrow messages that have arrays
_MOST_ROWS = 2**31


class ReadError(ValueError):
    """The input is not a relation; the message says what is wrong, where, and what to do."""

    def __init__(self, sentence: str) -> None:
        super().__init__(shorten(sentence))


def refuse(sentence: str) -> NoReturn:
    """Refuse the input for the reason in ``sentence``."""
    raise ReadError(sentence)


@contextmanager
def convert_errors(what: str) -> Iterator[None]:
    """Convert any exception of another package into a :class:`ReadError` that begins with ``what``.

    Damaged files cause more exceptions than their readers document, including panics of polars.
    """
    from polars.exceptions import PanicException

    try:
        yield
    except ReadError:
        raise
    except (Exception, PanicException) as error:
        system = isinstance(error, OSError) and error.errno in _SYSTEM_ERRORS
        missing = isinstance(error, ImportError) and not isinstance(error, ModuleNotFoundError)
        if system or missing:  # the message names the package
            raise
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].strip()
        if len(reason) > _MAX_LENGTH:
            reason = reason[: _MAX_LENGTH - 4] + " ..."
        msg = f"{what}: {reason.rstrip('.')}."
        raise ReadError(msg) from error


@dataclass(frozen=True)
class Limits:
    """Largest number of columns of a table, and size of a file when it is unpacked."""

    columns: int = 10_000
    unpacked: int = 1 << 30  # bytes; a file may also have RATIO times its own size

    def check_columns(self, count: int, source: object) -> None:
        """Refuse a table of too many columns."""
        if count > self.columns:
            refuse(
                f"{source} has {count:,} columns or more, but at most {self.columns:,} are read. A "
                "file has one edge per line. If it is right, allow more with max_columns=."
            )

    def check_unpacked(self, size: int, path: Path) -> None:
        """Refuse a file that is too large when it is unpacked."""
        packed = path.stat().st_size
        if size > max(self.unpacked, RATIO * packed):
            refuse(
                f"{path} has {packed:,} bytes, but {size:,} or more when it is unpacked, where at "
                f"most {self.unpacked:,} are read. If it is right, allow more with max_unpacked=."
            )

    def check_arrow(self, content: bytes, path: Path, *, is_file: bool) -> None:
        """Refuse messages of Arrow that name more bytes, rows or buffers than they can have."""
        self.check_unpacked((_check_file if is_file else _check_stream)(content), path)

    def check_archive(self, path: Path) -> None:
        """Refuse a file of a compressed format that is too large when it is unpacked."""
        if path.suffix.lower() == ".gz":
            self.unzip(path, keep=False)
        elif path.suffix.lower() == ".zst":
            with convert_errors(f"{path} is a damaged zstd file"):
                self.check_unpacked(_largest_zstd_size(path), path)
        elif path.suffix.lower() in _ZIPPED:
            what = _ZIPPED[path.suffix.lower()]
            with convert_errors(f"{path} is not {what}, or is damaged"), ZipFile(path) as zipped:
                self.check_unpacked(sum(part.file_size for part in zipped.infolist()), path)
                if path.suffix.lower() in _WORKBOOKS:
                    self._check_sheets(zipped, path)

    def _check_sheets(self, zipped: ZipFile, path: Path) -> None:
        """Refuse a sheet whose cells span too much: its reader allocates the whole rectangle."""
        for part in zipped.infolist():
            rows, columns = 0, 1
            with zipped.open(part) as file:
                for text in _pieces(file):
                    for letters, digits in _CELL.findall(text):
                        rows = max(rows, int(digits))
                        columns = max(columns, _column_number(letters))
            self.check_unpacked(_CELL_BYTES * rows * columns, path)

    def unzip(self, path: Path, *, keep: bool = True) -> bytes:
        """Return the bytes of a gzip file, or none of them if only their number is checked."""
        parts, size = [], 0
        with convert_errors(f"{path} is a damaged gzip file"), gzip.open(path) as file:
            while part := file.read(_CHUNK):
                size += len(part)
                self.check_unpacked(size, path)
                if keep:
                    parts.append(part)
        return b"".join(parts)


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the content of a file in pieces that overlap by the longest name of a cell."""
    end = b""
    while part := file.read(_CHUNK):
        yield end + part
        end = part[-_LONGEST_NAME:]


def _column_number(letters: bytes) -> int:
    """Return the number of a column of a sheet: A is 1, Z is 26, AA is 27."""
    number = 0
    for letter in letters.upper():
        number = 26 * number + letter - ord("A") + 1
    return number


def _largest_zstd_size(path: Path) -> int:
    """Return an upper bound of the unpacked size, from the sizes of the blocks (RFC 8878)."""
    size = 0
    with path.open("rb") as file:
        while magic := int.from_bytes(file.read(4), "little"):
            if magic & ~0xF == _ZSTD_SKIPPABLE:
                file.seek(int.from_bytes(file.read(4), "little"), 1)
                continue
            if magic != _ZSTD_FRAME:
                break  # polars refuses it
            (flags,) = file.read(1)
            single = flags >> 5 & 1
            file.seek(1 - single + (0, 1, 2, 4)[flags & 3] + (single, 2, 4, 8)[flags >> 6], 1)
            last = 0
            while not last:
                head = file.read(3)
                block = int.from_bytes(head, "little")
                last, kind, length = block & 1 or len(head) < 3, block >> 1 & 3, block >> 3
                size += _ZSTD_BLOCK if kind == 2 else length
                file.seek(1 if kind == 1 else length, 1)
            file.seek(4 * (flags >> 2 & 1), 1)
    return size


# Messages of Arrow


def _check_stream(content: bytes) -> int:
    """Check a stream; return the bytes that its compressed buffers have when unpacked."""
    position, unpacked = 0, 0
    while position + 4 <= len(content) and position >= 0:
        position, more = _check_message(content, position)
        unpacked += more
    return unpacked


def _check_file(content: bytes) -> int:
    """Check a file, which has the places of all messages in its footer; return unpacked bytes."""
    (length,) = unpack_from("<i", content, len(content) - 10)
    footer, unpacked = _follow(content, len(content) - 10 - length), 0
    for blocks in (2, 3):  # of dictionaries and of records: offset, length, length of the body
        for position in _vector(content, footer, blocks, 3)[::3].tolist():
            _require(0 <= position < len(content))
            unpacked += _check_message(content, position)[1]
    return unpacked


def _check_message(content: bytes, position: int) -> tuple[int, int]:
    """Check a message; return the position after it, -1 after the last, and unpacked bytes."""
    (length,) = unpack_from("<i", content, position)
    position += 4
    if length == -1:  # a marker; old versions write none
        (length,) = unpack_from("<i", content, position)
        position += 4
    if length == 0:
        return -1, 0
    message = _follow(content, position)
    body, kind = _number(content, message, 3, "<q"), _number(content, message, 1, "<B")
    position += length + body
    _require(length > 0 and body >= 0 and position <= len(content))
    unpacked = 0
    if kind in {_DICTIONARY_BATCH, _RECORD_BATCH}:
        batch = _follow(content, _field(content, message, 2))
        if kind == _DICTIONARY_BATCH:
            batch = _follow(content, _field(content, batch, 1))
        unpacked = _check_batch(content, batch, position - body, body)
    return position, unpacked


def _check_batch(content: bytes, batch: int, start: int, body: int) -> int:
    """Check rows, the rows of each column, the places of the buffers, and their numbers.

    A compressed buffer begins with the number of its bytes when it is unpacked, -1 if it is not
    compressed. The sum of these numbers is returned.
    """
    _require(0 <= _number(content, batch, 0, "<q") <= _MOST_ROWS)
    nodes, buffers = (_vector(content, batch, field, 2).reshape(-1, 2) for field in (1, 2))
    _require(((nodes >= 0) & (nodes <= _MOST_ROWS)).all())
    _require(((buffers >= 0) & (buffers <= body)).all() and (buffers.sum(axis=1) <= body).all())
    counts = _vector(content, batch, 4, 1)
    _require(((counts >= 0) & (counts <= len(buffers))).all())
    if not _field(content, batch, 3):
        return 0
    filled = buffers[buffers[:, 1] > 0]
    _require((filled[:, 1] >= 8).all())
    sizes = [unpack_from("<q", content, start + at)[0] for at in filled[:, 0].tolist()]
    _require(min(sizes, default=0) >= -1)
    return sum(sizes)


def _require(possible: Any) -> None:
    if not possible:
        msg = "a message is longer than it can be"
        raise ValueError(msg)


def _follow(content: bytes, position: int) -> int:
    """Return where the offset at a position leads."""
    return int(position + unpack_from("<I", content, position)[0])


def _field(content: bytes, table: int, field: int) -> int:
    """Return the position of a field of a table, 0 if the table does not have it."""
    names = table - unpack_from("<i", content, table)[0]
    _require(names >= 0)
    if 4 + 2 * field >= unpack_from("<H", content, names)[0]:
        return 0
    offset = unpack_from("<H", content, names + 4 + 2 * field)[0]
    return int(table + offset) if offset else 0


def _number(content: bytes, table: int, field: int, kind: str) -> int:
    """Return a number of a table; 0 is not stored."""
    position = _field(content, table, field)
    return int(unpack_from(kind, content, position)[0]) if position else 0


def _vector(content: bytes, table: int, field: int, width: int) -> NDArray[np.int64]:
    """Return the numbers of a vector of a table, ``width`` for each entry."""
    position = _field(content, table, field)
    if not position:
        return np.zeros(0, np.int64)
    start = _follow(content, position)
    count = width * unpack_from("<I", content, start)[0]
    return np.frombuffer(content, "<i8", count, start + 4) if count else np.zeros(0, np.int64)
