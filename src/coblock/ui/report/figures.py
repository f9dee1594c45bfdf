"""Draw the figures of the page: the relation as PNG images, the trace as line charts in SVG."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coblock.kernels import Floats, Indices, Offsets
from coblock.model.relation import BinaryRelation
from coblock.model.trace import SweepRecord
from coblock.ui.style import LIGHT_SCALE, UNSEEN, blend

MAX_PIXELS = 720  # along a side
SHADES = 14  # a pixel has four bits: no link, one of these, or unseen
NO_LINK, ALL_UNSEEN = 0, SHADES + 1
FULL_QUANTILE = 0.99  # of the densities of pixels with links; denser pixels have the same shade
CHUNK_CELLS = 1 << 20  # stored cells that are counted at a time, to bound memory
MAX_POINTS = 400  # of a line in a chart
TICKS = 4  # approximate number of ticks on an axis
FRAME = {"width": 360, "height": 210, "left": 62, "right": 352, "top": 14, "bottom": 178}  # SVG
BOUND_NOTE = (
    "Lower bound of the log evidence after each sweep, a pass over all objects. It jumps when the "
    "search tries another partition and when the final sweeps begin, then levels off."
)
CHANGE_NOTE = (
    "Change: mean difference that one sweep makes to the memberships of an object, on a "
    "logarithmic axis. The search moves many objects at once; at its end nothing changes."
)
TOLERANCE_NOTE = " The fit has converged when the change stays below the dashed line."
CLUSTERS_NOTE = "Solid: row clusters. Dashed: column clusters."

Counts = NDArray[np.int64]
Shape = tuple[int, int]
Ticks = list[tuple[float, str]]  # coordinates and texts


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


def draw_pictures(
    relation: BinaryRelation, labels: Sequence[Indices], order: Sequence[Counts] | None = None
) -> tuple[bytes, bytes, float]:
    """Return PNGs in the original order and sorted by cluster, and the density of full colour.

    Clusters stand in the given order of rows and of columns, or by number.
    """
    ends = [labels[0], labels[-1]]
    if order is not None:
        pairs = zip(ends, order, strict=True)
        ends = [np.argsort(sequence).astype(np.int32)[label] for label, sequence in pairs]
    original, by_cluster = bin_both_orders(relation, ends, pixel_shape(relation))
    full = by_cluster.full_density()
    return _png(original, full, relation.shape), _png(by_cluster, full, relation.shape), full


def pixel_shape(relation: BinaryRelation) -> Shape:
    """Return the height and width of the binned relation, in pixels."""
    return min(relation.shape[0], MAX_PIXELS), min(relation.shape[1], MAX_PIXELS)


def bin_both_orders(
    relation: BinaryRelation, labels: Sequence[Indices], shape: Shape
) -> list[Bins]:
    """Bin the relation in its original order, and sorted by cluster."""
    original = [np.arange(size) for size in relation.shape]
    by_cluster = [np.argsort(np.argsort(label, kind="stable")) for label in (labels[0], labels[-1])]
    return [bin_cells(relation, order, shape) for order in (original, by_cluster)]


def bin_cells(relation: BinaryRelation, positions: Sequence[Counts], shape: Shape) -> Bins:
    """Count links and seen cells per pixel, with given positions of the rows and columns."""
    pairs = zip(positions, shape, strict=True)
    row_bin, column_bin = (position * bins // position.size for position, bins in pairs)
    place = relation.incidence[0][0]
    links = _count_stored(place.link_start, place.link, row_bin, column_bin, shape)
    unseen = _count_stored(place.unseen_start, place.unseen, row_bin, column_bin, shape)
    seen = np.outer(np.bincount(row_bin), np.bincount(column_bin)) - unseen
    if relation.repeated:
        np.add.at(links, (row_bin, column_bin), relation.own_link.astype(np.int64))
        np.add.at(seen, (row_bin, column_bin), relation.own_seen.astype(np.int64) - 1)
    return Bins(links, seen)


def _count_stored(
    start: Offsets, index: Indices, row_bin: Counts, column_bin: Counts, shape: Shape
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


def _png(bins: Bins, full_density: float, shape: Shape) -> bytes:
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


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart with one or two lines."""

    title: str
    note: str
    names: list[str]
    paths: list[str]
    x_ticks: Ticks
    y_ticks: Ticks
    sweeps: list[int]
    values: list[list[float | None]]  # rounded to seven digits; None if JSON cannot express them
    threshold: float | None  # y coordinate of the tolerance


def draw_charts(trace: Sequence[SweepRecord], tol: float | None) -> list[Chart]:
    """Return charts of the bound, the change and the numbers of clusters; none without a trace."""
    if not trace:
        return []
    points = np.linspace(0, len(trace) - 1, min(len(trace), MAX_POINTS)).astype(int)
    sweeps = [trace[i] for i in points]
    shown = attrgetter("sweep", "bound", "change", "row_clusters", "column_clusters")
    numbers, bound, change, rows, columns = np.array([shown(sweep) for sweep in sweeps]).T
    change_note = CHANGE_NOTE if tol is None else CHANGE_NOTE + TOLERANCE_NOTE
    cluster_note, clusters = CLUSTERS_NOTE, {"rows": rows, "columns": columns}
    if np.array_equal(rows, columns):
        cluster_note, clusters = "", {"clusters": rows}
    return [
        _chart("Bound", BOUND_NOTE, numbers, {"bound": bound}, "linear", None),
        _chart("Change", change_note, numbers, {"change": change}, "logarithmic", tol),
        _chart("Clusters in use", cluster_note, numbers, clusters, "integer", None),
    ]


def _chart(
    title: str, note: str, numbers: Floats, series: dict[str, Floats], axis: str, tol: float | None
) -> Chart:
    lines = list(series.values())
    threshold = [] if tol is None else [math.log10(tol)]
    floor = None
    if axis == "logarithmic":
        lines, floor = _logarithms(lines, threshold)
    x = Scale(numbers, FRAME["left"], FRAME["right"])
    y = Scale(np.concatenate([*lines, threshold]), FRAME["bottom"], FRAME["top"])
    return Chart(
        title,
        note,
        list(series),
        [_path(x(numbers), y(line)) for line in lines],
        x.ticks("integer"),
        y.ticks(axis) if floor is None else y.ticks_above(floor),
        numbers.astype(int).tolist(),
        [[float(f"{v:.7g}") if math.isfinite(v) else None for v in s] for s in series.values()],
        round(y(threshold[0]), 1) if threshold else None,
    )


def _logarithms(lines: list[Floats], also: list[float]) -> tuple[list[Floats], float | None]:
    """Return decimal logarithms, and where zeros are drawn: one power of ten below the others."""
    logs = [np.log10(v, out=np.full(v.size, np.nan), where=v > 0) for v in lines]
    if not any((v == 0.0).any() for v in lines):
        return logs, None
    known = np.concatenate([*logs, also])
    known = known[np.isfinite(known)]
    floor = math.floor(known.min()) - 1.0 if known.size else 0.0
    return [np.where(v == 0.0, floor, log) for v, log in zip(lines, logs, strict=True)], floor


class Scale:
    """A linear map from values, or their decimal logarithms, to SVG coordinates."""

    def __init__(self, values: Floats, start: int, end: int) -> None:
        finite = values[np.isfinite(values)]
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
        margin = 0.5 if low == high else 0.0
        self.low, self.high, self.start, self.end = low - margin, high + margin, start, end

    def __call__(self, value: Any) -> Any:
        """Return the coordinate of a value, or of each value of an array."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, axis: str) -> Ticks:
        """Return the ticks at a few round numbers; at integers only unless the axis is linear."""
        rough = (self.high - self.low) / TICKS
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(m * power for m in (1.0, 2.0, 5.0, 10.0) if m * power >= rough * 0.999)
        step = step if axis == "linear" else max(1.0, math.ceil(step))
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        values = [i * step for i in range(first, last + 1)]
        return [(round(self(value), 1), _tick_text(value, axis)) for value in values]

    def ticks_above(self, floor: float) -> Ticks:
        """Return the ticks of a logarithmic axis on which zeros are drawn at ``floor``."""
        above = [tick for tick in self.ticks("logarithmic") if tick[0] < self(floor) - 1.0]
        return [(round(self(floor), 1), "0"), *above]


def _tick_text(value: float, axis: str) -> str:
    if axis == "logarithmic":
        return f"{10.0**value:g}" if abs(value) <= 3 else f"1e{value:.0f}"
    return f"{value:,.0f}" if abs(value) >= 10 or value == int(value) else f"{value:.3g}"


def _path(x: Floats, y: Floats) -> str:
    """Return the SVG path of a line, interrupted at points that are not finite."""
    path, is_drawing = [], False
    for across, down in zip(x, y, strict=True):
        if math.isfinite(down):  # "h0" repeats the first point, so that a single one is a dot
            point = f"{across:.1f} {down:.1f}"
            path.append(f"L{point}" if is_drawing else f"M{point}h0")
        is_drawing = math.isfinite(down)
    return "".join(path)
