"""Format results for the terminal."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Group, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from coblock.analysis.evaluation import Evaluation
from coblock.analysis.summary import typical_members
from coblock.estimator import IRM
from coblock.io.export import object_names
from coblock.io.sanitize import printable
from coblock.ui.mosaic import Mosaic
from coblock.ui.names import truncate
from coblock.ui.palette import LIGHT_SCALE, blend, ink_on, to_hex

MAX_COLUMN_CLUSTERS = 17  # fit on a line of 80 characters
MAX_ROW_CLUSTERS = 30  # lines of the block map
MAX_NAMED_CLUSTERS = 12  # lines with typical members
MEMBERS_PER_CLUSTER = 4  # named on a line
MAX_NAME = 40  # characters
SCORES = {
    "log likelihood per cell": "log_likelihood",
    "area under the curve (AUC)": "auc",
    "average precision": "average_precision",
}


def block_map(model: IRM) -> Group:
    """Return a coloured table of the block probabilities in per cent, of the largest clusters."""
    rows, columns = np.bincount(model.row_labels_), np.bincount(model.column_labels_)
    shown = range(min(MAX_COLUMN_CLUSTERS, columns.size))
    table = Table(box=None, padding=(0, 0), show_edge=False)
    table.add_column("", justify="right", no_wrap=True, min_width=9)
    for l in shown:
        table.add_column(f"c{l}", justify="right", no_wrap=True, min_width=4)
    for k, row in enumerate(model.block_probability_[:MAX_ROW_CLUSTERS].tolist()):
        table.add_row(f"r{k} ({rows[k]:,}) ", *(_percent_cell(row[l]) for l in shown))
    table.add_row("size ", *(f"{columns[l]:,}" for l in shown))
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
    for k in range(q.shape[1]):
        members = typical_members(q, model.row_labels_, k, names, MEMBERS_PER_CLUSTER)
        short = (truncate(printable(name[: MAX_NAME + 1]), MAX_NAME, "...") for name in members)
        lines.append(", ".join(short))
    return lines


def result_page(model: IRM, report: Path) -> RenderableType:
    """Return the output of a fit: sizes, blocks, members, pictures and the report's path."""
    relation = model.result_.relation
    K1, K2 = model.block_probability_.shape
    clusters = f"{K1} clusters" if relation.repeated else f"{K1} x {K2} clusters"
    lines = member_lines(model, object_names(relation, 0))[:MAX_NAMED_CLUSTERS]
    sizes = (
        f"\n{relation.shape[0]:,} x {relation.shape[1]:,}, {relation.n_links:,} links, "
        f"{relation.n_unseen:,} unseen cells."
    )
    return Group(
        Text(sizes, style="bold"),
        Text(f"{clusters}; {_outcome(model)}.\n\nLinks in per cent, row clusters on the left:\n"),
        block_map(model),
        *(Text.assemble((f"r{k}  ", "bold"), line) for k, line in enumerate(lines)),
        Mosaic(relation, model.result_.labels),
        report_line(report),
    )


def report_line(report: Path) -> Text:
    """Return a line with the path of the report."""
    return Text.assemble(("\nReport: ", "bold"), _path(report.resolve()))


def file_line(path: Path) -> Text:
    """Return a line with the path of a file or folder that was written."""
    return Text.assemble("Written: ", _path(path))


def evaluation_page(found: Evaluation, share: float) -> Group:
    """Return a table of the mean and the standard deviation of each score."""
    table = Table(box=None, padding=(0, 2), show_edge=False)
    table.add_column("")
    table.add_column("mean", justify="right")
    table.add_column("deviation", justify="right")
    for label, key in SCORES.items():
        mean, deviation = getattr(found.mean, key), getattr(found.deviation, key)
        decimals = 4  # more if the score is small, for four significant digits
        if 0.0 < abs(mean) < 0.1:
            decimals += math.floor(-math.log10(abs(mean)))
        table.add_row(
            label,
            "none" if math.isnan(mean) else f"{mean:.{decimals}f}",
            "" if math.isnan(deviation) else f"{deviation:.{decimals}f}",
        )
    cells = f"{found.held_out:,} cells" + (", a weighted sample" if found.sampled else "")
    runs = "one run" if len(found.runs) == 1 else f"each of {len(found.runs)} runs"
    return Group(Text(f"{share:.0%} held out in {runs}: {cells}\n"), table)


def _path(path: Path) -> Text:
    """Return a path that is not wrapped, so that it can be copied."""
    return Text(printable(str(path)), no_wrap=True, overflow="ignore")


def _outcome(model: IRM) -> str:
    state = "converged" if model.converged_ else "stopped"
    return f"{state} after {model.n_iter_} sweeps, log evidence {model.log_evidence_:,.0f}"


def senate_page(model: IRM, senators: Sequence[str], parties: Sequence[str]) -> RenderableType:
    """Return the output of the demo: the blocks of the Senate and the parties of each group."""
    notes = []
    for k, line in enumerate(member_lines(model, senators)):
        members = [parties[int(i)] for i in np.flatnonzero(model.row_labels_ == k)]
        count = " ".join(f"{members.count(p)} {p}" for p in ("R", "D", "I") if p in members)
        notes.append(Text.assemble((f"r{k}  {count}: ", "bold"), line))
    K1, K2 = model.block_probability_.shape
    heading = (
        f"\nThe 109th US Senate: {len(senators)} people, {model.column_labels_.size} roll calls. "
        "Absent votes are unseen, not nays."
    )
    groups = (
        f"{K1} groups of people, {K2} groups of roll calls; {_outcome(model)}.\n\n"
        "Yeas in per cent, groups of people on the left, groups of roll calls on top:\n"
    )
    return Group(Text(heading, style="bold"), Text(groups), block_map(model), *notes)
