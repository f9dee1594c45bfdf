"""Draw the relation as a PNG image: one pixel per cell, or bins of cells if it is large."""

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from coblock.kernels import Floats, Indices, Offsets
from coblock.model.relation import Relation
from coblock.ui.palette import LIGHT_SCALE, UNSEEN, blend

MAX_PIXELS = 720  # along a side
SHADES = 14  # a pixel has four bits: no link, one of these, or unseen
NO_LINK, ALL_UNSEEN = 0, SHADES + 1
FULL_QUANTILE = 0.99  # of the densities of pixels with links; denser pixels have the same shade
CHUNK_CELLS = 1 << 20  # stored cells that are counted at a time, to bound memory

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Bins:
    """The number of links and of seen cells in each pixel, as arrays (height, width)."""

    links: Counts
    seen: Counts

    @property
    def density(self) -> Floats:
        """Links per seen cell; 0 if no cell is seen."""
        return self.links / np.maximum(self.seen, 1)

    def full_density(self) -> float:
        """Return the density of the darkest shade: 1 if each pixel is a single cell."""
        density = self.density[self.links > 0]
        if density.size == 0 or self.seen.max() <= 1:
            return 1.0
        return float(np.quantile(density, FULL_QUANTILE, method="nearest"))


def draw_pictures(relation: Relation, labels: Sequence[Indices]) -> tuple[bytes, bytes, float]:
    """Return PNGs in the original order and sorted by cluster, and the density of full colour."""
    original, by_cluster = bin_both_orders(relation, labels, pixel_shape(relation))
    full = by_cluster.full_density()
    return _png(original, full, relation.shape), _png(by_cluster, full, relation.shape), full


def pixel_shape(relation: Relation) -> tuple[int, int]:
    """Return the height and width of the binned relation, in pixels."""
    return min(relation.shape[0], MAX_PIXELS), min(relation.shape[1], MAX_PIXELS)


def bin_both_orders(
    relation: Relation, labels: Sequence[Indices], shape: tuple[int, int]
) -> tuple[Bins, Bins]:
    """Bin the relation in its original order, and sorted by cluster."""
    original = [np.arange(size, dtype=np.int64) for size in relation.shape]
    by_cluster = [np.empty_like(position) for position in original]
    for position, label in zip(by_cluster, (labels[0], labels[-1]), strict=True):
        position[np.argsort(label, kind="stable")] = np.arange(label.size)
    return bin_cells(relation, original, shape), bin_cells(relation, by_cluster, shape)


def bin_cells(relation: Relation, positions: Sequence[Counts], shape: tuple[int, int]) -> Bins:
    """Count links and seen cells per pixel, with given positions of the rows and columns."""
    row_bin, column_bin = (
        position * bins // position.size for position, bins in zip(positions, shape, strict=True)
    )
    place = relation.incidence[0][0]
    links = _count_stored(place.link_start, place.link, row_bin, column_bin, shape)
    unseen = _count_stored(place.unseen_start, place.unseen, row_bin, column_bin, shape)
    seen = np.outer(np.bincount(row_bin), np.bincount(column_bin)) - unseen
    if relation.repeated:
        np.add.at(links, (row_bin, column_bin), relation.own_link.astype(np.int64))
        np.add.at(seen, (row_bin, column_bin), relation.own_seen.astype(np.int64) - 1)
    return Bins(links, seen)


def _count_stored(
    start: Offsets, index: Indices, row_bin: Counts, column_bin: Counts, shape: tuple[int, int]
) -> Counts:
    """Count the stored cells of a compressed matrix per pixel, in chunks of rows."""
    total = np.zeros(shape[0] * shape[1], dtype=np.int64)
    first, rows = 0, start.size - 1
    while first < rows:
        end = int(np.searchsorted(start, start[first] + CHUNK_CELLS, side="right")) - 1
        end = min(max(end, first + 1), rows)
        row = np.repeat(row_bin[first:end], np.diff(start[first : end + 1]))
        pixel = row * shape[1] + column_bin[index[start[first] : start[end]]]
        total += np.bincount(pixel, minlength=total.size)
        first = end
    return total.reshape(shape)


def _png(bins: Bins, full_density: float, shape: tuple[int, int]) -> bytes:
    """Return a PNG file with four bits per pixel; the cells of a small relation are enlarged."""
    from PIL import Image

    share = np.sqrt(np.minimum(bins.density / full_density, 1.0))  # low densities are visible
    shade = np.where(bins.links > 0, 1 + np.rint(share * (SHADES - 1)), NO_LINK)
    pixels = np.where(bins.seen <= 0, ALL_UNSEEN, shade).astype(np.uint8)
    for axis, size in enumerate(shape):
        pixels = pixels.repeat(max(MAX_PIXELS // size, 1), axis=axis)
    colours = [blend(LIGHT_SCALE[1:], i / (SHADES - 1)) for i in range(SHADES)]
    image = Image.frombytes("P", pixels.shape[::-1], pixels.tobytes())
    image.putpalette(np.array([LIGHT_SCALE[0], *colours, UNSEEN], dtype=np.uint8).tobytes())
    file = BytesIO()
    image.save(file, "PNG", bits=4, transparency=NO_LINK, compress_level=9)
    return file.getvalue()
