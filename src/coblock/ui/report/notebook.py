"""Show a fitted model in a notebook: its numbers and its block map, without a script."""

import math

from coblock.model.result import Result
from coblock.ui.names import percent
from coblock.ui.palette import LIGHT_SCALE, blend, ink_on, to_hex
from coblock.ui.report.blocks import cluster_sizes
from coblock.ui.report.page import environment

MAX_ROWS, MAX_COLUMNS = 20, 24  # clusters in the block map


def notebook_view(result: Result) -> str:
    """Return a fragment of HTML with the sizes, the evidence and the blocks of a model."""
    probability = result.block_probability[:MAX_ROWS, :MAX_COLUMNS]
    largest = float(result.block_probability.max())
    unit = 10 ** max(2, math.ceil(1.0 - math.log10(largest)))  # per 100, per 1,000 and so on
    cells = []
    for k, row in enumerate(probability.tolist()):
        colours = [blend(LIGHT_SCALE, p / largest) for p in row]
        cells.append(
            [
                {
                    "text": f"{unit * p:.0f}",
                    "tip": f"{k} × {l}: {percent(p)}",
                    "colour": to_hex(colours[l]),
                    "ink": ink_on(colours[l]),
                }
                for l, p in enumerate(row)
            ]
        )
    sizes = [size.tolist() for size in cluster_sizes(result)]
    template = environment().get_template("notebook.html.j2")
    return template.render(
        result=result, relation=result.relation, cells=cells, sizes=sizes, unit=unit
    )
