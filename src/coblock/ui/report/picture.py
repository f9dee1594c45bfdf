"""The relation as a picture: cell by cell where it is small, counts in bins where it is not."""

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coblock.kernels import Floats, Indices, Offsets
from coblock.model.relation import Relation
from coblock.ui.report.palette import LIGHT, UNSEEN, Colour, blend

MOST_PIXELS = 720  # along a side
SHADES = 14  # a pixel has four bits: nothing, these, unseen
NOTHING, HIDDEN = 0, SHADES + 1
FULL_SHADE = 0.99  # this share of the binned pixels with links is below the darkest shade
AT_ONCE = 1 << 20  # cells counted in one go

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Picture:
    """A PNG file and the density of links at which its colour is full."""

    png: bytes
    full: float


@dataclass(frozen=True, slots=True)
class Bins:
    """How many links and observed cells each pixel stands for."""

    links: Counts  # (height, width)
    seen: Counts

    @property
    def density(self) -> Floats:
        """Links per observed cell, 0 where no cell is observed."""
        return self.links / np.maximum(self.seen, 1)


def before_and_after(relation: Relation, labels: list[Indices]) -> tuple[Picture, Picture]:
    """Return the relation as it came and sorted by cluster, on the same scale of colour."""
    came = count(relation, [np.arange(size, dtype=np.int64) for size in relation.shape])
    grouped = count(relation, [by_cluster(label) for label in (labels[0], labels[-1])])
    full = full_density(grouped)
    before, after = (Picture(_png(_shades(bins, full), relation), full) for bins in (came, grouped))
    return before, after


def by_cluster(label: Indices) -> Counts:
    """Return where each object stands once all are sorted by cluster."""
    position = np.empty(label.size, dtype=np.int64)
    position[np.argsort(label, kind="stable")] = np.arange(label.size)
    return position


def pixels(size: int) -> int:
    """Return along how many pixels so many objects are binned."""
    return min(size, MOST_PIXELS)


def count(
    relation: Relation, position: Sequence[Counts], shape: tuple[int, int] | None = None
) -> Bins:
    """Count the cells of each pixel; ``position`` is where each row and each column stands.

    ``shape`` is how many pixels there are, at most one for each row and column.
    """
    height, width = shape or (pixels(size) for size in relation.shape)
    row_bin, column_bin = (
        place * bins // place.size for place, bins in zip(position, (height, width), strict=True)
    )
    shape = (height, width)
    place = relation.places[0][0]
    links = _tally(place.link_start, place.link, row_bin, column_bin, shape)
    hidden = _tally(place.unseen_start, place.unseen, row_bin, column_bin, shape)
    seen = np.outer(np.bincount(row_bin), np.bincount(column_bin)) - hidden
    if relation.one_domain:
        np.add.at(links, (row_bin, column_bin), relation.self_link.astype(np.int64))
        np.add.at(seen, (row_bin, column_bin), relation.self_seen.astype(np.int64) - 1)
    return Bins(links, seen)


def _tally(
    start: Offsets, other: Indices, row_bin: Counts, column_bin: Counts, shape: tuple[int, int]
) -> Counts:
    """Count stored cells by pixel, some at a time, so that memory stays bounded."""
    total = np.zeros(shape[0] * shape[1], dtype=np.int64)
    for first, last in _pieces(start):
        rows = np.repeat(row_bin[first:last], np.diff(start[first : last + 1]))
        pixel = rows * shape[1] + column_bin[other[start[first] : start[last]]]
        total += np.bincount(pixel, minlength=total.size)
    return total.reshape(shape)


def _pieces(start: Offsets) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows with about so many stored cells as are counted at once."""
    first, rows = 0, start.size - 1
    while first < rows:
        reached = np.searchsorted(start, start[first] + AT_ONCE, side="right") - 1
        last = min(max(int(reached), first + 1), rows)
        yield first, last
        first = last


def full_density(bins: Bins) -> float:
    """Return the density at which the colour is full: 1 where pixels are cells."""
    density = bins.density[bins.links > 0]
    if density.size == 0 or bins.seen.max() <= 1:
        return 1.0
    return float(np.quantile(density, FULL_SHADE, method="nearest"))


def _shades(bins: Bins, full: float) -> NDArray[np.uint8]:
    """Return the palette's number of each pixel; faint densities are lifted by a square root."""
    share = np.sqrt(np.minimum(bins.density / full, 1.0))
    shade = np.where(bins.links > 0, 1 + np.rint(share * (SHADES - 1)), NOTHING)
    return np.where(bins.seen <= 0, HIDDEN, shade).astype(np.uint8)


def _png(shades: NDArray[np.uint8], relation: Relation) -> bytes:
    """Return a PNG file of four bits per pixel; small relations get large pixels."""
    for axis, size in enumerate(relation.shape):
        shades = shades.repeat(max(MOST_PIXELS // size, 1), axis=axis)
    height, width = shades.shape
    padded = np.pad(shades, ((0, 0), (0, width % 2)))
    packed = (padded[:, ::2] << 4) | padded[:, 1::2]
    lines = np.pad(packed, ((0, 0), (1, 0)))  # each line begins with its filter: none
    header = struct.pack(">IIBBBBB", width, height, 4, 3, 0, 0, 0)
    palette = bytes(part for colour in _palette() for part in colour)
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", header),
            _chunk(b"PLTE", palette),
            _chunk(b"tRNS", b"\x00"),  # pixels without links show the paper
            _chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)),
            _chunk(b"IEND", b""),
        )
    )


def _palette() -> list[Colour]:
    shades = [blend(LIGHT[1:], i / (SHADES - 1)) for i in range(SHADES)]
    return [LIGHT[0], *shades, UNSEEN]


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
