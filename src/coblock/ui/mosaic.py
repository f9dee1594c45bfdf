"""Draw the relation in the terminal, in its original order and sorted by cluster."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from rich.color import Color
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style

from coblock.kernels import Floats, Indices
from coblock.model.relation import Relation
from coblock.ui.palette import LIGHT_SCALE, UNSEEN, blend
from coblock.ui.report.picture import Bins, bin_both_orders

MAX_WIDTH, MAX_HEIGHT, GAP = 38, 17, 3  # of one picture, and between both, in characters
FAINT = 0.3  # density of the darkest pixel below which a square root makes pixels darker
CAPTIONS = ("original order", "sorted by cluster")
SHADES, ASCII_SHADES = " ░▒▓█", " .:*#"  # from no links to many
UPPER_HALF = "▀"  # the foreground colours the upper pixel, the background the lower one


class Mosaic:
    """Two pictures of a relation side by side, for the console of rich.

    With colours, a character shows two pixels. Without, it is lighter or darker. ``labels`` are the
    clusters of the rows and, in a bipartite relation, of the columns.
    """

    def __init__(self, relation: Relation, labels: Sequence[Indices]) -> None:
        self.relation = relation
        self.labels = labels

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        coloured = console.color_system is not None and not options.ascii_only
        width = max(min(MAX_WIDTH, (options.max_width - GAP) // 2), 1)
        height = MAX_HEIGHT * (2 if coloured else 1)
        rows, columns = self.relation.shape
        both = bin_both_orders(self.relation, self.labels, (min(rows, height), min(columns, width)))
        full = both[1].full_density()
        pictures = [_enlarge(_darkness(bins, full), (height, width)) for bins in both]
        shades = ASCII_SHADES if options.ascii_only else SHADES
        lines = [_coloured(p) if coloured else _plain(p, shades) for p in pictures]
        shown = pictures[0].shape[1]
        yield Segment.line()
        yield Segment("".join(c[:shown].ljust(shown + GAP) for c in CAPTIONS).rstrip())
        yield Segment.line()
        for left, right in zip(*lines, strict=True):
            yield from (*left, Segment(" " * GAP), *right, Segment.line())


def _darkness(bins: Bins, full_density: float) -> Floats:
    """Return the darkness of each pixel, from 0 to 1; NaN if all of its cells are unseen."""
    share = np.minimum(bins.density / full_density, 1.0)
    return np.where(bins.seen > 0, np.sqrt(share) if full_density < FAINT else share, np.nan)


def _enlarge(picture: Floats, size: tuple[int, int]) -> Floats:
    """Repeat the pixels of a small picture to fill the size."""
    for axis in (0, 1):
        picture = picture.repeat(max(size[axis] // picture.shape[axis], 1), axis=axis)
    return picture


def _plain(picture: Floats, shades: str) -> list[list[Segment]]:
    """Return lines of lighter and darker characters."""
    seen = np.nan_to_num(picture)
    shade: NDArray[np.int64] = np.rint(seen * (len(shades) - 1)).astype(np.int64)
    shade = np.maximum(shade, seen > 0)
    return [[Segment("".join(shades[s] for s in line))] for line in shade]


def _coloured(picture: Floats) -> list[list[Segment]]:
    """Return lines of characters that each show two pixels, one above the other."""
    if len(picture) % 2:
        picture = np.vstack((picture, picture[-1:]))
    colours = [
        [Color.from_rgb(*(UNSEEN if np.isnan(p) else blend(LIGHT_SCALE, p))) for p in line]
        for line in picture.tolist()
    ]
    return [
        [
            Segment(UPPER_HALF, Style(color=upper, bgcolor=lower))
            for upper, lower in zip(*pair, strict=True)
        ]
        for pair in zip(colours[::2], colours[1::2], strict=True)
    ]
