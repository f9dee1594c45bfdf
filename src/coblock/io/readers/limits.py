"""Limits on columns and unpacked bytes: no small file exhausts time or memory."""

import gzip
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from zipfile import ZipFile

from coblock.io.readers.edges import convert_errors, refuse

RATIO = 100  # unpacked bytes per byte of a file that are always allowed; edges have 3 to 30
_CHUNK = 1 << 24
_WORKBOOKS = (".xlsx", ".xlsm")
_ZIPPED = dict.fromkeys(_WORKBOOKS, "a workbook")
_ZIPPED[".npz"] = "a sparse matrix in an npz file"
_CELL = re.compile(
    rb"""\br\s*=\s*["']([A-Za-z]{0,9})(\d{1,19})["']"""
)  # name of a cell or row of a sheet
_CELL_BYTES, _LONGEST_NAME = 32, 64  # of a cell in memory; of its name in a file
_ZSTD_FRAME, _ZSTD_SKIPPABLE, _ZSTD_BLOCK = 0xFD2FB528, 0x184D2A50, 1 << 17


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
