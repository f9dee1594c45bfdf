"""What a person sees in the terminal."""

from collections.abc import Sequence

import numpy as np
from rich.console import Group, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from coblock.estimator import IRM
from coblock.kernels import Floats
from coblock.summary import typical_members

PALE, DARK = (247, 251, 255), (8, 48, 107)  # from no links to all links
COLUMNS_ABREAST = 17  # column clusters side by side on a screen of 80 characters
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
    for k, probabilities in enumerate(model.block_probability_):
        size = np.count_nonzero(model.row_labels_ == k)
        table.add_row(f"r{k} ({size:,}) ", *(_cell(float(probabilities[l])) for l in shown))
    table.add_row("size ", *(f"{sizes[l]:,}" for l in shown))
    left = sizes[len(shown) :]
    note = f"\n{left.size} smaller groups, {left.sum():,} columns in all, are not shown.\n"
    return Group(table, Text(note if left.size else ""))


def _cell(p: float) -> Text:
    """Return a link probability in per cent on a colour that shows it."""
    red, green, blue = (round(low + (high - low) * p) for low, high in zip(PALE, DARK, strict=True))
    ink = "white" if p > READABLE_FROM else "black"
    return Text(f"{100 * p:4.0f}", style=Style(color=ink, bgcolor=f"rgb({red},{green},{blue})"))


def members(model: IRM, names: Sequence[str], membership: Floats, most: int) -> list[str]:
    """Return for each row cluster a line with its surest members."""
    return [
        ", ".join(typical_members(membership, model.row_labels_, k, names, most))
        for k in range(membership.shape[1])
    ]


def senate_page(model: IRM, senators: Sequence[str], parties: Sequence[str]) -> RenderableType:
    """Return the demo's page: the blocks of the Senate and how they follow party lines."""
    notes = []
    for k, line in enumerate(members(model, senators, model.row_membership_, 4)):
        in_cluster = [parties[int(i)] for i in np.flatnonzero(model.row_labels_ == k)]
        count = " ".join(f"{in_cluster.count(p)} {p}" for p in ("R", "D", "I") if p in in_cluster)
        notes.append(Text.assemble((f"r{k}  {count}: ", "bold"), line))
    K1, K2 = model.block_probability_.shape
    state = "converged" if model.converged_ else "stopped"
    return Group(
        Text(
            f"\nThe 109th US Senate: {len(senators)} people, {model.column_labels_.size} roll "
            "calls. Absent votes are unseen, not nays.",
            style="bold",
        ),
        Text(
            f"{K1} groups of people, {K2} groups of roll calls; {state} after {model.n_iter_} "
            f"sweeps, log evidence {model.log_evidence_:,.0f}.\n\n"
            "Yeas in per cent, groups of people down, groups of roll calls across:\n"
        ),
        block_map(model),
        *notes,
    )
