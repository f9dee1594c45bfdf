"""Format results for the terminal: tables, members of clusters, and pictures of the relation."""

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from rich.color import Color
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment
from rich.style import Style
from rich.table import Column, Table
from rich.text import Text

from coblock.analysis.description import Description, typical_members
from coblock.analysis.evaluation import Evaluation
from coblock.analysis.explain import describe_certainty, describe_structure
from coblock.estimator import IRM
from coblock.io import printable
from coblock.kernels import Floats, Indices
from coblock.model.relation import BinaryRelation
from coblock.model.result import Result
from coblock.ui.report.figures import bin_both_orders
from coblock.ui.style import LIGHT_SCALE, UNSEEN, blend, ink_on, to_hex, truncate

if TYPE_CHECKING:
    from coblock.multi import MultiIRM

MAX_COLUMN_CLUSTERS = 17  # fit on a line of 80 characters
MAX_ROW_CLUSTERS = 30  # lines of the block map
MAX_NAMED_CLUSTERS = 12  # of each domain that are described
FEATURES_SHOWN = 3  # of a cluster in each direction
INDENT = 4  # characters before the lines about a cluster
MEMBERS_PER_CLUSTER = 4  # named on a line
MAX_NAME = 40  # characters
SCORES = ("log likelihood per cell", "area under the curve (AUC)", "average precision")
MAX_WIDTH, MAX_HEIGHT, GAP = 38, 17, 3  # of one picture, and between both, in characters
FAINT = 0.3  # density of the darkest pixel below which a square root makes pixels darker
CAPTIONS = ("original order", "sorted by cluster")
SHADES, ASCII_SHADES = " ░▒▓█", " .:*#"  # from no links to many
UPPER_HALF = "▀"  # the foreground colours the upper pixel, the background the lower one


def result_page(model: IRM, found: Description, report: Path) -> RenderableType:
    """Return the output of a fit: sizes, blocks, clusters, pictures and the report's path."""
    result = found.result
    relation, (K1, K2) = result.relation, result.n_clusters
    clusters = f"{K1} clusters" if relation.repeated else f"{K1} x {K2} clusters"
    cells = f"{relation.n_links:,} links, {relation.n_unseen:,} unseen cells"
    sizes = f"\n{relation.shape[0]:,} x {relation.shape[1]:,}, {cells}."
    return Group(
        Text(sizes, style="bold"),
        Text(f"{clusters}; {_outcome(model)}.\n"),
        *(Text(f"{line}\n") for line in (describe_structure(result), _known(found)) if line),
        Text("Links in per cent, row clusters on the left, similar clusters side by side:\n"),
        block_map(result, [found.tree.order[0], found.tree.order[-1]]),
        *cluster_lines(found),
        Text(describe_certainty(result)),
        Mosaic(relation, result.labels),
        path_line("\nReport: ", report.resolve()),
    )


def several_page(model: "MultiIRM", report: Path) -> RenderableType:
    """Return the output of a fit of several relations: the summary and the report's path."""
    summary = "\n".join(printable(line) for line in model.summary().splitlines())
    return Group(Text(summary), path_line("\nReport: ", report.resolve()))


def senate_page(model: IRM, senators: Sequence[str], parties: Sequence[str]) -> RenderableType:
    """Return the output of the demo: the blocks of the Senate and the parties of each group."""
    notes = []
    for k, line in enumerate(member_lines(model, senators)):
        members = [parties[int(i)] for i in np.flatnonzero(model.row_labels_ == k)]
        count = " ".join(f"{members.count(p)} {p}" for p in ("R", "D", "I") if p in members)
        notes.append(Text.assemble((f"r{k}  {count}: ", "bold"), line))
    K1, K2 = model.result_.n_clusters
    sizes = f"{len(senators)} people, {model.column_labels_.size} roll calls"
    heading = f"\nThe 109th US Senate: {sizes}. Absent votes are unseen, not nays."
    groups = (
        f"{K1} groups of people, {K2} groups of roll calls; {_outcome(model)}.\n\n"
        "Yeas in per cent, groups of people on the left, groups of roll calls on top:\n"
    )
    return Group(Text(heading, style="bold"), Text(groups), block_map(model.result_), *notes)


def evaluation_page(found: Evaluation, share: float) -> Group:
    """Return a table of the mean and standard deviation of each score, beside the baselines."""
    heads = ("mean", "deviation", *found.baselines)
    columns = (Column(head, justify="right") for head in heads)
    table = Table("", *columns, box=None, padding=(0, 2), show_edge=False)
    columns_of_scores = (found.mean, found.deviation, *found.baselines.values())
    for label, mean, *others in zip(SCORES, *map(astuple, columns_of_scores), strict=True):
        decimals = 4  # more if the score is small, for four significant digits
        if 0.0 < abs(mean) < 0.1:
            decimals += math.floor(-math.log10(abs(mean)))
        shown = ("" if math.isnan(other) else f"{other:.{decimals}f}" for other in others)
        table.add_row(label, "none" if math.isnan(mean) else f"{mean:.{decimals}f}", *shown)
    cells = f"{found.held_out:,} cells" + (", a weighted sample" if found.sampled else "")
    runs = "one run" if len(found.runs) == 1 else f"each of {len(found.runs)} runs"
    lines: list[RenderableType] = [Text(f"{share:.0%} held out in {runs}: {cells}\n"), table]
    if found.baselines:
        names = " and ".join(found.baselines)
        lines.append(Text(f"\n{names}: the same cells predicted without clusters"))
    return Group(*lines)


def evaluation_pages(found: dict[str, Evaluation], share: float) -> Group:
    """Return a table of scores for each of several relations."""
    pages = (
        (Text(f"{printable(name)}\n"), evaluation_page(each, share), Text(""))
        for name, each in found.items()
    )
    return Group(*(part for page in pages for part in page))


def block_map(result: Result, order: Sequence[NDArray[np.int64]] | None = None) -> Group:
    """Return a coloured table of the block probabilities in per cent, of the largest clusters."""
    rows, columns = (np.bincount(label) for label in (result.labels[0], result.labels[-1]))
    limits = (MAX_ROW_CLUSTERS, MAX_COLUMN_CLUSTERS)
    lines, places = (
        [int(k) for k in (np.arange(size.size) if order is None else order[d]) if k < limits[d]]
        for d, size in enumerate((rows, columns))
    )
    table = Table(box=None, padding=(0, 0), show_edge=False)
    table.add_column("", justify="right", no_wrap=True, min_width=9)
    for l in places:
        table.add_column(f"c{l}", justify="right", no_wrap=True, min_width=4)
    probability = result.block_probability
    for k in lines:
        table.add_row(f"r{k} ({rows[k]:,}) ", *map(_percent_cell, probability[k, places].tolist()))
    table.add_row("size ", *(f"{columns[l]:,}" for l in places))
    left_out = {"rows": rows[MAX_ROW_CLUSTERS:], "columns": columns[MAX_COLUMN_CLUSTERS:]}
    notes = [
        f"{sizes.size} smaller groups, {sizes.sum():,} {noun} in all, are not shown.\n"
        for noun, sizes in left_out.items()
        if sizes.size
    ]
    return Group(table, Text("\n" + "".join(notes) if notes else ""))


def _percent_cell(p: float) -> Text:
    colour = blend(LIGHT_SCALE, p)
    return Text(f"{100 * p:4.0f}", style=Style(color=ink_on(colour), bgcolor=to_hex(colour)))


def member_lines(model: IRM, names: Sequence[str] | None) -> list[str]:
    """Return a line with the most certain members for each row cluster."""
    q, lines = model.row_membership_, []
    for k in range(model.result_.n_clusters[0]):
        members = typical_members(q, model.row_labels_, k, names, MEMBERS_PER_CLUSTER)
        short = (truncate(printable(name[: MAX_NAME + 1]), MAX_NAME, "...") for name in members)
        lines.append(", ".join(short))
    return lines


def cluster_lines(found: Description) -> list[RenderableType]:
    """Return lines about the largest clusters: name, classes, and what they link to most."""
    lines: list[RenderableType] = []
    for d, profiles in enumerate(found.domains.profiles):
        letter, made = "rc"[d], found.composition
        for profile in profiles[:MAX_NAMED_CLUSTERS]:
            name = truncate(found.names[d][profile.number], 2 * MAX_NAME, "...")
            lines.append(Text.assemble((f"{letter}{profile.number}  ", "bold"), name))
            about = []
            if made is not None and made.domain == d:
                about.append(f"known classes: {printable(made.line(profile.number))}")
            for way in profile.directions:
                texts = found.features(d, way.objects[:FEATURES_SHOWN])
                words = "; ".join(truncate(text, 2 * MAX_NAME, "...") for text in texts)
                about += [f"{way.verb} {words}"] if words else []
            lines += [Padding(Text(line), (0, 0, 0, INDENT), expand=False) for line in about]
        left = len(profiles) - MAX_NAMED_CLUSTERS
        noun = found.domains.nouns[d]
        lines.append(Text(f"{left} more {noun} clusters are in the report.\n" if left > 0 else ""))
    return lines


def _known(found: Description) -> str | None:
    made = found.composition
    if made is None:
        return None
    noun = found.domains.nouns[made.domain]
    agreement = f"purity {made.purity:.2f}, adjusted Rand index {made.rand_index:.2f}"
    return f"Known classes of {made.objects:,} {noun}s: {agreement}."


def path_line(label: str, path: Path) -> Text:
    """Return a line with the path of a file or folder that was written."""
    return Text.assemble((label, "bold"), printable(str(path)))


def _outcome(model: IRM) -> str:
    state = "converged" if model.converged_ else "stopped"
    return f"{state} after {model.n_iter_} sweeps, log evidence {model.log_evidence_:,.0f}"


@dataclass(frozen=True, slots=True)
class Mosaic:
    """Two pictures of a relation side by side: in the original order, and sorted by cluster.

    With colours, a character shows two pixels. Without, it is lighter or darker.
    """

    relation: BinaryRelation
    labels: Sequence[Indices]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        coloured = console.color_system is not None and not options.ascii_only
        width = max(min(MAX_WIDTH, (options.max_width - GAP) // 2), 1)
        height = MAX_HEIGHT * (2 if coloured else 1)
        rows, columns = self.relation.shape
        both = bin_both_orders(self.relation, self.labels, (min(rows, height), min(columns, width)))
        full, pictures = both[1].full_density(), []
        for bins in both:
            darkness = np.minimum(bins.density / full, 1.0)
            darkness = np.sqrt(darkness) if full < FAINT else darkness
            picture = np.where(bins.seen > 0, darkness, np.nan)
            for axis, size in enumerate((height, width)):  # small relations fill the picture
                picture = picture.repeat(max(size // picture.shape[axis], 1), axis=axis)
            pictures.append(picture)
        shades = ASCII_SHADES if options.ascii_only else SHADES
        lines = [_coloured(p) if coloured else _plain(p, shades) for p in pictures]
        shown = pictures[0].shape[1]
        captions = "".join(c[:shown].ljust(shown + GAP) for c in CAPTIONS).rstrip()
        yield from (Segment.line(), Segment(captions), Segment.line())
        for left, right in zip(*lines, strict=True):
            yield from (*left, Segment(" " * GAP), *right, Segment.line())


def _plain(picture: Floats, shades: str) -> list[list[Segment]]:
    """Return lines of lighter and darker characters; unseen pixels are blank."""
    seen = np.nan_to_num(picture)
    shade: NDArray[np.int64] = np.rint(seen * (len(shades) - 1)).astype(np.int64)
    return [[Segment("".join(shades[s] for s in line))] for line in np.maximum(shade, seen > 0)]


def _coloured(picture: Floats) -> list[list[Segment]]:
    """Return lines of characters that each show two pixels, one above the other."""
    if len(picture) % 2:
        picture = np.vstack((picture, picture[-1:]))
    colours = [
        [Color.from_rgb(*(UNSEEN if np.isnan(p) else blend(LIGHT_SCALE, p))) for p in line]
        for line in picture.tolist()
    ]
    return [
        [Segment(UPPER_HALF, Style(color=up, bgcolor=low)) for up, low in zip(*pair, strict=True)]
        for pair in zip(colours[::2], colours[1::2], strict=True)
    ]
