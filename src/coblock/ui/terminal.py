"""What a person sees in the terminal."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Group, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from coblock.analysis.evaluation import Evaluation
from coblock.analysis.summary import typical_members
from coblock.estimator import IRM
from coblock.io.export import object_names
from coblock.io.sanitize import printable
from coblock.kernels import Floats
from coblock.ui.mosaic import Mosaic

PALE, DARK = (247, 251, 255), (8, 48, 107)  # from no links to all links
COLUMNS_ABREAST = 17  # column clusters side by side on a screen of 80 characters
ROWS_SHOWN, CLUSTERS_NAMED = 30, 12  # of a page
LONGEST_NAME = 40  # characters
SCORES = {
    "log likelihood per cell": "log_likelihood",
    "area under the curve (AUC)": "auc",
    "average precision": "average_precision",
}
READABLE_FROM = 0.55  # block probability from which white letters are easier to read


def block_map(model: IRM) -> Group:
    """Return the block probabilities in per cent, coloured: row clusters down, columns across.

    Of many column clusters the largest are shown, and how many are not.
    """
    sizes = np.bincount(model.column_labels_)
    shown = range(min(COLUMNS_ABREAST, sizes.size))
    table = Table(box=None, padding=(0, 0), show_edge=False)
    table.add_column("", justify="right", no_wrap=True, min_width=9)
    for l in shown:
        table.add_column(f"c{l}", justify="right", no_wrap=True, min_width=4)
    for k, probabilities in enumerate(model.block_probability_[:ROWS_SHOWN]):
        size = np.count_nonzero(model.row_labels_ == k)
        table.add_row(f"r{k} ({size:,}) ", *(_cell(float(probabilities[l])) for l in shown))
    table.add_row("size ", *(f"{sizes[l]:,}" for l in shown))
    notes = [
        _left_out(np.bincount(model.row_labels_)[ROWS_SHOWN:], "rows"),
        _left_out(sizes[len(shown) :], "columns"),
    ]
    return Group(table, Text("\n".join(("", *filter(None, notes), "")) if any(notes) else ""))


def _left_out(sizes: NDArray[np.int64], what: str) -> str:
    """Return a line about the groups for which there is no room."""
    if sizes.size == 0:
        return ""
    return f"{sizes.size} smaller groups, {sizes.sum():,} {what} in all, are not shown."


def _cell(p: float) -> Text:
    """Return a link probability in per cent on a colour that shows it."""
    red, green, blue = (round(low + (high - low) * p) for low, high in zip(PALE, DARK, strict=True))
    ink = "white" if p > READABLE_FROM else "black"
    return Text(f"{100 * p:4.0f}", style=Style(color=ink, bgcolor=f"rgb({red},{green},{blue})"))


def members(model: IRM, names: Sequence[str] | None, membership: Floats, most: int) -> list[str]:
    """Return for each row cluster a line with its surest members."""
    return [
        ", ".join(map(_short, typical_members(membership, model.row_labels_, k, names, most)))
        for k in range(membership.shape[1])
    ]


def _short(name: str) -> str:
    """Return a name as a terminal can show it."""
    shown = printable(name[: LONGEST_NAME + 1])
    return shown if len(shown) <= LONGEST_NAME else f"{shown[: LONGEST_NAME - 3]}..."


def result_page(model: IRM, report: Path) -> RenderableType:
    """Return what there is to see after a fit: sizes, blocks, members, and where the report is."""
    relation = model.result_.relation
    K1, K2 = model.block_probability_.shape
    clusters = f"{K1} clusters" if relation.one_domain else f"{K1} x {K2} clusters"
    names = object_names(relation, 0)
    lines = members(model, names, model.row_membership_, 4)
    notes = [
        Text.assemble((f"r{k}  ", "bold"), line) for k, line in enumerate(lines[:CLUSTERS_NAMED])
    ]
    return Group(
        Text(
            f"\n{relation.shape[0]:,} x {relation.shape[1]:,}, {relation.n_links:,} links, "
            f"{relation.n_unseen:,} unseen cells.",
            style="bold",
        ),
        Text(f"{clusters}; {_course(model)}.\n\nLinks in per cent, row clusters down:\n"),
        block_map(model),
        *notes,
        Mosaic(relation, model.result_.labels),
        report_line(report),
    )


def report_line(report: Path) -> Text:
    """Return where the report is."""
    return Text.assemble(("\nReport: ", "bold"), _path(report.resolve()))


def file_line(path: Path) -> Text:
    """Return where a file or folder has been written."""
    return Text.assemble("Written: ", _path(path))


def evaluation_page(found: Evaluation, share: float) -> Group:
    """Return the scores of held-out cells, mean and deviation over the runs."""
    table = Table(box=None, padding=(0, 2), show_edge=False)
    for name, side in (("", "left"), ("mean", "right"), ("deviation", "right")):
        table.add_column(name, justify=side)  # type: ignore[arg-type]
    for label, key in SCORES.items():
        mean, deviation = getattr(found.mean, key), getattr(found.deviation, key)
        digits = _digits(mean)
        spread = "" if np.isnan(deviation) else f"{deviation:.{digits}f}"
        table.add_row(label, "none" if np.isnan(mean) else f"{mean:.{digits}f}", spread)
    cells = f"{found.held_out:,} cells" + (", a weighted sample" if found.sampled else "")
    runs = "one run" if len(found.runs) == 1 else f"each of {len(found.runs)} runs"
    return Group(Text(f"{share:.0%} held out in {runs}: {cells}\n"), table)


def _digits(score: float) -> int:
    """Return after how many digits a score is rounded: four of them, or more, are not leading 0."""
    small = np.isfinite(score) and 0.0 < abs(score) < 0.1
    return 4 + math.floor(-math.log10(abs(score))) if small else 4


def _path(path: Path) -> Text:
    """Return a path that may be copied: it is not broken over lines."""
    return Text(printable(str(path)), no_wrap=True, overflow="ignore")


def _course(model: IRM) -> str:
    """Return how the fit ended."""
    state = "converged" if model.converged_ else "stopped"
    return f"{state} after {model.n_iter_} sweeps, log evidence {model.log_evidence_:,.0f}"


def senate_page(model: IRM, senators: Sequence[str], parties: Sequence[str]) -> RenderableType:
    """Return the demo's page: the blocks of the Senate and how they follow party lines."""
    notes = []
    for k, line in enumerate(members(model, senators, model.row_membership_, 4)):
        in_cluster = [parties[int(i)] for i in np.flatnonzero(model.row_labels_ == k)]
        count = " ".join(f"{in_cluster.count(p)} {p}" for p in ("R", "D", "I") if p in in_cluster)
        notes.append(Text.assemble((f"r{k}  {count}: ", "bold"), line))
    K1, K2 = model.block_probability_.shape
    return Group(
        Text(
            f"\nThe 109th US Senate: {len(senators)} people, {model.column_labels_.size} roll "
            "calls. Absent votes are unseen, not nays.",
            style="bold",
        ),
        Text(
            f"{K1} groups of people, {K2} groups of roll calls; {_course(model)}.\n\n"
            "Yeas in per cent, groups of people down, groups of roll calls across:\n"
        ),
        block_map(model),
        *notes,
    )
