"""The model in a notebook: its numbers and its block map, without any script."""

import math
from dataclasses import dataclass

from coblock.model.result import Result
from coblock.ui.report.blocks import cluster_sizes
from coblock.ui.report.page import environment
from coblock.ui.report.palette import LIGHT, blend, css_colour, ink_on
from coblock.ui.report.words import percent

MOST_ROWS, MOST_COLUMNS = 20, 24


@dataclass(frozen=True, slots=True)
class Cell:
    """One block of the map."""

    text: str
    tip: str
    colour: str
    ink: str


def notebook_view(result: Result) -> str:
    """Return a small piece of HTML: what was found and how strongly the largest clusters link."""
    probability = result.block_probability
    largest = float(probability.max())
    shown = min(probability.shape[0], MOST_ROWS), min(probability.shape[1], MOST_COLUMNS)
    unit = 10 ** max(2, math.ceil(1.0 - math.log10(largest)))  # per cent, or per 1,000 and so on
    cells = [
        [_cell(k, l, float(probability[k, l]), largest, unit) for l in range(shown[1])]
        for k in range(shown[0])
    ]
    sizes = [size.astype(int).tolist() for size in cluster_sizes(result)]
    template = environment().get_template("notebook.html.j2")
    return template.render(
        result=result, relation=result.relation, cells=cells, sizes=sizes, unit=unit
    )


def _cell(k: int, l: int, p: float, largest: float, unit: int) -> Cell:
    colour = blend(LIGHT, p / largest)
    tip = f"{k} × {l}: {percent(p)}"
    return Cell(f"{unit * p:.0f}", tip, css_colour(colour), ink_on(colour))
