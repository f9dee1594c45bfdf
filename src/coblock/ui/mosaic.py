"""The relation as a picture of characters, before and after sorting it by cluster."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from rich.color import Color
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style

from coblock.kernels import Floats, Indices
from coblock.model.relation import Relation
from coblock.ui.report.palette import LIGHT, UNSEEN, Colour, blend
from coblock.ui.report.picture import Bins, by_cluster, count, full_density

WIDEST, HIGHEST, GAP = 38, 17, 3  # characters of a picture, and between the two
FAINT = 0.3  # density of the darkest pixels
CAPTIONS = ("as it came", "sorted by cluster")
BLOCKS, ASCII = " ░▒▓█", " .:*#"  # from no links to many
UPPER_HALF = "▀"  # its colour is the upper pixel, that of the paper the lower one


class Mosaic:
    """Two pictures side by side, for rich's console.

    On a screen with colours a character shows two pixels; elsewhere it is lighter or darker.

    Parameters
    ----------
    relation : Relation
        What is shown; a pixel stands for as many cells as it must.
    labels : sequence of ndarray
        Clusters of the rows and, in a bipartite relation, of the columns.
    """

    def __init__(self, relation: Relation, labels: Sequence[Indices]) -> None:
        self.relation = relation
        self.labels = (labels[0], labels[-1])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        coloured = console.color_system is not None and not options.ascii_only
        width = max(min(WIDEST, (options.max_width - GAP) // 2), 1)
        pixels = (HIGHEST * (2 if coloured else 1), width)
        shape = tuple(min(*pair) for pair in zip(self.relation.shape, pixels, strict=True))
        came = [np.arange(size, dtype=np.int64) for size in self.relation.shape]
        grouped = [by_cluster(label) for label in self.labels]
        both = [count(self.relation, place, (shape[0], shape[1])) for place in (came, grouped)]
        full = full_density(both[1])
        pictures = [_enlarged(_shares(bins, full), pixels) for bins in both]
        characters = ASCII if options.ascii_only else BLOCKS
        lines = [_coloured(p) if coloured else _plain(p, characters) for p in pictures]
        yield Segment.line()
        wide = pictures[0].shape[1]
        yield Segment("".join(c[:wide].ljust(wide + GAP) for c in CAPTIONS).rstrip())
        yield Segment.line()
        for left, right in zip(*lines, strict=True):
            yield from (*left, Segment(" " * GAP), *right, Segment.line())


def _shares(bins: Bins, full: float) -> Floats:
    """Return how dark each pixel is, from 0 to 1; NaN where all of its cells are unseen.

    Faint pictures are lifted by a square root.
    """
    share = np.minimum(bins.density / full, 1.0)
    return np.where(bins.seen > 0, np.sqrt(share) if full < FAINT else share, np.nan)


def _enlarged(shares: Floats, pixels: tuple[int, int]) -> Floats:
    """Return the picture of a small relation with larger pixels."""
    for axis in (0, 1):
        shares = shares.repeat(max(pixels[axis] // shares.shape[axis], 1), axis=axis)
    return shares


def _plain(shares: Floats, characters: str) -> list[list[Segment]]:
    """Return lines of lighter and darker characters."""
    last = len(characters) - 1
    known = np.nan_to_num(shares)
    shade: NDArray[np.int64] = np.maximum(np.rint(known * last), known > 0).astype(np.int64)
    return [[Segment("".join(characters[s] for s in line))] for line in shade]


def _coloured(shares: Floats) -> list[list[Segment]]:
    """Return lines of characters that are two pixels each, one above the other."""
    if len(shares) % 2:
        shares = np.vstack((shares, shares[-1:]))
    colours = [[_colour(share) for share in line] for line in shares.tolist()]
    return [
        [_two_pixels(above, below) for above, below in zip(*pair, strict=True)]
        for pair in zip(colours[::2], colours[1::2], strict=True)
    ]


def _colour(share: float) -> Colour:
    return UNSEEN if share != share else blend(LIGHT, share)  # noqa: PLR0124 - only NaN differs


def _two_pixels(above: Colour, below: Colour) -> Segment:
    style = Style(color=Color.from_rgb(*above), bgcolor=Color.from_rgb(*below))
    return Segment(UPPER_HALF, style)
